"""Network settings of a site: the part of it that a transport needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Settings of all downloads.

    `proxy` is used for every download (empty: that of the environment), `insecure` are hosts whose certificate is
    not checked, `certificates` is the CA bundle (a file or folder) of the others (empty: the program's own)."""

    proxy: str = ""
    insecure: frozenset[str] = frozenset()
    certificates: str = ""
