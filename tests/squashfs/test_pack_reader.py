"""The members of a pack: read as they were written; a pack of another user does not lead out of a tree."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from envbuild.core.errors import DamagedPackError, EnvbuildError
from envbuild.core.store.build_records import PACK_VERSION, LayerRecord, SharedLayer
from envbuild.core.store.store import Store
from envbuild.oci.layers.layer import stored_members, write_layer_tar
from envbuild.oci.tar.member import Kind, Member
from envbuild.oci.tar.writer import TarSink
from envbuild.squashfs.pack.checksums import check_pack
from envbuild.squashfs.pack.file import TAIL, read_pack
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.index import COLUMNS
from envbuild.squashfs.pack.reader import send_members
from envbuild.squashfs.pack.store_packs import PackSink
from envbuild.squashfs.pack.unpack import unpack_layers
from envbuild.squashfs.pack.writer import PackWriter
from tests.support.packs import file, packs
from tests.support.squashfs_image import write_image

pytestmark = pytest.mark.unit
NOISE = bytes(range(256)) * 20 + os.urandom(40_000)
FILES = {
    b"opt/app/a": b"",
    b"opt/app/b": b"small",
    b"opt/app/c": NOISE,
    b"opt/app/d": NOISE,
    b"opt/app/e": b"x" * 4096 + NOISE[:5000],
    b"opt/app/f": bytes(3 * 4096) + b"end",
    b"opt/app/g": NOISE[:4096] + bytes(8192) + NOISE[:4096],
    b"opt/app/h": bytes(100_000),
}
FORMS = [
    PackFormat("zstd", 3, 4096),
    PackFormat("gzip", 6, 4096),
    PackFormat("lz4", 0, 4096),
    PackFormat("none", 0, 4096),
]


def members() -> list[tuple[Member, bytes]]:
    """Return a layer with every kind of member; `opt` is implied."""
    own = os.geteuid()
    found = [
        (Member(b"gone", Kind.DIR, 0o755, own, own, 5), b""),
        (Member(b"gone/.wh.x", Kind.FILE, 0o644), b""),
        (Member(b"opt/app", Kind.DIR, 0o2750, own, own, 7, xattrs={b"user.a": b"\xff"}), b""),
        (Member(b"opt/app/.wh..wh..opq", Kind.FILE, 0o644), b""),
        *((Member(path, Kind.FILE, 0o4711, own, own, 9, len(data)), data) for path, data in FILES.items()),
        (Member(b"opt/app/link", Kind.SYMLINK, 0o777, own, own, 3, link=b"../../nowhere"), b""),
        (Member(b"opt/app/other", Kind.HARDLINK, 0o4711, own, own, 9, link=b"opt/app/c"), b""),
        (Member(b"opt/app/pipe", Kind.FIFO, 0o600, own, own, 3), b""),
    ]
    return sorted(found, key=lambda item: item[0].path)


def write(store: Store, form: PackFormat, *, path: bytes = b"", link: bytes = b"") -> SharedLayer:
    """Write the pack of the layer, with another `path` or `link` in its index than a writer takes."""
    tar = TarSink()
    temporary = store.tmp / "pack"
    with PackWriter(temporary, codec=form.codec, level=form.level, block=form.block) as writer:
        for member, data in members():
            for sink in (tar, writer):
                sink.begin(member)
                sink.data(data)
                sink.end()
        if path:
            writer.index.paths[writer.index.paths.index(b"opt/app/b")] = path
        if link:
            writer.index.links[writer.index.links.index(b"opt/app/c")] = link
    tar.close()
    record = LayerRecord(tar.diff_id, tar.size, tar.files, "test")
    pack = PackSink(form).give(temporary, store, tar.diff_id)
    shared = SharedLayer(record, pack.name, (("opt", 0o2710, os.geteuid(), os.geteuid(), 11, {"user.b": "1"}),))
    shared.write(pack.parent)
    return shared


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.codec)
def test_a_pack_has_the_bytes_of_its_layer(form: PackFormat, store: Store) -> None:
    shared, tar = write(store, form), TarSink()
    send_members(read_pack(store.root / "packs" / shared.pack), [tar])
    assert tar.diff_id == shared.record.diff_id and tar.size == shared.record.size


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make whiteouts")
def test_a_tree_from_a_pack_reads_as_the_same_layer(store: Store, tmp_path: Path) -> None:
    shared = write(store, FORMS[0])
    unpack_layers(store=str(store.root), diff_ids=[shared.record.diff_id])
    with (tmp_path / "tar").open("wb") as file:
        write_layer_tar(store, shared.record, file)
    assert [member.path for member, _ in stored_members(store, shared.record.diff_id)] == [
        member.path for member, _ in members()
    ]
    tree = store.layer_tree(shared.record.diff_id)
    status = (tree / "opt").stat()
    # not as its description states: nothing compares that with a digest
    assert (status.st_mode & 0o7777, status.st_mtime, os.listxattr(tree / "opt")) == (0o755, 0, [])
    assert (tree / "opt/app/other").samefile(tree / "opt/app/c")
    assert store.layer_path(shared.record.diff_id).stat().st_mode & 0o777 == 0o700
    assert not list((store.tmp).iterdir())


@pytest.mark.parametrize(
    ("path", "link"),
    [
        (b"../../escaped", b""),
        (b"/escaped", b""),
        (b"opt/../../escaped", b""),
        (b"opt/app/link/x", b""),
        (b"", b"../../x"),
    ],
)
def test_a_pack_that_leads_out_of_the_tree_is_refused_and_removed(path: bytes, link: bytes, store: Store) -> None:
    shared = write(store, FORMS[0], path=path, link=link)
    with pytest.raises(EnvbuildError):
        unpack_layers(store=str(store.root), diff_ids=[shared.record.diff_id])
    assert not list(store.root.rglob("escaped")) and not list((store.root / "layers").iterdir())
    assert not (store.root / "packs" / shared.pack).exists()


@pytest.mark.parametrize("cut", [0, 1])
def test_a_pack_of_another_layer_and_a_truncated_one_are_refused_and_removed(cut: int, store: Store) -> None:
    shared = write(store, FORMS[0])
    other = replace(shared.record, diff_id=f"sha256:{'1' * 64}")
    content = (store.root / "packs" / shared.pack).read_bytes()
    name = f"{'1' * 64}.v{PACK_VERSION}"
    (store.root / "packs" / name).write_bytes(content[: len(content) - cut])
    SharedLayer(other, name).write(store.root / "packs")
    with pytest.raises(EnvbuildError, match="corrupt pack in the store"):
        unpack_layers(store=str(store.root), diff_ids=[other.diff_id])
    assert not store.find_layer(other.diff_id)


@pytest.mark.parametrize("kind", ["link", "fifo", "file"])
def test_a_pack_is_read_to_its_end_from_the_file_that_was_checked(kind: str, tmp_path: Path) -> None:
    """In a store that a group shares, a member may replace it once its index was read, also by a link to what only the
    reader may read."""
    layers = [
        [file(b"a", NOISE[:40_000]), file(b"tail", b"small")],
        [file(b"b", NOISE[:40_000]), file(b"c", NOISE[1:]), file(b"other", b"small")],
    ]
    expected = write_image(packs(tmp_path, *layers), tmp_path / "expected", epoch=7).path.read_bytes()
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret of the reader " * 10_000)
    for number in range(2):
        found = packs(tmp_path, *layers)
        path = found[number].path
        path.unlink()
        if kind == "link":
            path.symlink_to(secret)
        elif kind == "fifo":
            os.mkfifo(path)
        else:
            path.write_bytes(secret.read_bytes())
        assert write_image(found, tmp_path / "image", epoch=7).path.read_bytes() == expected
        tar, other = TarSink(), TarSink()
        send_members(found[number], [tar])
        path.unlink()
        send_members(packs(tmp_path, *layers)[number], [other])
        assert tar.diff_id == other.diff_id


def test_a_pack_that_is_a_link_is_refused(tmp_path: Path) -> None:
    pack = packs(tmp_path, [file(b"a", NOISE)])[0].path
    (tmp_path / "link").symlink_to(pack)
    for read in (read_pack, check_pack):
        with pytest.raises(DamagedPackError):
            read(tmp_path / "link")


def test_a_pack_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    found = packs(tmp_path, [file(b"a", NOISE)])
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    del found
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def rewrite(pack: Path, change: Callable[[dict[str, Any], list[bytes]], bytes | None], unpacked: int = 0) -> None:
    """Change the header and the columns of an index, or replace its JSON; its digest is right."""
    data = pack.read_bytes()
    end, stored, size, _, magic = TAIL.unpack(data[-TAIL.size :])
    content = zstandard.ZstdDecompressor().decompress(data[end : end + stored], max_output_size=size)
    (length,) = struct.unpack_from("<I", content)
    header, parts, at = json.loads(content[4 : 4 + length]), [], 4 + length
    for part in header["lengths"]:
        parts.append(content[at : at + part])
        at += part
    text = change(header, parts)
    if text is None:
        header["lengths"] = [len(part) for part in parts]
        text = json.dumps(header).encode()
    content = b"".join([struct.pack("<I", len(text)), text, *parts])
    frame = zstandard.ZstdCompressor().compress(content)
    digest = hashlib.blake2b(frame, digest_size=32).digest()
    pack.write_bytes(data[:end] + frame + TAIL.pack(end, len(frame), unpacked or len(content), digest, magic))


def set_paths(header: dict[str, Any], parts: list[bytes]) -> None:
    parts[0] = bytes(100 << 20)


@pytest.mark.parametrize(
    ("change", "unpacked"),
    [
        (lambda *_: b"[" * 200_000, 0),
        (lambda header, _: header.update(xattrs=[[[1, 2]]]), 0),
        (lambda header, _: header.update(xattrs="x"), 0),
        (lambda header, _: header.update(members=1e999), 0),
        (lambda header, _: header.update(codec=[1]), 0),
        (lambda header, _: header.update(block=4096.0), 0),
        (lambda header, _: header.update(level=True), 0),
        (lambda header, _: header.update(library=[1]), 0),
        (lambda *_: None, 12 << 30),
        (lambda *_: b" " * (65 << 20), 0),
        (set_paths, 0),
    ],
    ids=["nested", "numbers", "text", "infinity", "codec", "block", "level", "library", "bomb", "long header", "paths"],
)
def test_a_hostile_index_is_damage(change: Any, unpacked: int, store: Store) -> None:
    """Another member of a group wrote it, with a right digest: the pack is made again, in little memory."""
    pack = store.root / "packs" / write(store, FORMS[0]).pack
    read_pack(pack)
    rewrite(pack, change, unpacked)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedPackError):
            read_pack(pack)
        assert tracemalloc.get_traced_memory()[1] < 512 << 20
    finally:
        tracemalloc.stop()


def test_an_index_is_read_in_pieces(store: Store) -> None:
    pack = store.root / "packs" / write(store, FORMS[0]).pack
    rewrite(pack, lambda _, parts: parts.__setitem__(3 + list(COLUMNS).index("words"), bytes(128 << 20)))
    tracemalloc.start()
    try:
        read_pack(pack)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


def test_fragment_blocks_are_unpacked_to_a_limit(tmp_path: Path) -> None:
    layer = [file(b"%04d" % number, os.urandom(3000)) for number in range(40)]
    (found,) = packs(tmp_path, layer)
    size = sum(found.index.columns["fragment_sizes"])
    send_members(found, [TarSink()], size)
    with pytest.raises(EnvbuildError, match="unpacks too much"):
        send_members(found, [TarSink()], size - 1)


def test_no_block_is_read_that_is_stored_larger_than_its_content(tmp_path: Path) -> None:
    """A small pack could have a million files of one byte with 16 MiB stored for each."""
    content = os.urandom(1 << 20)
    (found,) = packs(tmp_path, [file(b"large", content), file(b"large2", content[::-1])])
    words = found.index.columns["words"]
    assert any(words)
    for number, word in enumerate(words):
        words[number] = word + 1
    with pytest.raises(EnvbuildError):
        send_members(found, [TarSink()])


@pytest.mark.parametrize(
    "change", [{"xattrs": {b"user.a=b": b"c"}}, {"xattrs": {b"": b"c"}}, {"device": (1 << 31, 0)}], ids=str
)
def test_a_member_that_a_tar_stores_as_another_is_refused(change: Any, tmp_path: Path) -> None:
    with pytest.raises(EnvbuildError):
        packs(tmp_path, [(Member(b"a", Kind.FILE, 0o644, **change), b"")])
