"""The walk over an image: what each entry is, and what should not be in an image."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.inspector import file_walk
from envbuild.inspector.file_walk import ImageFiles, walk_image
from tests.support.binaries import make_elf, make_fatbin, make_property

pytestmark = pytest.mark.unit


def write(path: Path, data: bytes = b"x" * 60, mode: int = 0o644) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose rules for leftovers are those of an image with this root."""
    monkeypatch.setattr(file_walk, "HOST_KEYS", f"{tmp_path}{file_walk.HOST_KEYS}")
    monkeypatch.setattr(file_walk, "LEFTOVERS", tuple(f"{tmp_path}{rule}" for rule in file_walk.LEFTOVERS))
    monkeypatch.setattr(file_walk, "CLEANED", tuple(f"{tmp_path}{folder}" for folder in file_walk.CLEANED))
    return tmp_path


def test_contents_of_compiled_files_are_read(image: Path) -> None:
    sections = {".nv_fatbin": make_fatbin([("sm", 90, "")])}
    kernel = write(image / "opt/lib/libk.so", make_elf(soname="libk.so", sections=sections))
    program = write(image / "bin/program", make_elf(kind=2, note=make_property(0xC0008002, 4)))
    os.link(kernel, image / "opt/lib/libk.so.1")
    (image / "opt/lib/link.so").symlink_to("libk.so")
    found = walk_image(str(image))
    assert sorted(found.elves) == [program, kernel, f"{kernel}.1"]
    assert found.elves[kernel].soname == "libk.so"
    assert found.cuda == {path: {"sm_90": 1} for path in (kernel, f"{kernel}.1")}
    assert found.levels == {program: "x86-64-v3"}
    assert found.inodes[kernel] == found.inodes[f"{kernel}.1"] != found.inodes[program]
    assert found.sizes[program] == Path(program).stat().st_size
    assert found.links == {str(image / "opt/lib/link.so"): "libk.so"}
    assert (found.files, found.damaged) == (3, {})


def test_only_files_that_may_be_compiled_are_opened(image: Path) -> None:
    elf = make_elf()
    write(image / "a.py", elf)
    write(image / "short", elf[:51])
    write(image / "data.npy", elf)
    compiled = write(image / "b.pyc", elf)
    write(image / "text", b"not compiled" * 9)
    cut = write(image / "cut.so", elf[:70])
    exact = write(image / "header", elf[:52])
    found = walk_image(str(image))
    assert (found.elves, found.pyc, found.files) == ({}, [compiled], 7)
    assert sorted(found.damaged) == [cut, exact]


def test_rights_that_an_image_should_not_give(image: Path) -> None:
    setuid = write(image / "bin/su", mode=0o4755)
    setgid = write(image / "bin/wall", mode=0o2755)
    write(image / "bin/open", mode=0o777)
    folder = image / "srv"
    folder.mkdir()
    folder.chmod(0o1777)
    found = walk_image(str(image))
    assert found.setuid == [f"{setuid} 4755", f"{setgid} 2755"]
    assert found.open_folders == [f"{folder} 1777"]
    folder.chmod(0o755)
    assert walk_image(str(image)).open_folders == []


def test_leftovers_of_a_build_and_keys_of_a_machine(image: Path) -> None:
    key = write(image / "etc/ssh/ssh_host_rsa_key")
    left = [
        write(image / name) for name in ("etc/passwd-", "root/.cache/pip", "tmp/x", "var/log/dpkg.log", "var/tmp/y")
    ]
    for name in ("etc/passwd", "usr/tmp/x", "var/log/dpkg.txt", "root/.bashrc"):
        write(image / name)
    (image / "tmp/folder").mkdir()
    (image / "tmp/link").symlink_to("x")
    found = walk_image(str(image))
    assert found.host_keys == [key]
    assert sorted(found.leftovers) == sorted([*left, str(image / "tmp/link")])


def test_devices_and_pipes(image: Path) -> None:
    os.mkfifo(image / "pipe")
    assert (walk_image(str(image)).devices, walk_image(str(image)).files) == ([], 0)
    if os.geteuid() == 0:
        os.mknod(image / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        assert walk_image(str(image)).devices == [str(image / "null")]


def test_folders_of_the_kernel_are_left_out_and_links_are_not_followed(image: Path) -> None:
    write(image / "proc/1/exe", make_elf())
    write(image / "real/libx.so", make_elf())
    (image / "loop").symlink_to(".")
    found = walk_image(str(image), [str(image / "proc")])
    assert list(found.elves) == [str(image / "real/libx.so")]
    assert found.files == 1


def test_the_walk_does_not_enter_other_mounts(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(image / "own/libx.so", make_elf())
    (image / "mounted").mkdir()
    real = os.stat
    device = real(image).st_dev

    def another(path: str, **more: object) -> object:
        return type("Status", (), {"st_dev": device + 1})() if path == str(image) else real(path, **more)

    monkeypatch.setattr(os, "stat", another)
    tree = ImageFiles()
    entries = [path for path, _ in file_walk.walk_entries(str(image), frozenset(), tree)]
    assert entries == tree.other_mounts == [str(image / "mounted"), str(image / "own")]


def test_a_folder_that_cannot_be_read_is_reported_and_the_walk_continues(
    image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(image / "one/libx.so", make_elf())
    write(image / "two/libx.so", make_elf())
    real = os.scandir

    def refuse(path: str) -> object:
        if path == str(image / "two"):
            raise PermissionError(13, "no")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = walk_image(str(image))
    assert list(found.elves) == [str(image / "one/libx.so")]
    assert list(found.damaged) == [str(image / "two")]


@pytest.mark.parametrize(("number", "raised"), [(errno.EIO, False), (errno.EMFILE, True)])
def test_a_file_that_cannot_be_read_is_reported(
    number: int, raised: bool, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged block of a squashfs file; a limit of the machine is another matter."""
    write(image / "one/libx.so", make_elf())

    class Entry:
        name, path = "broken", str(image / "broken")

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            raise OSError(number, os.strerror(number), self.path)

    real = os.scandir

    @contextlib.contextmanager
    def listed(path: str) -> Iterator[list[object]]:
        with real(path) as entries:
            yield [*entries, *([Entry()] if path == str(image) else [])]

    monkeypatch.setattr(os, "scandir", listed)
    if raised:
        with pytest.raises(OSError, match="Too many open files"):
            walk_image(str(image))
        return
    found = walk_image(str(image))
    assert list(found.elves) == [str(image / "one/libx.so")]
    assert found.damaged == {str(image / "broken"): "Input/output error"}
