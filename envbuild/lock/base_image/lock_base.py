"""A base that is somebody's image: locked by digest, its layers in the store, and looked at before anything is built on
it.

What an image is made of is read from its layers, so that a base that cannot carry what the spec asks for is told when
it is locked, and not by a build an hour later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from envbuild.core.console import Reporter, SilentReporter
from envbuild.core.errors import ConflictError, Finding, InputError
from envbuild.core.store.store import Store
from envbuild.core.text import amount
from envbuild.lock.base_image import requirements
from envbuild.lock.base_image.file_tree import read_image_tree
from envbuild.lock.lockfile import BaseImage
from envbuild.net.download import DownloadError, Transfer
from envbuild.net.registry.client import Repository
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.oci import manifest as m
from envbuild.oci.config import seconds

TOGETHER = 4  # layers that are fetched at a time


@dataclass(frozen=True, slots=True)
class LockedBase:
    """A locked base image. `status`: its /var/lib/dpkg/status, on top of which apt resolves. `interpreter`: path of the
    Python in it that the spec asks for. `created`: when it was made, in seconds since 1970 (0: it does not say)."""

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
    where: Mapping[str, str] | None = None,
) -> LockedBase:
    """Lock the image that `reference` names for `arch`, with its layers in the store.

    `previous` with the same reference keeps its digest, whatever its tag names now. `distribution` and `python` are
    what the spec says that the image is made of and has; `promised` are (recipe, shell pattern of a path) that recipes
    take from it, and `where` the places at which the spec asks for these recipes. Raises SpecError (no reference),
    InputError (what cannot be had, and where it was looked for), ConflictError with everything that the image is not or
    has not.
    """
    work = _BaseDownload(Repository(parse_reference(reference), site, transport), reference, store, transfer)
    kept = previous if previous and previous.reference == reference else None
    digest, image, config = work.resolve(f"sha256:{kept.digest}" if kept else work.repository.reference.wanted, arch)
    if kept and not config.fits(arch):  # it was locked for another target
        digest, image, config = work.resolve(work.repository.reference.wanted, arch)
    if not config.fits(arch):
        raise m.other_architecture(reference, arch, [f"{config.system}/{config.arch}"])
    work.fetch(image.layers, reporter)
    tree = read_image_tree(digest, [part.digest for part in image.layers], store, reporter)
    findings = requirements.check_base(tree, reference, distribution, python, promised, where or {})
    if findings:
        raise ConflictError.of(findings)
    interpreter = requirements.find_interpreter(tree, python)
    locked = BaseImage(
        reference=reference,
        digest=digest,
        config=image.config.digest,
        layers=tuple((part.digest, part.size, part.kind) for part in image.layers),
        distribution=distribution,
        python=requirements.python_packages(tree, interpreter, python),
        env=dict(config.env),
    )
    return LockedBase(locked, tree.text(requirements.STATUS) or "", interpreter, seconds(config.created))


@dataclass(frozen=True, slots=True)
class _BaseDownload:
    """One image on its way into the store."""

    repository: Repository
    reference: str
    store: Store
    transfer: Transfer

    def resolve(self, wanted: str, arch: str) -> tuple[str, m.Image, m.Config]:
        """(digest of the manifest, parts, configuration) of what `wanted` (digest or tag) is for `arch`."""
        digest, value = self.document(wanted)
        if m.is_index(value):
            digest, value = self.document(f"sha256:{m.choose(value, self.reference, arch)}")
        image = m.image(value, self.reference)
        self.fetch([image.config], SilentReporter())
        content = self.store.blob(image.config.digest).read_bytes()
        return digest, image, m.config(m.document(content, self.reference), self.reference)

    def document(self, wanted: str) -> tuple[str, dict[str, Any]]:
        """(digest, content) of a manifest or index, which is in the store then."""
        digest = wanted.removeprefix("sha256:")
        if digest != wanted and self.store.has_blob(digest):
            self.store.check_blob(digest)
            content = self.store.blob(digest).read_bytes()
        else:
            content = self.repository.manifest(wanted)
            with self.store.workdir() as work:
                (work / "manifest").write_bytes(content)
                digest = self.store.add_blob(work / "manifest")
        return digest, m.document(content, self.reference)

    def fetch(self, parts: Iterable[m.Part], reporter: Reporter) -> None:
        """Bring parts into the store. Raises InputError with a finding for each that cannot be had."""
        wanted = {part.digest: part for part in parts if not self.store.has_blob(part.digest)}
        if not wanted:
            return
        done, total, guard = 0, sum(part.size for part in wanted.values()), threading.Lock()

        def arrived(size: int) -> None:
            nonlocal done
            with guard:
                done += size
                reporter.advance("base", done, total)

        transfer = replace(self.repository.transfer(self.transfer), progress=arrived)

        def one(part: m.Part) -> Finding | None:
            try:
                transfer.obtain(self.repository.blobs(part.digest), part.digest)
            except DownloadError as error:
                what = f"a part of the image {self.reference} (sha256 {part.digest})"
                return self.repository.not_available(what, error.misses).findings[0]
            return None

        reporter.start("base", f"fetching {self.reference}: {len(wanted)} layers, {amount(total)}")
        try:
            with ThreadPoolExecutor(TOGETHER) as pool:
                try:
                    # The largest first: they decide when the last one is done.
                    found = list(pool.map(one, sorted(wanted.values(), key=lambda part: -part.size)))
                except BaseException:
                    transfer.stop.set()  # a full store, an interruption: the others need not go on
                    raise
        finally:
            reporter.finish("base")
        findings = [finding for finding in found if finding]
        if findings:
            raise InputError.of(findings)
