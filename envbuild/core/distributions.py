"""Bases of an image: a distribution, made from its own packages, or an image of a registry or of this machine.

A distribution (``debian:13``) is resolved by apt like everything else and locked package by package. An image reference
with a registry (``nvcr.io/nvidia/pytorch:25.10-py3``) is locked by digest; the spec names the
distribution that it is made of, and the lock checks it. The same holds for an archive or a layout (``./app.tar``,
``oci:DIR``). The name of another image of the project (``h100-nccl``) is that image, as it was built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envbuild.core.errors import SpecError


@dataclass(frozen=True, slots=True)
class Distribution:
    """A release of a distribution with apt.

    `python` is the version of its python3, `glibc` that of its C library, `archives` its archives by origin, the main
    one first and the one for security updates last; `keyrings` are files of this machine that may hold their keys.
    `t64`: libraries have the suffix of the 64-bit time_t transition in their package names (librdmacm1t64).
    """

    name: str
    codename: str
    python: str
    glibc: tuple[int, int]
    archives: tuple[str, ...]
    keyrings: tuple[str, ...]
    keyring_package: str
    t64: bool = False

    def package(self, name: str) -> str:
        """Return the name of a library package, with the suffix of the transition where it took place."""
        return f"{name}t64" if self.t64 else name

    @property
    def family(self) -> str:
        """debian or ubuntu."""
        return self.name.partition(":")[0]


def _debian(number: str, codename: str, python: str, glibc: tuple[int, int], **more: Any) -> Distribution:
    archives = (
        f"debian:{codename}/main",
        f"debian:{codename}-updates/main",
        f"debian-security:{codename}-security/main",
    )
    keyrings = (
        "/usr/share/keyrings/debian-archive-keyring.gpg",
        "/usr/share/keyrings/debian-archive-keyring.pgp",
    )
    keys = (keyrings, "debian-archive-keyring")
    return Distribution(f"debian:{number}", codename, python, glibc, archives, *keys, **more)


def _ubuntu(number: str, codename: str, python: str, glibc: tuple[int, int], **more: Any) -> Distribution:
    # One archive serves the security suite too; arm64 has an archive of its own (net/homes/ubuntu.yaml).
    suites = (codename, f"{codename}-updates", f"{codename}-security")
    archives = tuple(f"ubuntu:{suite}/{component}" for suite in suites for component in ("main", "universe"))
    keyrings = ("/usr/share/keyrings/ubuntu-archive-keyring.gpg",)
    keys = (keyrings, "ubuntu-archive-keyring")
    return Distribution(f"ubuntu:{number}", codename, python, glibc, archives, *keys, **more)


# Versions of Python and of the C library: the packages python3 and libc6 of each release.
DISTRIBUTIONS = {
    item.name: item
    for item in (
        _debian("12", "bookworm", "3.11", (2, 36)),
        _debian("13", "trixie", "3.13", (2, 41), t64=True),
        _ubuntu("20.04", "focal", "3.8", (2, 31)),
        _ubuntu("22.04", "jammy", "3.10", (2, 35)),
        _ubuntu("24.04", "noble", "3.12", (2, 39), t64=True),
    )
}

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # Debian's and OCI's word → the kernel's and wheels' word

PLACE = "base:"  # the key of the place of the spec's `base` among the places of layers, of which none can be called so


LOCAL_FORMS = ("oci:", "oci-archive:", "docker-archive:")  # before a path
PATHS = ("./", "../", "/", "~/")


def is_own_image(base: str) -> bool:
    """Return whether `base` has the form of the name of an image of the project: distributions have a release."""
    return bool(base) and not set(base) & {":", "/"}


def is_local_image(base: str) -> bool:
    """Return whether `base` names an image on this machine: an archive, a layout (``./app.tar``, ``oci:DIR``), or an
    image of the project."""
    return base.startswith((*LOCAL_FORMS, *PATHS)) or is_own_image(base)


def is_image(base: str) -> bool:
    """Return whether `base` is an image: a reference with its registry (``docker.io/library/ubuntu:24.04``,
    ``localhost:5000/base:1``), or one on this machine."""
    return is_local_image(base) or has_registry(base)


def has_registry(name: str) -> bool:
    """Return whether the name of an image begins with its registry, by Docker's rule: the text before the first slash
    has a dot or a port, or is ``localhost`` (github.com/distribution/reference, normalize.go). A path such as
    ``../image`` has none."""
    host, slash, _ = name.partition("/")
    return bool(slash) and ("." in host.strip(".") or ":" in host or host == "localhost")


def find_distribution(name: str) -> Distribution:
    """Return the distribution `name` (``debian:13``, ``debian:trixie``). Raises SpecError."""
    for item in DISTRIBUTIONS.values():
        if name in (item.name, f"{item.family}:{item.codename}"):
            return item
    raise SpecError(f"unknown distribution '{name}'", hint=f"write one of: {', '.join(DISTRIBUTIONS)}")
