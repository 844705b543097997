"""Images that are written on a file system with odd answers."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from envbuild.core.errors import PublishError
from envbuild.squashfs.write.output_file import TRIES, open_output
from tests.support.odd_file_system import OddFiles, Op, mount_odd

pytestmark = pytest.mark.unit


def test_a_file_system_that_does_not_count_links(tmp_path: Path) -> None:
    """Many small file systems of users state 0."""
    with mount_odd(tmp_path / "odd", OddFiles(links=0)) as folder:
        with open_output(folder / "image") as file:
            os.write(file.fd, b"x")
            file.publish()
        assert [path.name for path in folder.iterdir()] == ["image"] and (folder / "image").read_bytes() == b"x"


def test_a_file_system_that_loses_names_is_reported(tmp_path: Path) -> None:
    files = OddFiles(fails={Op.LOOKUP: errno.ENOENT})
    with (
        mount_odd(tmp_path / "odd", files) as folder,
        pytest.raises(PublishError, match="loses new files") as caught,
        open_output(folder / "image"),
    ):
        raise AssertionError("it was opened")
    assert caught.value.where == str(folder / "image") and len(files.names) <= TRIES
