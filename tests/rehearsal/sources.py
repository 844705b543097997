"""The real source of a pair, unpacked: its commits through a site, its archives and sdists."""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.core.console import SilentReporter
from envbuild.core.errors import EnvbuildError
from envbuild.core.store.store import Store
from envbuild.lock.git.lock_commit import lock_commit
from envbuild.lock.sources import candidate_places, lock_source
from envbuild.net.download import DownloadError, Transfer
from envbuild.net.python_index import PackageIndex
from envbuild.net.site import Site
from envbuild.net.site_file import read_site
from envbuild.net.transport import Transport
from envbuild.spec.recipe import Git, Sources

SITE = "ENVBUILD_REHEARSAL_SITE"
STORE = "ENVBUILD_REHEARSAL_STORE"


@dataclass(frozen=True)
class Upstream:
    """A site that has upstream's repositories, and the store that keeps what was fetched."""

    site: Site
    store: Store
    transport: Transport = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "transport", Transport(self.site.network()))

    def unpack(self, sources: Sources, folder: Path) -> dict[str, Path]:
        """Unpack every source into a folder of its own. Return what it is → its folder.

        Raises EnvbuildError, with the reason, if one of them is not available."""
        found = {}
        for git in sources.git:
            entry = lock_commit(self.site, self.transport, self.store, SilentReporter(), git, {})
            found[f"{git.origin}@{git.commit[:12]}"] = self.extract(entry.sha256, folder / git.name)
        transfer = Transfer(self.transport, self.store)
        for archive in sources.archives:
            entry = lock_source(self.site, transfer, archive, {})
            try:
                transfer.obtain(candidate_places(self.site, entry.origin, entry.file), entry.sha256)
            except DownloadError:
                raise EnvbuildError(f"the source {archive.origin} is not available") from None
            found[archive.origin] = self.extract(entry.sha256, folder / archive.name)
        for text in sources.sdists:
            found[text] = self.extract(self.sdist(text), folder / text.partition("=")[0])
        return found

    def sdist(self, text: str) -> str:
        """Return the digest of a source distribution (``flash-attn==2.5.6``), which is then in the store."""
        name, _, version = text.partition("==")
        index = PackageIndex(self.transport, self.site.python())
        files = [file for file in index.files(name) if file.name.endswith(".tar.gz") and f"-{version}." in file.name]
        if not files:
            raise EnvbuildError(f"the package index has no source distribution of {text}")
        sha256, _ = Transfer(self.transport, self.store).obtain([files[0].url], files[0].sha256)
        return sha256

    def extract(self, sha256: str, folder: Path) -> Path:
        """Unpack a blob of the store without its one top folder."""
        folder.mkdir(parents=True)
        with tarfile.open(self.store.blob(sha256)) as tar:
            tar.extractall(folder, filter="data")
        (top,) = folder.iterdir()
        return top


def missing_submodules(git: Git, folder: Path) -> list[str]:
    """Return the submodules of a source that have no files, unless the recipe leaves them out with a reason."""
    if git.left_out:
        return []
    empty = [path for path in folder.rglob("*") if path.is_dir() and not any(path.iterdir())]
    return sorted(str(path.relative_to(folder)) for path in empty)


def open_upstream() -> Upstream | str:
    """Return the site of this rehearsal, or what is missing for one."""
    named = os.environ.get(SITE, "")
    if not named:
        return f"{SITE} names no site.yaml with mirrors of github: (upstream's repositories)"
    if not Path(named).is_file():
        return f"{SITE}: there is no file {named}"
    site = read_site(Path(named))
    kept = os.environ.get(STORE, "")
    return Upstream(site, Store.open(Path(kept) if kept else site.store))
