"""The process of a session (`envbuild.build.engines.embedded.session`): mounts an image once, and runs commands in it,
several at a time, each in a sandbox of its own on a throw-away upper directory.

Its standard input is a socket. A message with the number of a command and three descriptors starts it: the request, its
output, and the file for its answer. The number alone ends it; the end of the socket ends the session.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envbuild.build.engines.embedded.mount_squashfs import end_servers, mount_image
from envbuild.build.engines.embedded.sandbox import run_in_sandbox
from envbuild.build.engines.embedded.unit_root import ONE_ID, RootSpec
from envbuild.core.folder_removal import discard_folder
from envbuild.core.userns import libc
from envbuild.core.userns.answer import encode, encode_error
from envbuild.core.userns.id_maps import has_one_id
from envbuild.core.userns.namespaces import fork_keeper, private_mounts

READY = b"ready"
DESCRIPTORS = 3  # of a message that starts a command
LONGEST = 64  # bytes of a message

Job = dict[str, Any]


def serve_commands(job: Job) -> Job:
    """Mount ``image``, or take the trees ``lowers``; run commands until the socket ends. Returns notes for the user.

    job: work (a folder to make), lowers, image, env, network, binds, memory: as `RootSpec`. Raises SetupError,
    VerifyError, OSError.
    """
    work = Path(job["work"])
    work.mkdir()
    one_id = bool(job["image"]) and has_one_id()
    notes = [ONE_ID] if one_id else []
    try:
        if job["image"]:
            private_mounts()
            lower, how = mount_image(Path(job["image"]), work, one_id=one_id)
            job["lowers"] = [str(lower)]
            notes.append(how)
        with socket.socket(fileno=os.dup(0)) as requests:
            requests.send(READY)
            Server(job, requests, one_id).serve()
    finally:
        if job["image"]:
            with contextlib.suppress(OSError):  # it was unpacked, or is not mounted
                libc.umount(work / "image")
            end_servers()
        discard_folder(work)
    return {"notes": notes}


class Server:
    """The commands that run. `running`: number → process id."""

    def __init__(self, job: Job, requests: socket.socket, one_id: bool) -> None:
        self.job, self.requests, self.one_id = job, requests, one_id
        self.running: dict[int, int] = {}

    def serve(self) -> None:
        """Run commands until the socket ends; then end those that still run."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.requests, selectors.EVENT_READ)
            selector.register(read, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(read, 1 << 16)
                    self.reap()
                if self.requests.fileno() in ready and not self.receive():
                    break
        for number in [*self.running]:
            self.end(number)
        while self.running:
            self.reap(wait=True)

    def receive(self) -> bool:
        """Handle one message; return False at the end of the socket."""
        text, descriptors, _, _ = socket.recv_fds(self.requests, LONGEST, DESCRIPTORS)
        if not text:
            return False
        number = int(text)
        try:
            if len(descriptors) == DESCRIPTORS:
                self.start(number, *descriptors)
            else:
                self.end(number)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def start(self, number: int, request: int, output: int, answer: int) -> None:
        """Start a command in a process of its own, which dies with this one."""
        process = fork_keeper()
        if process:
            self.running[number] = process
            return
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)  # the socket remains this process's own
            os.dup2(output, 1)
            os.dup2(output, 2)
            with os.fdopen(os.dup(request), "rb") as file:
                command = json.loads(file.read())
            text = encode(run_command(self.job, command, self.folder(number), one_id=self.one_id))
        except BaseException as error:
            text = encode_error(error)
        with contextlib.suppress(OSError):
            os.write(answer, text)
        os._exit(0)

    def end(self, number: int) -> None:
        """Kill a command; the kernel ends all processes of its namespace with it."""
        if number in self.running:
            os.kill(self.running[number], signal.SIGKILL)

    def reap(self, *, wait: bool = False) -> None:
        """Collect the processes that ended, squashfuse among them, and remove their folders."""
        with contextlib.suppress(ChildProcessError):
            while True:
                process, _ = os.waitpid(-1, 0 if wait else os.WNOHANG)
                if not process:
                    return
                for number in [number for number, found in self.running.items() if found == process]:
                    del self.running[number]
                    discard_folder(self.folder(number))
                if wait and not self.running:
                    return

    def folder(self, number: int) -> Path:
        return Path(self.job["work"], f"run-{number}")


def run_command(job: Job, argv: list[str], work: Path, *, one_id: bool) -> Job:
    """Run one command in the trees of a session, with a throw-away upper directory. Raises SetupError, OSError."""
    work.mkdir()
    box = RootSpec(
        work,
        tuple(job["lowers"]),
        build=False,
        network=job["network"],
        sys=True,
        binds=tuple((source, target, read_only) for source, target, read_only in job["binds"]),
        one_id=one_id,
        memory=job["memory"],
    )
    try:
        outcome = run_in_sandbox(box, [argv], job["env"])
    finally:
        discard_folder(work)
    protection = asdict(outcome.protection) if outcome.protection else {}
    return {"code": outcome.code, "notes": list(outcome.notes), "protection": protection}
