"""The records inside an image: packages of dpkg, JSON that may be anything, texts with odd bytes."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.errors import VerifyError
from envbuild.verify.contents import dpkg_status
from envbuild.verify.contents.dpkg_status import debian_packages
from envbuild.verify.contents.metadata import (
    normalize_name,
    parse_environment,
    parse_object,
    read_text,
    read_texts,
)

pytestmark = pytest.mark.unit


def tree(**texts: bytes) -> Any:
    """Return an image with these files (`__` for a slash)."""
    files = {name.replace("__", "/").encode(): content for name, content in texts.items()}

    def open_file(path: bytes) -> io.BytesIO:
        if path not in files:
            raise FileNotFoundError(path)
        return io.BytesIO(files[path])

    return SimpleNamespace(read=lambda path, limit: files.get(path), open=open_file, path=Path("x.sqsh"))


def test_only_installed_packages_count() -> None:
    status = (
        b"Package: first\nVersion: 0\n\n"
        b"Package: apt\nStatus: install ok installed\nVersion: 3.0\n\n"
        b"Package: bare\nVersion: 1\n\n"
        b"Package: gone\nStatus: deinstall ok config-files\nVersion: 2\n\n"
        b"Package: libc6\nStatus: install ok installed\nVersion: 2.41\nArchitecture: i386\n\n"
        b"Package: libc6\nStatus: install ok installed\nVersion: 2.41-1"
    )
    assert debian_packages(tree(var__lib__dpkg__status=status)) == {"apt": "3.0", "libc6": "2.41, 2.41-1"}
    assert debian_packages(tree()) == {}


def test_texts_with_bytes_that_are_not_utf_8_are_read() -> None:
    assert read_text(tree(etc__rc=b"a\xff"), "etc/rc") == "a\ufffd" and read_text(tree(), "etc/rc") is None


@pytest.mark.parametrize("text", ["", "[]", "{", "1", "[" * 100_000])
def test_what_is_not_a_json_object_is_empty(text: str) -> None:
    assert parse_object(text) == {}


def test_variables_and_names() -> None:
    assert parse_environment("A=1\nB=2=3\n\n# C=1\nD\n")["B"] == "2=3"
    assert normalize_name("Flash_Attn.x--y") == "flash-attn-x-y"


def test_records_of_envbuild_have_a_limit() -> None:
    limits = []
    read_texts(SimpleNamespace(read=lambda path, limit: limits.append(limit)), ["lock.yaml"])  # type: ignore[arg-type]
    assert limits == [4 << 20]


def test_a_package_database_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    status = b"Package: a\nStatus: install ok installed\n\n" * 3
    monkeypatch.setattr(dpkg_status, "MOST", 2)
    with pytest.raises(VerifyError, match="lists more than 2 packages"):
        debian_packages(tree(var__lib__dpkg__status=status))
    monkeypatch.setattr(dpkg_status, "MOST", 3)
    monkeypatch.setattr(dpkg_status, "MOST_BYTES", len(status))
    assert debian_packages(tree(var__lib__dpkg__status=status)) == {"a": ""}
    with pytest.raises(VerifyError, match="has more than"):
        debian_packages(tree(var__lib__dpkg__status=status + b"\n"))
