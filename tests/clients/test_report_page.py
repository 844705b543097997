"""The page of a report in a real browser: no request, no message, light and dark, with a keyboard, on paper."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from envbuild.report.html.page import SECTIONS, write_page
from tests.support.chromium import Page, browser
from tests.support.reports import full_report, with_texts

pytestmark = pytest.mark.clients

# The lowest contrast of all texts with the colour behind them (WCAG 2.2, definition of contrast ratio).
CONTRAST = """(() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    if (node.closest && node.tagName === 'text') {
      const tile = node.parentNode.querySelector('rect');
      if (tile) return parse(getComputedStyle(tile).fill);
    }
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  let worst = [99, ''];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || node.tagName === 'title') continue;
    const style = getComputedStyle(node);
    const front = light(parse(node.tagName === 'text' ? style.fill : style.color)), back = light(behind(node));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < worst[0]) worst = [ratio, walk.currentNode.data.trim().slice(0, 60)];
  }
  return worst;
})()"""
FOCUSED = "document.activeElement.tagName + ' ' + (document.activeElement.textContent || '').slice(0, 30)"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(write_page(full_report(), "1"))
    return file


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


def prefer(page: Page, scheme: str) -> None:
    page.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": scheme}])


def test_a_page_requests_nothing_and_prints_nothing(page: Page, page_file: Path) -> None:
    page.open(page_file.as_uri())
    assert page.requests() == [page_file.as_uri()]
    assert page.console() == []
    assert page.evaluate("document.scripts.length") == 0
    assert (
        page.evaluate("getComputedStyle(document.querySelector('section')).borderTopStyle") == "solid"
    )  # the style is in force


def test_a_hostile_page_requests_nothing(page: Page, tmp_path: Path) -> None:
    """A text that were markup would load an image, run a script, or break the policy: the console would state it."""
    file = tmp_path / "hostile.html"
    hostile = "</style></title></textarea><script>alert(1)</script><img src='http://127.0.0.1:9/x' onerror='alert(1)'>"
    file.write_text(write_page(with_texts(full_report(), hostile), "1"))
    page.open(file.as_uri())
    assert page.requests() == [file.as_uri()]
    assert page.console() == []
    assert page.evaluate("document.querySelectorAll('script, img, textarea').length") == 0


def test_a_server_sees_one_request(page: Page, page_file: Path) -> None:
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            body = page_file.read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page.open(f"http://127.0.0.1:{server.server_address[1]}/report.html")
        page.evaluate("new Promise((done) => setTimeout(done, 1000))")  # a browser requests an icon after the page
    finally:
        server.shutdown()
        server.server_close()
    assert seen == ["/report.html"]
    assert page.console() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(page: Page, page_file: Path, scheme: str) -> None:
    prefer(page, scheme)
    page.open(page_file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((part) => part.open = true)")
    ratio, words = page.evaluate(CONTRAST)
    assert ratio >= 4.5, words


def test_light_and_dark_are_different(page: Page, page_file: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        prefer(page, scheme)
        page.open(page_file.as_uri())
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(246, 247, 249)", "rgb(18, 21, 25)"]


def test_the_keyboard_reaches_and_opens_everything(page: Page, page_file: Path) -> None:
    page.open(page_file.as_uri())
    page.press("Tab", 9)
    assert page.evaluate(FOCUSED) == "A Skip to the content"
    links = []
    for _ in SECTIONS:
        page.press("Tab", 9)
        links.append(page.evaluate(FOCUSED))
    assert links == [f"A {name}" for _, name, _ in SECTIONS]
    for _ in range(60):
        page.press("Tab", 9)
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    state = "document.activeElement.parentElement.open"
    before = page.evaluate(state)
    page.press("Enter", 13)
    assert page.evaluate(state) is not before
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_narrow_page_is_not_wider_than_its_window(page: Page, page_file: Path) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=360, height=800, deviceScaleFactor=1, mobile=False)
    try:
        page.open(page_file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")


def test_paper_has_what_is_folded_on_the_screen(page: Page, page_file: Path) -> None:
    page.open(page_file.as_uri())
    tables = "[...document.querySelectorAll('details:not([open]) table')].map((part) => part.checkVisibility())"
    assert set(page.evaluate(tables)) == {False}
    page.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert set(page.evaluate(tables)) == {True}
        assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    finally:
        page.call("Emulation.setEmulatedMedia", media="")
