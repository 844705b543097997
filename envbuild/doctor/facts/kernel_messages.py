"""The kernel's log of this machine, and how long the machine runs."""

from __future__ import annotations

import errno
import os

from ..host import Host

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


def kernel_log(host: Host) -> tuple[str, str]:
    """Return the kernel's log, and why it cannot be read ("" if it can)."""
    return host.once(read_kernel_log)


def read_kernel_log(host: Host) -> tuple[str, str]:
    """Read the log."""
    if not host.is_real:
        found = host.read("/dev/kmsg")
        return found.text, found.fault
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
    return "".join(parts), ""
