"""Any members, written by envbuild, by Python and by GNU tar: the reader sees what was written."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.oci.tar.fields import OVERLAY
from envbuild.oci.tar.member import Kind, Member
from tests.support.examples import examples
from tests.support.tars import STEPS, TYPES, gnu, read, written_tar

pytestmark = pytest.mark.unit
TEXT = st.binary(min_size=1, max_size=120).filter(
    lambda name: name not in (b".", b"..") and not name.startswith(b".wh..wh.") and not set(name) & {0, ord("/")}
)
NAMES = st.lists(TEXT, min_size=1, max_size=4).map(b"/".join)
TIMES = st.integers(-(1 << 40), 1 << 40)
IDS = st.integers(0, (1 << 32) - 2)
MODES = st.integers(0, 0o7777)
XATTRS = st.dictionaries(
    st.binary(min_size=1, max_size=30).filter(
        lambda name: not set(name) & {0, ord("="), ord("\n")} and not name.startswith(OVERLAY)
    ),
    st.binary(max_size=50),
    max_size=3,
)
COMMON = {"path": NAMES, "mode": MODES, "uid": IDS, "gid": IDS, "mtime": TIMES, "xattrs": XATTRS}
TARGETS = st.binary(min_size=1, max_size=300).filter(lambda link: 0 not in link)
NUMBERS = st.tuples(st.integers(0, 4095), st.integers(1, (1 << 20) - 1))
CONTENTS = st.one_of(st.binary(max_size=600), st.integers(0, 3000).map(lambda size: b"c" * size))


def member(kind: Kind, content: bytes = b"", **fields: object) -> tuple[Member, bytes]:
    return Member(kind=kind, size=len(content), **fields), content  # type: ignore[arg-type]


MEMBERS = st.one_of(
    st.builds(member, st.just(Kind.FILE), CONTENTS, **COMMON),
    st.builds(member, st.sampled_from([Kind.DIR, Kind.FIFO]), **COMMON),
    st.builds(member, st.just(Kind.SYMLINK), link=TARGETS, **COMMON),
    st.builds(member, st.just(Kind.HARDLINK), link=NAMES.map(lambda name: name + b"/other"), **COMMON),
    st.builds(member, st.sampled_from([Kind.CHAR, Kind.BLOCK]), device=NUMBERS, **COMMON),
)


@examples(200)
@given(st.lists(MEMBERS, max_size=6), st.sampled_from(STEPS))
def test_tars_written_by_envbuild(members: list[tuple[Member, bytes]], step: int) -> None:
    found = read(written_tar(members), step)
    assert found.members == [item for item, _ in members]
    assert [found.content(number) for number in range(len(members))] == [content for _, content in members]


@examples(200)
@given(
    st.lists(MEMBERS, max_size=6),
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    st.sampled_from(STEPS),
)
def test_tars_written_by_python(members: list[tuple[Member, bytes]], form: int, step: int) -> None:
    buffer, written = io.BytesIO(), []
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as tar:
        for item, content in members:
            info = tarfile.TarInfo(os.fsdecode(item.path))
            info.type, info.linkname, info.size = TYPES[item.kind], os.fsdecode(item.link), item.size
            info.mode, info.uid, info.gid, info.mtime = item.mode, item.uid, item.gid, item.mtime
            info.devmajor, info.devminor = item.device
            try:
                tar.addfile(info, io.BytesIO(content))
            except ValueError:
                continue  # this format cannot express it
            written.append((item, content))
    found = read(buffer.getvalue(), step)
    assert [one.path for one in found.members] == [item.path for item, _ in written]
    for number, (item, content) in enumerate(written):
        wanted = Member(
            item.path, item.kind, item.mode, item.uid, item.gid, item.mtime, item.size, item.link, item.device
        )
        assert found.members[number] == wanted
        assert found.content(number) == content


def test_the_reader_returns_the_same_as_tarfile(tmp_path: Path) -> None:
    """Python's own library, as far as it names things alike."""
    for number in range(50):
        folder = tmp_path / f"folder{number % 7}"
        folder.mkdir(exist_ok=True)
        (folder / f"file{number}").write_bytes(os.urandom(number * 97))
    archive = gnu(tmp_path, "--format=pax")
    found = read(archive)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for one, info in zip(found.members, tar.getmembers(), strict=True):
            assert (one.path, one.mode, one.size) == (os.fsencode(info.name), stat.S_IMODE(info.mode), info.size)
            assert one.mtime == int(info.mtime)
