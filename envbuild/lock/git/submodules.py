"""What repository a submodule is of: the address in .gitmodules as an origin, which a site maps to its own places.

The addresses themselves are never used: they are whatever a commit says, and a site may have the repository elsewhere.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

FORGES = {"github.com": "github:", "www.github.com": "github:", "gitlab.com": "gitlab:", "www.gitlab.com": "gitlab:"}
SCHEMES = ("https", "http", "ssh", "git", "git+ssh", "git+https")
SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[A-Za-z0-9.-]+):(?P<path>(?!//).+)")  # git@HOST:OWNER/NAME.git
HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d+)?")
PART = re.compile(r"[A-Za-z0-9_~+.][A-Za-z0-9_~+.-]*")
GIT = "git:"  # a repository of any other host: git:HOST/PATH


def submodule_origin(address: str, parent: str) -> str:
    """The origin of the repository at `address`, as the .gitmodules of the repository `parent` (an origin) gives it:
    ``github:OWNER/NAME``, ``gitlab:GROUP/NAME``, ``git:HOST/PATH``; a relative one is taken from the parent's own.

    Raises ValueError, with why, for an address that names no repository of another machine.
    """
    if address.startswith(("./", "../")):
        kind, _, path = parent.partition(":")
        return f"{kind}:{_join(path, address)}"
    if "://" in address:
        parts = urlsplit(address)
        try:
            host, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            raise ValueError("its address has no port that can be") from None
        if parts.scheme not in SCHEMES or not host:
            raise ValueError(f"its address begins with '{parts.scheme}:', which no other machine understands")
        # The port of ssh is another service's than the one that a mirror has.
        if port and parts.scheme in ("https", "http") and port not in (80, 443):
            host += f":{port}"
        path = parts.path
    elif found := SCP.fullmatch(address):
        host, path = found["host"].lower(), found["path"]
    else:
        raise ValueError("its address is a folder of somebody's machine")
    path = _normalize(path)
    if not HOST.fullmatch(host):
        raise ValueError("its address names no host")
    if host in FORGES:
        return FORGES[host] + path
    return f"{GIT}{host}/{path}"


def _normalize(path: str) -> str:
    """A path of plain parts, without ``.git`` at its end."""
    path = path.strip("/").removesuffix(".git")
    if not path or not all(PART.fullmatch(part) and part not in (".", "..") for part in path.split("/")):
        raise ValueError("the path in its address is not one of plain names")
    return path


def _join(path: str, relative: str) -> str:
    """`relative` from the repository `path`, as gitsubmodules(7) has it: ``../`` drops a part of the address."""
    parts = path.strip("/").split("/")
    for step in relative.rstrip("/").split("/"):
        if step == "..":
            if not parts:
                break
            parts.pop()
        elif step not in (".", ""):
            parts.append(step)
    if not parts:
        raise ValueError("its relative address leads out of the parent's host")
    return _normalize("/".join(parts))
