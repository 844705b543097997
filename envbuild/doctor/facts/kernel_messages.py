"""The kernel's log of this machine, and how long the machine runs."""

from __future__ import annotations

import errno
import os
import re

from ..host import Host

EMPTY = "it is empty, as in a pod that has none of its own"
BOOTING = 600.0  # seconds in which services and links may still come up


def uptime(host: Host) -> float:
    """Return the seconds since the machine started; 0 if they are not known."""
    try:
        return float(host.text("/proc/uptime").partition(" ")[0])
    except ValueError:
        return 0.0


def is_booting(host: Host) -> bool:
    """Return whether the machine started some minutes ago."""
    return 0 < uptime(host) < BOOTING


READERS = "as root: envbuild doctor; a user of the groups adm or systemd-journal: journalctl -k"
SINCE_BOOT = re.compile(r"^\d+,\d+,(\d+),[^;]*;")  # of /dev/kmsg: microseconds
EARLY = 60.0  # seconds after the boot, in which the first line of a whole log is


def log_span(host: Host, text: str) -> str:
    """Return for which time the log has lines: its size is fixed, and new lines replace old ones."""
    first = SINCE_BOOT.match(text)
    start, now = int(first[1]) / 1e6 if first else 0.0, uptime(host)
    if start <= EARLY or now <= start:
        return "since the boot"
    return f"for the last {age_text(now - start)} of {age_text(now)} since the boot"


def age_text(seconds: float) -> str:
    """Return a time in its largest unit."""
    units = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
    name, size = next((unit for unit in units if seconds >= 2 * unit[1]), units[-1])
    number = max(int(seconds / size), 1)
    return f"{number} {name}{'s' if number != 1 else ''}"


def kernel_log(host: Host) -> tuple[str, str]:
    """Return the kernel's log, and why it cannot be read ("" if it can)."""
    return host.once(read_kernel_log)


def read_kernel_log(host: Host) -> tuple[str, str]:
    """Read the log."""
    if not host.is_real:
        found = host.read("/dev/kmsg")
        return found.text, found.fault or ("" if found.text else EMPTY)
    try:
        device = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return "", os.strerror(error.errno or 0)
    parts: list[str] = []
    try:
        while len(parts) < 200_000:
            try:
                parts.append(os.read(device, 8192).decode("utf-8", "replace"))
            except OSError as error:
                if error.errno == errno.EPIPE:  # lines were overwritten meanwhile
                    continue
                if error.errno != errno.EAGAIN:
                    return "", os.strerror(error.errno or 0)
                break
    finally:
        os.close(device)
    text = "".join(parts)
    return text, "" if text else EMPTY
