"""Hostile packages and indexes: requirements that take minutes, endless pages and endless wheels."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from envbuild.core.errors import ConflictError, InputError, SpecError
from envbuild.lock.missing_inputs import InvalidInputError
from envbuild.lock.python.project_metadata import check_python, plain_requirements
from envbuild.lock.python.requirements import check_requirements
from envbuild.lock.python.uv import Uv
from envbuild.lock.request import UnitRequest
from envbuild.net.limits import LIMITS
from envbuild.net.site import Site
from tests.support.http_server import Handler, serving
from tests.support.lock_server import wheel
from tests.support.python_resolver import work

pytestmark = pytest.mark.unit


PADDING = b"<!-- padding -->" * 65536  # 1 MiB


def test_a_marker_with_thousands_of_parentheses_is_not_a_requirement() -> None:
    deep = f"six; {'(' * 20_000}python_version > '3'{')' * 20_000}"
    for text in (deep, f"six=={'1' * 5000}"):
        with pytest.raises(SpecError, match="more than 1000 characters"):
            check_requirements("venv", [text])
    with pytest.raises(SpecError, match="more than 1000 characters"):
        plain_requirements("demo 1.0", [deep])


@pytest.mark.parametrize(
    ("texts", "message"),
    [(["a" + ">=3," * 300 + ">=3"], "has more than 1000 characters"), (["a"] * 5001, "5001 requirements, more than")],
)
def test_requirements_that_take_minutes_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        plain_requirements("demo 1.0", texts)


@pytest.mark.parametrize("escape", [r"\n", r"\r", r"\x85", r"\u2028", r"\x1b"])
def test_an_escape_in_a_marker_is_not_another_line_of_requirements(escape: str, tmp_path: Path) -> None:
    """uv would take it as an option, such as a further index."""
    text = f"six; sys_platform != 'x{escape}--index-url http://evil.example'"
    with pytest.raises(SpecError, match="which has a control character"):
        plain_requirements("demo 1.0", [text])
    uv = Uv(Site(tmp_path), "3.13", "x86_64-manylinux_2_40", tmp_path, tmp_path / "cache")
    for lines in ({"requirements": [str(Requirement(text))]}, {"constraints": [str(Requirement(text))]}):
        wanted: dict[str, list[str]] = {"requirements": [], "constraints": [], **lines}
        with pytest.raises(InvalidInputError, match="is not a requirement"):
            uv.run("venv", wanted["requirements"], wanted["constraints"], {}, {}, pool=False)


def test_a_long_requires_python_is_refused() -> None:
    with pytest.raises(SpecError, match="requires-python with more than 500 characters"):
        check_python("demo 1.0", ">=3," * 200 + ">=3", "3.13")


def test_a_package_that_requires_an_address_is_named(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "user", "1.0", requires=("widget",))
    wheel(tmp_path / "wheels", "widget", "1.0", requires=("part @ git+https://name:secret@forge.example/part.git",))
    with pytest.raises(ConflictError) as caught:
        work(tmp_path, str(tmp_path / "wheels")).lock({"base": UnitRequest(), "venv": UnitRequest(python=("user",))})
    for word in ("widget", "part", "git+https://forge.example/part.git"):
        assert word in caught.value.message
    assert "secret" not in str(caught.value) and "network" not in caught.value.hint


@pytest.mark.slow_unit
def test_an_endless_page_of_an_index_does_not_take_the_memory_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv reads a page as a whole, before envbuild reads it with its own limit."""
    monkeypatch.setattr("envbuild.lock.python.uv.LIMITS", replace(LIMITS, program_memory=1 << 30))

    class Endless(Handler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Connection", "close")
            self.end_headers()
            with suppress(OSError):
                for _ in range(4096):  # 4 GiB
                    self.wfile.write(PADDING)

    with serving(Endless) as url, pytest.raises(InputError, match="uv needed over 1 GiB of memory: a page is endless"):
        work(tmp_path, f"{url}/simple").lock({"venv": UnitRequest(python=("evil",))})


def test_an_endless_wheel_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv downloads a wheel as a whole where the server has no ranges: its metadata are in it."""
    monkeypatch.setattr("envbuild.lock.python.uv.LIMITS", replace(LIMITS, program_file=1 << 22))
    name = b"evil/data"
    # A stored member whose length comes after it: flag 3, method 0 (APPNOTE.TXT of zip, 4.3.7).
    head = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 8, 0, 0, 33, 0, 0, 0, len(name), 0) + name

    class Endless(Handler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            is_wheel = self.path.endswith(".whl")
            self.send_header("Content-Type", "application/octet-stream" if is_wheel else "text/html")
            self.send_header("Connection", "close")
            self.end_headers()
            with suppress(OSError):
                if not is_wheel:
                    self.wfile.write(b'<a href="/evil-1.0-py3-none-any.whl">x</a>')
                else:
                    self.wfile.write(head)
                    for _ in range(256):  # 256 MiB
                        self.wfile.write(PADDING)

    with serving(Endless) as url, pytest.raises(InputError, match="uv wrote a file of over 0 GiB: a wheel is endless"):
        work(tmp_path, f"{url}/simple").lock({"venv": UnitRequest(python=("evil",))})
    assert max(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 1 << 22
