"""The form of names, paths and origins in a lock. It may be of another user: of a squashfs file or a published image
that is built again, or of a merge request. Its names become words of commands in hints, and its origins and paths are
joined with the folders and addresses of the site."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envbuild.core.yaml_reader import short
from envbuild.net.origin_kinds import ORIGIN_KINDS

# Debian policy 5.6.1 and 5.6.12; PEP 508 and PEP 440
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9+._-]*[A-Za-z0-9+])?")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:!_-]*")
LONGEST = 255  # characters; the name of a package's file has both
COMMIT = re.compile(r"[0-9a-f]{40}")
# Signs that lead out of a word of a shell, or out of a text of YAML; no archive or repository has one.
FORBIDDEN = re.compile(r"[\s\"'\\`$;&|<>(){}\[\]]")


def check_name(name: str, version: str) -> None:
    """Raise ValueError for a package whose name or version is none."""
    for what, text, pattern in (("name", name, NAME), ("version", version, VERSION)):
        if len(text) > LONGEST or not pattern.fullmatch(text):
            raise ValueError(f"{short(text)!r} is not the {what} of a package")


def check_path(path: str) -> None:
    """Raise ValueError for a path that leads out of its archive or repository."""
    if path.startswith("/") or ".." in path.split("/") or FORBIDDEN.search(path):
        raise ValueError(f"{short(path)!r} is not a path in an archive")


def check_submodule(path: str, origin: str) -> None:
    """Raise ValueError for a path that leads out of its repository, or an origin without a commit."""
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{short(path)!r} is not a path in a repository")
    check_origin(origin, commit=True)


def check_origin(origin: str, *, commit: bool = False, kinds: Sequence[str] = ORIGIN_KINDS) -> None:
    """Raise ValueError for an origin (``KIND:REST``) of none of `kinds`, or whose rest leads elsewhere, or does not end
    with a `commit`: git would take another text for an option."""
    if commit and not COMMIT.fullmatch(origin.rpartition("@")[2]):
        raise ValueError(f"{short(origin)!r} is not an origin with a commit")
    kind, mark, rest = origin.partition(":")
    if kind not in kinds or not mark:
        raise ValueError(f"{short(origin)!r} is not an origin here: its kind is none of {', '.join(kinds)}")
    check_path(rest)
