"""The store: content by digest, units by key, layers, packs, logs.

    blobs/sha256/<hex>          inputs and products, by content
    units/<key>.json            UnitRecord: what a unit gave
    layers/<diff id hex>/       tree/ (canonical, usable as an overlay lower directory), layer.json (LayerRecord)
    packs/<diff id hex>.<format>  one layer compressed for squashfs (envbuild.squashfs.pack.writer)
    packs/<its name>.equal      what such a pack holds of others (envbuild.squashfs.write.dedup_cache)
    images/<hex>.json           what `make` made of one lock, for the second run that does nothing
    artifacts/                  finished images (squashfs files, OCI layouts)
    exports/<host>-<pid>-<hex>.json  how far each export is, for a day (envbuild.export.progress)
    partial/<sha256>.part       what has arrived of a blob, for the next attempt
    logs/<unit>-<key 12>.log
    locks/                      flock files, one a unit key
    tmp/                        each process has a folder of its own here, holding a lock as long as it lives

Everything is written under tmp/ and renamed into place; a killed process leaves only folders in tmp/ whose lock nobody
holds, and the next run removes those.

A store whose folder a group may write is that group's: what is made in it is as open as the folder, whatever the umask.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from envbuild.core import signals
from envbuild.core.digest import file_digest
from envbuild.core.errors import FREE_SOME, EngineError, InputError
from envbuild.core.store.permissions import folder_in, lock_file

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
    """What building a unit gave: a layer, or wheels as (file name, sha256). `seconds` of wall time it took."""

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
                folder_in(root / name)
            probe = root / "tmp" / f".probe-{secrets.token_hex(4)}"
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
        """What happens inside writes to the store: a disk or a quota that is full is an EngineError that says which."""
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
        """Where what has arrived of a file waits for the rest; `name`: its sha256, or some other name."""
        return self.root / "partial" / f"{name}.part"

    def has_blob(self, sha256: str) -> bool:
        return self.blob(sha256).is_file()

    def add_blob(self, source: Path) -> str:
        """Move a file (on the store's file system) in as a blob; returns its sha256."""
        sha256 = file_digest(source)
        source.chmod(0o644)
        source.replace(self.blob(sha256))
        return sha256

    def check_blob(self, sha256: str) -> None:
        """Read a blob and compare. A damaged one is set aside, so that the next run fetches it again; raises
        InputError."""
        found = file_digest(self.blob(sha256))
        if found != sha256:
            damaged = self.blob(sha256)
            damaged.rename(self.root / "tmp" / f"damaged-{sha256}")
            raise InputError(
                f"the store holds damaged content: sha256 {sha256} reads as {found}",
                hint="it was set aside; run the command again to fetch it anew",
                where=str(damaged),
            )

    # units and layers
    def unit(self, key: str) -> UnitRecord | None:
        """The record of a built unit whose product is still here, else None."""
        value = read_json(self.root / "units" / f"{key}.json")
        if value is None:
            return None
        layer = LayerRecord(**value["layer"]) if value["layer"] else None
        if layer and not (self.layer_path(layer.diff_id) / "layer.json").is_file():
            return None
        wheels = tuple((name, sha256) for name, sha256 in value["wheels"])
        if not all(self.has_blob(sha256) for _, sha256 in wheels):
            return None
        return UnitRecord(value["key"], value["unit"], layer, wheels, value["seconds"])

    def record_unit(self, record: UnitRecord) -> None:
        write_json(self.root / "units" / f"{record.key}.json", dataclasses.asdict(record))

    def layer(self, diff_id: str) -> LayerRecord:
        """The record of a layer that the store has. Raises EngineError when it does not."""
        value = read_json(self.layer_path(diff_id) / "layer.json")
        if value is None:
            raise EngineError(f"the store has no layer {diff_id}", hint="run envbuild make again to build it")
        return LayerRecord(**value)

    def layer_path(self, diff_id: str) -> Path:
        """Folder of a layer: tree/ and layer.json."""
        return self.root / "layers" / diff_id.removeprefix("sha256:")

    def layer_tree(self, diff_id: str) -> Path:
        return self.layer_path(diff_id) / "tree"

    def log(self, unit: str, key: str) -> Path:
        return self.root / "logs" / f"{unit}-{key[:12]}.log"

    # concurrency
    @contextlib.contextmanager
    def lock(self, name: str, waiting: Callable[[], None] | None = None, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock `name` of this store, alone or `shared` with others that share it. `waiting` is called once
        when somebody else holds it; what it raises ends the waiting."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        with lock_file(self.root / "locks" / name) as file:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting:
                    waiting()
                fcntl.flock(file, kind)
            yield

    @contextlib.contextmanager
    def workdir(self) -> Iterator[Path]:
        """A private folder in tmp/ that is removed at the end, or by a later process when this one is killed."""
        path = self.root / "tmp" / f"{os.getpid()}-{secrets.token_hex(4)}"
        with contextlib.ExitStack() as stack:
            with self.lock("tmp"):  # nobody may take the folder for abandoned before its lock is held
                folder_in(path)
                file = stack.enter_context((path / "alive").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)
            stack.callback(shutil.rmtree, path, ignore_errors=True)
            stack.enter_context(signals.leftover(lambda: shutil.rmtree(path, ignore_errors=True)))
            yield path

    def abandoned(self) -> Iterator[Path]:
        """Folders in tmp/ whose owner is gone."""
        with self.lock("tmp"):
            found = [
                path for path in sorted((self.root / "tmp").iterdir()) if path.is_dir() and not held(path / "alive")
            ]
        yield from found


def held(path: Path) -> bool:
    """Whether a living process holds the lock on a file."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # what another user hides may live
        return True
    except OSError:
        pass
    return False


def read_json(path: Path) -> Any:
    """The value of a JSON file; None when it is missing or was cut short."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file that is whole or not there."""
    write_atomic(path, lambda file: file.write((json.dumps(value, sort_keys=True, indent=1) + "\n").encode()))


def write_atomic(path: Path, write: Callable[[IO[bytes]], object], mode: int = 0o644, *, durable: bool = True) -> None:
    """Write a file beside `path` and rename it into place. `durable`: it is to be there after a power cut, too."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
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
    """Size and time of a file: enough to see that nobody touched it."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]
