"""Copying into an image: by every way that a file system supports, the bytes are the same, and errors are reported."""

import errno
import gc
import os
import random

import pytest

from envbuild.core.errors import EnvbuildError
from envbuild.core.gc_pause import gc_paused
from envbuild.squashfs.pack.file import PAGE
from envbuild.squashfs.write import copy_extents
from envbuild.squashfs.write.dedup import PackFiles
from envbuild.squashfs.write.dedup_cache import cache_path
from tests.support.packs import file, gone, pack
from tests.support.squashfs_image import write_image

pytestmark = pytest.mark.unit

NOISE = random.Random(8).randbytes(5 << 20)
LAYERS = [
    [file(b"a", NOISE[: 3 << 20]), file(b"hole", NOISE[7:400_007]), file(b"b", NOISE[99:])],
    [gone(b"hole"), file(b"c", NOISE[5000:900_000]), file(b"again", NOISE[: 3 << 20]), file(b"small", b"few bytes")],
]


def packs(folder):
    return [pack(folder / f"{number}.pack", layer) for number, layer in enumerate(LAYERS)]


def write(folder, name="image", **options):
    return write_image(packs(folder), folder / name, epoch=7, **options).path.read_bytes()


@pytest.fixture
def plain(tmp_path, monkeypatch):
    """Return the image by copy_file_range alone."""
    (tmp_path / "plain").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(copy_extents.PageCopier, "copy", lambda *_: 0)
        return write(tmp_path / "plain")


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """Disable sharing, on a file system with direct writes; else skip."""
    monkeypatch.setattr(copy_extents, "CLONE", 0)
    probe = os.open(tmp_path / "probe", os.O_RDWR | os.O_CREAT)
    try:
        with copy_extents.PageCopier(probe, direct=True) as pages:
            if pages.direct < 0:
                pytest.skip("temporary files are not on a disk with O_DIRECT")
    finally:
        os.close(probe)


def test_pages_bypass_the_page_cache(tmp_path, monkeypatch, plain, disk):
    written = []

    def count(*given):
        written.append(copy(*given))
        return written[-1]

    copy = copy_extents.PageCopier.copy
    monkeypatch.setattr(copy_extents.PageCopier, "copy", count)
    assert write(tmp_path) == plain
    assert sum(written) > 6 << 20
    assert all(size % PAGE == 0 for size in written)


@pytest.mark.slow_unit
@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSPC, errno.EFAULT, errno.EIO])
def test_a_failed_direct_write_uses_the_page_cache(tmp_path, monkeypatch, plain, disk, number):
    direct, failed = [], []
    whole, pwrite = copy_extents.PageCopier._write, os.pwrite

    def note(self, *given):
        direct.append(self.direct)
        return whole(self, *given)

    def fail(file, data, at):
        if file in direct and len(direct) > 1:
            failed.append(at)
            raise OSError(number, "no")
        return pwrite(file, data, at)

    monkeypatch.setattr(copy_extents.PageCopier, "_write", note)
    monkeypatch.setattr(os, "pwrite", fail)
    assert write(tmp_path) == plain
    assert failed


def test_a_short_write_is_continued(tmp_path, monkeypatch, plain, disk):
    pwrite, short = os.pwrite, []

    def less(file, data, at):
        if len(data) > 1 << 18:
            short.append(at)
            data = data[: (1 << 18) + 512]
        return pwrite(file, data, at)

    monkeypatch.setattr(os, "pwrite", less)
    assert write(tmp_path) == plain
    assert short


@pytest.mark.parametrize("size", [0, 1, PAGE, 3 * PAGE + 5, 1 << 20, (1 << 20) + 1])
@pytest.mark.parametrize("share", [True, False])
def test_whole_files(tmp_path, monkeypatch, size, share):
    if not share:
        monkeypatch.setattr(copy_extents, "CLONE", 0)
    (tmp_path / "from").write_bytes(NOISE[:size])
    with (tmp_path / "to").open("wb") as out:
        copy_extents.copy_file(tmp_path / "from", out.fileno())
    assert (tmp_path / "to").read_bytes() == NOISE[:size]


def test_a_file_that_becomes_shorter(tmp_path, monkeypatch):
    source, copy_range = tmp_path / "from", copy_extents.copy_range
    source.write_bytes(NOISE[: 1 << 20])

    def shorter(*given):
        os.truncate(source, 5000)
        return copy_range(*given)

    monkeypatch.setattr(copy_extents, "copy_range", shorter)
    with (tmp_path / "to").open("wb") as out, pytest.raises(EnvbuildError, match="shorter"):
        copy_extents.copy_file(source, out.fileno())


def test_a_pack_truncated_during_the_copy(tmp_path, disk):
    made = packs(tmp_path)
    os.truncate(made[0].path, 2 << 20)
    with pytest.raises(EnvbuildError, match="damaged or truncated"):
        write_image(made[:1], tmp_path / "image", epoch=7)
    assert not (tmp_path / "image").exists()


# what was compared once
def test_equal_files_are_compared_once(tmp_path, monkeypatch):
    first = write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.pack", "1.pack", "1.pack.equal", "image"]
    monkeypatch.setattr(PackFiles, "equal", None)
    assert write(tmp_path) == first


@pytest.mark.slow_unit
@pytest.mark.parametrize("damage", ["gone", "torn", "list", "other", "foreign"])
def test_cached_answers_of_other_packs_are_ignored(tmp_path, monkeypatch, damage):
    first = write(tmp_path)
    answers = cache_path(tmp_path / "1.pack")
    text = answers.read_text()
    if damage == "gone":
        answers.unlink()
    else:
        other = text.replace("0.pack", "7.pack") if damage == "other" else text.replace('"pack": "', '"pack": "0')
        answers.write_text({"torn": text[:50], "list": "[]"}.get(damage, other))
    asked, equal = [], PackFiles.equal

    def compare(self, *question):
        asked.append(question)
        return equal(self, *question)

    monkeypatch.setattr(PackFiles, "equal", compare)
    assert write(tmp_path) == first
    assert len(asked) == 1
    assert answers.read_text() == text  # and nothing of packs that are gone


def test_a_changed_file_is_not_taken_for_the_old_one(tmp_path):
    write(tmp_path)
    changed = pack(tmp_path / "1.pack", [file(b"again", NOISE[1 : 1 + (3 << 20)])])
    made = [pack(tmp_path / "0.pack", LAYERS[0]), changed]
    assert write_image(made, tmp_path / "image", epoch=7).size > 11 << 20


def test_without_a_writable_store_nothing_is_cached(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr("envbuild.core.store.json_files._open_private", refuse)
    write(tmp_path)
    assert not cache_path(tmp_path / "1.pack").exists()


def test_added_members_leave_nothing_beside_the_image(tmp_path):
    (tmp_path / "packs").mkdir()
    made = packs(tmp_path / "packs")
    content = NOISE[: 3 << 20]
    write_image(made, tmp_path / "image", epoch=7, extra=[file(b"e", content), file(b"f", content)])
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["image"]


def test_the_garbage_collector_is_enabled_again():
    with pytest.raises(ZeroDivisionError), gc_paused():
        assert not gc.isenabled()
        _ = 1 / 0
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
