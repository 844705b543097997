"""Passwords of package indexes: uv gets them, and no argument of any process has them."""

from __future__ import annotations

import os
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from envbuild.core.errors import EnvbuildError
from envbuild.lock.python.index_logins import IndexLogins
from envbuild.lock.request import UnitRequest
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.site import Site
from envbuild.spec.recipe import PythonIndex
from tests.support.http_server import Handler, serving
from tests.support.lock_server import sha256, wheel
from tests.support.netrc_file import LOGIN as LOGIN_OF_NETRC
from tests.support.netrc_file import write_netrc
from tests.support.python_resolver import versions, work_at

pytestmark = pytest.mark.unit

USER, PASSWORD = "us@r", "p/w:1"
LOGIN = "us%40r:p%2Fw%3A1"


@contextmanager
def private_index(*files: Path) -> Iterator[str]:
    """Yield the address, with its login, of an index that requires it."""
    wanted = f"Basic {b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"

    class Answering(Handler):
        def do_GET(self) -> None:
            name = self.path.rstrip("/").rpartition("/")[2]
            named = {file.name: file.read_bytes() for file in files}
            links = [
                f'<a href="/files/{file}#sha256={sha256(content)}">{file}</a>'
                for file, content in named.items()
                if name == "links" or file.split("-")[0] == name
            ]
            status, body = (200, "".join(links).encode()) if links else (404, b"")
            if name in named:
                status, body = 200, named[name]
            if self.headers.get("Authorization") != wanted:
                status, body = 401, b""
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="test"')
            self.send_header("Content-Type", "text/html" if links else "application/zip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

    with serving(Answering) as url:
        yield url.replace("http://", f"http://{LOGIN}@")


@contextmanager
def seen_arguments() -> Iterator[set[bytes]]:
    """Collect the arguments of all processes of this machine, again and again."""
    found: set[bytes] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    found.add(process.read_bytes())
                except OSError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()


def files_with(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.mark.slow_unit
@pytest.mark.parametrize("kind", ["first", "second", "vendor"])
def test_no_argument_of_any_process_has_the_password(kind: str, tmp_path: Path) -> None:
    demo = wheel(tmp_path / "w", "demo", "1.0", requires=("other",))
    other = wheel(tmp_path / "w", "other", "2.0")
    with private_index(demo, other) as url, seen_arguments() as seen:
        empty = (tmp_path / "empty").as_uri()
        (tmp_path / "empty").mkdir()
        mirrors = {"python:": {"first": (url,), "second": (empty, url), "vendor": (empty,)}[kind], "pip:own": (url,)}
        site = Site(tmp_path / "store", mirrors=mirrors, use_host=False)
        vendors = [PythonIndex("pip:own", ("demo", "other"))] if kind == "vendor" else []
        work = work_at(site, tmp_path, "3.13", (2, 41), vendors)
        lock = work.lock({"base": UnitRequest(), "venv": UnitRequest(python=("demo",))})
    assert versions(lock, "venv") == ["demo 1.0", "other 2.0"]
    runs = [arguments for arguments in seen if b"compile" in arguments and str(tmp_path).encode() in arguments]
    assert runs, "uv was not seen"
    for secret in (PASSWORD, LOGIN, LOGIN.partition(":")[2]):
        assert not any(secret.encode() in arguments for arguments in seen)
        assert files_with(tmp_path, secret) == []


def test_pages_of_links_with_a_password_are_one_variable(tmp_path: Path) -> None:
    logins = IndexLogins(NetworkSettings())
    assert logins.links([f"https://{LOGIN}@i.example/a,b", "/some/fol,der"]) == []
    assert logins.environment == {"UV_FIND_LINKS": f"https://{LOGIN}@i.example/a%2Cb,file:///some/fol%2Cder"}
    assert IndexLogins(NetworkSettings()).links(["/a", "/b"]) == ["--find-links", "/a", "--find-links", "/b"]


def test_uv_reads_pages_of_links_from_that_variable(tmp_path: Path) -> None:
    demo = wheel(tmp_path / "w", "demo", "1.0")
    with private_index(demo) as url, seen_arguments() as seen, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", f"{url}/links")
        site = Site(tmp_path / "store")
        work = work_at(site, tmp_path, "3.13", (2, 41))
        lock = work.lock({"base": UnitRequest(), "venv": UnitRequest(python=("demo",))})
    assert versions(lock, "venv") == ["demo 1.0"]
    assert any(b"compile" in arguments for arguments in seen)
    assert not any(LOGIN.encode() in arguments for arguments in seen)


def test_a_login_of_netrc_is_the_indexs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password of an address has precedence; a place over http gets none, and takes the file from uv."""
    write_netrc(tmp_path, monkeypatch, "i.example", "mirror.example")
    user, password = LOGIN_OF_NETRC
    logins = IndexLogins(NetworkSettings())
    assert logins.option("a", "https://i.example/simple") == "a=https://i.example/simple"
    assert logins.option("b", f"https://{LOGIN}@i.example/simple") == "b=https://i.example/simple"
    assert logins.option("c", "https://none.example/simple") == "https://none.example/simple"
    assert logins.environment == {
        "UV_INDEX_A_USERNAME": user,
        "UV_INDEX_A_PASSWORD": password,
        "UV_INDEX_B_USERNAME": USER,
        "UV_INDEX_B_PASSWORD": PASSWORD,
    }
    assert logins.option("d", "http://mirror.example/simple") == "http://mirror.example/simple"
    assert logins.environment["NETRC"] == os.devnull and "UV_INDEX_D_USERNAME" not in logins.environment
    unchecked = IndexLogins(NetworkSettings(insecure=frozenset({"mirror.example"})))
    unchecked.links(["https://mirror.example/links", "/a"])
    assert unchecked.environment == {
        "NETRC": os.devnull,
        "UV_FIND_LINKS": f"https://{user}:{password}@mirror.example/links,file:///a",
    }


@pytest.mark.slow_unit
@pytest.mark.parametrize("kind", ["only", "vendor"])
def test_uv_gets_the_login_of_netrc_for_an_index(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beside an index over http, for which uv reads no ~/.netrc by itself."""
    (tmp_path / "netrc").write_text(f'machine 127.0.0.1 login "{USER}" password "{PASSWORD}"\n')
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr("envbuild.lock.python.index_logins.is_open", lambda place: True)
    demo, empty = wheel(tmp_path / "w", "demo", "1.0"), tmp_path / "empty"
    empty.mkdir()
    with private_index(demo) as url:
        place = url.replace(f"{LOGIN}@", "")
        mirrors = {"python:": (place if kind == "only" else empty.as_uri(),), "pip:own": (place,)}
        site = Site(tmp_path / "store", mirrors=mirrors, use_host=False)
        work = work_at(site, tmp_path, "3.13", (2, 41), [PythonIndex("pip:own", ("demo",))] if kind == "vendor" else [])
        lock = work.lock({"base": UnitRequest(), "venv": UnitRequest(python=("demo",))})
    assert versions(lock, "venv") == ["demo 1.0"]


@pytest.mark.slow_unit
@pytest.mark.parametrize("redirect", [True, False])
def test_an_index_over_http_gets_no_login_of_netrc_for_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redirect: bool
) -> None:
    """A redirect, or an address in a page, chooses the host; here a proxy answers for both."""
    write_netrc(tmp_path / "home", monkeypatch, "forge.invalid")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    seen: list[tuple[str, str]] = []

    class Answering(Handler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Authorization", "")))
            if not self.path.startswith("http://index.invalid/"):
                self.answer(401, {"WWW-Authenticate": 'Basic realm="test"'}, b"")
            elif redirect:
                self.answer(302, {"Location": "http://forge.invalid/demo/"}, b"")
            else:
                page = b'<a href="http://forge.invalid/demo-1.0-py3-none-any.whl">demo</a>'
                self.answer(200, {"Content-Type": "text/html"}, page)

        do_HEAD = do_GET

        def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in (*headers.items(), ("Content-Length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    with serving(Answering) as proxy:
        mirrors = {"python:": ("http://index.invalid/simple",)}
        site = Site(tmp_path / "store", mirrors=mirrors, use_host=False, proxy=proxy)
        with pytest.raises(EnvbuildError):
            work_at(site, tmp_path, "3.13", (2, 41)).lock(
                {"base": UnitRequest(), "venv": UnitRequest(python=("demo",))}
            )
    asked = [login for path, login in seen if path.startswith("http://forge.invalid/")]
    assert asked and set(asked) == {""}
