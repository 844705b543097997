"""Files of devices and file systems that did not answer: a device on its way out, a server, or a busy machine."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import PurePosixPath

from .host import DEVICES, Host
from .model import ADMINISTRATOR, HARDWARE, MINOR, Result, failed

FILES = "files"  # the name of these failures, as of a check
GROUP = "machine"


def unanswered(host: Host) -> list[Result]:
    """Return the failures of devices and file systems that did not answer; no check waits for them."""
    found = []
    for path in host.silent:
        if host.answers_now(path):
            fix = "uptime; the load of the machine, or a device on its way out: dmesg"
            result = failed(f"{path} did not answer in time, and does now", MINOR, fix)
        elif path.startswith(DEVICES):
            word = path.rpartition("/")[2]
            fix = f"dmesg | grep {word}; drain the node, then switch its power off and on; again: replace the device"
            result = failed(f"{path} does not answer", HARDWARE, fix)
        elif any_user_made(host, path):
            fix = f"findmnt -T {path}; fusermount3 -u {path}"
            result = failed(f"{path} does not answer, and any user can have made it", MINOR, fix)
        else:
            result = failed(f"{path} does not answer", ADMINISTRATOR, f"findmnt -T {path}; the server of it; dmesg")
        found.append(replace(result, check=FILES, group=GROUP))
    return found


def any_user_made(host: Host, path: str) -> bool:
    """Return whether a folder on the way to a path lets every user make entries, as /tmp does: what does not answer is
    then perhaps a file system of a user (FUSE)."""
    try:
        for folder in reversed(PurePosixPath(path).parents):
            if host.files.call("mode", str(host.path(str(folder)))) & stat.S_IWOTH:
                return True
    except OSError:  # this folder itself does not answer
        return False
    return False
