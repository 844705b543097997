"""A user has subordinate ids, for builds with more than one user; enroot needs one id alone."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Sequence

from ..facts.packages import install_command
from ..facts.place import COMPUTE, JOB, find_place
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_applicable, passed

GROUP = "containers"
NEEDED = 65535
LOWEST = 2_001_000_000  # as envbuild.core.userns.diagnose: users of a directory can have all numbers from 100000 on
UNLESS = "# if no user or group of yours has these numbers"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Count the ids of /etc/subuid and /etc/subgid."""
    place = find_place(host)[0]
    if os.getuid() == 0:
        yield not_applicable("root needs none")
        return
    if place in (COMPUTE, JOB):
        yield not_applicable(f"only builds need them, and this is a {place}")
        return
    user = user_name()
    counts = [count_ids(host.text(f"/etc/{name}"), user) for name in ("subuid", "subgid")]
    if min(counts) < NEEDED:
        ids = free_ids([host.text(f"/etc/{name}") for name in ("subuid", "subgid", "passwd", "group")])
        fix = f"as root: usermod --add-subuids {ids} --add-subgids {ids} {user}  {UNLESS}"
        yield failed(f"{user} has {min(counts)} ids, and builds need {NEEDED}", MINOR, fix)
    elif not host.programs.find("newuidmap"):
        fix = install_command(host, "uidmap", "shadow-utils", "shadow")
        yield failed("newuidmap is not installed", MINOR, fix)
    else:
        yield passed(f"{min(counts)} ids")


def free_ids(texts: Sequence[str]) -> str:
    """Return a range that neither a user, a group nor a line of subuid(5) and subgid(5) has: two users with one range
    would be one user. `texts`: those files."""
    first = LOWEST
    for start, count in sorted(filter(None, map(ids_of, (line for text in texts for line in text.splitlines())))):
        if start <= first + NEEDED and first < start + count:
            first = start + count
    return f"{first}-{first + NEEDED}"


def ids_of(line: str) -> tuple[int, int] | None:
    """Return the first number and how many a line has: NAME:FIRST:COUNT, or NAME:PASSWORD:NUMBER and more fields."""
    row = line.split(":")
    numbers = row[1:] if len(row) == 3 else [*row[2:3], "1"]
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 and all(map(str.isdigit, numbers)) else None


def user_name() -> str:
    """Return the name of the user, or its number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def count_ids(text: str, user: str) -> int:
    """Return the number of ids that a file lists for a user."""
    rows = [line.split(":") for line in text.splitlines()]
    return sum(int(row[2]) for row in rows if len(row) == 3 and row[0] in (user, str(os.getuid())) and row[2].isdigit())
