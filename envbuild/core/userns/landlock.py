"""Landlock (landlock(7), Linux 5.13 and later): a process takes from itself, and from all that it starts, the access to
files, except below some places. It needs no privilege but no_new_privs."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from envbuild.core.userns import libc

VERSION = 1  # flag of landlock_create_ruleset: return the version of the interface
PATH_BENEATH = 1  # type of a rule
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
TRUNCATE, IOCTL_DEVICE = 1 << 14, 1 << 15
FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE  # what a rule for a file can allow
READING = EXECUTE | READ_FILE | READ_DIR
FILE_RIGHTS = (0, 13, 14, 15, 15, 16)  # version → how many rights of files it has, from the lowest bit
PORTS, SCOPES = 3, 3  # binding and connecting of TCP (version 4); abstract unix sockets and signals (version 6)


def version() -> int:
    """Return the version of the interface, 0 where this kernel does not have it."""
    try:
        return _create_ruleset(b"", VERSION)
    except OSError:
        return 0


def restrict(readable: Iterable[Path], writable: Iterable[Path] = ()) -> bool:
    """Allow this process to read and run what is at or below `readable`, and everything at or below `writable`; nothing
    else, and no network. Return False where the kernel lacks Landlock. Places that are not there are left out.

    Call it in a process with one thread. Raises OSError.
    """
    found = version()
    if not found:
        return False
    files = (1 << FILE_RIGHTS[min(found, len(FILE_RIGHTS) - 1)]) - 1
    rules = [files, PORTS, SCOPES][: 1 + (found >= 4) + (found >= 6)]
    ruleset = _create_ruleset(struct.pack(f"={len(rules)}Q", *rules))
    try:
        for places, rights in ((readable, READING), (writable, files)):
            for place in places:
                _allow(ruleset, place, rights & files)
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        _restrict_self(ruleset)
    finally:
        os.close(ruleset)
    return True


def _allow(ruleset: int, place: Path, rights: int) -> None:
    try:
        opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        allowed = rights if place.is_dir() else rights & FILE
        _add_rule(ruleset, PATH_BENEATH, struct.pack("=Qi", allowed, opened))
    finally:
        os.close(opened)


def _create_ruleset(rules: bytes, flags: int = 0) -> int:
    """Return the descriptor of a set of rules for `rules` (struct landlock_ruleset_attr). Raises OSError."""
    words = (rules or None), ctypes.c_size_t(len(rules)), ctypes.c_uint(flags)
    return libc.system_call("landlock_create_ruleset", *words)


def _add_rule(ruleset: int, kind: int, rule: bytes) -> None:
    """Add a rule (struct landlock_path_beneath_attr). Raises OSError."""
    libc.system_call("landlock_add_rule", ctypes.c_int(ruleset), ctypes.c_int(kind), rule, ctypes.c_uint(0))


def _restrict_self(ruleset: int) -> None:
    """Have the rules for this process and all that it starts. Raises OSError."""
    libc.system_call("landlock_restrict_self", ctypes.c_int(ruleset), ctypes.c_uint(0))
