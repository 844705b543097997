"""The process of the guard (`envbuild.core.guard`): started with the first request, and again if it was killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

from envbuild.core.interpreter import MODE
from envbuild.core.paths import PACKAGE

GUARD = PACKAGE / "core" / "guard.py"

_guards: dict[int, socket.socket] = {}  # by process: a fork has a guard of its own
_starting = threading.Lock()


def send_to_guard(descriptors: list[int]) -> None:
    """Send a request to the guard, which is started if there is none."""
    with _starting:
        for attempt in (1, 2):
            if os.getpid() not in _guards:
                _guards[os.getpid()] = start_guard()
            try:
                socket.send_fds(_guards[os.getpid()], [b"p"], descriptors)
                return
            except OSError:  # it was killed
                _guards.pop(os.getpid()).close()
                if attempt == 2:
                    raise


def start_guard() -> socket.socket:
    """Start the guard; return the socket for requests, whose end shows the guard the end of this process."""
    own, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with far:
        process = subprocess.Popen(
            [sys.executable, *MODE, "-I", "-S", "-B", str(GUARD), str(far.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(far.fileno(),),
            start_new_session=True,
            cwd="/",
        )
    process.returncode = 0  # it outlives this process, which never waits for it
    return own
