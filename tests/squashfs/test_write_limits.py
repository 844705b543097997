"""Limits of squashfs, members dropped below /dev, and files that cannot be written: in the output, and the
same in the evidence."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest

from envbuild.core.errors import InputError, PublishError
from envbuild.export.options import ExportOptions
from envbuild.export.output_path import Output
from envbuild.export.squashfs_image import EVIDENCE, export_squashfs
from envbuild.export.write_errors import raise_write_errors
from envbuild.oci.config import ImageConfig
from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.read.tree import SquashTree
from envbuild.squashfs.write import output_file
from envbuild.squashfs.write.limits import find_unsupported_metadata
from envbuild.squashfs.write.merge import merge_packs
from envbuild.squashfs.write.output_file import STALE, open_output
from tests.support.packs import file, folder, hard, pack, paths, symlink

pytestmark = pytest.mark.unit

SHELL = [folder(b"bin"), file(b"bin/sh", b"#", 0o755), folder(b"etc")]
NODE = Member(b"dev/null", Kind.CHAR, 0o666, device=(1, 3)), b""
ODD = [
    folder(b"", mtime=-1),
    file(b"old", b"1", mtime=-7),
    hard(b"again", b"old"),
    file(b"far", b"2", mtime=1 << 40),
    file(b"etc/rc", b"its own", mtime=-9),
    file(b"now", b"3", mtime=5, xattrs={b"system.posix_acl_access": b"x", b"user.kept": b"y"}),
    NODE,
    file(b"dev/file", b"4"),
    symlink(b"dev/fd", b"/proc/self/fd"),
]
MOVED = "moved times before 1970 or after 2106 to the nearest that squashfs holds: 3 (/, far, old)"
DROPPED = "dropped extended attributes that squashfs cannot hold: system.posix_acl_access"


def exported(tmp_path: Path, layer, epoch: int = 9, **options):
    made = [pack(tmp_path / f"{number}.pack", part).path for number, part in enumerate((SHELL, layer))]
    out = tmp_path / "image"
    written = export_squashfs(
        made, ImageConfig(), out, ExportOptions(**options), epoch=epoch, foreign=True, evidence={"notes": []}
    )
    with SquashTree(out) as tree:
        inode = tree.lookup(EVIDENCE.encode())
        assert inode is not None
        repairs = json.loads(b"".join(tree.content(inode).blocks()))["repairs"]
        return written, repairs, dict(tree.walk())


@pytest.mark.parametrize("owners", [False, True])
def test_limits_of_squashfs_are_in_the_evidence(tmp_path, owners):
    """Members that the image replaces are not listed."""
    written, repairs, entries = exported(tmp_path, ODD, keep_owners=owners)
    assert list(written.messages) == repairs and repairs.count(MOVED) == 1
    assert (DROPPED in repairs) == owners
    assert (entries[b"old"].mtime, entries[b"far"].mtime, entries[b"etc/rc"].mtime) == (0, 0xFFFFFFFF, 9)


def test_sound_layers_have_no_such_line(tmp_path):
    assert exported(tmp_path, [file(b"a", b"1", xattrs={b"user.k": b"v"})], keep_owners=True)[1] == []
    packs = [pack(tmp_path / "x", []), pack(tmp_path / "y", ODD)]
    assert find_unsupported_metadata(merge_packs(packs), packs, attributes=True, hidden={b"etc/rc"}) == [DROPPED, MOVED]
    assert find_unsupported_metadata(merge_packs(packs[:1]), packs[:1], attributes=True) == []


@pytest.mark.parametrize("epoch", [-62_135_596_800, 1 << 33])
def test_an_image_of_the_year_1_is_not_repaired(tmp_path, epoch):
    """Programs without a clock of their own write 0001-01-01 as an image's time."""
    _, repairs, entries = exported(tmp_path, [file(b"a", b"1")], epoch)
    assert repairs == [] and entries[b"etc/rc"].mtime in (0, 0xFFFFFFFF)


@pytest.mark.parametrize(
    ("options", "preserved", "message"),
    [
        ({}, [], "dropped what is below /dev (the host's /dev is mounted there): 3 ("),
        ({"keep_dev": True}, [b"dev/fd", b"dev/file"], "dropped device nodes: 1 ("),
        ({"keep_owners": True}, [b"dev/fd", b"dev/file", b"dev/null"], "kept device nodes, so that only root "),
        ({"keep_owners": True, "keep_dev": True}, [b"dev/fd", b"dev/file", b"dev/null"], "kept device nodes, "),
    ],
)
def test_what_is_preserved_below_dev(tmp_path, options, preserved, message):
    _, repairs, entries = exported(tmp_path, ODD, **options)
    assert sorted(path for path in entries if path.startswith(b"dev/")) == preserved
    lines = [line for line in repairs if "dev/null" in line]
    assert len(lines) == 1 and lines[0].startswith(message)


def test_layers_that_make_no_sense_are_refused_as_inputs(tmp_path):
    for layer in ([hard(b"a", b"none")], [folder(b"d"), hard(b"a", b"d")], [file(b".wh.")]):
        with pytest.raises(InputError, match="names") as caught:
            exported(tmp_path, layer)
        assert caught.value.where == "layer 2 of 2" and caught.value.hint
        assert paths(merge_packs([pack(tmp_path / "0.pack", SHELL)])) == [b"bin/", b"bin/sh", b"etc/"]
        assert not (tmp_path / "image").exists()


@pytest.mark.slow_unit
def test_too_many_owners_name_the_option(tmp_path):
    layer = [file(b"d/%05d" % number, b"", uid=number, gid=100_000 + number) for number in range(33_000)]
    with pytest.raises(InputError, match="different user and group ids") as caught:
        exported(tmp_path, layer, keep_owners=True)
    assert "--keep-owners" in caught.value.hint


# where it cannot be written
def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(PublishError, match="a file with its name exists"):
        Output(tmp_path / "file" / "image").prepare("x")
    for number, hint in ((errno.ENOSPC, "free some space"), (errno.EROFS, "read-only")):
        with pytest.raises(PublishError, match="cannot be written") as caught, raise_write_errors(tmp_path / "image"):
            raise OSError(number, os.strerror(number))
        assert hint in caught.value.hint and caught.value.where == str(tmp_path / "image")
    with pytest.raises(PublishError), raise_write_errors(tmp_path / "image"):
        raise PermissionError(errno.EACCES, "denied", str(tmp_path / ".image.0"))
    with pytest.raises(PermissionError), raise_write_errors(tmp_path / "image"):
        raise PermissionError(errno.EACCES, "denied", "/elsewhere/pack")


def test_a_fifo_or_a_link_with_the_name_of_an_unfinished_file_remains(tmp_path):
    """In a folder such as /tmp another user could make one: opening it would wait, and an export with it."""
    (tmp_path / "file").touch()
    os.utime(tmp_path / "file", (1, 1))
    os.mkfifo(tmp_path / ".x.sqsh.envbuild-00000000")
    (tmp_path / ".x.sqsh.envbuild-00000001").symlink_to("file")
    before = sorted(tmp_path.iterdir())
    with open_output(tmp_path / "x.sqsh"):
        pass
    assert sorted(tmp_path.iterdir()) == before


def test_leftovers_of_a_killed_writer_are_removed(tmp_path, monkeypatch):
    """Not those of a running writer, nor those of another image, nor new ones where a lock may not be seen."""
    monkeypatch.setattr(output_file, "on_disk", lambda file: False)
    out = tmp_path / "image[1]"
    own = [f".image[1].envbuild-{end}" for end in ("00000000", "0000000a", "0000000b")]
    # of other images, and what a user named after a day
    names = [*own, ".other.envbuild-00000000", ".image1.envbuild-00000000", ".image[1].20261124"]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))
    os.utime(tmp_path / names[1])
    assert STALE > 60
    with (tmp_path / names[2]).open("rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        with open_output(out):
            left = {path.name for path in tmp_path.iterdir()}
            assert set(names[1:]) < left and names[0] not in left and len(left) == len(names)
            os.utime(next(tmp_path / name for name in left - set(names)), (1, 1))
            with open_output(out):
                assert left < {path.name for path in tmp_path.iterdir()}


def test_what_another_user_may_have_renamed_is_not_removed(tmp_path):
    """A member of the folder's group could give any file of the caller the name of an unfinished one."""
    left = tmp_path / ".image.envbuild-00000000"
    left.touch()
    tmp_path.chmod(0o777)
    with open_output(tmp_path / "image"):
        assert left.exists()


@pytest.mark.parametrize("here", [True, False])
def test_on_a_local_disk_leftovers_are_removed_at_once(tmp_path, monkeypatch, here):
    """A pull writes its file as long as it fetches: after a kill the next run needs its space."""
    monkeypatch.setattr(output_file, "on_disk", lambda file: here)
    left = tmp_path / ".image.envbuild-00000000"
    left.touch()
    with open_output(tmp_path / "image"):
        assert left.exists() is not here


def test_an_unfinished_file_that_was_removed_before_its_lock_gets_another_name(tmp_path, monkeypatch):
    """Another writer of the same image looks for stale files just then."""
    opened, locked = os.open, fcntl.flock
    made = []

    def remove_first(path, flags, *more, **options):
        file = opened(path, flags, *more, **options)
        if flags & os.O_EXCL:
            made.append(path)
            if len(made) == 1:
                (tmp_path / path).unlink()
        return file

    def lock(file, operation):
        if len(made) == 2:  # the other process holds its lock
            made.append("")
            raise BlockingIOError
        locked(file, operation)

    monkeypatch.setattr(os, "open", remove_first)
    monkeypatch.setattr(fcntl, "flock", lock)
    with open_output(tmp_path / "image") as file:
        assert [path.name for path in tmp_path.iterdir()] == [file.name] == made[3:]
