"""Tars of GNU tar, in each of its formats, and its sparse files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from envbuild.oci.tar.member import Kind
from envbuild.oci.tar.reader import LayerError
from tests.support.tars import MEGA, STEPS, gnu, read

pytestmark = pytest.mark.unit


def holes(path: Path, size: int, *parts: tuple[int, bytes]) -> None:
    with path.open("wb") as target:
        for offset, content in parts:
            target.seek(offset)
            target.write(content)
        target.truncate(size)


@pytest.mark.parametrize("form", ["v7", "ustar", "gnu", "oldgnu", "pax", "posix"])
def test_tars_written_by_gnu_tar(tmp_path: Path, form: str) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/sub").chmod(0o1770)
    (tmp_path / "d/file").write_bytes(b"content" * 1000)
    (tmp_path / "d/empty").touch(0o4711)
    (tmp_path / "d/empty").chmod(0o4711)
    (tmp_path / "d/hard").hardlink_to(tmp_path / "d/file")
    (tmp_path / "d/link").symlink_to("../some where/else")
    if form != "v7":
        os.mkfifo(tmp_path / "d/pipe")
    os.utime(tmp_path / "d/file", (1_234_567_890, 1_234_567_890))
    found = read(gnu(tmp_path, f"--format={form}", "--owner=7", "--group=8"))
    assert all((member.uid, member.gid) == (7, 8) for member in found.members)
    kinds = {member.path: member.kind for member in found.members}
    assert kinds == {
        b"d": Kind.DIR,
        b"d/sub": Kind.DIR,
        b"d/empty": Kind.FILE,
        b"d/file": Kind.FILE,
        b"d/hard": Kind.HARDLINK,
        b"d/link": Kind.SYMLINK,
    } | ({} if form == "v7" else {b"d/pipe": Kind.FIFO})
    member, content = found.named(b"d/file")
    assert content == b"content" * 1000 and member.mtime == 1_234_567_890
    assert found.named(b"d/empty")[0].mode == 0o4711 and found.named(b"d/sub")[0].mode == 0o1770
    assert found.named(b"d/hard")[0].link == b"d/file" and found.named(b"d/link")[0].link == b"../some where/else"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "options",
    [
        ["--format=gnu"],
        pytest.param(["--format=pax", "--sparse-version=0.0"], marks=pytest.mark.slow_unit),
        pytest.param(["--format=pax", "--sparse-version=0.1"], marks=pytest.mark.slow_unit),
        ["--format=pax", "--sparse-version=1.0"],
    ],
    ids=" ".join,
)
def test_sparse_files(tmp_path: Path, options: Sequence[str], step: int) -> None:
    pages = [(number * 65536, bytes([number]) * 4096) for number in range(1, 40)]  # more than one block of a map
    holes(tmp_path / "a", 3 * MEGA, *pages)
    holes(tmp_path / "b", 3 * MEGA)  # nothing but a hole
    holes(tmp_path / "c", MEGA + 5, (0, b"begin"), (MEGA, b"end!!"))
    (tmp_path / "d").write_bytes(b"not sparse")
    archive = gnu(tmp_path, "-S", *options)
    assert len(archive) < MEGA, "GNU tar stored them whole"
    found = read(archive, step)
    assert [member.path for member in found.members] == [b"a", b"b", b"c", b"d"]
    for number, name in enumerate("abcd"):
        assert found.content(number) == (tmp_path / name).read_bytes(), name
    assert any(isinstance(part, int) for part in found.contents[0])


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_sparse_files_over_8_gib(tmp_path: Path, form: str) -> None:
    size = 9 << 30
    holes(tmp_path / "big", size, (5 << 30, b"x" * 4096))
    found = read(gnu(tmp_path, "-S", f"--format={form}"))
    (member,), (parts,) = found.members, found.contents
    assert member.size == size and member.path == b"big"
    where = 0
    for part in parts:
        if isinstance(part, bytes):
            assert where == 5 << 30 and part == b"x" * 4096
        where += part if isinstance(part, int) else len(part)
    assert where == size


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_names_of_every_kind(tmp_path: Path, form: str) -> None:
    odd = [b"new\nline", b"\xff\xfe", "ü".encode(), b"n" * 255, b" ", b"-x", b'"\\']
    deep = b"/".join([b"p" * 200] * 10) + b"/file"
    root = os.fsencode(tmp_path)
    for name in [*odd, deep]:
        os.makedirs(os.path.dirname(root + b"/" + name), exist_ok=True)  # noqa: PTH103, PTH120
        Path(os.fsdecode(root + b"/" + name)).write_bytes(name)
    os.symlink(b"\xfe" * 300, root + b"/link")  # noqa: PTH211
    found = read(gnu(tmp_path, f"--format={form}"))
    for name in [*odd, deep]:
        assert found.named(name)[1] == name
    assert found.named(b"link")[0].link == b"\xfe" * 300


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away and make devices")
@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_large_owners_and_old_times(tmp_path: Path, form: str) -> None:
    (tmp_path / "file").touch()
    os.chown(tmp_path / "file", (1 << 32) - 10, 1 << 30)
    os.utime(tmp_path / "file", ns=(0, -86_400_500_000_000))
    member = read(gnu(tmp_path, f"--format={form}")).members[0]
    assert (member.uid, member.gid) == ((1 << 32) - 10, 1 << 30)
    assert member.mtime == -86_401, "the second in which it was, as in stat(2)"


def test_xattrs_that_gnu_tar_writes(tmp_path: Path) -> None:
    value = b"\0\xff\n=binary"
    (tmp_path / "file").touch()
    os.setxattr(tmp_path / "file", "user.note", value)
    member = read(gnu(tmp_path, "--format=pax", "--xattrs")).members[0]
    assert member.xattrs == {b"user.note": value}


def test_the_label_of_a_volume(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert [member.path for member in read(gnu(tmp_path, "--format=gnu", "--label=name")).members] == [b"file"]


def test_backups_are_refused(tmp_path: Path) -> None:
    (tmp_path / "content/d").mkdir(parents=True)
    with pytest.raises(LayerError, match="backup"):
        read(gnu(tmp_path / "content", "--format=gnu", f"--listed-incremental={tmp_path / 'state'}"))
