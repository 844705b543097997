"""A site: where inputs come from and images go to, on this machine.

``site.yaml`` of the project, else the one of the user's configuration folder, else nothing. What it leaves out is taken
from the host's own configuration (`envbuild.net.host_config`: apt's and pip's), so that a machine on which ``apt-get
install`` and ``pip install`` work is ready.

A mirror is an address or a folder for a prefix of origins (``debian:``, ``github:openucx/``,
``apt:nvidia-cuda``, ``oci:nvcr.io/``); the longest prefix that fits an origin wins. For ``python:`` and ``pip:`` an
address (``https://…/simple``, ``file:///…/simple``) is a simple index, a plain path a folder of files. An origin that
no mirror fits comes from the host's configuration or from its public home (`envbuild.net.supply`), unless the site
specifies ``upstream: false``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.errors import InputError
from envbuild.core.paths import expand_home
from envbuild.core.user_folders import config_folder, user_folder
from envbuild.net.network_settings import NetworkSettings, UncheckedHosts, host_names
from envbuild.net.origin_kinds import ARCHIVES, ORIGINS, longest_prefix
from envbuild.net.slurm_site import NodeSettings, Slurm, merge_settings
from envbuild.net.supply import Supply, find_supply
from envbuild.net.urls import join

if TYPE_CHECKING:
    from envbuild.net.host_config import PipTrust, PythonIndexes
    from envbuild.net.signature_policy import SignaturePolicy
    from envbuild.net.unit_caches import UnitCache

COMPRESSIONS = ("gzip", "zstd", "none")  # of the layers of a published image


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that differs between clusters. `mirrors`: prefix of origins → addresses or folders, in order of
    preference.

    `use_host`: take what `mirrors` does not name from its default place: the host's apt and pip configuration, its
    public home, the registry that an image reference names (``upstream: false`` in the file turns it off).
    `keyrings`: prefix of origins → file of OpenPGP keys; `debian_keyring` is the older name of the one for
    ``debian:``. `apt`: options for apt-get while locking (`envbuild.net.apt_options`). `trust`: folders whose projects
    are trusted, of any owner; only in the user's own file. `registry`: where `publish` puts images without --to;
    `compression`: of their layers (empty: gzip). `compiler_cache`: whether units that compile use the machine's ccache.
    `caches`: of finished units, in the order of the requests. `images`: the folder with squashfs files that compute
    nodes read. `signatures`: whose signature a published image must have (None: it needs none). `slurm`, `nodes` and
    `targets` (of one target each): how jobs are started (`envbuild.net.slurm_site`).
    """

    store: Path
    engine: str = "auto"
    mirrors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ca_bundle: Path | None = None
    proxy: str = ""
    insecure_hosts: tuple[str, ...] = ()
    debian_keyring: Path | None = None
    apt: Mapping[str, str] = field(default_factory=dict)
    registry: str = ""
    compression: str = ""
    images: str = ""
    slurm: Slurm = field(default_factory=Slurm)
    nodes: NodeSettings = field(default_factory=NodeSettings)
    targets: Mapping[str, NodeSettings] = field(default_factory=dict)
    use_host: bool = True
    where: str = ""  # the file it was read from
    keyrings: Mapping[str, Path] = field(default_factory=dict)
    trust: tuple[Path, ...] = ()
    compiler_cache: bool = True
    caches: tuple[UnitCache, ...] = ()
    signatures: SignaturePolicy | None = None
    unchecked: UncheckedHosts = field(default_factory=UncheckedHosts, compare=False, repr=False)

    def nodes_of(self, target: str) -> NodeSettings:
        """Return what the site states about the nodes of a target."""
        return merge_settings(self.nodes, self.targets[target]) if target in self.targets else self.nodes

    def supply(self, origin: str, arch: str = "") -> Supply:
        """Return where `origin` is taken from, and why. `arch`: the architecture whose packages are needed."""
        return find_supply(self.mirrors, self.use_host, origin, arch)

    def places(self, origin: str, arch: str = "") -> tuple[str, tuple[str, ...]]:
        """Return the rest of `origin` after the prefix that names its places, and these places (none: none is known).
        `arch`: the architecture whose packages are needed."""
        supply = self.supply(origin, arch)
        return supply.rest, supply.places

    def roots(self, origin: str, arch: str = "") -> tuple[str, ...]:
        """Return the folders or addresses that *are* `origin`, in the order of the requests: of a distribution's
        archive (``debian:trixie/main``) its mirrors, of anything else (``apt:nvidia-cuda/ubuntu2204``,
        ``pip:pytorch/cu113``, ``oci:nvcr.io/nvidia/pytorch``) what is left of the origin below each of its places.
        """
        rest, places = self.places(origin, arch)
        if not rest or origin.partition(":")[0] in ARCHIVES:
            return places
        return tuple(join(place, rest) for place in places)

    def keyring(self, origin: str) -> Path | None:
        """Return the file of keys that the site configures for a signed archive; None if it configures none."""
        if prefix := longest_prefix(self.keyrings, origin):
            return self.keyrings[prefix]
        if not origin.startswith(("debian:", "debian-security:")):
            return None
        return self.keyrings.get("debian:") or self.debian_keyring  # one set of keys signs both archives

    def python(self, origin: str = "python:") -> PythonIndexes:
        """Return the Python indexes of ``python:`` (its mirrors, else what pip uses on this machine, as one pool), or
        those of a vendor (``pip:pytorch/cu113``: its mirrors, else its public home).
        """
        from envbuild.net import host_config

        insecure, ca_bundle = self.insecure_hosts, str(self.ca_bundle or "")
        if origin == "python:" and self.use_host and origin not in self.mirrors:
            found = host_config.pip_indexes()
            insecure, ca_bundle = (*insecure, *found.insecure), ca_bundle or found.ca_bundle
            return host_config.PythonIndexes(found.indexes, found.links, insecure, ca_bundle, pool=True)
        roots = self.roots(origin)
        indexes = tuple(place for place in roots if "://" in place)
        links = tuple(place for place in roots if "://" not in place)
        return host_config.PythonIndexes(indexes, links, insecure, ca_bundle)

    def certificates(self) -> str:
        """Return the CA bundle (a file or folder) that downloads are checked against; empty: the program's own."""
        if self.ca_bundle:
            return str(self.ca_bundle)
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            if os.environ.get(name):
                return os.environ[name]
        return self._pip().ca_bundle

    def _pip(self) -> PipTrust:
        """Return what the host's pip accepts, where this site uses its indexes."""
        from envbuild.net import host_config

        return host_config.pip_trust() if self.use_host and "python:" not in self.mirrors else host_config.PipTrust()

    def network(self) -> NetworkSettings:
        """Return the settings of a transport. No program is started for them."""
        names = (*self.insecure_hosts, *self._pip().insecure)
        return NetworkSettings(self.proxy, host_names(names), self.certificates(), self.unchecked)


def mirror_line(origin: str, place: str = "ADDRESS-OR-FOLDER") -> str:
    """Return the line below ``mirrors:`` of a ``site.yaml`` with which `origin` comes from `place`."""
    kind, _, rest = origin.partition(":")
    parts = {
        "kind": kind,
        "whole": f'"{origin}"',
        "repository": f'"{kind}:{rest.partition("@")[0]}"',
        "first": f'"{kind}:{rest.partition("/")[0]}/"',
    }
    prefix = parts[ORIGINS[kind].mirrored if kind in ORIGINS else "kind"]
    return f"{prefix}: [{place}]"


def mirrors_setting(line: str) -> str:
    """Return the setting of ``site.yaml`` that contains a `mirror_line`."""
    return f"mirrors: {{{line}}}"


def store_folder(configured: str | None) -> Path:
    """Return ``$ENVBUILD_STORE``, else the folder that the site configures, else the user's cache folder."""
    if chosen := os.environ.get("ENVBUILD_STORE") or configured:
        return expand_home(chosen).absolute()
    cache = user_folder("XDG_CACHE_HOME", ".cache")
    if cache is None:
        raise InputError("this user has no home folder", "export ENVBUILD_STORE=/a/folder/on/a/local/disk")
    return cache / "envbuild"


def user_file() -> Path | None:
    """Return the path of the user's own site file, which need not exist."""
    folder = config_folder()
    return folder / "site.yaml" if folder else None
