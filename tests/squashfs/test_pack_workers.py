"""Threads that several layers share: how far each may be ahead, and that none stops another."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.pack.blocks import BATCH, SLOW_BATCH
from envbuild.squashfs.pack.checksums import check_pack
from envbuild.squashfs.pack.workers import MAX_AHEAD, Workers
from envbuild.squashfs.pack.writer import PackWriter
from tests.support.packs import file

pytestmark = pytest.mark.unit

NOISE = random.Random(2).randbytes(1 << 18)


def write(writer: PackWriter, name: bytes, pieces: int) -> None:
    """Write a file of `pieces` pieces of 256 KiB, half of each noise."""
    writer.begin(Member(name, Kind.FILE, 0o644, size=pieces << 18))
    for number in range(pieces):
        writer.data(NOISE[: 1 << 17] + bytes([number % 256]) * (1 << 17))
    writer.end()


@given(st.integers(1, 512), st.integers(0, 8), st.sampled_from([BATCH, SLOW_BATCH]))
def test_memory_of_all_layers_is_bounded(jobs: int, layers: int, batch: int) -> None:
    workers = Workers(jobs)
    for _ in range(layers):
        workers.join()
    ahead = workers.ahead(batch)
    assert ahead >= 2
    assert ahead == 2 or ahead * batch * max(layers, 1) <= MAX_AHEAD
    for _ in range(layers):
        workers.leave()
    assert workers.ahead(batch) == min(jobs + 4, MAX_AHEAD // batch)  # one alone has everything


def test_layers_packed_together_have_the_bytes_that_each_has_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with PackWriter(tmp_path / f"{name}-alone", jobs=1, level=1) as alone:
            write(alone, name.encode(), 90)
    with Workers(2) as workers:
        pair = [PackWriter(tmp_path / name, jobs=workers, level=1) for name in ("a", "b")]
        for writer, name in zip(pair, ("a", "b"), strict=True):
            write(writer, name.encode(), 90)
        for writer in pair:
            writer.close()
    for name in ("a", "b"):
        assert (tmp_path / name).read_bytes() == (tmp_path / f"{name}-alone").read_bytes()


def test_a_stalled_or_cancelled_layer_does_not_stop_the_others(tmp_path: Path) -> None:
    with Workers(1) as workers:
        still = PackWriter(tmp_path / "still", jobs=workers, level=1)
        still.begin(Member(b"f", Kind.FILE, 0o644, size=1 << 30))
        for _ in range(40):
            still.data(NOISE)  # as far as it may go; then its connection hangs
        with PackWriter(tmp_path / "other", jobs=workers, level=1) as other:
            write(other, b"f", 40)
        check_pack(tmp_path / "other")
        still.discard()
        assert workers.layers == 0
        with PackWriter(tmp_path / "next", jobs=workers, level=1) as after:
            write(after, b"f", 40)
    assert (tmp_path / "next").read_bytes() == (tmp_path / "other").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["next", "other"]


def test_a_packs_own_threads_end_with_it(tmp_path: Path) -> None:
    kept = PackWriter(tmp_path / "kept", jobs=2)
    kept.begin(file(b"f", b"x")[0])
    kept.data(b"x")
    kept.end()
    kept.close()
    gone = PackWriter(tmp_path / "gone", jobs=2)
    gone.discard()
    for writer in (kept, gone):
        with pytest.raises(RuntimeError, match="shutdown"):
            writer.blocks.workers.submit(print)
