"""A third-party image as base: locked by digest, its layers downloaded into the store, and checked before anything is
built on it.

The contents of an image are read from its layers, so that a base that does not meet the spec is reported when it is
locked, and not by a build an hour later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envbuild.core.console import Reporter, SilentReporter
from envbuild.core.distributions import is_local_image
from envbuild.core.errors import ConflictError, Finding, InputError
from envbuild.core.store.store import Store
from envbuild.core.text import amount
from envbuild.lock.base_image import requirements
from envbuild.lock.base_image.file_tree import read_image_tree
from envbuild.lock.base_image.local_image import import_image
from envbuild.lock.base_image.own_images import NO_IMAGES, OwnImages
from envbuild.lock.model import BaseImage
from envbuild.net.download import DownloadError, Transfer
from envbuild.net.registry.client import Repository
from envbuild.net.registry.reference import mirror_reference, parse_reference
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.oci import manifest as m
from envbuild.oci.config import parse_rfc3339
from envbuild.oci.sources.platform import Platform, pick_manifest

PARALLEL = 4  # layers that are downloaded at a time


@dataclass(frozen=True, slots=True)
class LockedBase:
    """A locked base image. `status`: its /var/lib/dpkg/status, on top of which apt resolves. `interpreter`: path of the
    Python in it that the spec requires. `created`: its date, in seconds since 1970 (0: it has none)."""

    image: BaseImage
    status: str
    interpreter: str = ""
    created: int = 0


def lock_base(
    reference: str,
    arch: str,
    site: Site,
    transport: Transport,
    transfer: Transfer,
    store: Store,
    reporter: Reporter,
    *,
    previous: BaseImage | None,
    distribution: str,
    python: str,
    promised: Sequence[tuple[str, str]] = (),
    prefixes: Sequence[tuple[str, str]] = (),
    where: Mapping[str, str] | None = None,
    folder: Path = Path(),
    own: OwnImages = NO_IMAGES,
) -> LockedBase:
    """Lock the image that `reference` names for `arch`, with its layers in the store.

    `reference` is one of a registry; or an archive or a layout, whose relative path begins in `folder`; or the name of
    an image of the project, of which `own` has the layout. `previous` with the same reference of a registry keeps
    its digest, even if its tag names another image now. `distribution` and
    `python` are those that the spec declares for the image; `promised` are (recipe, shell pattern of a path) of the
    files that recipes use from it, `prefixes` (recipe, folder) what they compile into, and `where` the places of these
    recipes in the spec. Raises SpecError (no
    reference), InputError (unavailable parts, and the places that were tried), ConflictError with every requirement
    that the image does not meet.
    """
    if is_local_image(reference):  # its file may have changed: what it contains now is locked
        copied = import_image(reference, folder, own, arch, site, store, reporter)
        named, unchanged = parse_reference(mirror_reference(reference, copied)), None
    else:
        named = parse_reference(reference)
        unchanged = previous if previous and previous.reference == reference else None
    download, wanted = _BaseDownload(Repository(named, site, transport), reference, store, transfer), named.wanted
    digest, image, config = download.resolve(f"sha256:{unchanged.digest}" if unchanged else wanted, arch)
    if unchanged and not config.fits(arch):  # it was locked for another target
        digest, image, config = download.resolve(wanted, arch)
    if not config.fits(arch):
        raise m.other_architecture_error(reference, arch, [f"{config.system}/{config.arch}"])
    download.fetch(image.layers, reporter)
    tree = read_image_tree(digest, [part.digest for part in image.layers], store, reporter)
    findings = requirements.check_base(tree, reference, distribution, python, promised, prefixes, where or {})
    if findings:
        raise ConflictError.of(findings)
    interpreter, venv = requirements.find_interpreter(tree, python), requirements.read_venv(tree, python)
    locked = BaseImage(
        reference=reference,
        digest=digest,
        config=image.config.digest,
        layers=tuple((part.digest, part.size, part.kind) for part in image.layers),
        distribution=distribution,
        python=requirements.python_packages(tree, interpreter, python, venv),
        env=dict(config.env),
        venv=venv,
    )
    return LockedBase(locked, tree.text(requirements.STATUS) or "", interpreter, parse_rfc3339(config.created))


@dataclass(frozen=True, slots=True)
class _BaseDownload:
    """The download of one image into the store."""

    repository: Repository
    reference: str
    store: Store
    transfer: Transfer

    def resolve(self, wanted: str, arch: str) -> tuple[str, m.ImageManifest, m.BaseImageConfig]:
        """Return (digest of the manifest, parts, configuration) of the image `wanted` (digest or tag) for `arch`."""
        digest, value = self.document(wanted)
        for _ in range(m.INDEXES):
            if not m.is_index(value):
                break
            digest, value = self.document(f"sha256:{self.choose(value, arch)}")
        if m.is_index(value):
            raise m.nested_index_error(self.reference)
        image = m.read_manifest(value, self.reference)
        self.fetch([image.config], SilentReporter())
        content = self.store.read_document(image.config.digest)
        return digest, image, m.read_config(m.parse_document(content, self.reference, "configuration"), self.reference)

    def choose(self, index: Mapping[str, Any], arch: str) -> str:
        """Return the digest (hex) of the image for `arch` in an index: the one that `export` and `show` choose, too."""
        listed = m.list_index(index, self.reference)
        try:
            chosen = pick_manifest(
                listed, self.reference, Platform(arch, asked=True), lambda digest: self.document(digest)[1]
            )
            return chosen.digest
        except ConflictError as error:
            raise ConflictError(error.message, hint=m.OTHER_BASE) from None

    def document(self, wanted: str) -> tuple[str, dict[str, Any]]:
        """Return (digest, content) of a manifest or index; add it to the store."""
        digest = wanted.removeprefix("sha256:")
        if digest != wanted and self.store.has_blob(digest):
            content = self.store.read_document(digest)
        else:
            content = self.repository.manifest(wanted)
            with self.store.filled(), self.store.workdir() as work:
                (work / "manifest").write_bytes(content)
                digest = self.store.add_blob(work / "manifest")
        return digest, m.parse_document(content, self.reference)

    def fetch(self, parts: Iterable[m.BlobDescriptor], reporter: Reporter) -> None:
        """Download parts into the store. Raises InputError with a finding for each that is not available."""
        wanted = {part.digest: part for part in parts if not self.store.has_blob(part.digest, part.size)}
        if not wanted:
            return
        done, total, guard = 0, sum(part.size for part in wanted.values()), threading.Lock()
        self.store.check_space((part.digest, part.size) for part in wanted.values())

        def add_progress(size: int) -> None:
            nonlocal done
            with guard:
                done += size
                reporter.advance("base", done, total)

        transfer = replace(self.repository.transfer(self.transfer), progress=add_progress)

        def download(part: m.BlobDescriptor) -> Finding | None:
            try:
                transfer.obtain(self.repository.blobs(part.digest), part.digest, part.size)
            except DownloadError as error:
                what = f"a part of the image {self.reference} (sha256 {part.digest})"
                return self.repository.not_available(what, error.misses).findings[0]
            return None

        reporter.start("base", f"fetching {self.reference}: {len(wanted)} layers, {amount(total)}")
        try:
            with ThreadPoolExecutor(PARALLEL) as pool:
                try:
                    # The largest first: they decide when the last one is done.
                    found = list(pool.map(download, sorted(wanted.values(), key=lambda part: -part.size)))
                except BaseException:
                    transfer.stop.set()  # a full store, an interruption: the others need not continue
                    raise
        finally:
            reporter.finish("base")
        findings = [finding for finding in found if finding]
        if findings:
            raise InputError.of(findings)
