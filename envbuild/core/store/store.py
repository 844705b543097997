"""The store: content by digest, units by key, layers, packs, logs.

    blobs/sha256/<hex>          inputs and products, by content
    units/<key>.json            UnitRecord: the product of a unit
    layers/<diff id hex>/       tree/ (canonical, usable as an overlay lower directory), layer.json (LayerRecord)
    packs/<diff id hex>.<format>  one layer compressed for squashfs (envbuild.squashfs.pack.writer)
    packs/<its name>.equal      content that such a pack shares with others (envbuild.squashfs.write.dedup_cache)
    images/<hex>.json           what `make` built from one lock, for the next run
    artifacts/                  finished images (squashfs files, OCI layouts)
    exports/<host>-<pid>-<hex>.json  progress of each export, for a day (envbuild.export.progress)
    partial/<sha256>.part       the received part of a blob, for the next attempt
    logs/<unit>-<key 12>.log
    locks/                      flock files, one a unit key
    tmp/                        each process has a folder of its own here, with a lock until it ends

Everything is written under tmp/ and renamed into place; a killed process leaves only folders in tmp/ whose lock is
free, and the next run removes those.

A store whose folder a group may write is shared by that group: its entries have the mode of the folder, with any umask.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from envbuild.core import signals
from envbuild.core.digest import file_digest
from envbuild.core.errors import FREE_SOME, EngineError, InputError
from envbuild.core.store.permissions import make_shared_folder, open_lock_file

FULL = (errno.ENOSPC, errno.EDQUOT)
FOLDERS = ("blobs", "blobs/sha256", "units", "layers", "packs", "images", "artifacts", "logs", "locks", "tmp")


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """A layer in the store. `diff_id` is ``sha256:<hex>`` of its canonical tar, `size` the length of that tar in
    bytes."""

    diff_id: str
    size: int
    files: int
    unit: str = ""

    @property
    def hex(self) -> str:
        return self.diff_id.removeprefix("sha256:")


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """The product of a unit: a layer, or wheels as (file name, sha256). `seconds` is the wall time of its build."""

    key: str
    unit: str
    layer: LayerRecord | None = None
    wheels: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Store:
    """A store folder. Make one with `Store.open`."""

    root: Path

    @classmethod
    def open(cls, root: Path) -> Store:
        """Create the folders of the store. Raises EngineError when the place cannot be written."""
        store = cls(root)
        try:
            root.mkdir(parents=True, exist_ok=True)
            for name in FOLDERS:
                make_shared_folder(root / name)
            probe = root / "tmp" / f".probe-{os.urandom(4).hex()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise EngineError(
                f"the store {root} cannot be written: {os.strerror(error.errno or errno.EIO)}",
                hint="set ENVBUILD_STORE to a folder on a local disk that you may write",
            ) from error
        return store

    @contextlib.contextmanager
    def filled(self) -> Iterator[None]:
        """Raise EngineError, with the store's path, if the context finds the disk or the quota full."""
        try:
            yield
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise EngineError(f"the store {self.root} is full: {error.strerror}", hint=FREE_SOME) from None

    # blobs
    def blob(self, sha256: str) -> Path:
        return self.root / "blobs" / "sha256" / sha256

    def part(self, name: str) -> Path:
        """Return the path for the received part of a file; `name`: its sha256, or another name."""
        return self.root / "partial" / f"{name}.part"

    def has_blob(self, sha256: str) -> bool:
        return self.blob(sha256).is_file()

    def add_blob(self, source: Path) -> str:
        """Move a file (on the store's file system) into the store as a blob. Return its sha256."""
        sha256 = file_digest(source)
        source.chmod(0o644)
        source.replace(self.blob(sha256))
        return sha256

    def check_blob(self, sha256: str) -> None:
        """Check the digest of a blob.

        A corrupt one is moved aside, so that the next run fetches it again. Raises InputError.
        """
        found = file_digest(self.blob(sha256))
        if found != sha256:
            damaged = self.blob(sha256)
            damaged.rename(self.root / "tmp" / f"damaged-{sha256}")
            raise InputError(
                f"corrupt blob in the store: expected sha256 {sha256}, got {found}",
                hint="it was moved aside; run the command again to fetch it",
                where=str(damaged),
            )

    # units and layers
    def unit(self, key: str) -> UnitRecord | None:
        """Return the record of a built unit whose product is in the store, else None."""
        value = read_json(self.root / "units" / f"{key}.json")
        try:
            layer = LayerRecord(**value["layer"]) if value["layer"] else None
            wheels = tuple((name, sha256) for name, sha256 in value["wheels"])
            record = UnitRecord(value["key"], value["unit"], layer, wheels, value["seconds"])
        except (KeyError, TypeError, ValueError):  # no record, or a damaged one
            return None
        if record.key != key or (layer and not (self.layer_path(layer.diff_id) / "layer.json").is_file()):
            return None
        return record if all(self.has_blob(sha256) for _, sha256 in wheels) else None

    def record_unit(self, record: UnitRecord) -> None:
        write_json(self.root / "units" / f"{record.key}.json", dataclasses.asdict(record))

    def layer(self, diff_id: str) -> LayerRecord:
        """Return the record of a layer. Raises EngineError if the store does not have it."""
        value = read_json(self.layer_path(diff_id) / "layer.json")
        if value is None:
            raise EngineError(f"the store has no layer {diff_id}", hint="run envbuild make again to build it")
        return LayerRecord(**value)

    def layer_path(self, diff_id: str) -> Path:
        """Return the folder of a layer: tree/ and layer.json."""
        return self.root / "layers" / diff_id.removeprefix("sha256:")

    def layer_tree(self, diff_id: str) -> Path:
        return self.layer_path(diff_id) / "tree"

    def log(self, unit: str, key: str) -> Path:
        return self.root / "logs" / f"{unit}-{key[:12]}.log"

    # concurrency
    @contextlib.contextmanager
    def lock(self, name: str, waiting: Callable[[], None] | None = None, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock `name` of this store, exclusively or `shared`.

        waiting: called once if another process has the lock; an exception of it ends the wait.
        """
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        with open_lock_file(self.root / "locks" / name) as file:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting:
                    waiting()
                fcntl.flock(file, kind)
            yield

    @contextlib.contextmanager
    def workdir(self) -> Iterator[Path]:
        """Make a private folder in tmp/ and remove it at the end; a later process removes it if this one is killed."""
        path = self.root / "tmp" / f"{os.getpid()}-{os.urandom(4).hex()}"
        with contextlib.ExitStack() as stack:
            with self.lock("tmp"):  # until its lock is held the folder looks abandoned
                make_shared_folder(path)
                file = stack.enter_context((path / "alive").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)
            stack.callback(shutil.rmtree, path, ignore_errors=True)
            stack.enter_context(signals.leftover(lambda: shutil.rmtree(path, ignore_errors=True)))
            yield path

    def abandoned(self) -> Iterator[Path]:
        """Yield folders in tmp/ whose process has ended."""
        with self.lock("tmp"):
            found = [
                path
                for path in sorted((self.root / "tmp").iterdir())
                if path.is_dir() and not is_locked(path / "alive")
            ]
        yield from found


def is_locked(path: Path) -> bool:
    """Return whether a running process holds the lock on a file."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # a file that another user hides may be locked
        return True
    except OSError:
        pass
    return False


def read_json(path: Path) -> Any:
    """Return the value of a JSON file; None if it is missing, truncated or damaged."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_atomic(path, lambda file: file.write((json.dumps(value, sort_keys=True, indent=1) + "\n").encode()))


def write_atomic(path: Path, write: Callable[[IO[bytes]], object], mode: int = 0o644, *, durable: bool = True) -> None:
    """Write a file beside `path` and rename it into place. `durable`: flush it to disk, against a power cut."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def stamp(path: Path) -> list[int]:
    """Return size and time of a file: they change with its content."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]
