"""A package that is fetched, from places of a site."""

from __future__ import annotations

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.lock.fetch import fetch
from envbuild.lock.model import DebianFile, Lock
from envbuild.net.site import Site
from tests.support.lock_server import sha256

PATH = "pool/main/h/hello/hello_1.0_all.deb"


def deb(content: bytes, name: str = "hello", path: str = PATH) -> DebianFile:
    return DebianFile(path.rpartition("/")[2], name, "1.0", "debian:trixie/main", path, len(content), sha256(content))


def site(store: Store, *debian: str, **mirrors: tuple[str, ...]) -> Site:
    given = {f"{prefix}:": places for prefix, places in mirrors.items()}
    return Site(store.root, mirrors={"debian:": debian, "python:": (), **given}, use_host=False)


def run(wanted: Lock, store: Store, at: Site, **options: int) -> SilentReporter:
    reporter = SilentReporter()
    fetch(wanted, store, at, reporter, pause=0.001, **options)
    return reporter
