"""Locks and fetches from the archive and the package index that this machine is configured for."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.distributions import find_distribution
from envbuild.core.errors import ConflictError, InputError
from envbuild.core.store.store import Store
from envbuild.lock.debian import resolve
from envbuild.lock.fetch import fetch, inputs_to_fetch
from envbuild.lock.lockfile import dump_lock, read_lock, write_lock
from envbuild.lock.make_lock import make_lock
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.net.site import Site
from envbuild.spec.workspace import load_site

pytestmark = [
    pytest.mark.images,
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
]
MPI = LockRequest(
    "mpi",
    "debian:13",
    "debian:13",
    "amd64",
    "3.13",
    {
        "base": UnitRequest(debian=("ca-certificates", "python3")),
        "debian": UnitRequest(
            debian=("openmpi-bin", "libopenmpi40", "libucx0", "ucx-utils", "rdma-core", "ibverbs-providers", "python3")
        ),
        "venv": UnitRequest(python=("numpy",)),
        "build-mpi4py": UnitRequest(
            debian=("gcc", "libopenmpi-dev", "python3-dev"), python=("setuptools", "cython"), sdists=("mpi4py",)
        ),
    },
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def site(store: Store) -> Site:
    return replace(load_site(None), store=store.root)


def test_lock_and_fetch(site: Site, store: Store, tmp_path: Path) -> None:
    lock = make_lock(MPI, site, store, SilentReporter())
    names = {file.name: file for file in lock.debian.values()}
    assert {"libc6", "dpkg", "apt", "python3.13", "libopenmpi40", "libibverbs1", "gcc-14"} <= set(names)
    essential = {lock.debian[file].name for file in lock.units["base"].essential}
    assert {"libc6", "dpkg", "tar", "dash", "mawk", "libgcc-s1", "apt"} <= essential
    assert not {"python3", "ca-certificates"} & essential
    assert not set(lock.units["debian"].debian) & set(lock.units["base"].debian)
    assert lock.units["build-mpi4py"].sdists[0].startswith("mpi4py-")
    assert "numpy" in lock.units["venv"].python[0] and "cp313" in lock.units["venv"].python[0]
    write_lock(lock, tmp_path / "mpi.lock")
    assert read_lock(tmp_path / "mpi.lock") == lock
    assert "://" not in dump_lock(lock)
    assert make_lock(MPI, site, store, SilentReporter(), previous=lock, refresh=True) == lock

    fetch(lock, store, site, SilentReporter())
    assert inputs_to_fetch(lock, store) == []
    for file in lock.debian.values():
        assert store.blob(file.sha256).stat().st_size == file.size
    store.check_blob(names["libc6"].sha256)


def test_gpu_packages(site: Site, store: Store) -> None:
    units = {
        "base": UnitRequest(debian=("python3",)),
        "debian": UnitRequest(),
        "venv": UnitRequest(python=("torch", "transformers")),
        "venv-core": UnitRequest(python=("torch",)),
        "build-x": UnitRequest(python=("torch", "setuptools<81", "ninja")),
    }
    lock = make_lock(replace(MPI, image="gpu", units=units), site, store, SilentReporter())
    core, venv, build = (set(lock.units[name].python) for name in ("venv-core", "venv", "build-x"))
    assert core < venv
    assert any(name.startswith("nvidia_nccl") for name in core)
    torch = next(name for name in core if name.startswith("torch-"))
    assert torch in build and "cp313" in torch
    assert not any(name.startswith("transformers-") for name in core)


def test_other_machine(site: Site, store: Store) -> None:
    units = {"base": UnitRequest(debian=("python3",)), "venv": UnitRequest(python=("numpy",))}
    lock = make_lock(replace(MPI, image="arm", arch="arm64", units=units), site, store, SilentReporter())
    assert any(file.file.startswith("libc6_") and file.file.endswith("_arm64.deb") for file in lock.debian.values())
    assert lock.units["venv"].python[0].endswith("aarch64.whl")
    assert "aarch64" in lock.units["tools"].python[0]


def test_debian_12(site: Site, store: Store) -> None:
    """The release before: without usrmerge, which would install perl into every base."""
    units = {**MPI.units, "debian": UnitRequest(debian=("openmpi-bin", "libucx0"))}
    request = replace(MPI, image="old", base="debian:12", distribution="debian:12", python="3.11", units=units)
    lock = make_lock(request, site, store, SilentReporter())
    names = {lock.debian[file].name for file in lock.units["base"].debian}
    assert {"libc6", "dpkg", "apt", "python3.11", "usr-is-merged"} <= names
    assert not {"usrmerge", "perl"} & names
    archives = {file.archive.partition("/")[0] for file in lock.debian.values()}
    assert archives <= {"debian:bookworm", "debian:bookworm-updates", "debian-security:bookworm-security"}
    assert "cp311" in lock.units["venv"].python[0]
    assert make_lock(request, site, store, SilentReporter(), previous=lock, refresh=True) == lock


def test_mistakes(site: Site, store: Store) -> None:
    units = {"base": UnitRequest(debian=("openmpi-bni",))}
    with pytest.raises(InputError, match="no package 'openmpi-bni'") as missing_package:
        request = resolve.DebianRequest(find_distribution("debian:13"), "amd64", {"base": units["base"].debian})
        resolve.resolve(request, site, store, SilentReporter())
    assert missing_package.value.hint == "did you mean 'openmpi-bin'?"
    with pytest.raises(ConflictError, match="numpy"):
        conflict = UnitRequest(python=("numpy<1.20", "numpy>2"))
        make_lock(replace(MPI, units={"base": UnitRequest(), "venv": conflict}), site, store, SilentReporter())
