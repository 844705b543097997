"""A file that is digested while it is written: its bytes and its sha256 are right by every way of writing them."""

import errno
import hashlib
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.core.errors import DamagedPackError, EnvbuildError
from envbuild.squashfs.pack import append_file
from envbuild.squashfs.pack.checksums import Checksums
from envbuild.squashfs.write import digested_file
from envbuild.squashfs.write.digested_file import DigestedFile
from envbuild.squashfs.write.merge import merge_packs
from envbuild.squashfs.write.writer import write_tree
from tests.support.packs import file, gone, pack
from tests.support.squashfs_image import write_image

pytestmark = pytest.mark.unit

NOISE = random.Random(9).randbytes(5 << 20)
LAYERS = [
    [
        *(file(b"a", NOISE[: 3 << 20]), file(b"hole", NOISE[7:400_007]), file(b"b", NOISE[99:])),
        *(file(b"near", NOISE[1:20_001]), file(b"tail", NOISE[2:20_002])),
    ],
    [gone(b"hole"), gone(b"tail"), file(b"c", NOISE[5000:900_000]), file(b"small", b"few bytes")],
]
PAGE = 4096
parts = st.lists(
    st.tuples(st.booleans(), st.integers(0, 5 * PAGE), st.integers(0, 5 * PAGE)), max_size=12
)  # (copied or from memory, position, length)


def make_packs(folder):
    return [pack(folder / f"{number}.pack", layer) for number, layer in enumerate(LAYERS)]


def write_digested(folder):
    made = make_packs(folder)
    done = write_tree(made, merge_packs(made), folder / "digested", epoch=7, digest=True)
    return done, done.path.read_bytes()


def share_by_copies(monkeypatch):
    """Let the writer believe that the file system shares blocks; they are copied."""
    monkeypatch.setattr(digested_file, "can_share", lambda *_: True)


def forbid_direct(monkeypatch):
    monkeypatch.setattr(digested_file, "open_direct", lambda _: -1)


@pytest.mark.parametrize("way", [lambda _: None, share_by_copies, forbid_direct])
def test_an_image_is_the_same_with_its_sha256(tmp_path, monkeypatch, way):
    plain = write_image(make_packs(tmp_path), tmp_path / "plain", epoch=7)
    way(monkeypatch)
    done, content = write_digested(tmp_path)
    assert content == plain.path.read_bytes()
    assert done.sha256 == hashlib.sha256(content).hexdigest()
    assert done.repacked  # a fragment block with a dead tail is part of it
    assert not plain.sha256


@pytest.mark.parametrize("share", [False, True])
@settings(deadline=None)
@given(parts=parts, before=st.integers(0, PAGE))
def test_any_parts_in_any_order(tmp_path_factory, share, parts, before):
    folder = tmp_path_factory.mktemp("digested")
    source, out = folder / "source", folder / "out"
    source.write_bytes(NOISE[: 10 * PAGE])
    expected, counted = bytearray(NOISE[:before]), []
    with pytest.MonkeyPatch.context() as patch, source.open("rb") as read, out.open("w+b") as written:
        patch.setattr(digested_file, "ROOM", 2 * PAGE)
        if share:
            share_by_copies(patch)
        with DigestedFile(written.fileno(), progress=counted.append) as digested:
            digested.write(NOISE[:before])
            for copied, at, length in parts:
                if copied:
                    assert digested.copy(read.fileno(), at, length)
                else:
                    digested.write(NOISE[at : at + length])
                expected += NOISE[at : at + length]
                assert digested.position == len(expected)
            sha256 = digested.finish()
    assert out.read_bytes() == expected
    assert sha256 == hashlib.sha256(expected).hexdigest()
    assert sum(counted) == len(expected)


@pytest.mark.parametrize("share", [False, True])
def test_a_source_that_ends_before(tmp_path, monkeypatch, share):
    if share:
        share_by_copies(monkeypatch)
    (tmp_path / "source").write_bytes(NOISE[:PAGE])
    source, out = (tmp_path / "source").open("rb"), (tmp_path / "out").open("w+b")
    with source, out, DigestedFile(out.fileno()) as digested:
        assert not digested.copy(source.fileno(), 1, PAGE)


@pytest.mark.parametrize("share", [False, True])
def test_data_that_differs_from_its_checksum(tmp_path, monkeypatch, share):
    if share:
        share_by_copies(monkeypatch)
    made = make_packs(tmp_path)
    with made[0].path.open("r+b") as damaged:
        damaged.seek(made[0].base + (1 << 20))
        damaged.write(b"\0")
    with pytest.raises(DamagedPackError) as caught:
        write_tree(made, merge_packs(made), tmp_path / "image", epoch=7, digest=True)
    assert caught.value.message == "1 of 5 pieces of the image's data do not match their checksums"
    assert not (tmp_path / "image").exists()


def test_a_pack_that_ends_before(tmp_path):
    made = make_packs(tmp_path)
    os.truncate(made[0].path, made[0].base + (1 << 20))
    with pytest.raises(EnvbuildError, match="damaged"):
        write_tree(made, merge_packs(made), tmp_path / "image", epoch=7, digest=True)
    assert not list(tmp_path.glob("*image*"))


@pytest.mark.parametrize("share", [False, True])
def test_a_source_that_changes_once_it_was_copied(tmp_path, monkeypatch, share):
    """A pack of a group's store remains its owner's: what is digested is what the file has."""
    if share:
        share_by_copies(monkeypatch)
    copy = digested_file.copy_range

    def change(source, *rest):
        try:
            return copy(source, *rest)
        finally:
            os.pwrite(source, b"changed", PAGE)

    monkeypatch.setattr(digested_file, "copy_range", change)
    (tmp_path / "source").write_bytes(NOISE[: 1 << 20])
    source, out = (tmp_path / "source").open("r+b"), (tmp_path / "out").open("w+b")
    with source, out, DigestedFile(out.fileno()) as digested:
        assert digested.copy(source.fileno(), 0, 1 << 20)
        sha256 = digested.finish()
    assert sha256 == hashlib.sha256((tmp_path / "out").read_bytes()).hexdigest()


def test_checksums_are_compared_at_their_positions(tmp_path):
    checksums = Checksums()
    checksums.append(3, 4, 0)  # no four bytes of the file have this one
    with (tmp_path / "out").open("w+b") as out, DigestedFile(out.fileno(), checksums) as digested:
        digested.write(b"0123456789")
        digested.finish()
        assert digested.comparison.finish() == 1


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSPC, errno.EIO])
def test_a_failed_direct_write_uses_the_page_cache(tmp_path, monkeypatch, number):
    failed, pwrite = [], os.pwrite
    expected = write_digested(tmp_path)[1]

    def fail(file, data, at):
        if len(data) >= PAGE:
            failed.append(at)
            raise OSError(number, "no")
        return pwrite(file, data, at)

    monkeypatch.setattr(append_file.os, "pwrite", fail)
    monkeypatch.setattr(digested_file, "open_direct", lambda _: os.dup(1))
    done, content = write_digested(tmp_path)
    assert failed
    assert content == expected
    assert done.sha256 == hashlib.sha256(content).hexdigest()


def test_a_full_disk_is_an_error_at_once(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    made = make_packs(tmp_path)
    tree = merge_packs(made)
    monkeypatch.setattr(append_file.os, "pwrite", fail)
    monkeypatch.setattr(append_file.os, "pwritev", fail)
    with pytest.raises(OSError, match="No space left"):
        write_tree(made, tree, tmp_path / "image", epoch=7, digest=True)
    assert not list(tmp_path.glob("*image*"))
