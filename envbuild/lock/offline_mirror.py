"""A folder that is the mirror of an air-gapped site: the inputs of locks, laid out so that one ``site.yaml`` in it
serves them all.

    site.yaml                       an ordinary site: upstream: false, mirrors below this folder
    debian/ debian-security/ ubuntu/   packages, by their path in the archive
    apt/NAME/…                      packages of a vendor's archive
    python/  pip/NAME/…             files of the package index, of a vendor's index
    sources/                        archives and the tarballs of commits, by file name
    oci/REGISTRY/PATH/              base images: an OCI layout for each repository
    images/NAME.lock                the locks of what is here

Files are hard links into the store where both are on one disk, else copies. Each is written to a temporary name and
renamed after its digest was verified; a file that is already correct is not changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from envbuild.core.console import Reporter
from envbuild.core.digest import LARGEST, copy_digested, file_digest
from envbuild.core.errors import InputError, LockError, PublishError, SpecError
from envbuild.core.regular_file import NotRegularError, TooLargeError, open_regular, read_bounded
from envbuild.core.store.store import Store, read_json, write_atomic
from envbuild.core.text import amount, counted
from envbuild.lock.inputs import ImageBlob, Input, input_origin, list_inputs
from envbuild.lock.lockfile import dump_lock, read_lock
from envbuild.lock.mirror_folder import exclusive_access
from envbuild.lock.model import DebianFile, Lock, PythonFile
from envbuild.lock.python.local_projects import is_local
from envbuild.net.origin_kinds import ARCHIVES, MIRROR_FOLDERS, SIGNED_KINDS
from envbuild.net.registry.reference import mirror_reference, parse_reference
from envbuild.net.site_file import read_site

SITE = """\
# The inputs of images, written by  envbuild fetch NAME --to FOLDER.  Folders are relative to this file (or to the one
# that a link points at). More images are added by the same command; other keys of a site may be added by hand.
schema: 1
upstream: false # nothing outside of this folder is used
mirrors:
"""
INDEX = "application/vnd.oci.image.index.v1+json"
TAG = "org.opencontainers.image.ref.name"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
KINDS: dict[type, tuple[str, ...]] = {DebianFile: SIGNED_KINDS, PythonFile: ("python", "pip")}  # of their origins


@dataclass(frozen=True, slots=True)
class MirrorStats:
    """Number and size of the inputs of one image in a folder, and of those that were added now."""

    files: int
    size: int
    new: int
    new_size: int


def export_mirror(lock: Lock, store: Store, folder: Path, reporter: Reporter) -> MirrorStats:
    """Write every input of `lock`, all of which the store has, into `folder`.

    Raises SpecError when the folder has a ``site.yaml`` that does not serve it, InputError for damage in the store,
    LockError for a lock that names paths outside, PublishError when the folder cannot be written or another image in
    it needs a different file of the same name.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive_access(folder, reporter.info) as unfinished:
            return MirrorExport(lock, store, folder, reporter, unfinished).export()
    except OSError as error:
        raise PublishError(
            f"{folder} cannot be written: {error.strerror or error}",
            hint="choose a writable folder on a disk with free space:  --to FOLDER",
            where=str(error.filename or folder),
        ) from None


def mirror_path(entry: Input) -> str:
    """Return the path of an input below the folder, in the layout of `MIRROR_FOLDERS`. Raises LockError."""
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
        path = f"{MIRROR_FOLDERS.get(kind, 'sources')}/{entry.file}"
    parts = PurePosixPath(path).parts
    wanted = KINDS.get(type(entry))
    if wanted and kind not in wanted:
        raise LockError(
            f"the lock names {kind}: as the origin of {parts[-1]}", "make it again: envbuild lock NAME --fresh"
        )
    if ".." in parts or parts[0] not in MIRROR_FOLDERS.values():
        raise LockError(
            f"the lock names a path outside of its archive: {path}", "make it again: envbuild lock NAME --fresh"
        )
    return path


@dataclass(slots=True)
class MirrorExport:
    """The export of one lock into one folder."""

    lock: Lock
    store: Store
    folder: Path
    reporter: Reporter
    unfinished: Path  # a folder on the disk of `folder`: a mirror may lose its power at any time
    others: frozenset[str] | None = None  # digests in other locks of the folder, read on demand

    def export(self) -> MirrorStats:
        """Write everything, the site file last: a folder with one is complete."""
        inputs = list_inputs(self.lock, manifest=True)
        # wheels beside the spec: the project has them there, too
        entries = {mirror_path(entry): entry for entry in inputs if not is_local(entry)}
        check_site(self.folder, {input_origin(entry).partition(":")[0] for entry in entries.values()})
        sizes = {path: self.store.blob(entry.sha256).stat().st_size for path, entry in entries.items()}
        self.reporter.start(
            "mirror", f"writing {counted(len(entries), 'file')}, {amount(sum(sizes.values()))}, to {self.folder}"
        )
        try:
            with ThreadPoolExecutor(4) as pool:
                written = dict(zip(entries, pool.map(self.export_input, entries.items()), strict=True))
        finally:
            self.reporter.finish("mirror")
        if self.lock.base_image:
            self.write_oci_layout()
        self.write_text(f"images/{self.lock.image}.lock", dump_lock(self.lock))
        if not (self.folder / "site.yaml").exists():
            self.write_text("site.yaml", site_text())
        new = [path for path, fresh in written.items() if fresh]
        return MirrorStats(len(entries), sum(sizes.values()), len(new), sum(sizes[path] for path in new))

    def export_input(self, item: tuple[str, Input]) -> bool:
        """Write one input. Return whether it was missing before."""
        path, entry = item
        target, blob = self.folder / path, self.store.blob(entry.sha256)
        if target.exists():
            if is_copy(target, blob, entry.sha256):
                return False
            self.check_replaceable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.unfinished / secrets.token_hex(8)
        try:
            os.link(blob, temporary)
            found = ""
        except OSError:  # another disk, or one without hard links
            found = copy_file(blob, temporary)
        if found != entry.sha256:
            self.store.check_blob(entry.sha256)
            if found:
                raise InputError(f"the file {blob} changed while it was copied", hint="run the command again")
        temporary.replace(target)
        return True

    def check_replaceable(self, target: Path) -> None:
        """Raise PublishError if another image in this folder needs the present content of `target`."""
        if self.others is None:
            locks = [path for path in (self.folder / "images").glob("*.lock") if path.stem != self.lock.image]
            self.others = frozenset(
                entry.sha256 for path in locks for entry in list_inputs(read_lock(path), manifest=True)
            )
        found = ""
        with contextlib.suppress(TooLargeError):
            found = file_digest(target) if self.others and target.stat().st_size <= LARGEST else ""
        if found in self.others:
            raise PublishError(
                f"{target} cannot be replaced: another image in this folder needs a different file of that name",
                hint=f"export {self.lock.image} to a folder of its own:  envbuild fetch {self.lock.image} --to FOLDER",
            )
        self.reporter.warn(f"{target}: digest mismatch with the lock; it is written again")

    def write_text(self, path: str, content: str) -> None:
        """Write a text file, if its content differs."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        new, old = content.encode(), None
        with contextlib.suppress(FileNotFoundError, TooLargeError, NotRegularError):
            old = read_bounded(target, len(new))
        if old != new:
            write_atomic(target, lambda file: file.write(new))

    def write_oci_layout(self) -> None:
        """Write oci-layout and index.json of the base image (OCI image-spec, "Image Layout"): the manifest is added to
        the present index."""
        assert self.lock.base_image is not None
        image = self.lock.base_image
        reference = parse_reference(mirror_reference(image.reference, image.digest))
        folder = f"oci/{reference.name}"
        blob = self.store.blob(image.digest)
        manifest: dict[str, Any] = {
            "mediaType": json.loads(self.store.read_document(image.digest)).get("mediaType") or MANIFEST,
            "digest": f"sha256:{image.digest}",
            "size": blob.stat().st_size,
            "platform": {"architecture": self.lock.arch, "os": "linux"},
        }
        # By its digest, if that was requested: an image without a name is taken for any tag of its repository.
        name = f"{reference.name}@{reference.wanted}" if reference.digest else reference.tag
        found = index_entries(read_json(self.folder / folder / "index.json", follow=True))
        tagged = [item for item in found if reference.digest and item["digest"] == manifest["digest"]]
        present = next((item["annotations"] for item in tagged if "annotations" in item), None)
        manifest["annotations"] = present or {TAG: name}  # of another image that requests it by its tag
        older = [drop_moved_tag(item, manifest) for item in found if item["digest"] != manifest["digest"]]
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*older, manifest]}
        self.write_text(f"{folder}/oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}) + "\n")
        self.write_text(f"{folder}/index.json", json.dumps(index, indent=1, sort_keys=True) + "\n")


def index_entries(index: Any) -> list[dict[str, Any]]:
    """Return the entries of an index (any JSON value) that name an image by its digest."""
    listed = index.get("manifests") if isinstance(index, dict) else None
    entries = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return [
        item
        for item in entries
        if isinstance(item.get("digest"), str) and isinstance(item.get("annotations", {}), dict)
    ]


def drop_moved_tag(item: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of an index, without its tag if the newer one has it for the same platform.

    Locks name digests, so the older image remains.
    """
    tags = [entry.get("annotations", {}).get(TAG) for entry in (item, newer)]
    if tags[0] != tags[1] or item.get("platform") != newer["platform"]:
        return item
    return {key: value for key, value in item.items() if key != "annotations"}


def check_site(folder: Path, needed: Collection[str] = ()) -> None:
    """Raise SpecError if the folder has a site file whose mirrors are elsewhere, or that has none for a kind of origin
    that is `needed`.

    A folder that an older version wrote has no mirror for newer kinds.
    """
    path = folder / "site.yaml"
    if not path.exists():
        return
    site = read_site(path)
    here = folder.resolve()
    present = {kind: site.mirrors[f"{kind}:"] for kind in MIRROR_FOLDERS if f"{kind}:" in site.mirrors}
    absent = [kind for kind in MIRROR_FOLDERS if kind not in present]
    elsewhere = [kind for kind, places in present.items() if str(here / MIRROR_FOLDERS[kind]) not in places]
    if elsewhere or (absent and (site.use_host or not present)):
        kinds = [kind for kind in MIRROR_FOLDERS if kind in (*absent, *elsewhere)]
        raise SpecError(
            f"{path} belongs to another site: its mirrors do not name this folder ({', '.join(kinds)})",
            hint="choose an empty folder:  --to FOLDER",
            where=str(path),
        )
    if lacking := [kind for kind in absent if kind in needed]:
        lines = ", ".join(f"{kind}: [{MIRROR_FOLDERS[kind]}]" for kind in lacking)
        raise SpecError(
            f"{path} has no mirror for {', '.join(lacking)}, as an older envbuild wrote it",
            hint=f"add to its mirrors:  {lines}",
            where=str(path),
        )


def site_text() -> str:
    """Return the site file of a folder; it is the same for every folder."""
    return SITE + "".join(f"  {kind}: [{place}]\n" for kind, place in MIRROR_FOLDERS.items())


def is_copy(target: Path, blob: Path, sha256: str) -> bool:
    """Return whether `target` is a correct copy of the blob. A hard link is as damaged as the blob."""
    with contextlib.suppress(TooLargeError):
        return target.stat().st_size == blob.stat().st_size and file_digest(target) == sha256
    return False


def copy_file(source: Path, target: Path) -> str:
    """Copy a file and flush it to the disk. Return the sha256 of what was read."""
    with open_regular(source, follow=False) as reading, target.open("xb") as writing:
        found = copy_digested(reading, writing)
        writing.flush()
        os.fchmod(writing.fileno(), 0o644)  # another user may put a link in the place of its name
        os.fsync(writing.fileno())
    return found
