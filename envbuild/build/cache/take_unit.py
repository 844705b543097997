"""A unit that is taken from a cache: its blobs are fetched and compared, and it is recorded as if it was built here.

No pack of a cache enters the store. An image copies the bytes of packs by their index, which covers more than the layer
that has the digest: so the layer is read, and compressed here in the same read. Other images use the pack by the
digest of that layer. Format of the store: `envbuild.core.store.store`.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from envbuild.build.cache.open_cache import OpenCache
from envbuild.build.cache.unit_document import (
    NewerFormatError,
    RefusedUnitError,
    StoredBlob,
    UnitDocument,
    parse_unit_document,
    parse_unit_manifest,
)
from envbuild.build.cache.unit_signature import find_signer
from envbuild.build.plan.units import Product, Unit
from envbuild.core.bombs import most_unpacked
from envbuild.core.errors import EnvbuildError, PackFormatError
from envbuild.core.store.build_records import SharedLayer
from envbuild.core.store.store import LayerRecord, Store, UnitRecord
from envbuild.core.text import amount, printable
from envbuild.net.download import DownloadError, Transfer
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.miss import MissKind
from envbuild.oci.document import InvalidDocumentError
from envbuild.oci.layers.layer import remove_unpacked
from envbuild.oci.tar.writer import TarSink
from envbuild.squashfs.pack.file import MALFORMED, read_pack
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.reader import send_members
from envbuild.squashfs.pack.store_packs import PackSink
from envbuild.squashfs.pack.workers import Workers

WRITTEN = "written"  # beside a fetched pack: the same layer, compressed here


@dataclass(frozen=True, slots=True)
class FoundUnit:
    """A unit that a cache has: its document, the digest (hex) of its manifest, and the `name`, in records, of the cache
    with the key that signed the unit."""

    cache: OpenCache
    manifest: str
    document: UnitDocument
    name: str

    @property
    def size(self) -> int:
        """The bytes of its product."""
        return sum(blob.size for blob in self.document.blobs)

    @property
    def source(self) -> str:
        return f"{self.cache.name}@sha256:{self.manifest}"


def find_unit(cache: OpenCache, key: str) -> FoundUnit | None:
    """Return a unit of a cache; None if it has none, or cannot be used.

    Raises RefusedUnitError, NewerFormatError.
    """
    content = cache.find(key)
    if content is None:
        return None
    try:
        part, signatures = parse_unit_manifest(content)
        name = find_signer(cache, part.digest, signatures)
        document = parse_unit_document(cache.read(part.digest, part.size))
    except NewerFormatError:
        raise
    except InvalidDocumentError as error:
        raise RefusedUnitError(f"its description is damaged: {error}") from None
    except ValueError as error:
        raise RefusedUnitError(f"its description is not what the manifest names: {error}") from None
    except NotFoundError:
        raise RefusedUnitError("its description is missing") from None
    except UnreachableError as error:
        cache.leave(str(error), error.hint)
        return None
    if document.key != key:
        raise RefusedUnitError(
            f"it is another unit, {printable(f'{document.unit[:60]} with the key {document.key[:64]}')}"
        )
    return FoundUnit(cache, hashlib.sha256(content).hexdigest(), document, name)


def take_unit(found: FoundUnit, unit: Unit, store: Store, transfer: Transfer, workers: Workers) -> UnitRecord | None:
    """Fetch a unit into the store and return its record; None if the cache stopped answering.

    unit: that of the plan. workers: what compresses its layer.

    Raises RefusedUnitError, EngineError.
    """
    document, layer = found.document, None
    if unit.product != (Product.LAYER if document.pack else Product.WHEEL) or not document.blobs:
        raise RefusedUnitError(f"its product is not a {unit.product}")
    try:
        if document.pack:
            layer = _take_layer(found, unit.name, store, transfer, workers)
        for wheel in document.wheels:
            with store.filled(), store.workdir() as work:
                _fetch_blob(found, wheel, work / "wheel", transfer)
                store.add_blob(work / "wheel")
    except DownloadError as error:
        # In a folder each file is a place of its own: the others may be sound.
        damaged = (MissKind.MISMATCH, MissKind.ABSENT, *((MissKind.REFUSED,) if found.cache.setting.folder else ()))
        wrong = [miss for miss in error.misses if miss.kind in damaged]
        if wrong:
            raise RefusedUnitError("; ".join(miss.detail for miss in wrong)) from None
        found.cache.leave(str(error))
        return None
    wheels = tuple((wheel.name, wheel.digest) for wheel in document.wheels)
    record = UnitRecord(
        document.key, unit.name, layer, wheels, document.seconds, document.box, found.source, (found.name,)
    )
    store.record_unit(record)
    return record


def _take_layer(found: FoundUnit, unit: str, store: Store, transfer: Transfer, workers: Workers) -> LayerRecord:
    diff_id, folders = found.document.diff_id, found.document.folders
    with store.lock(f"cache-{diff_id.removeprefix('sha256:')}"):
        present = store.find_layer(diff_id)
        if present and present.caches == (found.name,):
            return present
        with store.filled(), store.workdir() as work:
            pack = work / "pack"
            _fetch_pack(found, pack, work, transfer)
            layer = _write_pack(found, unit, pack, workers)
            if present and not present.caches:  # built here: the cache has it, too
                return present
            target = PackSink(PackFormat()).give(work / WRITTEN, store, diff_id)
        SharedLayer(layer, target.name, folders).write(target.parent)
        remove_unpacked(store, diff_id)  # with the folders of another cache
        store.share_packs(diff_id)
        return layer


def _fetch_pack(found: FoundUnit, pack: Path, work: Path, transfer: Transfer) -> None:
    """Write the pack of a unit from its parts. Raises DownloadError, RefusedUnitError."""
    assert found.document.pack is not None
    parts = found.document.parts
    for number, part in enumerate(parts):
        target = work / f"part-{number}"
        _fetch_blob(found, part, target, transfer)
        if number:
            with pack.open("ab") as whole, target.open("rb") as file:
                shutil.copyfileobj(file, whole, 1 << 20)
            target.unlink()
        else:
            target.rename(pack)
    if len(parts) > 1:
        with pack.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != found.document.pack.digest:
            raise RefusedUnitError(f"its parts are not its pack: expected sha256 {found.document.pack.digest}")


def _fetch_blob(found: FoundUnit, blob: StoredBlob, target: Path, transfer: Transfer) -> None:
    """Fetch a blob from the cache, also one that the store has: a cache could name that of a private image."""
    found.cache.check_blob(blob.digest)
    transfer.obtain([found.cache.blob(blob.digest)], blob.digest, blob.size, target)


def _write_pack(found: FoundUnit, unit: str, path: Path, workers: Workers) -> LayerRecord:
    """Write the layer in a fetched pack as a pack of this machine into the same folder. Raises RefusedUnitError."""
    document = found.document
    assert document.pack is not None
    if (size := path.stat().st_size) != document.pack.size:
        raise RefusedUnitError(f"its pack has {amount(size)}, not {amount(document.pack.size)}")
    tar, most = TarSink(), most_unpacked(size)
    with PackSink(PackFormat(), workers).open(path.with_name(WRITTEN)) as writer:
        try:
            pack = read_pack(path)
            if (total := sum(pack.index.columns["sizes"])) > most:
                raise RefusedUnitError(f"{amount(size)} unpack to {amount(total)}")
            send_members(pack, [tar, writer], most)
        except PackFormatError as error:
            raise RefusedUnitError(error.message) from None
        except (*MALFORMED, EnvbuildError) as error:
            why = error.message if isinstance(error, EnvbuildError) else str(error)
            raise RefusedUnitError(f"its pack is damaged: {printable(why)[:300]}") from None
    if tar.diff_id != document.diff_id:
        raise RefusedUnitError(
            f"its layer is not the one that it names: expected {document.diff_id}, got {tar.diff_id}"
        )
    return LayerRecord(tar.diff_id, tar.size, tar.files, unit, (found.name,))
