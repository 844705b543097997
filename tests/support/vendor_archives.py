"""Signed archives of Ubuntu and of two vendors, and what apt resolves from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from envbuild.core.console import SilentReporter
from envbuild.core.distributions import find_distribution
from envbuild.core.errors import InputError
from envbuild.core.store.store import Store
from envbuild.lock.debian import resolve as debian
from envbuild.net.site import Site
from envbuild.spec.recipe import AptRepository
from tests.support.debian_archive import RELEASED, Signer, publish, stanza

NOBLE = find_distribution("ubuntu:24.04")
CUDA, DOCA = "apt:cuda/ubuntu2404/x86_64", "apt:doca"


def with_vendors(site: Site, tmp_path: Path, vendor: Signer) -> Site:
    """`site` with a flat repository and one whose suite is named as the distribution's."""
    publish(
        tmp_path / "cuda/ubuntu2404/x86_64",
        "./",
        [stanza("cuda-nvcc", "12.4", folder=".", Depends="cuda-crt"), stanza("cuda-crt", "12.4", folder=".")],
        vendor,
    )
    doca = [
        stanza("rdma-core", "2410", Depends="libibverbs1 (= 2410)"),
        stanza("libibverbs1", "2410"),
        stanza("libc6", "9"),
    ]
    publish(tmp_path / "doca", "noble", {"main": doca}, vendor, released=RELEASED + 10**6)
    for folder in ("cuda/ubuntu2404/x86_64", "doca/keys"):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        (tmp_path / folder / "vendor.pub").write_bytes(vendor.armored)
    places = {"apt:cuda": (str(tmp_path / "cuda"),), "apt:doca": (str(tmp_path / "doca"),)}
    return replace(site, mirrors={**site.mirrors, **places})


def repositories(vendor: Signer) -> tuple[AptRepository, ...]:
    spaced = " ".join(vendor.fingerprint[at : at + 4] for at in range(0, 40, 4)).lower()
    return (
        AptRepository(CUDA, "./", (), vendor.fingerprint, "vendor.pub"),
        AptRepository(DOCA, "noble", ("main",), spaced, "keys/vendor.pub"),
    )


def resolve(
    site: Site,
    repositories: Iterable[AptRepository] = (),
    status: str | None = None,
    reporter: SilentReporter | None = None,
    refresh: bool = True,
    **units: str,
) -> debian.DebianLock:
    asked = {name.replace("_", "-"): tuple(names.split()) for name, names in units.items()}
    request = debian.DebianRequest(NOBLE, "amd64", asked, tuple(repositories), installed=status, refresh=refresh)
    return debian.resolve(request, site, Store.open(site.store), reporter or SilentReporter())


def named(lock: debian.DebianLock, unit: str) -> dict[str, str]:
    return {f"{file.name} {file.version}": file.archive for file in lock.units[unit]}


def messages(error: InputError) -> list[tuple[str, str]]:
    return [(finding.message, finding.hint) for finding in error.findings]
