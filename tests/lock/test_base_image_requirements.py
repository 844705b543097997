"""Requirements of a base image, checked before anything is built on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envbuild.lock.base_image.file_tree import ImageTree
from envbuild.lock.base_image.requirements import check_base, python_packages
from envbuild.lock.model import VenvRule
from envbuild.lock.python.provided import normalize_versions
from envbuild.lock.python.uv_inputs import write_dummy_wheel

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("shell", [None, {}, "dash", "/nowhere/dash"], ids=["file", "folder", "link", "broken link"])
def test_a_shell_is_a_file(shell: Any) -> None:
    release = b"ID=debian\nVERSION_ID=13\n"
    root: dict[str, Any] = {
        "bin": {"sh": shell, "dash": None},
        "usr": {"bin": {"dpkg": None, "apt-get": None, "python3.13": None}},
        "var": {"lib": {"dpkg": {"status": b"x"}}},
        "etc": {"os-release": release},
    }
    findings = check_base(ImageTree(root), "image", "debian:13", "3.13", (), (), {})
    assert [item.message for item in findings] == (
        [] if shell in (None, "dash") else ["nothing can be installed on image: it has no /bin/sh"]
    )


@pytest.mark.parametrize("name", ["/srv/folder/owned", "../../owned", "-r/etc/passwd", "a;b", "x/y", "a b"])
def test_a_name_that_no_package_has_is_left_out(name: str, tmp_path: Path) -> None:
    """An empty wheel is written for each package, named after it; and names are arguments of uv."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    packages = {
        "p.dist-info": {"METADATA": metadata},
        "click-8.1.7.dist-info": {"METADATA": b"Name: Click\nVersion: 8"},
    }
    tree = ImageTree({"usr": {"lib": {"python3": {"dist-packages": packages}}}})
    found = python_packages(tree, "/usr/bin/python3.13", "3.13", VenvRule.NONE)
    assert found == ({"click": "8", "a": "1.0"} if name == "a b" else {"click": "8"})
    assert normalize_versions({name: "1.0", "click": "8"}) == {"click": "8"}  # of a lock


def test_a_wheel_without_content_replaces_no_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("content")
    (tmp_path / "click-8.1.7-py3-none-any.whl").symlink_to("real")
    write_dummy_wheel(tmp_path, "click", "8.1.7")
    assert (tmp_path / "real").read_text() == "content"


def damaged(status: bytes, release: bytes = b"ID=debian\nVERSION_ID='13'\n") -> list[str]:
    """Return the findings about an image with this database of packages and this os-release."""
    root: dict[str, Any] = {
        "bin": {"sh": None},
        "usr": {"bin": {"dpkg": None, "apt-get": None, "python3.13": None}},
        "var": {"lib": {"dpkg": {"status": status}}},
        "etc": {"os-release": release},
    }
    return [item.message for item in check_base(ImageTree(root), "image", "debian:13", "3.13", (), (), {})]


def test_a_damaged_database_of_packages() -> None:
    assert damaged(b" x\nPackage: a\nStatus: install ok installed\n\n") == []
    assert damaged(b"Status: install ok installed\nVersion: 1\n\n") == [
        "nothing can be installed on image: /var/lib/dpkg/status is damaged: it has a stanza without a package, "
        "after its begin"
    ]


def test_an_os_release_with_a_long_line() -> None:
    """Read in one pass: with a pattern that tries every end, it would take hours."""
    assert damaged(b"Package: a\n", b"A=" + b" " * (1 << 20) + b'x\nID="debian" \nVERSION_ID=13') == []
    (finding,) = damaged(b"Package: a\n", b"ID=" + b"x" * (1 << 20))
    assert len(finding) < 500
