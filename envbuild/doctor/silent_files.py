"""Files of devices and file systems that did not answer: a device on its way out, a server, or a busy machine."""

from __future__ import annotations

from dataclasses import replace

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
        else:
            result = failed(f"{path} does not answer", ADMINISTRATOR, f"findmnt -T {path}; the server of it; dmesg")
        found.append(replace(result, check=FILES, group=GROUP))
    return found
