"""The way from an origin to its places: the one order in which mirrors of the site, the host's apt and pip, and public
homes are used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from envbuild.core.distributions import MACHINES
from envbuild.net.origin_kinds import ARCHIVES, LOCAL, ORIGINS, longest_prefix

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class SupplyKind(Enum):
    """The reason why an origin is taken from its places."""

    SITE = "site"  # mirrors of site.yaml
    HOST = "host"  # the configuration of apt or pip on this machine
    PUBLIC = "public"  # a public home, or the host that the origin itself names
    NONE = ""


class Supply(NamedTuple):
    """The places of an origin, in the order of the requests, and the part of the origin to append to each of them.
    `prefix`: the prefix of origins that names the places. The places of ``python:`` are `Site.python`'s."""

    by: SupplyKind
    rest: str
    places: tuple[str, ...] = ()
    prefix: str = ""


def find_supply(mirrors: Mapping[str, tuple[str, ...]], use_host: bool, origin: str, arch: str = "") -> Supply:
    """Return where `origin` is taken from.

    mirrors, use_host: of the site
    arch: the architecture (Debian's word) whose packages are needed; empty: any
    """
    if prefix := longest_prefix(mirrors, origin):
        return Supply(SupplyKind.SITE, origin[len(prefix) :].lstrip("/"), mirrors[prefix], prefix)
    kind, _, rest = origin.partition(":")
    # A site that names its own Debian archive is not mixed with a security archive from elsewhere.
    if not use_host or (kind == "debian-security" and "debian:" in mirrors):
        return Supply(SupplyKind.NONE, rest)
    if kind == "python":
        return Supply(SupplyKind.HOST, rest, (), "python:")
    if kind in ARCHIVES and (places := _host_archives(f"{kind}:", arch)):
        return Supply(SupplyKind.HOST, rest, places, f"{kind}:")
    from envbuild.net.public_homes import find_homes

    if homes := find_homes(origin, arch):
        return Supply(SupplyKind.PUBLIC, homes[0].rest(origin), tuple(home.address for home in homes), homes[0].origin)
    if kind in ORIGINS and ORIGINS[kind].names_host and rest:
        host, _, path = rest.partition("/")
        if host == LOCAL:
            return Supply(SupplyKind.NONE, rest)
        # Docker, too, takes http on the machine itself.
        here = host in LOOPBACK or host.rpartition(":")[0] in LOOPBACK
        places = tuple(f"{scheme}://{host}" for scheme in (("https", "http") if here else ("https",)))
        return Supply(SupplyKind.PUBLIC, path, places, f"{kind}:{host}/")
    return Supply(SupplyKind.NONE, rest)


def _host_archives(prefix: str, arch: str) -> tuple[str, ...]:
    """Return the archives of apt's sources. Ubuntu has another archive for architectures beside the host's."""
    from envbuild.net import host_config

    found = host_config.debian_archives().get(prefix, ())
    if prefix != "ubuntu:" or not arch or MACHINES.get(arch) == os.uname().machine:
        return found
    return tuple(place for place in found if place.rstrip("/").endswith("-ports") == (arch != "amd64"))
