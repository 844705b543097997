"""The guard: it starts envbuild's programs, and ends them with all that they started when envbuild ends.

The kernel can end a child with its parent (PR_SET_PDEATHSIG), but not what the child started, and a process that is
killed cannot do it. So one process between envbuild and its programs does: it sees the end of envbuild by a socket.
Processes whose parent ended become children of the guard (PR_SET_CHILD_SUBREAPER), with any session of their own, also
for a user without any privileges.

`envbuild.core.programs` runs this file by itself, as ``guard.py SOCKET``, in an interpreter without site packages.
Each message on SOCKET has five descriptors: the job (JSON), a socket for the program's exit code, stdin, stdout,
stderr. A message on the socket of a program ends that program.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
GRACE = 1.0  # seconds from SIGTERM, by which git removes its lock files, to SIGKILL
PATIENCE = 2.0  # seconds from SIGKILL until the guard leaves what it may not kill, such as setuid programs
PAUSE = 0.02
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)

library = ctypes.CDLL(None, use_errno=True)
library.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)


class Guard:
    """The programs: process id → socket for the exit code, of running ones; and of those that are being ended, since
    when, and the processes that belong to them."""

    def __init__(self, requests: socket.socket) -> None:
        self.requests = requests
        self.running: dict[int, socket.socket] = {}
        self.ending: dict[int, tuple[float, set[int]]] = {}
        self.asked: set[int] = set()
        self.poll = select.poll()
        self.woken, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in HANDLED:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup: programs ignore it, too
                signal.signal(number, lambda *_: None)  # programs have the default action
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python
            signal.signal(number, signal.SIG_DFL)
        library.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def serve(self) -> None:
        """Start programs, end those that are to end, and report the ends, until envbuild ends."""
        for descriptor in (self.requests.fileno(), self.woken):
            self.poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in self.poll.poll(1000 * PAUSE if self.ending else None)}
            # before the reaping, which closes these sockets: a number may then be that of another program's socket
            for program, status in self.running.items():
                if status.fileno() in ready:
                    self.poll.unregister(status)
                    status.recv(64)
                    self.ending[program] = time.monotonic(), {program}
            if self.woken in ready:
                os.read(self.woken, 512)
                self.reap()
            if self.requests.fileno() in ready:
                message, descriptors, *_ = socket.recv_fds(self.requests, 1, 5)
                if not message:
                    return
                self.start(descriptors)
            self.end_programs()

    def start(self, descriptors: list[int]) -> None:
        """Start a program, or report why it cannot be started."""
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        with os.fdopen(descriptors[0], "rb") as file:
            job = json.loads(file.read())
        status = socket.socket(fileno=descriptors[1])
        guard = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)  # one that comes now is the program's
        try:
            child = os.fork()
            if child == 0:
                become(job, descriptors[2:], guard)
        except OSError as error:
            status.send(f"error {error.errno}".encode())
            status.close()
        else:
            self.running[child] = status
            self.poll.register(status, select.POLLIN)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        for descriptor in descriptors[2:]:
            os.close(descriptor)

    def reap(self) -> None:
        """Reap what has ended, and report the programs among it."""
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if status := self.running.pop(pid, None):
                with contextlib.suppress(KeyError):  # it was to end
                    self.poll.unregister(status)
                with contextlib.suppress(OSError), status:  # no thread waits for it
                    status.shutdown(socket.SHUT_RD)
                    with contextlib.suppress(BlockingIOError):
                        status.recv(64, socket.MSG_DONTWAIT)  # unread, it would destroy the answer
                    status.send(f"code {os.waitstatus_to_exitcode(code)}".encode())

    def end_programs(self) -> None:
        """End the programs that are to end, each with what it started and with its session."""
        if not self.ending:
            return
        rows = processes()
        self.asked &= {pid for pid, _, _ in rows}
        for program, (began, family) in list(self.ending.items()):
            family |= {pid for pid, _, session in rows if session == program}
            family |= set(below(family, rows))
            family &= {pid for pid, _, _ in rows}
            passed = time.monotonic() - began
            self.kill(family, passed)
            if not family or passed > GRACE + PATIENCE:
                del self.ending[program]

    def end_everything(self) -> None:
        """End all descendants."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < GRACE + PATIENCE:
            self.reap()
            found = below([os.getpid()], processes())
            if not found:
                return
            self.kill(found, passed)
            time.sleep(PAUSE)

    def kill(self, family: Iterable[int], passed: float) -> None:
        """Send SIGTERM once to each process, and SIGKILL after GRACE seconds."""
        for pid in family:
            if passed > GRACE or pid not in self.asked:
                self.asked.add(pid)
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL if passed > GRACE else signal.SIGTERM)


def become(job: dict[str, Any], streams: list[int], guard: int) -> NoReturn:
    """Be the program of a job, in a session of its own."""
    command = job["command"]
    try:
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for handled in HANDLED:
            if signal.getsignal(handled) != signal.SIG_IGN:
                signal.signal(handled, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        if job["umask"] >= 0:
            os.umask(job["umask"])
        if job["memory"]:
            import resource  # few programs have a limit

            resource.setrlimit(resource.RLIMIT_DATA, (job["memory"], job["memory"]))
        if job["largest"]:
            import resource

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing fails (EFBIG), which the program reports
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest"], job["largest"]))
        os.chdir(job["folder"])
        if os.getppid() == guard:
            os.execvpe(command[0], command, job["environment"])
    except OSError as error:
        os.write(2, f"envbuild: {command[0]}: {os.strerror(error.errno or 0)}\n".encode(errors="surrogateescape"))
        os._exit(127 if error.errno == errno.ENOENT else 126)
    finally:
        os._exit(126)


def processes() -> list[tuple[int, int, int]]:
    """Return (process, parent, session) of every process that has not ended."""
    rows = []
    for name in os.listdir("/proc"):  # noqa: PTH208  # pathlib takes longer to import than all of this
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                state, parent, _, session = file.read().rpartition(b")")[2].split()[:4]
                if state != b"Z":
                    rows.append((int(name), int(parent), int(session)))
    return rows


def below(roots: Iterable[int], rows: list[tuple[int, int, int]]) -> list[int]:
    """Return all processes below others."""
    children: dict[int, list[int]] = {}
    for pid, parent, _ in rows:
        children.setdefault(parent, []).append(pid)
    found = [child for root in roots for child in children.get(root, ())]
    for pid in found:
        found += children.get(pid, ())
    return found


def main() -> None:
    os.set_inheritable(int(sys.argv[1]), False)
    guard = Guard(socket.socket(fileno=int(sys.argv[1])))
    try:
        guard.serve()
    finally:
        guard.end_everything()
        os._exit(0)


if __name__ == "__main__":
    main()
