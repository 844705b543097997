"""The repositories of an origin: folders, which are read in place, and addresses (`envbuild.lock.git.remote`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.store.store import Store
from envbuild.lock.git.foreign_repository import find_way_out
from envbuild.lock.git.git_program import run_git
from envbuild.lock.git.received import Received
from envbuild.lock.git.remote import RemoteRepository
from envbuild.net.failures import NotFoundError
from envbuild.net.site import Site
from envbuild.net.supply import SupplyKind
from envbuild.net.transport import Transport
from envbuild.net.urls import join, local_path, redact
from envbuild.spec.git_origin import git_origin

SCP = re.compile(r"[^/@]+@[^/:]+:")  # git@HOST:PATH, ssh's mirrors way to write an address
READABLE = ("/", "file://", "https://", "http://")  # places that files can be read from


@dataclass(frozen=True, slots=True)
class LocalRepository:
    """A git directory on this machine. It is only read."""

    path: Path
    place: str

    def obtain(self, commit: str, tag: str) -> Path:
        """Return the git directory that has `commit`, if this repository does.

        Raises NotFoundError, UnreachableError, RefusedError.
        """
        return self.path

    def resolve_tag(self, tag: str) -> str:
        """Return the commit that `tag` names here; empty if there is no such tag. Raises as `obtain`."""
        done = run_git(self.path, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}")
        return done.stdout.decode().strip() if done.returncode == 0 else ""

    def has_tags(self) -> bool:
        """Return whether there are tags at all. Raises as `obtain`."""
        return bool(run_git(self.path, "for-each-ref", "--count=1", "refs/tags").stdout)


@dataclass(frozen=True, slots=True)
class MissingRepository:
    """A place that has no repository of that name."""

    place: str
    why: str

    def obtain(self, commit: str, tag: str) -> Path:
        raise NotFoundError(self.why)

    def resolve_tag(self, tag: str) -> str:
        raise NotFoundError(self.why)

    def has_tags(self) -> bool:
        raise NotFoundError(self.why)


LONGEST = 4096  # bytes of a file that names a git directory: PATH_MAX of Linux
GitRepository = LocalRepository | RemoteRepository | MissingRepository


def find_repositories(
    site: Site,
    transport: Transport,
    store: Store,
    origin: str,
    report_status: Callable[[str], None],
    received: Received | None = None,
    *,
    submodule: bool = False,
) -> list[GitRepository]:
    """Return the repositories that may be `origin`, in the order of their use.

    received: what git receives for the same source
    submodule: the commit of a repository names it, so that a clone with its last name alone must be a clone of it
    """
    received = received or Received()
    rest, places = site.places(origin)
    found: list[GitRepository] = []
    for place in places:
        if is_remote(place):
            addresses = candidate_addresses(place, rest)
            found.append(RemoteRepository(transport, store, origin, addresses, report_status, received))
            continue
        path, names = (local_path(place) or Path(place)).absolute(), folder_names(origin, rest)
        there = {folder: path / name for name in names if (folder := find_git_directory(path / name))}
        for folder, named in there.items():
            if way := find_way_out(folder, named):
                found.append(MissingRepository(redact(place), f"may lead elsewhere by another user's {way}"))
            elif (
                submodule and rest and named not in (path / f"{rest}.git", path / rest) and not is_clone(folder, origin)
            ):
                why = f"has {named.name}, which does not name {origin} as what it is a clone of"
                found.append(MissingRepository(redact(place), why))
            else:
                found.append(LocalRepository(folder, str(folder)))
        if not there:
            tried = ", ".join(name for name in names if name)
            found.append(
                MissingRepository(
                    redact(place), f"contains no git repository {tried}" if path.is_dir() else "no such folder"
                )
            )
    return found


def is_remote(place: str) -> bool:
    """Return whether a place is not on this machine."""
    return local_path(place) is None or ("://" not in place and SCP.match(place) is not None)


def candidate_addresses(place: str, rest: str) -> tuple[str, ...]:
    """Return the addresses of a repository below the address `place`; with an empty `rest`, the place is its own."""
    address = join(place, rest) if rest else place.rstrip("/")
    return (address,) if address.endswith(".git") else (f"{address}.git", address)


def folder_names(origin: str, rest: str) -> list[str]:
    """Return the paths of a repository below a folder; with an empty `rest`, the folder itself may be it."""
    last = origin.partition(":")[2].strip("/").rpartition("/")[2]
    return list(dict.fromkeys([*((f"{rest}.git", rest) if rest else ("",)), f"{last}.git", last]))


def is_clone(folder: Path, origin: str) -> bool:
    """Return whether a git directory names `origin` as a repository that it is a clone of."""
    done = run_git(folder, "config", "--local", "--get-regexp", r"^remote\..*\.url$")
    for line in done.stdout.decode(errors="replace").split("\n"):
        with suppress(ValueError):
            if git_origin(line.partition(" ")[2]) == origin:
                return True
    return False


def find_git_directory(path: Path) -> Path | None:
    """Return the git directory that `path` is, or that it has as a working tree."""
    inner = path / ".git"
    if inner.is_file():  # of a submodule, or a further working tree: "gitdir: PATH"
        with suppress(OSError), inner.open("rb") as file:
            inner = path / file.read(LONGEST).decode(errors="replace").removeprefix("gitdir:").strip()
    for folder in (inner, path):
        if (folder / "HEAD").is_file() and ((folder / "objects").is_dir() or (folder / "commondir").is_file()):
            return folder
    return None


def tarball_places(site: Site, origin: str, file: str) -> list[str]:
    """Return where a mirror that the site itself names may have the finished tarball `file`."""
    supply = site.supply(origin)
    mirrors = [place for place in supply.places if place.startswith(READABLE)] if supply.by is SupplyKind.SITE else []
    return list(dict.fromkeys(join(place, name) for place in mirrors for name in (file, f"{supply.rest}/{file}")))
