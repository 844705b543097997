"""How this machine reaches the network: what a transport has to know of a site."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """`proxy` is the one of all downloads (empty: that of the environment), `insecure` are hosts whose certificate is
    not checked, `certificates` is the CA bundle (a file or folder) of the others (empty: the program's own)."""

    proxy: str = ""
    insecure: frozenset[str] = frozenset()
    certificates: str = ""
