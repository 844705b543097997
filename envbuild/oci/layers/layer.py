"""Layers: made canonical, read in one pass, stored as trees, and read again to the same bytes.

One layer has one digest, for any engine, file system and user that built it: members in byte order, times clamped,
owners as the unit sees them, hard links to the first name, deletions and opaque marks only where they hide something
(OCI image spec, layer.md). Functions here must run where owners read as the unit's own: as root, or in the user
namespace (`write_layer_tar` enters it itself).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import IO, NoReturn, Protocol

from envbuild.core.errors import DamagedLayerError, EngineError
from envbuild.core.store.build_records import SharedLayer
from envbuild.core.store.json_files import read_sealed, write_sealed
from envbuild.core.store.store import STALE, LayerRecord, Store
from envbuild.core.userns.call import stream
from envbuild.oci.layers.clean import clean
from envbuild.oci.layers.copy_tree import describe_folders
from envbuild.oci.layers.lower_view import IMPLIED, read_implied
from envbuild.oci.layers.scan import make_canonical, read_members, scan, scan_canonical
from envbuild.oci.tar.member import Member, Sink
from envbuild.oci.tar.writer import TarSink

CHUNK = 1 << 20
UNPACKED = (
    "unpacked-2"  # beside tree/: it was made from a pack, and the folders that are not members from a description
)


class SinkFactory(Protocol):
    """Maker of a file from a layer, in the same read as its digest, such as a pack for squashfs."""

    def open(self, path: Path) -> AbstractContextManager[Sink]:
        """Return a sink that completes the file `path` when it is closed, and discards it on an exception."""
        ...

    def give(self, path: Path, store: Store, diff_id: str) -> Path:
        """Move the finished file to its place in the store, and return that."""
        ...


def upper_members(
    upper: Path, lowers: Sequence[Path], *, epoch: int, keep: Sequence[str] = ()
) -> Iterator[tuple[Member, Path | None]]:
    """Yield the members of the layer that `upper` is over `lowers` (trees, bottom first), each with the file that
    contains its data."""
    return read_members(scan(upper, lowers, epoch=epoch, keep=keep))


def write_members(entries: Iterable[tuple[Member, Path | None]], sinks: Sequence[Sink]) -> None:
    """Pass every member and its data to all sinks, in one read; then close them."""
    for member, source in entries:
        for sink in sinks:
            sink.begin(member)
        if source is not None and member.size:
            with source.open("rb", buffering=0) as file:
                while chunk := file.read(CHUNK):
                    for sink in sinks:
                        sink.data(chunk)
        for sink in sinks:
            sink.end()
    for sink in sinks:
        sink.close()


def make_layer(
    folder: Path,
    lowers: Sequence[Path],
    store: Store,
    *,
    epoch: int,
    keep: Sequence[str] = (),
    unit: str = "",
    sinks: Sequence[SinkFactory] = (),
) -> LayerRecord:
    """Turn ``folder/tree``, the upper directory of a finished unit, into a layer of the store, with files of `sinks`.

    The tree is cleaned, read once for the digest and all sinks, made canonical in place and renamed into the store; a
    layer that the store has already is left alone. Raises OSError (ENOSPC) and EngineError.
    """
    tree = folder / "tree"
    clean(tree)
    found = scan(tree, lowers, epoch=epoch, keep=keep)
    tar = TarSink()
    with contextlib.ExitStack() as stack:
        temporary = [folder / f"sink-{number}" for number in range(len(sinks))]
        writers = [stack.enter_context(sink.open(path)) for path, sink in zip(temporary, sinks, strict=True)]
        write_members(read_members(found), [tar, *writers])
        stack.pop_all()  # closed by write_members
    make_canonical(found)
    record = LayerRecord(tar.diff_id, tar.size, tar.files, unit)
    given = [sink.give(path, store, record.diff_id) for path, sink in zip(temporary, sinks, strict=True)]
    share_layer(store, record, given[0] if given else None, tree, found.implied)
    add_layer(store, folder, record, found.implied)
    return record


def add_layer(
    store: Store, folder: Path, record: LayerRecord, implied: Iterable[bytes], *, unpacked: bool = False
) -> None:
    """Move ``folder/tree``, a canonical tree, into the store as the layer `record`. `unpacked`: from a pack."""
    if unpacked:
        (folder / UNPACKED).touch()
    (folder / os.fsdecode(IMPLIED)).write_bytes(b"".join(path + b"\0" for path in sorted(implied)))
    write_sealed(folder / "layer.json", asdict(record))
    move_to_store(folder, store.layer_path(record.diff_id), store.tmp)


def share_layer(store: Store, record: LayerRecord, pack: Path | None, tree: Path, implied: Iterable[bytes]) -> None:
    """Record, in a store that a group shares, which pack others can unpack a layer from (None: of a unit that only
    builds use no pack is made). A record that a cache of units left is replaced in any store."""
    packs = store.root / "packs"
    known = SharedLayer.read(packs, record.diff_id)
    if known or (pack and store.is_shared):
        name = pack.name if pack else known.pack if known else ""
        SharedLayer(record, name, describe_folders(tree, implied)).write(packs)


def move_to_store(folder: Path, target: Path, tmp: Path) -> None:
    """Rename a finished layer folder into the store; a complete one there is left alone, one whose record cannot be
    read is replaced.

    A tree that was built replaces one from a pack: the folders of that one, which a cache of units described, have no
    digest. Another process may work with it, so it is moved to `tmp`, the store's, for a later command.
    """
    stale = (target / STALE).exists()
    if not stale and _has_record(target) and (not (target / UNPACKED).exists() or (folder / UNPACKED).exists()):
        return
    _move_aside(target, tmp)
    try:
        folder.rename(target)
    except OSError:
        if not _has_record(target):
            raise


def _has_record(layer: Path) -> bool:
    """Return whether a layer of the store has a record that commands can read (`Store.has_tree`)."""
    return LayerRecord.parse(read_sealed(layer / "layer.json")) is not None


def remove_unpacked(store: Store, diff_id: str) -> None:
    """Remove this user's tree of a layer if it was made from a pack, as a built one replaces it (`move_to_store`)."""
    path = store.layer_path(diff_id)
    if (path / UNPACKED).exists():
        _move_aside(path, store.tmp)


def _move_aside(layer: Path, tmp: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        layer.rename(tmp / f"removed-{layer.name}-{os.urandom(4).hex()}")


def stored_members(store: Store, diff_id: str) -> Iterator[tuple[Member, Path | None]]:
    """Yield the members of a layer of the store, as they were packed. Raises EngineError if it is missing."""
    return read_members(scan_canonical(store.layer_tree(diff_id), implied_folders(store, diff_id)))


def implied_folders(store: Store, diff_id: str) -> list[bytes]:
    """Return the folders of a stored tree that are not members of the layer. Raises EngineError if it is missing."""
    if not (store.layer_path(diff_id) / os.fsdecode(IMPLIED)).exists():
        raise EngineError(f"the store has no layer {diff_id}", hint="run envbuild make again to build it")
    return list(read_implied(os.fsencode(store.layer_tree(diff_id))))


def stream_layer_tar(store: Store, diff_id: str) -> Iterator[bytes]:
    """Yield the canonical tar of a layer of the store, in chunks, read inside a user namespace. Raises EngineError."""
    return stream(_print_layer, store=str(store.root), diff_id=diff_id)


def _print_layer(*, store: str, diff_id: str) -> None:
    with os.fdopen(1, "wb", closefd=False) as file:
        write_members(stored_members(Store(Path(store)), diff_id), [TarSink(file)])


def write_layer_tar(store: Store, record: LayerRecord, file: IO[bytes]) -> None:
    """Write the canonical tar of a layer of the store to `file` (any object with ``write``) and check its digest.

    A user other than root reads it inside a user namespace. Raises EngineError if the layer is corrupt: what was
    written must then be discarded.
    """
    if os.geteuid() == 0:
        sink = TarSink(file)
        write_members(stored_members(store, record.diff_id), [sink])
        digest = sink.sha256
    else:
        checksum = hashlib.sha256()
        for chunk in stream_layer_tar(store, record.diff_id):
            checksum.update(chunk)
            file.write(chunk)
        digest = checksum.hexdigest()
    if digest != record.hex:
        drop_layer(store, record.diff_id, digest)


def drop_layer(store: Store, diff_id: str, found: str) -> NoReturn:
    """Raise DamagedLayerError for a layer whose files have the digest `found`. It is moved aside first, so that the
    next build makes it again; one that another user built is left alone, and EngineError is raised."""
    path = store.layer_path(diff_id)
    message = f"the layer {diff_id} reads as sha256:{found}: its files were changed, or belong to another user"
    if path.stat().st_uid != os.geteuid():
        raise EngineError(message, hint=f"remove {path} and run envbuild make again", where=str(path))
    _move_aside(path, store.tmp)
    raise DamagedLayerError(message, hint="it was moved aside; run the command again", where=str(path))
