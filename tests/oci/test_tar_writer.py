"""The canonical tar: what tarfile and GNU tar read is what was written, and equal members give equal bytes."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.oci.layers.layer import write_members
from envbuild.oci.tar.member import Kind, Member
from envbuild.oci.tar.writer import TarSink, encode_record
from tests.support.examples import examples
from tests.support.tars import TYPES

pytestmark = pytest.mark.unit

name = st.binary(min_size=1, max_size=120).filter(lambda b: b"\0" not in b and b"/" not in b and b not in (b".", b".."))
path = st.lists(name, min_size=1, max_size=4).map(b"/".join)
ids = st.one_of(st.integers(0, 70000), st.integers(0, 2**32 - 2))
times = st.one_of(st.integers(0, 2**33), st.integers(-(2**31), 2**40))
xattrs = st.dictionaries(
    st.sampled_from([b"user.a", b"security.capability", b"user.long" * 9]), st.binary(max_size=40), max_size=2
)


@st.composite
def entries(draw: st.DrawFn) -> list[tuple[Member, bytes]]:
    found = []
    for one in sorted(draw(st.sets(path, max_size=6))):
        kind = draw(st.sampled_from([Kind.FILE, Kind.DIR, Kind.SYMLINK, Kind.FIFO, Kind.HARDLINK, Kind.CHAR]))
        content = draw(st.binary(max_size=1500)) if kind is Kind.FILE else b""
        link = draw(path) if kind in (Kind.SYMLINK, Kind.HARDLINK) else b""
        device = (1, 3) if kind is Kind.CHAR else (0, 0)
        attributes = draw(xattrs) if kind in (Kind.FILE, Kind.DIR) else {}
        mode = draw(st.integers(0, 0o7777))
        member = Member(one, kind, mode, draw(ids), draw(ids), draw(times), len(content), link, device, attributes)
        found.append((member, content))
    return found


def written(layer: list[tuple[Member, bytes]]) -> tuple[bytes, TarSink]:
    file = io.BytesIO()
    sink = TarSink(file)
    for member, content in layer:
        sink.begin(member)
        if content:
            half = len(content) // 2
            sink.data(content[:half])
            sink.data(content[half:])
        sink.end()
    sink.close()
    return file.getvalue(), sink


@examples(200)
@given(entries())
def test_round_trip(layer: list[tuple[Member, bytes]]) -> None:
    data, sink = written(layer)
    assert sink.size == len(data) and sink.sha256 == hashlib.sha256(data).hexdigest()
    assert len(data) % 512 == 0 and data[-1024:] == bytes(1024)
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as tar:
        found = tar.getmembers()
        assert len(found) == len(layer) == sink.files
        for info, (member, content) in zip(found, layer, strict=True):
            assert info.name.encode("utf-8", "surrogateescape") == member.path
            assert info.type == TYPES[member.kind]
            assert (info.mode, info.uid, info.gid, info.mtime) == (member.mode, member.uid, member.gid, member.mtime)
            assert info.linkname.encode("utf-8", "surrogateescape") == member.link
            if member.kind is Kind.FILE:
                stream = tar.extractfile(info)
                assert stream is not None and stream.read() == content
            if member.kind is Kind.CHAR:
                assert (info.devmajor, info.devminor) == member.device
            assert {key for key in info.pax_headers if key.startswith("SCHILY")} == {
                f"SCHILY.xattr.{key.decode()}" for key in member.xattrs
            }
            for key, value in member.xattrs.items():
                assert b"SCHILY.xattr." + key + b"=" + value + b"\n" in data


def test_plain_members_need_no_pax_header() -> None:
    data, _ = written(
        [(Member(b"a" * 90 + b"/" + b"b" * 90, Kind.DIR, 0o755), b""), (Member(b"x", Kind.FILE, 0o644, size=3), b"abc")]
    )
    assert len(data) == 512 + 512 + 512 + 1024
    assert data[156:157] == b"5" and data[257:265] == b"ustar\x0000"


@pytest.mark.parametrize("size", [8 * 2**30 - 1, 8 * 2**30, 2**40])
def test_sizes_beyond_ustar(size: int) -> None:
    sink = TarSink(io.BytesIO())
    sink.begin(Member(b"large", Kind.FILE, 0o644, size=size))
    assert isinstance(sink.file, io.BytesIO)
    tar = tarfile.open(fileobj=io.BytesIO(sink.file.getvalue()))  # noqa: SIM115  # truncated behind the header
    assert tar.firstmember is not None and tar.firstmember.size == size


@given(st.binary(min_size=1, max_size=20).filter(lambda b: b"=" not in b), st.binary(max_size=2000))
def test_the_length_of_a_pax_record_counts_itself(key: bytes, value: bytes) -> None:
    text = encode_record(key, value)
    assert int(text.split(b" ", 1)[0]) == len(text)


def test_short_data_is_an_error() -> None:
    sink = TarSink()
    sink.begin(Member(b"a", Kind.FILE, 0o644, size=2))
    sink.data(b"x")
    with pytest.raises(ValueError, match="differs from its size"):
        sink.end()


def test_gnu_tar_reads_it(tmp_path: Path) -> None:
    if shutil.which("tar") is None:
        pytest.skip("tar is not installed")
    content = b"content"
    layer = [
        (Member(b"dir", Kind.DIR, 0o755), b""),
        (Member(b"dir/" + b"n" * 150 + b"/" + b"m" * 120, Kind.FILE, 0o600, size=7, mtime=1_600_000_000), content),
        (Member(b"dir/raw\xff" + b"r" * 120, Kind.FILE, 0o600, size=7), content),
        (Member(b"dir/z", Kind.SYMLINK, 0o777, link=b"t" * 150), b""),
    ]
    file = tmp_path / "layer.tar"
    file.write_bytes(written(layer)[0])
    (tmp_path / "out").mkdir()
    done = subprocess.run(["tar", "-xf", str(file), "-C", str(tmp_path / "out")], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    out = bytes(tmp_path / "out")
    for member, expected in layer:
        if member.kind is Kind.FILE:
            assert (Path(out.decode()) / member.path.decode("utf-8", "surrogateescape")).read_bytes() == expected
    assert str((tmp_path / "out/dir/z").readlink()) == "t" * 150


def test_one_read_feeds_all_sinks(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.write_bytes(b"z" * 3_000_000)
    sinks = [TarSink(), TarSink(io.BytesIO())]
    write_members([(Member(b"data", Kind.FILE, 0o644, size=3_000_000), source)], sinks)
    assert sinks[0].sha256 == sinks[1].sha256 != ""
