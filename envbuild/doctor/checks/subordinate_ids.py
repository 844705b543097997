"""A user has subordinate ids, for builds with more than one user; enroot needs one id alone."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator

from ..facts.place import COMPUTE, JOB, find_place
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_run, passed

GROUP = "containers"
NEEDED = 65535


def check(host: Host, need: Need) -> Iterator[Result]:
    """Count the ids of /etc/subuid and /etc/subgid."""
    place = find_place(host)[0]
    if os.getuid() == 0:
        yield not_run("root needs none")
        return
    if place in (COMPUTE, JOB):
        yield not_run(f"only builds need them, and this is a {place}")
        return
    user = user_name()
    counts = [count_ids(host.text(f"/etc/{name}"), user) for name in ("subuid", "subgid")]
    if min(counts) < NEEDED:
        fix = f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
        yield failed(f"{user} has {min(counts)} ids, and builds need {NEEDED}", MINOR, fix)
    elif not host.programs.find("newuidmap"):
        yield failed("newuidmap is not installed", MINOR, "apt-get install uidmap")
    else:
        yield passed(f"{min(counts)} ids")


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
