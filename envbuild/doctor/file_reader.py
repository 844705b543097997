"""Files that may not answer: a read of /sys can wait for a device for ever, a file system for its server.

A process of its own reads them, one after another. One that does not answer within LIMIT seconds is left behind: it
may wait in the kernel, where no signal ends it, and a thread there would keep its program from ending."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import time
import warnings
from collections.abc import Callable
from typing import Any

LIMIT = 3.0  # seconds of the first file that does not answer
NEXT = 1.0  # of each further one: a pass has an end
MAX_TEXT = 1 << 20  # bytes of a file
SIZE = struct.Struct("<I")


class NoAnswerError(OSError):
    """A file that did not answer in time."""


def read_bytes(path: str) -> bytes:
    """Return the first MAX_TEXT bytes of a file."""
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read(MAX_TEXT)


def open_device(path: str) -> None:
    """Open a device file to read and write."""
    os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))


def statistics(path: str) -> tuple[str, str, int, int, int]:
    """Return the nearest folder of a path that exists, the same without links, its size, its free space, and the number
    of files that users may still make there; -1 where a file system has no such limit."""
    while not os.path.exists(path) and path != os.path.dirname(path):  # noqa: PTH110, PTH120
        path = os.path.dirname(path)  # noqa: PTH120
    found = os.statvfs(path)
    files = found.f_favail if found.f_files else -1
    return path, os.path.realpath(path), found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, files


def mode(path: str) -> int:
    """Return the kind and the permissions of a file (inode(7))."""
    return os.stat(path).st_mode  # noqa: PTH116


CALLS: dict[str, Callable[[str], Any]] = {
    "read": read_bytes, "names": os.listdir, "link": os.readlink, "exists": os.path.exists, "open": open_device,
    "statistics": statistics, "mode": mode,
}  # fmt: skip


class FileReader:
    """The process that reads. It starts with the first request."""

    def __init__(self) -> None:
        self.process, self.ask, self.answer = 0, -1, -1
        self.limit = LIMIT

    def call(self, name: str, path: str) -> Any:
        """Return the result of one of CALLS. Raises OSError, and NoAnswerError after the limit."""
        if not self.process:
            self._start()
        try:
            send(self.ask, pickle.dumps((name, path)))
            answer = receive(self.answer, time.monotonic() + self.limit)
        except OSError:
            self.close()
            self.limit = min(NEXT, self.limit)
            raise
        error, value = pickle.loads(answer)
        if error is not None:
            raise OSError(error, os.strerror(error))
        return value

    def close(self) -> None:
        """End the process; one that waits in the kernel is left behind."""
        if self.process:
            os.close(self.ask)
            os.close(self.answer)
            with contextlib.suppress(OSError):
                os.kill(self.process, signal.SIGKILL)
                os.waitpid(self.process, os.WNOHANG)
            self.process = 0

    def __del__(self) -> None:
        self.close()

    def _start(self) -> None:
        requests, answers = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: the child starts none
            process = os.fork()
        if not process:
            try:
                serve(requests[0], answers[1])
            finally:
                os._exit(0)
        os.close(requests[0])
        os.close(answers[1])
        self.process, self.ask, self.answer = process, requests[1], answers[0]


def serve(requests: int, answers: int) -> None:
    """Answer requests until their pipe is closed. No other file remains open: the reader of this program's output would
    wait for this process, too."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        if number not in (requests, answers):
            os.dup2(null, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) not in (requests, answers):
            with contextlib.suppress(OSError):
                os.close(int(name))
    while True:
        try:
            name, path = pickle.loads(receive(requests))
        except OSError:
            return
        answer: tuple[int | None, Any]
        try:
            answer = (None, CALLS[name](path))
        except OSError as error:
            answer = (error.errno or 0, None)
        send(answers, pickle.dumps(answer))


def send(pipe: int, data: bytes) -> None:
    """Write a message with its size."""
    left = memoryview(SIZE.pack(len(data)) + data)
    while left:
        left = left[os.write(pipe, left) :]


def receive(pipe: int, end: float | None = None) -> bytes:
    """Read a message. Raises NoAnswerError at a time, and where the other process has ended."""
    size = SIZE.unpack(receive_bytes(pipe, SIZE.size, end))[0]
    return receive_bytes(pipe, size, end)


def receive_bytes(pipe: int, size: int, end: float | None) -> bytes:
    """Read a number of bytes."""
    parts: list[bytes] = []
    while size:
        if end is not None and not select.select([pipe], [], [], max(end - time.monotonic(), 0))[0]:
            raise NoAnswerError("it does not answer")
        data = os.read(pipe, min(size, 1 << 16))
        if not data:
            raise NoAnswerError("its reader has ended")
        parts.append(data)
        size -= len(data)
    return b"".join(parts)
