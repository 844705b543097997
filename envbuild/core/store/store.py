"""The store: content by digest, units by key, layers, packs, logs.

    blobs/sha256/<hex>          inputs and products, by content
    units/<key>.json            UnitRecord: the product of a unit
    layers/<diff id hex>/       tree/ (canonical, usable as an overlay lower directory), layer.json (LayerRecord),
                                compressed.json (envbuild.oci.layers.compressed)
    packs/<diff id hex>.<format>  one layer compressed for squashfs (envbuild.squashfs.pack.writer)
    packs/<hex>.v<format>.layer.json  of a layer that a group shares: its pack, which others unpack (SharedLayer)
    packs/<its name>.equal      content that such a pack shares with others (envbuild.squashfs.write.dedup_cache)
    images/<hex>.json           what `make` built from one lock, for the next run
    artifacts/                  finished images (squashfs files, OCI layouts), and what verify found of them
    exports/<host>-<pid>-<hex>.json  progress of each export, for a day (envbuild.export.progress)
    partial/<sha256>.part       the received part of a blob, for the next attempt
    logs/<unit>-<key 12>.log
    published/<host>.json       which repositories of a registry have which blobs (envbuild.publish.known_repositories)
    resolved/<hex>.json         results of locking, of one user (envbuild.lock.stored_results)
    measured/<lock 12>/<file>.json  evidence of GPU checks (envbuild.verify.measured)
    locks/                      flock files, one a unit key
    tmp/                        each process has a folder of its own here, with a lock until it ends
    envbuild-store              the mark of a store (envbuild.core.store.mark)

Everything is written under tmp/ and renamed into place; a killed process leaves only folders in tmp/ whose lock is
free, and the next run removes those.

A store whose folder a group may write is shared by that group: its entries have the mode of the folder, with any umask.
What a user works in is never shared: layers/, tmp/, logs/, partial/ and the caches of other programs are in
user-<uid>/ there, for that user alone, and so is evidence of verify (user-<uid>/artifacts/), which another member
could forge. Members unpack what others built from its pack (`envbuild.core.store.members`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.core.digest import copy_digested, file_digest, stored_digest
from envbuild.core.errors import FREE_SOME, FULL_DISK, EngineError, InputError
from envbuild.core.file_status import file_status
from envbuild.core.regular_file import (
    NotRegularError,
    PinnedFile,
    TooLargeError,
    open_regular,
    pin,
    pin_regular,
    read_bounded,
)
from envbuild.core.store.build_records import LayerRecord, SharedLayer, UnitRecord
from envbuild.core.store.json_files import read_json, read_sealed, stamp, write_atomic, write_json, write_sealed
from envbuild.core.store.members import check_entry
from envbuild.core.store.permissions import (
    is_shared,
    make_own_place,
    make_private_folder,
    move_into_store,
    own_place,
    share_file,
)
from envbuild.core.store.store_folders import prepare_store
from envbuild.core.store.work_folders import abandoned_folders, hold_lock, work_folder
from envbuild.core.text import amount

__all__ = ["LayerRecord", "SharedLayer", "Store", "UnitRecord", "read_json", "stamp", "write_atomic", "write_json"]

MAX_DOCUMENT = 16 << 20  # bytes, as when it is downloaded
STALE = "unpacked"  # beside tree/: an earlier envbuild made it from a pack, without all deletions; it is not used


def ignore(text: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class Store:
    """A store folder. Make one with `Store.open`. `logs`: the folder of the logs, if that is in another store."""

    root: Path
    report: Callable[[str], object] = field(default=ignore, compare=False, repr=False)
    logs: Path | None = field(default=None, compare=False)

    @classmethod
    def open(cls, root: Path, report: Callable[[str], object] = ignore, *, may_be_full: bool = False) -> Store:
        """Create the folders of the store, and close those of an older one that others could enter.

        report: called with a line about that. may_be_full: the command frees space. Raises EngineError when the place
        cannot be written, when it is a folder with other content (`mark_store`), and when another user could make this
        one's commands change files elsewhere (`check_members`).
        """
        prepare_store(root, report, may_be_full=may_be_full)
        return cls(root, report)

    @property
    def own(self) -> Path:
        """Return the folder in which this user works: the store, or in a shared store a folder in it."""
        return own_place(self.root)

    @property
    def tmp(self) -> Path:
        return self.own / "tmp"

    @contextlib.contextmanager
    def filled(self) -> Iterator[None]:
        """Raise EngineError, with the store's path, if the context finds the disk or the quota full."""
        try:
            yield
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            raise EngineError(f"the store {self.root} is full: {error.strerror}", hint=FREE_SOME) from None

    def check_space(self, files: Iterable[tuple[str, int]]) -> None:
        """Raise EngineError if the disk of the store has less space than `files` (sha256, bytes) take that are not
        there, nor a part of them: at once, and not after some of them were downloaded."""
        needed = 0
        for sha256, size in files:
            with contextlib.suppress(FileNotFoundError):
                size -= self.part(sha256).stat().st_size
            needed += max(size, 0)
        status = os.statvfs(self.root)
        free = status.f_bavail * status.f_frsize
        if needed > free:
            why = f"{os.strerror(errno.ENOSPC)}: {amount(needed)} are needed, and {amount(free)} are free"
            raise EngineError(f"the store {self.root} is full: {why}", hint=FREE_SOME)

    # blobs
    def blob(self, sha256: str) -> Path:
        return self.root / "blobs" / "sha256" / sha256

    def part(self, name: str) -> Path:
        """Return the path for the received part of a file; `name`: its sha256, or another name."""
        return self.own / "partial" / f"{name}.part"

    def has_blob(self, sha256: str, size: int = 0) -> bool:
        """Return whether the store has a blob, of at most `size` bytes where they are known: another member of a group
        can put a file of any size there, which would be read before its digest is known."""
        try:
            found = self.blob(sha256).lstat()
        except (OSError, ValueError):
            return False
        return stat.S_ISREG(found.st_mode) and (not size or found.st_size <= size)

    def add_blob(self, source: Path) -> str:
        """Move a file that envbuild wrote (on the store's file system) into the store as a blob. Return its sha256.

        Raises OSError (ELOOP) for a link: what it leads to is not the caller's to change.
        """
        with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            os.fchmod(file.fileno(), 0o644)
        move_into_store(source, self.blob(sha256))
        return sha256

    def copy_blob(self, source: Path) -> str:
        """Copy the bytes of a file that a step of a build wrote into the store as a blob. Return its sha256.

        The file itself remains outside: its owner may be another user of the machine, who could write it from then on,
        and its mode and attributes may make it a program with the rights of the builder. Raises OSError.
        """
        with self.workdir() as folder, open_regular(source, follow=False) as file:
            target = folder / "blob"
            with target.open("xb") as copy:
                sha256 = copy_digested(file, copy)
                os.fchmod(copy.fileno(), 0o644)  # with any umask
            move_into_store(target, self.blob(sha256))
        return sha256

    def check_blob(self, sha256: str) -> None:
        """Check the digest of a blob.

        A corrupt one is removed, so that the next run fetches it again, but not what another process has put there
        meanwhile. Raises InputError.
        """
        damaged = self.blob(sha256)
        before = damaged.lstat()
        found = stored_digest(damaged)
        if found != sha256:
            with contextlib.suppress(FileNotFoundError):
                if _is_unchanged(before, damaged.lstat()):
                    self._remove_damaged(damaged)
            raise InputError(
                f"corrupt blob in the store: expected sha256 {sha256}, got {found}",
                hint="it was removed; run the command again to fetch it",
                where=str(damaged),
            )

    def _remove_damaged(self, blob: Path) -> None:
        try:
            blob.unlink()
        except IsADirectoryError:  # with anything in it: a later command removes it
            blob.rename(self.tmp / f"removed-{secrets.token_hex(8)}")

    def others_may_write(self, sha256: str) -> bool:
        """Return whether other users may write a blob: in a store that a group shares; and where a hard link of it has
        such a mode, as after ``chmod -R g+w`` of a folder of `fetch --to`."""
        if self.is_shared:
            return True
        try:
            found = file_status(self.blob(sha256), follow=False)
        except FileNotFoundError:
            return False
        return bool(found.stat.st_mode & 0o022) or found.owner not in (os.geteuid(), 0)

    def pin_blob(self, sha256: str) -> PinnedFile:
        """Open a blob whose content decides what is locked. Where other users may write it, they can do so at any time:
        what is compared and then read is a copy.

        A corrupt one is removed. Raises InputError.
        """
        failure: Exception = InputError(f"a blob of the store changed while it was read: {sha256}", "run it again")
        try:
            pinned = pin_regular(self.blob(sha256))
            found, pinned = (
                self._pin_copy(pinned) if self.others_may_write(sha256) else (file_digest(pinned.path), pinned)
            )
            if found == sha256:
                return pinned
        except NotRegularError:
            pass
        except OSError as error:  # the disk may be full
            failure = error
        self.check_blob(sha256)
        raise failure

    def _pin_copy(self, file: PinnedFile) -> tuple[str, PinnedFile]:
        """Copy a file into one without a name, that no other process can write. Return its digest, too."""
        import tempfile  # few files need a copy

        with tempfile.TemporaryFile(dir=self.own_folder("tmp")) as copy, file.path.open("rb") as source:
            found = copy_digested(source, copy)
            copy.flush()
            return found, pin(copy)

    def read_document(self, sha256: str) -> bytes:
        """Return the content of a blob that is a document of an image. Raises InputError for a corrupt one."""
        with contextlib.suppress(NotRegularError, TooLargeError):
            content = read_bounded(self.blob(sha256), MAX_DOCUMENT, follow=False)
            if hashlib.sha256(content).hexdigest() == sha256:
                return content
        self.check_blob(sha256)
        raise InputError(f"a document of an image has more than {MAX_DOCUMENT >> 20} MiB", where=sha256)

    # units and layers
    def unit(self, key: str) -> UnitRecord | None:
        """Return the record of a built unit whose product is in the store, else None.

        A layer that a cache described is the product of units of that cache alone, also if another unit has the same.
        """
        record = UnitRecord.parse(read_sealed(self.root / "units" / f"{key}.json"))
        if record is None or record.key != key:
            return None
        if record.layer:
            layer = self.find_layer(record.layer.diff_id)
            if layer is None or not set(record.caches).issuperset(layer.caches):
                return None
        return record if all(self.has_blob(sha256) for _, sha256 in record.wheels) else None

    def record_unit(self, record: UnitRecord) -> None:
        write_sealed(self.root / "units" / f"{record.key}.json", dataclasses.asdict(record))

    def record_built_with(self, layer: LayerRecord, caches: Sequence[str]) -> None:
        """Record the caches of which units were taken that a layer was built with here; none of them if it was built
        without: then they have not changed it."""
        path = self.layer_path(layer.diff_id) / "layer.json"
        found = LayerRecord.parse(read_sealed(path))
        if found and found.built_with != tuple(caches):
            write_sealed(path, dataclasses.asdict(dataclasses.replace(found, built_with=tuple(caches))))

    def layer(self, diff_id: str) -> LayerRecord:
        """Return the record of a layer. Raises EngineError if the store does not have it."""
        if record := self.find_layer(diff_id):
            return record
        raise EngineError(f"the store has no layer {diff_id}", hint="run envbuild make again to build it")

    def find_layer(self, diff_id: str) -> LayerRecord | None:
        """Return the record of a layer whose tree this user has, or can unpack from a pack of another user or a cache;
        None if there is neither."""
        if record := self._tree_record(diff_id):
            return record
        shared = SharedLayer.read(self.root / "packs", diff_id)
        return shared.record if shared else None

    def has_tree(self, diff_id: str) -> bool:
        """Return whether this user has the tree of a layer, with a record that can be read."""
        return self._tree_record(diff_id) is not None

    def _tree_record(self, diff_id: str) -> LayerRecord | None:
        """Return the record of a layer of which this user has the tree; None if it cannot be read."""
        folder = self.layer_path(diff_id)
        return None if (folder / STALE).exists() else LayerRecord.parse(read_sealed(folder / "layer.json"))

    def layer_path(self, diff_id: str) -> Path:
        """Return the folder of a layer: tree/ and layer.json. In a shared store each user has one."""
        return self.own / "layers" / diff_id.removeprefix("sha256:")

    def layer_tree(self, diff_id: str) -> Path:
        return self.layer_path(diff_id) / "tree"

    @property
    def is_shared(self) -> bool:
        """Return whether a group shares this store."""
        return bool(is_shared(self.root))

    def own_folder(self, name: str) -> Path:
        """Make and return the folder `name`, in which this user alone works. Raises OSError."""
        own = make_own_place(self.root) / name
        with contextlib.suppress(FileExistsError):
            make_private_folder(own)
        check_entry(own)
        return own

    def share_packs(self, diff_id: str) -> None:
        """Let the group that shares the store use the packs of a layer that a process in a user namespace wrote: there
        the group has no number."""
        if self.is_shared:
            for path in (self.root / "packs").glob(f"{diff_id.removeprefix('sha256:')}.*"):
                share_file(path)

    def new_log(self, unit: str, key: str) -> Path:
        """Return the path for a new log; an earlier one is removed."""
        path = self.log(unit, key)
        path.unlink(missing_ok=True)
        return path

    def log(self, unit: str, key: str) -> Path:
        return (self.logs or self.own / "logs") / f"{unit}-{key[:12]}.log"

    # concurrency
    @contextlib.contextmanager
    def lock(self, name: str, waiting: Callable[[], None] | None = None, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock `name` of this store, exclusively or `shared`.

        waiting: called once if another process has the lock; an exception of it ends the wait. The process is named
        if it takes long.
        """
        with hold_lock(self.root / "locks" / name, self.report, waiting, shared=shared):
            yield

    @contextlib.contextmanager
    def workdir(self) -> Iterator[Path]:
        """Make a private folder in tmp/ and remove it at the end; a later process removes it if this one is killed.

        Raises EngineError where the disk is full."""
        with contextlib.ExitStack() as stack:
            with self.filled():
                path = stack.enter_context(work_folder(self.tmp, self.lock("tmp")))
            yield path

    def abandoned(self) -> Iterator[Path]:
        """Yield folders in tmp/ whose process has ended."""
        if self.is_outside(self.tmp):
            return
        with self.lock("tmp"):
            found = abandoned_folders(self.tmp)
        yield from found

    def is_outside(self, folder: Path) -> bool:
        """Return whether a folder of the store is, through a link, another place: a downloaded project may contain a
        store with such links, and names in that place mean nothing to the store."""
        return not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(self.root))


def _is_unchanged(before: os.stat_result, after: os.stat_result) -> bool:
    """Return whether a name leads to the same file; a new one may have the number of one that was removed."""
    return os.path.samestat(before, after) and before.st_ctime_ns == after.st_ctime_ns
