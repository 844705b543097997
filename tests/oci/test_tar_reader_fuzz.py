"""Damaged layers: for any bytes, a layer is read or refused, in bounded pieces, and the reading ends.

``python -m tests.oci.test_tar_reader_fuzz 300`` does the same for 300 seconds of CPU time.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import signal
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import EnvbuildError, InputError
from envbuild.lock.base_image.file_tree import ImageTree
from envbuild.oci.layers.apply import apply_layers
from envbuild.oci.sources.read_layer import read_layer
from envbuild.oci.tar.member import Kind
from envbuild.oci.tar.reader import LayerError, read_tar
from tests.support import tars as kit
from tests.support.examples import examples

pytestmark = pytest.mark.unit

PATIENCE = 120  # seconds for one layer of a few kilobytes: what takes longer hangs
LIMIT = 1 << 26  # bytes of an unpacked layer


def frames(tar: bytes) -> bytes:
    return (
        b"".join(zstandard.compress(tar[at : at + 3000]) for at in range(0, len(tar), 3000)) + b"\x50\x2a\x4d\x18" * 2
    )


def tree() -> bytes:
    """Return a tar whose entries hide, replace and link each other."""
    entries = [("d", "5", ""), ("d/f", "0", ""), ("l", "2", "d"), ("l/h", "1", "d/f"), ("d/.wh.f", "0", "")]
    entries += [("d/.wh..wh..opq", "0", ""), ("abs", "2", "/d"), ("abs/new", "0", ""), ("p", "6", ""), ("d", "0", "")]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, kind, link in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind.encode(), link
            tar.addfile(info)
    return buffer.getvalue()


TARS = (kit.small(), tree())
BLOBS = tuple(pack(tar) for tar in TARS for pack in (bytes, gzip.compress, zstandard.compress, frames))

# Valid and invalid values of a header field.
PARTS = (
    b"\0", b"\xff", b"7", b"8", b"-1", b"..", b"../", b"/", b"\xff" * 12, b"\x80" + bytes(11), b"77777777777\0",
    b"00000000000\0", b"L", b"K", b"x", b"g", b"S", b"1", b"5", b"ustar\x0000", b"ustar  \0", bytes(512), b"\n", b"=",
    b"9999999999", b"30 path=../../../evil/evil/x\n", b"22 GNU.sparse.major=1\n", b".wh.", b".wh..wh..opq", b"l/h",
)  # fmt: skip

Change = tuple[str, int, bytes]  # (what, where, with what)


def changed(content: bytes, changes: Sequence[Change], sums: bool) -> bytes:
    """`content` with changes; `sums`: those of the headers are right all the same, so that more than they is tried."""
    found = bytearray(content)
    for what, where, part in changes:
        at = where % (len(found) + 1)
        if what == "put":
            found[at : at + len(part)] = part
        elif what == "insert":
            found[at:at] = part
        elif what == "cut":
            del found[at : at + 1 + where % 700]
        elif what == "end":
            del found[at:]
        elif what == "again":
            found[at:at] = found[at // 512 * 512 : at // 512 * 512 + 512]
        elif what == "field" and len(found) >= 512:
            start = at // 512 * 512
            offset = (0, 100, 108, 124, 136, 156, 157, 257, 345, 386, 482, 483)[where % 12]
            found[start + offset : start + offset + len(part)] = part
    if sums:
        for at in range(0, len(found) - 511, 512):
            if found[at + 257 : at + 262] == b"ustar":
                found[at : at + 512] = kit.summed(bytes(found[at : at + 512]))
    return bytes(found)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Raise when the body does not end."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError("the reading of a layer does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_tar(content: bytes, step: int) -> str:
    found, stream = kit.Recorder(), kit.Drops(content, step)
    try:
        read_tar(stream, found)
    except LayerError as error:
        assert error.message and error.hint
        return "refused"
    finally:
        assert stream.asked <= 1 << 20
        data = sum(len(part) for parts in found.contents for part in parts if isinstance(part, bytes))
        assert data <= len(content)
    for member in found.members:
        parts = member.path.split(b"/")
        assert b".." not in parts and b"." not in parts and 0 not in member.path and len(member.path) <= 4096
        assert (b"" not in parts and max(map(len, parts)) <= 255) or member.path == b""
        assert 0 <= member.mode <= 0o7777 and 0 <= member.uid < 1 << 32 and 0 <= member.gid < 1 << 32
        assert abs(member.mtime) < 1 << 63
        assert 0 <= member.size < 1 << 63 and (member.kind is Kind.FILE or not member.size)
        assert member.kind is not Kind.HARDLINK or (b".." not in member.link.split(b"/") and member.link[:1] != b"/")
    return "read"


def check_blob(content: bytes, step: int) -> str:
    layer = kit.source(content, b"", diff_id="sha256:" + "0" * 64)
    try:
        read_layer(layer, [kit.Recorder()], limit=LIMIT)
    except InputError as error:
        # The tar is another one now, so that what is sound is refused at last.
        return "read" if "its tar is sha256" in error.message else "refused"
    raise AssertionError("a layer with another digest was taken")


def check_tree(content: bytes, step: int) -> str:
    found = ImageTree()
    try:
        found.apply(io.BytesIO(content))
    except LayerError:
        return "refused"
    return "read"


def check_disk(content: bytes, step: int) -> str:
    """Check that nothing outside of the tree is changed, for any content."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "layer").write_bytes(content)
        (folder / "tree").mkdir()
        (folder / "evil").write_text("as it was")
        before = (folder / "evil").stat()
        try:
            apply_layers([folder / "layer"], folder / "tree")
            answer = "read"
        except (EnvbuildError, OSError):  # a file system does not take every name and attribute
            answer = "refused"
        after = (folder / "evil").stat()
        assert sorted(path.name for path in folder.iterdir()) == ["evil", "layer", "tree"]
        assert (folder / "evil").read_text() == "as it was" and after.st_nlink == 1
        assert (before.st_mode, before.st_mtime_ns, before.st_uid) == (after.st_mode, after.st_mtime_ns, after.st_uid)
    return answer


Check = Callable[[bytes, int], str]
KINDS = ("put", "insert", "cut", "end", "again", "field")
PIECES = st.one_of(st.sampled_from(PARTS), st.binary(min_size=1, max_size=20))
CHANGES = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1 << 20), PIECES), min_size=1, max_size=6)
STEPS = st.sampled_from([1 << 30, 512, 100])


@examples(500)
@given(st.sampled_from(TARS), CHANGES, st.booleans(), STEPS)
def test_damaged_tars(tar: bytes, changes: list[Change], sums: bool, step: int) -> None:
    with ending():
        check_tar(changed(tar, changes, sums), step)


@examples(200)
@given(st.sampled_from(BLOBS), CHANGES)
def test_damaged_blobs(blob: bytes, changes: list[Change]) -> None:
    with ending():
        check_blob(changed(blob, changes, False), 0)


@examples(200)
@given(st.sampled_from(TARS), CHANGES, st.booleans())
def test_damaged_tars_in_memory(tar: bytes, changes: list[Change], sums: bool) -> None:
    with ending():
        check_tree(changed(tar, changes, sums), 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@examples(100)
@given(st.sampled_from(TARS), CHANGES, st.booleans())
def test_damaged_tars_on_disk(tar: bytes, changes: list[Change], sums: bool) -> None:
    with ending():
        check_disk(changed(tar, changes, sums), 0)


@examples(200)
@given(st.binary(max_size=3000), STEPS)
def test_any_bytes(content: bytes, step: int) -> None:
    with ending():
        check_tar(content, step)
        check_blob(content, step)


def test_undamaged_tars() -> None:
    """The changes change something: without them everything is read."""
    for tar in TARS:
        assert check_tar(changed(tar, [], True), 1 << 30) == "read"
    for blob in BLOBS[:3]:
        assert check_blob(blob, 0) == "read"


def main(seconds: float) -> None:
    """Random changes until so much CPU time is used."""
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed, flush=True)
    draw, counts = random.Random(seed), Counter[str]()
    checks: Sequence[tuple[Check, Sequence[bytes]]] = (
        (check_tar, TARS), (check_tar, TARS), (check_blob, BLOBS), (check_tree, TARS), (check_disk, TARS[1:]),
    )  # fmt: skip
    while time.process_time() < seconds:
        check, contents = draw.choice(checks)
        changes = []
        for _ in range(draw.randint(1, 4)):
            part = draw.choice(PARTS) if draw.random() < 0.5 else draw.randbytes(draw.randint(1, 20))
            changes.append((draw.choice(KINDS), draw.randrange(1 << 20), part))
        content = changed(draw.choice(contents), changes, draw.random() < 0.8)
        try:
            with ending():
                answer = check(content, draw.choice((1 << 30, 512, 100)))
        except BaseException:
            Path("fuzz-found.bin").write_bytes(content)
            print(check.__name__, "seed", seed, "fuzz-found.bin", flush=True)
            raise
        counts[f"{check.__name__} {answer}"] += 1
    print(dict(sorted(counts.items())))


if __name__ == "__main__":
    main(float(sys.argv[1]))
