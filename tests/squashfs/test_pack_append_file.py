"""Direct writes and moves, past the page cache, have the right bytes, on a disk and in memory."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.file_status import on_disk
from envbuild.squashfs.pack import append_file
from envbuild.squashfs.pack.append_file import ROOM, Appender
from envbuild.squashfs.pack.file import PAGE
from envbuild.squashfs.write import move_extents
from envbuild.squashfs.write.move_extents import Mover
from tests.support.examples import examples

pytestmark = pytest.mark.unit

NOISE = os.urandom(3 * ROOM)
MEMORY = Path("/dev/shm")
SIZES = st.one_of(
    st.integers(0, 100), st.integers(PAGE - 2, PAGE + 2), st.integers(ROOM - 2, ROOM + 2), st.integers(0, 2 * ROOM)
)


@contextmanager
def opened(folder: str | None) -> Iterator[int]:
    with tempfile.TemporaryFile(dir=folder) as file:
        yield file.fileno()


def refused(*_: object) -> int:
    """Raise the error of a file system without the call."""
    raise OSError(errno.EINVAL, "Invalid argument")


@pytest.fixture(params=["disk", "memory"], scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "memory" and not MEMORY.is_dir():
        pytest.skip("no /dev/shm here")
    return str(MEMORY if request.param == "memory" else tmp_path_factory.getbasetemp())


Steps = st.lists(st.tuples(st.lists(SIZES, max_size=4), st.integers(0, 10), st.booleans()), min_size=1, max_size=8)


@given(base=st.sampled_from([0, 1, PAGE, PAGE + 5]), steps=Steps)
@examples(60, deadline=None)
def test_parts_one_after_another_and_back(place: str, base: int, steps: object) -> None:
    """Each step writes parts behind the last one, or (of ten: one) somewhere before; some read."""
    with opened(place) as file:
        model, at = bytearray(base), base
        os.ftruncate(file, base)
        appender = Appender(file)
        for sizes, back, read in steps:  # type: ignore[attr-defined]
            if back == 0:
                at -= (at - base) // 2
            parts = [memoryview(NOISE)[size % 97 :][:size] for size in sizes]
            appender.write(parts, at)
            for part in parts:
                model[at : at + len(part)] = part
                at += len(part)
            if read:
                first = max(at - 3000, 0)
                assert appender.read(first, at - first) == model[first:at]
        appender.flush()
        assert os.pread(file, at, 0) == model[:at]
        appender.close()


def test_writes_bypass_the_page_cache_on_a_disk(tmp_path: Path) -> None:
    with opened(str(tmp_path)) as file:
        if not on_disk(file):
            pytest.skip("the tests' files are not on a disk")
        appender = Appender(file)
        assert appender.direct >= 0
        appender.write([NOISE], 0)
        appender.flush()
        assert os.pread(file, len(NOISE), 0) == NOISE
        appender.close()
    if MEMORY.is_dir():
        with opened(str(MEMORY)) as file:
            assert Appender(file).direct == -1


def test_an_error_of_the_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A direct write that fails is repeated through the page cache, whose error is reported."""
    with opened(str(tmp_path)) as file:
        if not on_disk(file):
            pytest.skip("the tests' files are not on a disk")
        appender = Appender(file)

        monkeypatch.setattr(append_file.os, "pwrite", refused)
        appender.write([NOISE], 0)  # of a file system that reports that it can
        appender.flush()
        assert os.pread(file, len(NOISE), 0) == NOISE

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(append_file.os, "pwritev", full)
        with pytest.raises(OSError, match="No space left"):
            appender.write([NOISE], len(NOISE))
        appender.close()


MOVES = st.tuples(
    st.one_of(st.integers(0, 5), st.sampled_from([PAGE, 2 * PAGE, ROOM]), st.integers(0, ROOM)),  # distance
    st.integers(0, 3 * PAGE),  # where it begins
    st.one_of(
        st.integers(0, PAGE),
        st.integers(move_extents.LEAST - 9, move_extents.LEAST + 2 * PAGE),
        st.integers(0, 6 * ROOM),
    ),
)


@pytest.mark.slow_unit
@given(moves=st.lists(MOVES, min_size=1, max_size=4))
@examples(60, deadline=None)
def test_moves(place: str, moves: list[tuple[int, int, int]]) -> None:
    content = bytearray(NOISE * 5)
    with opened(place) as file, Mover(file) as mover:
        os.pwrite(file, content, 0)
        for distance, to, length in moves:
            assert mover.down(to + distance, to, length)
            content[to : to + length] = content[to + distance : to + distance + length]
        assert os.pread(file, len(content), 0) == content


@pytest.mark.parametrize("distance", [1, PAGE])
def test_a_file_that_ends_before(place: str, distance: int) -> None:
    with opened(place) as file, Mover(file) as mover:
        os.pwrite(file, NOISE, 0)
        assert not mover.down(distance, 0, len(NOISE))


def test_a_move_that_fails_directly_uses_the_page_cache(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pwrite", "preadv"):
        with opened(place) as file, Mover(file) as mover:
            os.pwritev(file, [NOISE], 0)
            with monkeypatch.context() as patch:
                patch.setattr(move_extents.os, name, refused)
                assert mover.down(PAGE, 0, len(NOISE) - PAGE)
            assert os.pread(file, len(NOISE) - PAGE, 0) == NOISE[PAGE:]
