"""Requirements of a base image, checked before anything is built on it."""

from __future__ import annotations

from typing import Any

import pytest

from envbuild.lock.base_image.file_tree import ImageTree
from envbuild.lock.base_image.requirements import check_base

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
