"""Images that are written on a file system with odd answers."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from envbuild.core.errors import PublishError
from envbuild.export.write_errors import raise_write_errors
from envbuild.squashfs.write.merge import merge_packs
from envbuild.squashfs.write.output_file import TRIES, open_output
from envbuild.squashfs.write.writer import write_tree
from tests.support.odd_file_system import OddFiles, Op, mount_odd
from tests.support.packs import file, folder, pack

pytestmark = pytest.mark.unit


def test_a_file_system_that_does_not_count_links(tmp_path: Path) -> None:
    """Many small file systems of users state 0."""
    with mount_odd(tmp_path / "odd", OddFiles(links=0)) as place:
        with open_output(place / "image") as output:
            os.write(output.fd, b"x")
            output.publish()
        assert [path.name for path in place.iterdir()] == ["image"] and (place / "image").read_bytes() == b"x"


def test_a_file_system_that_loses_names_is_reported(tmp_path: Path) -> None:
    files = OddFiles(fails={Op.LOOKUP: errno.ENOENT})
    with (
        mount_odd(tmp_path / "odd", files) as place,
        pytest.raises(PublishError, match="loses new files") as caught,
        open_output(place / "image"),
    ):
        raise AssertionError("it was opened")
    assert caught.value.where == str(place / "image") and len(files.names) <= TRIES


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_modes(number: int, tmp_path: Path) -> None:
    with mount_odd(tmp_path / "odd", OddFiles(fails={Op.CHMOD: number})) as place:
        with open_output(place / "image") as output:
            output.publish()
        assert (place / "image").exists()


@pytest.mark.parametrize(
    ("operation", "number"),
    [
        (Op.WRITE, errno.EIO),
        (Op.FSYNC, errno.EIO),
        (Op.WRITE, errno.ENOTCONN),
        (Op.WRITE, errno.ESTALE),
        (Op.FSYNC, errno.ETIMEDOUT),
        (Op.READDIR, errno.EIO),
        (Op.CHMOD, errno.EACCES),
    ],
)
def test_a_disk_that_fails_is_named(operation: Op, number: int, tmp_path: Path) -> None:
    made = pack(tmp_path / "pack", [folder(b"bin"), file(b"bin/sh", os.urandom(9000), 0o755)])
    files = OddFiles(fails={operation: number})
    with (
        mount_odd(tmp_path / "odd", files) as place,
        pytest.raises(PublishError) as caught,
        raise_write_errors(place / "image"),
    ):
        write_tree([made], merge_packs([made]), place / "image", epoch=1)
    assert caught.value.message == f"the image cannot be written: {os.strerror(number)}"
    assert caught.value.where == str(place / "image") and caught.value.exit_code == 8
    assert not files.names


def test_a_folder_in_which_nothing_can_be_renamed_or_removed(tmp_path: Path) -> None:
    """As one with the attribute a (chattr)."""
    files = OddFiles(fails={Op.RENAME: errno.EPERM, Op.UNLINK: errno.EPERM})
    with (
        mount_odd(tmp_path / "odd", files) as place,
        pytest.raises(PublishError, match="Operation not permitted") as caught,
        raise_write_errors(place / "image"),
        open_output(place / "image") as output,
    ):
        output.publish()
    assert caught.value.where == str(place / "image")
