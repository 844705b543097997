"""The page of a report: no text of an image becomes markup, nothing is requested, and every section is there."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from envbuild.report.html.page import MAX_BYTES, SECTIONS, write_page
from envbuild.report.html.style import CSS
from envbuild.report.model import CheckRow, Fault, Package, Report, StartLine, Verdict
from tests.support.reports import full_report, with_texts

pytestmark = pytest.mark.unit

VOID = {"meta", "link"}
STATES = ("passed", "partly", "failed")
MARKUP = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "&lt;b&gt;",
    "'); --",
    "</style></title>",
    "{{7*7}}",
]
HIDDEN = ["a\u202eb", "a\x00b", "a\ud800b", "a\u200bb", "a\x1b[31mb", "a\nb\tc", "\ufeff", "\U000e0041"]


class Outline(HTMLParser):
    """The tags of a page, its attributes, and its texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.texts.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, key, value in self.attributes if key == name]


def shape(page: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the tags and the names of attributes of a page: what a text must not change."""
    found = Outline(page)
    assert (found.open, found.wrong) == ([], [])
    return found.tags, [(tag, name) for tag, name, _ in found.attributes]


@cache
def expected_shape() -> tuple[list[str], list[tuple[str, str]]]:
    return shape(write_page(with_texts(full_report(), "plain"), "1"))


@pytest.mark.parametrize("text", MARKUP + HIDDEN)
def test_a_text_is_never_markup(text: str) -> None:
    page = write_page(with_texts(full_report(), text), "1")
    assert shape(page) == expected_shape()
    page.encode()
    for sign in ("\u202e", "\x00", "\x1b", "\u200b", "\ufeff", "\t"):
        assert sign not in page


@pytest.mark.slow_unit
@given(st.text(max_size=200))
def test_no_text_at_all_is_markup(text: str) -> None:
    assume(text)  # an empty text leaves its element out
    assume(not text.startswith(STATES))  # as the state of a tier each of these is drawn in another way
    assert shape(write_page(with_texts(full_report(), text), "1")) == expected_shape()


@pytest.mark.slow_unit
@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=60))
def test_every_text_is_on_the_page(text: str) -> None:
    from envbuild.core.text import printable

    report = full_report(faults=(Fault(f"fault {text} end", "here"),))
    assert any(f"fault {printable(text)} end" in found for found in Outline(write_page(report, "1")).texts)


def test_the_policy_permits_the_style_of_the_page_and_nothing_else() -> None:
    page = write_page(full_report(), "1")
    found = Outline(page)
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(value for value in found.values("content") if "default-src" in value)
    assert (
        policy == f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert style == CSS
    assert "script" not in found.tags
    assert not {name for _, name, _ in found.attributes if name.startswith("on") or name in ("style", "src", "srcset")}
    assert "url(" not in style and "@import" not in style
    for address in found.values("href"):
        assert address.startswith(("#", "data:image/svg+xml,"))


def test_links_lead_to_headings_and_names_of_elements_are_unique() -> None:
    found = Outline(write_page(full_report(), "1"))
    names = found.values("id")
    assert len(names) == len(set(names))
    assert {address[1:] for address in found.values("href") if address.startswith("#")} == set(names)
    assert {anchor for anchor, _, _ in SECTIONS} < set(names)
    assert set(found.values("aria-labelledby")) <= set(names)


def test_tables_have_captions_and_headers_with_a_scope() -> None:
    page = write_page(full_report(), "1")
    for table in re.findall("<table.*?</table>", page, re.DOTALL):
        assert table.count("<caption>") == 1
        assert "<th>" not in table
        columns = table.partition("</thead>")[0].count('scope="col"')
        for row in re.findall("<tr>.*?</tr>", table.partition("<tbody>")[2]):
            assert row.count("<td") + row.count("<th") == columns
            assert row.startswith('<tr><th scope="row"') or row.startswith('<tr><th class="code" scope="row"')


def test_the_verdict_comes_first_and_faults_have_their_fix() -> None:
    texts = [text for text in Outline(write_page(full_report(), "1")).texts if text.strip()]
    at = {
        name: next(number for number, text in enumerate(texts) if name in text)
        for name in ("1 fault", "libucp", "torch")
    }
    assert at["1 fault"] < at["libucp"] < at["torch"]
    assert "envbuild make net" in texts


def test_what_is_missing_has_its_reason() -> None:
    sections = ("layers", "times", "matrix", "bandwidth", "packages", "launch")
    verdict = Verdict("open", "not built", "no build")
    empty = Report("net", "", verdict, missing={name: f"reason of {name}" for name in sections})
    text = "\n".join(Outline(write_page(empty, "1")).texts)
    for name in empty.missing:
        assert f"reason of {name}" in text
    assert "passed" not in text
    assert "✓" not in text


def test_what_precedes_a_start_line_is_above_it() -> None:
    line = StartLine("srun", "srun true", "envbuild launch net -- …", "it is started after: envbuild make net")
    page = write_page(replace(full_report(), start=(line,)), "1.0")
    assert page.index("it is started after") < page.index("srun true")


def test_equal_reports_have_equal_pages() -> None:
    assert write_page(full_report(), "1") == write_page(full_report(), "1")


@pytest.mark.slow_unit
@pytest.mark.parametrize("text", ["x", '"&<>' * 500, "\u202e" * 3000])
def test_a_page_has_a_largest_size_and_states_what_it_leaves_out(text: str) -> None:
    many = 1500
    report = full_report(
        faults=tuple(Fault(text, text, text) for _ in range(many)),
        checks=tuple(CheckRow(text, "audit", "fail", text) for _ in range(many)),
        packages=tuple(Package(text, text, "deb", text, text) for _ in range(many)),
        notes=(text,) * many,
    )
    page = write_page(with_texts(report, text), "1")
    assert len(page.encode()) <= MAX_BYTES
    rows = int(re.findall(r"and (\d+) rows more", page)[-1])
    assert many - 1000 <= rows < many
