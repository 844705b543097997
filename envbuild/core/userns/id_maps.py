"""The ids of a process in its user namespace: it becomes root there.

Root (also root inside ``buildah unshare``) needs no user namespace. Other users get one with the subordinate ids of
/etc/subuid and /etc/subgid, mapped by newuidmap and newgidmap from outside, since only they may (user_namespaces(7),
subuid(5))."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from envbuild.core.user_numbers import in_user_namespace
from envbuild.core.userns import libc
from envbuild.core.userns.namespaces import SetupError, die_with

SUBORDINATE = ("/etc/subuid", "/etc/subgid")
NEEDED_IDS = 65535  # 1..65535 beside the caller's own: Debian uses ids to 65534
_made: list[int] = []  # the user who made the namespace that this process has entered


def read_ranges(path: str) -> list[tuple[str, int, int]]:
    """Return the ranges (name or uid, first id, count) in a file of the format subuid(5); none if it cannot be read."""
    try:
        return parse_ranges(Path(path).read_text(errors="replace").splitlines())
    except OSError:
        return []


def parse_ranges(lines: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return the ranges in lines of the form NAME:FIRST:COUNT; others are left out, as newuidmap(1) does."""
    parts = [line.strip().split(":") for line in lines]
    return [(part[0], int(part[1]), int(part[2])) for part in parts if [*map(str.isdigit, part[1:])] == [True, True]]


def subordinate(path: str, uid: int, name: str) -> tuple[int, int]:
    """Return the largest range (first id, count) of a user in a file of the format subuid(5); (0, 0) if none."""
    own = [part for part in read_ranges(path) if part[0] in (name, str(uid))]
    program = shutil.which("getsubids")
    if not own and program:
        # a directory service may have them (nsswitch.conf, subid); getsubids(1) prints "0: NAME FIRST COUNT"
        command = [program, *(["-g"] if path.endswith("subgid") else []), name or str(uid)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        answers = parse_ranges(":".join(line.split()[1:]) for line in answer.splitlines())
        own = [part for part in answers if part[0] in (name, str(uid))]
    return max(((first, count) for _, first, count in own), key=lambda part: part[1], default=(0, 0))


def has_subordinate_ids() -> bool:
    """Return whether this user has enough subordinate ids of both kinds."""
    uid = os.geteuid()
    return all(subordinate(path, uid, user_name(uid))[1] >= NEEDED_IDS for path in SUBORDINATE)


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def describe() -> str:
    """Return how a unit would run: ``root``, ``root inside a user namespace``, ``subordinate ids 100000:65536``."""
    if os.geteuid() == 0:
        return "root inside a user namespace" if in_user_namespace() else "root"
    first, count = subordinate(SUBORDINATE[0], os.geteuid(), user_name(os.geteuid()))
    return f"subordinate ids {first}:{count}"


def become_root(parent: int, *, one_id: bool = False) -> None:
    """Be uid 0: at once for root, else in a new user namespace. Raises SetupError.

    one_id: the caller's own id is enough, where there are no subordinate ones.

    The process keeps its groups: one of them may share the store. Commands of a unit do not have them (`drop_groups`).
    """
    if user := os.geteuid():
        try:
            commands = _map_commands()
        except SetupError:
            if not one_id:
                raise
            _map_own_id()
        else:
            _map_ids(commands)
        die_with(parent)  # the kernel forgets the signal when credentials change
        _made.append(user)
    try:
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        libc.prctl(libc.PR_SET_DUMPABLE, 1)
    except OSError as error:
        raise SetupError("map ids", f"setuid: {error.strerror}") from error
    die_with(parent)


def has_own_namespace() -> bool:
    """Return whether this process, or one that it is a fork of, entered a user namespace in `become_root`: no user of
    the machine has a number there. The map does not show it: that of a rootless container, which has users of its own,
    is the same."""
    return bool(_made)


def has_one_id() -> bool:
    """Return whether this process is in a user namespace with one id, its caller's."""
    return Path("/proc/self/uid_map").read_text().split()[2:] == ["1"]


def drop_groups() -> None:
    """Leave all supplementary groups. Raises SetupError, also with one id: the kernel forbids it then."""
    try:
        os.setgroups([])
    except OSError as error:
        raise SetupError.of("map ids", error, "setgroups") from error


def _map_own_id() -> None:
    """Enter a user namespace in which this user is root, and has no other id (user_namespaces(7))."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        libc.unshare(libc.CLONE_NEWUSER)
    except OSError as error:
        raise SetupError.of("unshare", error, "a user namespace") from error
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            Path("/proc/self", name).write_text(text)
    except OSError as error:
        raise SetupError.of("map ids", error, "the caller's own id") from error


def _map_commands() -> list[list[str]]:
    """Return the commands that map this user's subordinate ids into this process's namespace. Raises SetupError."""
    uid, gid = os.geteuid(), os.getegid()
    name = user_name(uid)
    ranges = {"newuidmap": (SUBORDINATE[0], uid), "newgidmap": (SUBORDINATE[1], gid)}
    commands = []
    for program, (file, own) in ranges.items():
        path = shutil.which(program)
        if path is None:
            raise SetupError("newuidmap", f"{program} is not installed")
        first, count = subordinate(file, uid, name)
        if count < NEEDED_IDS:
            raise SetupError("subordinate ids", f"{file} has {count} ids for {name or uid}; {NEEDED_IDS} are needed")
        ids = (0, own, 1, 1, first, min(count, 65536))
        commands.append([path, str(os.getpid()), *map(str, ids)])
    return commands


def _map_ids(commands: Sequence[Sequence[str]]) -> None:
    """Enter a user namespace whose ids `commands` map."""
    ready_read, ready_write = os.pipe()
    child = os.fork()
    if child == 0:  # remains outside of the new namespace and maps the ids of its parent
        os.close(ready_write)
        code = 1
        try:
            if os.read(ready_read, 1):
                code = 0
                for command in commands:
                    code = code or subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode
        finally:
            os._exit(code and 1)
    os.close(ready_read)
    try:
        libc.unshare(libc.CLONE_NEWUSER)
    except OSError as error:
        os.close(ready_write)
        os.waitpid(child, 0)
        raise SetupError.of("unshare", error, "a user namespace") from error
    os.write(ready_write, b"x")
    os.close(ready_write)
    if os.waitpid(child, 0)[1]:
        raise SetupError("map ids", "newuidmap or newgidmap refused the mapping")
