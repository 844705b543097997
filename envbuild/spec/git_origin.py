"""The address of a git repository as an origin, which a site maps to its own places."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

FORGES = {"github.com": "github:", "www.github.com": "github:", "gitlab.com": "gitlab:", "www.gitlab.com": "gitlab:"}
SCHEMES = ("https", "http", "ssh", "git", "git+ssh", "git+https")
SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[A-Za-z0-9.-]+):(?P<path>(?!//).+)")  # git@HOST:OWNER/NAME.git
HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d+)?")
PART = re.compile(r"[A-Za-z0-9_~+.][A-Za-z0-9_~+.-]*")
GIT = "git:"  # a repository of any other host: git:HOST/PATH


def git_origin(address: str) -> str:
    """Return the origin of a repository: ``github:OWNER/NAME``, ``gitlab:GROUP/NAME``, ``git:HOST/PATH``.

    Raises ValueError, with the cause, for an address that is not a repository of another machine.
    """
    if "://" in address:
        parts = urlsplit(address)
        try:
            host, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            raise ValueError("its address has an invalid port") from None
        if parts.scheme not in SCHEMES or not host:
            raise ValueError(f"its address begins with '{parts.scheme}:', which is not a network protocol of git")
        # The port of ssh is another service's than the one that a mirror has.
        if port and parts.scheme in ("https", "http") and port not in (80, 443):
            host += f":{port}"
        path = parts.path
    elif found := SCP.fullmatch(address):
        host, path = found["host"].lower(), found["path"]
    else:
        raise ValueError("its address is a local folder")
    path = plain_path(path)
    if not HOST.fullmatch(host):
        raise ValueError("its address names no host")
    if host in FORGES:
        return FORGES[host] + path
    return f"{GIT}{host}/{path}"


def plain_path(path: str) -> str:
    """Return a path of plain names, without ``.git`` at its end. Raises ValueError."""
    path = path.strip("/").removesuffix(".git")
    if not path or not all(PART.fullmatch(part) and part not in (".", "..") for part in path.split("/")):
        raise ValueError("the path in its address has characters that are not allowed")
    return path
