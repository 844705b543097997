"""Helpers of the tests of whole locks: a site that has something of every kind."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.lock.make_lock import make_lock
from envbuild.lock.model import Lock
from envbuild.lock.request import LockRequest
from envbuild.net.site import Site
from envbuild.net.uv_program import uv_version
from tests.support.debian_archive import Signer, publish, stanza
from tests.support.git_server import Repo
from tests.support.lock_server import simple_index, wheel

MARKS = [
    pytest.mark.unit,
    *(
        pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")
        for program in ("apt-get", "gpg", "git")
    ),
]


@pytest.fixture(scope="session")
def widget(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return the repository that every test has a copy of."""
    return Repo.make(tmp_path_factory.mktemp("forge") / "widget", {"setup.py": b"x"})


@pytest.fixture
def repo(tmp_path: Path, widget: Repo) -> Repo:
    """Return a repository of the site's forge."""
    return Repo(shutil.copytree(widget.path, tmp_path / "git/demo/widget"))


def make_site(
    folder: Path, key: Signer, debian: Iterable[str], python: Iterable[Path], torch: Path, **more: Path
) -> Site:
    """Debian 13 with the stanzas `debian` beside the usual ones, a vendor's repository ``apt:cuda`` with cuda-nvcc, a
    package index with `python` and uv, a vendor's (``pip:torch``) with `torch`, the forge of `repo`, and `more`: kinds
    of origins with their folders."""
    usual = (stanza("dash", essential=True), stanza("apt"), stanza("ca-certificates"), stanza("openssl", "3.0-1"))
    for suite, stanzas in (("trixie", (*usual, *debian)), ("trixie-updates", ())):
        publish(folder / "debian", suite, stanzas, key)
    publish(folder / "cuda", "/", [stanza("cuda-nvcc", "12.4", folder=".")], key)
    (folder / "cuda/key.pub").write_bytes(key.armored)
    uv = wheel(folder / "wheels", "uv", uv_version(), "py3-none-manylinux_2_28_x86_64")
    return Site(
        folder / "store",
        mirrors={
            "debian:": (str(folder / "debian"),),
            "apt:cuda": (str(folder / "cuda"),),
            "python:": (simple_index(folder / "simple", [*python, uv]),),
            "pip:torch": (simple_index(folder / "torch", [torch]),),
            "github:": (str(folder / "git"),),
            **{f"{kind}:": (str(place),) for kind, place in more.items()},
        },
        use_host=False,
        debian_keyring=key.keyring,
        where="site.yaml",
    )


def make(site: Site, asked: LockRequest, previous: Lock | None = None, *upgrade: str, refresh: bool = False) -> Lock:
    """Return the lock of a request; `upgrade`: names of packages that may change."""
    store = Store.open(site.store)
    return make_lock(
        asked, site, store, SilentReporter(), previous=previous, upgrade=frozenset(upgrade), refresh=refresh
    )
