"""The clock is synchronised, by adjtimex, which any user may call."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from ..facts.place import is_container
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_run, passed

GROUP = "machine"
UNSYNCHRONISED = 0x40  # STA_UNSYNC of <sys/timex.h>
STATUS = 5  # index of `status` where struct timex is an array of long: modes, offset, freq, maxerror, esterror, status
SIZE = 64
DAEMONS = ("chronyd", "phc2sys", "ptp4l", "ntpd")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read the state of the kernel's clock."""
    if not host.is_real:
        yield not_run("only the running system states it")
        return
    timex = (ctypes.c_long * SIZE)()
    try:
        code = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        code = -1
    if code < 0:
        yield not_run("adjtimex is not permitted here")
    elif (timex[STATUS] & 0xFFFFFFFF) & UNSYNCHRONISED:
        name = next((name for name in DAEMONS if name in running(host)), "")
        if name:  # chronyd without rtcsync and phc2sys set the clock, and do not report it to the kernel
            fix = "chronyc tracking; chrony.conf: rtcsync" if name == "chronyd" else f"the log of {name}"
            yield failed(f"the kernel does not know whether the clock is synchronised; {name} runs", MINOR, fix)
            return
        yield failed("the clock is not synchronised with a time server", MINOR, synchronising(host))
    else:
        yield passed("synchronised")


def running(host: Host) -> set[str]:
    """Return the names of the processes that this user sees."""
    return {host.text(f"/proc/{entry}/comm") for entry in host.names("/proc") if entry.isdecimal()}


def synchronising(host: Host) -> str:
    """Return the command that synchronises the clock: a container has that of its host."""
    if is_container(host):
        return "on the host: timedatectl set-ntp true, or start chronyd"
    return "timedatectl set-ntp true" if host.has("/run/systemd/system") else "start chronyd or ntpd as root"
