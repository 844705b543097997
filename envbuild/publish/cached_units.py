"""Units that were built here, sent to the caches of the site that may be written.

A cache that fails is reported and left: the image remains. Format: `envbuild.build.cache.unit_document`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.build.cache.open_cache import OpenCache, UnusableCacheError
from envbuild.build.cache.take_unit import find_unit
from envbuild.build.cache.unit_document import NewerFormatError, RefusedUnitError, StoredBlob, UnitDocument
from envbuild.build.cache.unit_signature import sign_unit
from envbuild.core.console import Reporter
from envbuild.core.errors import EnvbuildError
from envbuild.core.store.build_records import SharedLayer
from envbuild.core.store.store import LayerRecord, Store, UnitRecord
from envbuild.core.store.store_folders import find_store_intruder
from envbuild.core.store.tree_folder import TreeFolder
from envbuild.core.text import amount, counted
from envbuild.core.userns.call import call
from envbuild.net.failures import UnreachableError
from envbuild.net.registry.media_types import OCI
from envbuild.net.registry.push import Push
from envbuild.net.unit_caches import names_without_keys
from envbuild.oci.layers.copy_tree import describe_folders
from envbuild.oci.layers.layer import implied_folders
from envbuild.publish.pack_blobs import PART, FileSlice, digest_parts
from envbuild.publish.squashfs_artifact import read_slice
from envbuild.publish.unit_folder import SentUnit, add_units
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.store_packs import pack_layer
from envbuild.squashfs.pack.unpack import ensure_trees

if TYPE_CHECKING:
    from envbuild.core.signing.key_file import Signer

PARALLEL = 4  # units that are searched at a time
TASK = "caches"


def send_units(
    records: Sequence[UnitRecord], caches: Sequence[OpenCache], store: Store, reporter: Reporter
) -> dict[str, int]:
    """Send the units of `records` to each cache that may be written and lacks them, or has something else under their
    keys. Return cache → units sent."""
    sent: dict[str, int] = {}
    for cache in caches:
        if not cache.setting.write or cache.reason:
            continue
        with ThreadPoolExecutor(PARALLEL) as pool:
            keys = [record.key for record in records]
            known = dict(zip(keys, pool.map(partial(has_unit, cache), keys), strict=True))
        new = [record for record in records if not known[record.key] or record.key in cache.refused]
        if cache.setting.sign:
            new = leave_unsigned(new, cache, caches, store, reporter)
        if not new or cache.reason:
            continue
        signed = f", signed with {cache.setting.sign}" if cache.setting.sign else ""
        reporter.start(TASK, f"sending {counted(len(new), 'unit')} to the cache {cache.name}{signed}")
        try:
            with store.workdir() as work:
                from envbuild.core.signing.passphrase import open_signer

                signer = open_signer(cache.setting.sign)
                units = [describe_unit(record, store, work, signer) for record in new]
                total = sum(unit.size for unit in units)
                if cache.setting.folder:
                    add_units(cache.setting.folder, units, reporter.info)
                else:
                    push_units(cache, units, reporter)
        except (EnvbuildError, UnreachableError, UnusableCacheError, OSError) as error:
            cache.leave(f"it cannot be written: {getattr(error, 'message', error)}", getattr(error, "hint", ""))
        else:
            sent[cache.name] = len(units)
            reporter.info(f"{counted(len(units), 'unit')}, {amount(total)}, sent to the cache {cache.name}")
        finally:
            reporter.finish(TASK)
    return sent


def leave_unsigned(
    records: Sequence[UnitRecord], cache: OpenCache, caches: Sequence[OpenCache], store: Store, reporter: Reporter
) -> list[UnitRecord]:
    """Return the units that may be signed for a cache, and report the others: those that were built on units of a cache
    without keys, and all of a store in which another member of a group can replace what a unit is built on. Raises
    SignatureError for a key of the site that cannot be used."""
    if records and (intruder := find_store_intruder(store.root)):
        reporter.warn(
            f"{counted(len(records), 'unit')} not signed for the cache {cache.name}, nor sent there: {intruder.path} "
            f"{intruder.reason} (ENVBUILD_STORE=/a/folder/of/yours is a store of your own)"
        )
        return []
    settings = [other.setting for other in caches]
    allowed = [record for record in records if not names_without_keys(record.caches, settings)]
    if left := len(records) - len(allowed):
        reporter.warn(
            f"{counted(left, 'unit')} not signed for the cache {cache.name}, nor sent there: built on units of a cache "
            "that needs no signature (envbuild make NAME --no-cache builds all here)"
        )
    return allowed


def has_unit(cache: OpenCache, key: str) -> bool:
    """Return whether a cache has a unit that those who read it take. Raises SignatureError for a key of the site that
    cannot be used."""
    if not cache.setting.keys:
        return cache.has(key)
    try:
        return find_unit(cache, key) is not None
    except (RefusedUnitError, NewerFormatError):
        return False


def push_units(cache: OpenCache, units: Sequence[SentUnit], reporter: Reporter) -> None:
    """Push units to a registry: blobs first, so that a key never names a part. Raises UnreachableError."""
    assert cache.address is not None
    push = Push(cache.address, cache.repository().transport)
    total, done = sum(unit.size for unit in units), 0

    def add(size: int) -> None:
        nonlocal done
        done += size
        reporter.advance(TASK, done, total)

    push.sent = add
    for unit in units:
        for blob in unit.files:
            push.blob(blob.open, blob.digest, blob.size, blob.start)
        push.manifest(unit.manifest, OCI.manifest, unit.document.key)


def describe_unit(record: UnitRecord, store: Store, work: Path, signer: Signer | None = None) -> SentUnit:
    """Return a unit of the store as it is sent; its pack is made if there is none, its document and the signature of
    that are written into `work`.

    Raises EnvbuildError, OSError.
    """
    document, files = UnitDocument(record.key, record.unit, record.seconds, dict(record.box)), list[FileSlice]()
    if record.layer:
        pack = pack_layer(store, record.layer, PackFormat())
        size = pack.stat().st_size
        whole, *split = digest_parts(pack, size)
        starts = range(0, size, PART) if split else [0]
        files = [
            FileSlice(digest, min(PART, size - start) if split else size, pack, start)
            for digest, start in zip(split or [whole], starts, strict=True)
        ]
        document = replace(
            document,
            diff_id=record.layer.diff_id,
            pack=StoredBlob(whole, size),
            parts=tuple(StoredBlob(part.digest, part.size) for part in files),
            folders=layer_folders(store, record.layer),
        )
    else:
        for name, digest in record.wheels:
            path = store.blob(digest)
            files.append(FileSlice(digest, path.lstat().st_size, path, 0, name))
        document = replace(document, wheels=tuple(StoredBlob(file.digest, file.size, file.title) for file in files))
    content = document.encode()
    path = work / f"{record.key}.json"
    path.write_bytes(content)
    files.append(FileSlice(hashlib.sha256(content).hexdigest(), len(content), path))
    if signer is None:
        return SentUnit(document, tuple(files))
    signature = work / f"{record.key}.signature.json"
    signature.write_bytes(sign_unit(document, signer))
    files.append(read_slice(signature, ""))
    return SentUnit(document, tuple(files), StoredBlob(files[-1].digest, files[-1].size))


def layer_folders(store: Store, layer: LayerRecord) -> tuple[TreeFolder, ...]:
    """Return the folders of a layer's tree that are not members of the layer."""
    if shared := SharedLayer.read(store.root / "packs", layer.diff_id):
        return shared.folders
    ensure_trees(store, [layer.diff_id])
    found: list[Any] = call(list_folders, store=str(store.root.resolve()), diff_id=layer.diff_id)
    return tuple((path, mode, uid, gid, mtime, xattrs) for path, mode, uid, gid, mtime, xattrs in found)


def list_folders(*, store: str, diff_id: str) -> list[TreeFolder]:
    """Return the same in this process, which must be root, or root of a user namespace."""
    home = Store(Path(store))
    return list(describe_folders(home.layer_tree(diff_id), implied_folders(home, diff_id)))
