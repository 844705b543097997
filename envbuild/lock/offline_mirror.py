"""A folder that is the mirror of an air-gapped site: the inputs of locks, laid out so that one ``site.yaml`` in it
serves them all.

    site.yaml                       an ordinary site: upstream: false, mirrors below this folder
    debian/ debian-security/ ubuntu/   packages, by their path in the archive
    apt/NAME/…                      packages of a vendor's archive
    python/  pip/NAME/…             files of the package index, of a vendor's index
    sources/                        archives and the tarballs of commits, by file name
    oci/REGISTRY/PATH/              base images: an OCI layout for each repository
    images/NAME.lock                the locks of what is here

Files are hard links into the store where both are on one disk, else copies. Each is written beside and renamed into
place after its digest was seen to be right; what is there already and right is left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from envbuild.core.console import Reporter
from envbuild.core.digest import file_digest
from envbuild.core.errors import LockError, PublishError, SpecError
from envbuild.core.store.store import Store, read_json, write_atomic
from envbuild.core.text import amount, counted
from envbuild.lock.inputs import ImageBlob, Input, input_origin, list_inputs
from envbuild.lock.lockfile import DebianFile, Lock, PythonFile, dump_lock, read_lock
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import ARCHIVES, read_site

# Kind of origin → the folder that has it.
MIRRORS = {kind: kind for kind in (*ARCHIVES, "python", "apt", "pip", "oci")}
MIRRORS |= dict.fromkeys(("github", "gitlab", "file", "mirror", "vendor"), "sources")
SITE = """\
# The inputs of images, written by  envbuild fetch NAME --to FOLDER.  Folders are relative to this file (or to the one
# that a link points at). More images are added by the same command; other keys of a site may be added by hand.
schema: 1
upstream: false # nothing outside of this folder is asked for
mirrors:
"""
NEW = ".new"  # what is being written; the folder that holds a mirror may lose its power at any time
INDEX = "application/vnd.oci.image.index.v1+json"
TAG = "org.opencontainers.image.ref.name"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class MirrorStats:
    """Inputs of one image in a folder: how many and how large, and what of that was not there before."""

    files: int
    size: int
    new: int
    new_size: int


def export_mirror(lock: Lock, store: Store, folder: Path, reporter: Reporter) -> MirrorStats:
    """Put every input of `lock`, all of which the store has, into `folder`.

    Raises SpecError when the folder has a ``site.yaml`` that does not serve it, InputError for damage in the store,
    LockError for a lock that names paths outside, PublishError when the folder cannot be written or another image in
    it needs a different file of the same name.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive_access(folder):
            return MirrorExport(lock, store, folder, reporter).all()
    except OSError as error:
        raise PublishError(
            f"{folder} cannot be written: {error.strerror or error}",
            hint="choose a folder on a disk with room that you may write:  --to FOLDER",
            where=str(error.filename or folder),
        ) from None


@contextlib.contextmanager
def exclusive_access(folder: Path) -> Iterator[None]:
    """One process at a time adds to a folder; what an earlier one left half written goes away."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: then nobody else is kept out
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        shutil.rmtree(folder / NEW, ignore_errors=True)
        (folder / NEW).mkdir()
        yield
    finally:
        shutil.rmtree(folder / NEW, ignore_errors=True)
        os.close(descriptor)


def mirror_path(entry: Input) -> str:
    """Path of an input below the folder: where the mirrors of `MIRRORS` look for it. Raises LockError."""
    kind, _, rest = input_origin(entry).partition(":")
    if isinstance(entry, DebianFile):
        path = f"{kind}/{entry.path}" if kind in ARCHIVES else f"{kind}/{rest}/{entry.path}"
    elif isinstance(entry, PythonFile):
        path = f"{kind}/{rest}/{entry.file}" if rest else f"{kind}/{entry.file}"
    elif isinstance(entry, ImageBlob):
        path = f"{kind}/{rest}/blobs/sha256/{entry.sha256}"
    elif kind in ARCHIVES:  # a file of the archive's pool
        path = f"{kind}/{rest}" if rest.rpartition("/")[2] == entry.file else f"{kind}/{rest}/{entry.file}"
    else:
        path = f"sources/{entry.file}"
    parts = PurePosixPath(path).parts
    if ".." in parts or parts[0] not in MIRRORS.values():
        raise LockError(f"the lock names a path outside of its archive: {path}", "make it anew: envbuild lock --fresh")
    return path


@dataclass(slots=True)
class MirrorExport:
    """One lock on its way into one folder."""

    lock: Lock
    store: Store
    folder: Path
    reporter: Reporter
    others: frozenset[str] | None = None  # digests that other locks in the folder name, read when they matter

    def all(self) -> MirrorStats:
        """Everything, the site file last: a folder with one is whole."""
        entries = {mirror_path(entry): entry for entry in list_inputs(self.lock, manifest=True)}
        check_site(self.folder)
        sizes = {path: self.store.blob(entry.sha256).stat().st_size for path, entry in entries.items()}
        self.reporter.start(
            "carry", f"writing {counted(len(entries), 'file')}, {amount(sum(sizes.values()))}, to {self.folder}"
        )
        try:
            with ThreadPoolExecutor(4) as pool:
                written = dict(zip(entries, pool.map(self.one, entries.items()), strict=True))
        finally:
            self.reporter.finish("carry")
        if self.lock.base_image:
            self.layout()
        self.text(f"images/{self.lock.image}.lock", dump_lock(self.lock))
        if not (self.folder / "site.yaml").exists():
            self.text("site.yaml", site_text())
        new = [path for path, fresh in written.items() if fresh]
        return MirrorStats(len(entries), sum(sizes.values()), len(new), sum(sizes[path] for path in new))

    def one(self, item: tuple[str, Input]) -> bool:
        """Put one input in its place; whether it was not there already."""
        path, entry = item
        target, blob = self.folder / path, self.store.blob(entry.sha256)
        if target.exists():
            if is_copy(target, blob, entry.sha256):
                return False
            self.replaceable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / NEW / secrets.token_hex(8)
        try:
            os.link(blob, temporary)
            doubtful = True
        except OSError:  # another disk, or one without hard links
            doubtful = copy_file(blob, temporary) != entry.sha256
        if doubtful:
            self.store.check_blob(entry.sha256)
        temporary.replace(target)
        return True

    def replaceable(self, target: Path) -> None:
        """Raises PublishError when an image that was carried here before needs what `target` holds now."""
        if self.others is None:
            locks = [path for path in (self.folder / "images").glob("*.lock") if path.stem != self.lock.image]
            self.others = frozenset(
                entry.sha256 for path in locks for entry in list_inputs(read_lock(path), manifest=True)
            )
        if file_digest(target) in self.others:
            raise PublishError(
                f"{target} cannot be replaced: another image in this folder needs a different file of that name",
                hint=f"carry {self.lock.image} to a folder of its own:  envbuild fetch {self.lock.image} --to FOLDER",
            )
        self.reporter.warn(f"{target} had other content than the lock says; it is written anew")

    def text(self, path: str, content: str) -> None:
        """A text file, left alone when it says this already."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_text(encoding="utf-8", errors="replace") != content:
            write_atomic(target, lambda file: file.write(content.encode()))

    def layout(self) -> None:
        """oci-layout and index.json of the base image (OCI image-spec, "Image Layout"): the manifest is added to what
        the index lists already."""
        assert self.lock.base_image is not None
        image = self.lock.base_image
        reference = parse_reference(image.reference)
        folder = f"oci/{reference.name}"
        blob = self.store.blob(image.digest)
        described: dict[str, Any] = {
            "mediaType": json.loads(blob.read_bytes()).get("mediaType") or MANIFEST,
            "digest": f"sha256:{image.digest}",
            "size": blob.stat().st_size,
            "platform": {"architecture": self.lock.arch, "os": "linux"},
        }
        if not reference.digest:  # with a digest the reference may have no tag
            described["annotations"] = {TAG: reference.tag}
        index = read_json(self.folder / folder / "index.json") or {}
        kept = [
            drop_moved_tag(item, described)
            for item in index.get("manifests", ())
            if item["digest"] != described["digest"]
        ]
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*kept, described]}
        self.text(f"{folder}/oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}) + "\n")
        self.text(f"{folder}/index.json", json.dumps(index, indent=1, sort_keys=True) + "\n")


def drop_moved_tag(item: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """An entry of an index without its tag, when the newer one has it for the same platform. Locks name digests, so the
    older image stays."""
    tags = [entry.get("annotations", {}).get(TAG) for entry in (item, newer)]
    if tags[0] != tags[1] or item.get("platform") != newer["platform"]:
        return item
    return {key: value for key, value in item.items() if key != "annotations"}


def check_site(folder: Path) -> None:
    """Raises SpecError when the folder has a site file whose mirrors are elsewhere."""
    path = folder / "site.yaml"
    if not path.exists():
        return
    site = read_site(path)
    here = folder.resolve()
    lacking = [kind for kind, place in MIRRORS.items() if str(here / place) not in site.mirrors.get(f"{kind}:", ())]
    if lacking:
        raise SpecError(
            f"{path} is the site of something else: its mirrors do not name this folder ({', '.join(lacking)})",
            hint="choose an empty folder:  --to FOLDER",
            where=str(path),
        )


def site_text() -> str:
    """The site file of a folder; the same for every folder."""
    return SITE + "".join(f"  {kind}: [{place}]\n" for kind, place in MIRRORS.items())


def is_copy(target: Path, blob: Path, sha256: str) -> bool:
    """Whether `target` is the blob, or a good copy of it."""
    there, here = target.stat(), blob.stat()
    if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
        return True
    return there.st_size == here.st_size and file_digest(target) == sha256


def copy_file(source: Path, target: Path) -> str:
    """Copy a file and see it on the disk; gives the sha256 of what was read."""
    found = hashlib.sha256()
    with source.open("rb") as reading, target.open("wb") as writing:
        while chunk := reading.read(CHUNK):
            found.update(chunk)
            writing.write(chunk)
        writing.flush()
        os.fsync(writing.fileno())
    target.chmod(0o644)
    return found.hexdigest()
