"""A session: an image that is mounted once for many commands, in which each has its own sandbox and throw-away upper
directory. What the kernel has read of the image for one command, it has for the next.

Threads may run commands at the same time. Open the session in a thread that ends after it (`userns.process.spawn`).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from envbuild.build.engines import resources
from envbuild.build.engines.embedded import session_process
from envbuild.build.engines.error_report import setup_error
from envbuild.build.plan.units import SYSTEM_PATH
from envbuild.core.errors import EngineError
from envbuild.core.store.store import Store
from envbuild.core.userns.answer import decode
from envbuild.core.userns.namespaces import SetupError
from envbuild.core.userns.process import MAX_ANSWER, Child, spawn
from envbuild.core.userns.removal import remove_trees
from envbuild.squashfs.read.superblock import check_image

TIMED_OUT = 124  # as timeout(1)
TOO_MUCH = 125  # more output than LARGEST
LARGEST = 32 << 20  # bytes of output that are captured; the report of an image has a few MiB
TEMPORARY = (
    2 << 30
)  # bytes of each of /tmp, /run, /dev/shm of a command: one that fills it must not take the machine's memory
LAST = 1 << 16  # bytes of a larger output that are returned
PROCESS = "the process of an image"  # in messages
COMMAND = "a command in an image"

Bind = tuple[str, str] | tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that ended. `code`: its exit status (128 + signal; 124 and 125 as TIMED_OUT and TOO_MUCH); `output`:
    stdout and stderr together; `protection`: fields of `sandbox.Protection`, empty where it was ended from outside."""

    code: int
    output: bytes
    notes: tuple[str, ...] = ()
    protection: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Session:
    """An open session: make one with `open_session`."""

    requests: socket.socket
    child: Child
    log: IO[bytes]
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def run(self, argv: Sequence[str], timeout: float | None = None) -> Ran:
        """Run a command, without input, for `timeout` seconds at most.

        Raises EngineError, and SpecError for a bind that cannot be made.
        """
        number = next(self.numbers)
        read, write = os.pipe2(os.O_CLOEXEC)
        with os.fdopen(read, "rb", buffering=0) as output, os.fdopen(os.memfd_create("answer"), "rb") as answer:
            self._send(number, argv, write, answer.fileno())
            text, why = read_output(output.fileno(), timeout)
            if why:
                self._end(number)
                return Ran(why, text + read_late(output) if why == TIMED_OUT else ended_output(text))
            return self._result(answer, text)

    def _send(self, number: int, argv: Sequence[str], output: int, answer: int) -> None:
        try:
            with os.fdopen(os.memfd_create("request"), "wb") as request:
                request.write(json.dumps(list(argv)).encode())
                request.flush()
                os.lseek(request.fileno(), 0, os.SEEK_SET)
                socket.send_fds(self.requests, [b"%d" % number], [request.fileno(), output, answer])
        except OSError as error:
            if error.errno == errno.EFBIG:  # of this process: ulimit -f
                raise
            raise EngineError(f"{PROCESS} has ended: {error.strerror}", hint=read_log(self.log)) from None
        finally:
            os.close(output)

    def _end(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self.requests.send(b"%d" % number)

    @staticmethod
    def _result(answer: IO[bytes], output: bytes) -> Ran:
        answer.seek(0)
        text = answer.read(MAX_ANSWER)
        if not text:
            raise EngineError(f"{COMMAND} was killed", hint="look for the out-of-memory killer in dmesg")
        try:
            found: dict[str, Any] = decode(text, COMMAND)
        except SetupError as error:
            raise setup_error(error) from None
        return Ran(found["code"], output, tuple(found["notes"]), found["protection"])

    def stop(self) -> None:
        """End the commands that run; `run` returns in the threads that wait for them."""
        with contextlib.suppress(OSError):
            self.requests.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def open_session(
    root: Sequence[Path] | Path,
    env: Mapping[str, str] | None,
    store: Store,
    *,
    network: bool = False,
    binds: Sequence[Bind] = (),
    notes: list[str] | None = None,
) -> Iterator[Session]:
    """Open an image, a squashfs file or layer trees (bottom first), for commands; yield the session.

    `env` is the whole environment of the commands, but for a PATH, HOME and TERM when it has none. `binds`: (source,
    target) or (source, target, read-only). `notes`: gets messages for the user, at the end.

    Raises EngineError, and VerifyError for a damaged squashfs file."""
    image = root if isinstance(root, Path) else None
    if image:
        check_image(image, padded=False)  # before a mount program reports another error for a damaged file
    with store.workdir() as work, os.fdopen(os.memfd_create("log"), "w+b") as log:
        job = {
            "work": str((work / "session").resolve()),
            "lowers": [] if isinstance(root, Path) else [str(path.resolve()) for path in root],
            "image": str(image.resolve()) if image else "",
            "env": {"PATH": SYSTEM_PATH, "HOME": "/root", "TERM": "dumb", **(env or {})},
            "network": network,
            "memory": min(TEMPORARY, resources.memory() // 2),
            "binds": [[*item, False][:3] for item in binds],
        }
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with own:
            with other:
                child = spawn(
                    session_process.serve_commands,
                    {"job": job},
                    what=PROCESS,
                    streams=(other.fileno(), log.fileno(), log.fileno()),
                    one_id=bool(image),  # trees of layers belong to subordinate ids; files of an image need none
                )
            try:
                if own.recv(len(session_process.READY)):
                    yield Session(own, child, log)
                own.shutdown(socket.SHUT_RDWR)
                with store.filled():
                    answer = end_session(child, log)
            except BaseException:
                child.kill()
                raise
            finally:
                remove_trees(path for path in work.iterdir() if path.is_dir())
    if notes is not None:
        notes += answer["notes"]


def end_session(child: Child, log: IO[bytes]) -> dict[str, Any]:
    """Return the answer of a session that ends. Raises EngineError, VerifyError, OSError."""
    child.process.wait()
    try:
        answer: dict[str, Any] = child.result(read_log(log).encode())
    except SetupError as error:
        raise setup_error(error) from None
    return answer


def read_log(log: IO[bytes]) -> str:
    """Return the last lines that the process of a session printed: an error of its own, or nothing."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - LAST))
    return log.read().decode(errors="replace").strip()


def read_output(output: int, timeout: float | None) -> tuple[bytes, int]:
    """Return the output of a command when it has ended, and 0; or what it has printed so far and TIMED_OUT or TOO_MUCH,
    when it must be ended."""
    text = bytearray()
    end = None if timeout is None else time.monotonic() + timeout
    poll = select.poll()
    poll.register(output, select.POLLIN)
    while len(text) <= LARGEST:
        if not poll.poll(None if end is None else max(0.0, end - time.monotonic()) * 1000):
            return bytes(text), TIMED_OUT
        if not (data := os.read(output, 1 << 16)):
            return bytes(text), 0
        text += data
    return bytes(text), TOO_MUCH


def read_late(output: IO[bytes]) -> bytes:
    """Return what a command that was killed had printed, and was not read yet."""
    return output.read(LARGEST)


def ended_output(text: bytes) -> bytes:
    return text[-LAST:] + f"\nended: more than {LARGEST >> 20} MiB of output".encode()
