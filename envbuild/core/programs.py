"""Programs that envbuild starts: each ends with envbuild, however that ends, and with all that it started itself.

A process of their own, the guard (`envbuild.core.guard`), starts and ends them; it is started with the first program.
This is the one way to start a program outside of a box. Functions of envbuild run in processes of
`envbuild.core.userns.process`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, STDOUT, CompletedProcess, TimeoutExpired
from types import TracebackType
from typing import IO, Any, Self

from envbuild.core import signals
from envbuild.core.guard_process import send_to_guard

__all__ = [
    "PIPE",
    "STDOUT",
    "CompletedProcess",
    "Program",
    "TimeoutExpired",
    "memory_file",
    "run_of_user",
    "run_program",
    "start_program",
]

KILLED = -9
MAX_OUTPUT, MAX_ERRORS = 256 << 20, 16 << 20  # bytes of stdout and of stderr, after which a program is ended
END_BYTES = 64 << 10  # bytes of the begin, and of the end, of a long stderr
LINE_BYTES = 4096  # of stderr that are searched for its last line
PAUSE = 0.2  # seconds after which the amount of output is checked again


@dataclass
class Program:
    """A running program; as a context it is ended when the context ends."""

    command: tuple[str, ...]
    status: socket.socket
    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None
    returncode: int | None = None
    waiting: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.returncode is None:
            self.kill()
            self.wait()
        for stream in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):  # what was not yet written
                if stream:
                    stream.close()
        self.status.close()

    def kill(self) -> None:
        """End the program and what it started, by SIGTERM and GRACE seconds later by SIGKILL; returns at once."""
        with contextlib.suppress(OSError):  # it has ended
            self.status.send(b"x")

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Return the exit code; the negative number of the signal that ended it.

        Raises TimeoutExpired, and OSError for a program that could not be started.
        """
        with self.waiting:
            if self.returncode is None:
                self.status.settimeout(timeout)
                try:
                    answer = self.status.recv(64)
                except TimeoutError:
                    raise TimeoutExpired(self.command, timeout or 0) from None
                except OSError:
                    answer = b""
                kind, _, number = answer.decode().partition(" ")
                self.returncode = int(number) if kind == "code" else KILLED  # "": with the guard
                if kind == "error":
                    raise OSError(int(number), os.strerror(int(number)), self.command[0])
            return self.returncode


def start_program(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    umask: int = -1,
    memory: int = 0,
    largest: int = 0,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Program:
    """Start a program in a session of its own. Raises FileNotFoundError.

    memory: the bytes of data that each process of it may have, largest: those of a file that it writes; 0: no limit.

    stdin, stdout, stderr: a descriptor, PIPE (not for stderr), or STDOUT for stderr; by default, no input and no
    output.
    """
    words = tuple(os.fspath(word) for word in command)
    environment = dict(os.environ if env is None else env)
    if not shutil.which(words[0], path=environment.get("PATH", os.defpath)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
    folder = str(Path(cwd or ".").absolute())
    job = {"command": words, "environment": environment, "folder": folder, "umask": umask}
    job |= {"memory": memory, "largest": largest}
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as pipes:

        def opened(descriptor: int) -> int:
            stack.callback(os.close, descriptor)
            return descriptor

        def stream(given: int | None, flags: int) -> tuple[int, IO[bytes] | None]:
            if given is None:
                return opened(os.open(os.devnull, flags)), None
            if given != PIPE:
                return given, None
            read, write = os.pipe()
            theirs, own = (write, read) if flags == os.O_WRONLY else (read, write)
            return opened(theirs), pipes.enter_context(os.fdopen(own, "rb" if own == read else "wb"))

        ends = [stream(stdin, os.O_RDONLY), stream(stdout, os.O_WRONLY)]
        ends.append(ends[1] if stderr == STDOUT else stream(stderr, os.O_WRONLY))
        status, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes.enter_context(status)
        with far, memory_file(json.dumps(job).encode()) as file:
            send_to_guard([file.fileno(), far.fileno(), *(descriptor for descriptor, _ in ends)])
        pipes.pop_all()
    return Program(words, status, ends[0][1], ends[1][1])


def run_program(
    command: Sequence[str | Path],
    *,
    content: bytes = b"",
    text: bool = False,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    umask: int = -1,
    memory: int = 0,
    largest: int = 0,
    watch: Callable[[str], object] | None = None,
    ends: Callable[[bytes], object] | None = None,
) -> CompletedProcess[Any]:
    """Run a program to its end. Return its exit code, stdout and stderr: as bytes, or as `text`.

    content: its input. timeout: in seconds. memory: the bytes of data that each process of it may have, largest: those
    of a file that it writes; 0: no limit. watch: called with the last line of stderr while the program runs. ends:
    called with the last bytes of stdout while it runs, which is ended when the result is true.

    A program that writes too much is ended, and its stderr then states that: a server may send endless messages.

    Raises TimeoutExpired, FileNotFoundError. A signal that ends envbuild ends the program at once.
    """
    with memory_file(content) as given, memory_file() as output, memory_file() as errors:
        streams = {"stdin": given.fileno(), "stdout": output.fileno(), "stderr": errors.fileno()}
        with (
            start_program(command, env=env, cwd=cwd, umask=umask, memory=memory, largest=largest, **streams) as program,
            signals.at_stop(program.kill),
        ):
            excess = _wait_bounded(program, timeout, ((output, MAX_OUTPUT), (errors, MAX_ERRORS)), watch, ends)
            code = KILLED if excess else program.wait()
        found = [
            _read_ends(output, 2 * END_BYTES if excess else MAX_OUTPUT),
            _read_ends(errors, 2 * END_BYTES) + excess,
        ]
    texts = [content.decode(errors="replace") for content in found] if text else found
    return CompletedProcess(program.command, code, *texts)


def _wait_bounded(
    program: Program,
    timeout: float | None,
    files: Sequence[tuple[IO[bytes], int]],
    watch: Callable[[str], object] | None,
    ends: Callable[[bytes], object] | None,
) -> bytes:
    """Wait for the end of a program, or end it when a file of its output has more bytes than its limit, or when `ends`,
    which gets the last bytes of the first file, returns true. `watch` gets the last line of the last file, whenever it
    is another one.

    Return a message of the limit. Raises TimeoutExpired, OSError.
    """
    end = None if timeout is None else time.monotonic() + timeout
    last = ""
    while True:
        if watch and (line := _last_line(files[-1][0])) and line != last:
            last = line
            watch(line)
        left = PAUSE if end is None else min(PAUSE, end - time.monotonic())
        with contextlib.suppress(TimeoutExpired):
            program.wait(max(left, 0.001))
        for file, limit in files:
            if os.fstat(file.fileno()).st_size > limit:
                program.kill()
                return f"\nfatal: {program.command[0]} was ended, because it wrote over {limit >> 20} MiB\n".encode()
        if program.returncode is not None:
            return b""
        if ends and ends(_last_bytes(files[0][0], END_BYTES)):
            program.kill()
            return b""
        if end is not None and time.monotonic() >= end:
            raise TimeoutExpired(program.command, timeout or 0)


def _last_line(file: IO[bytes]) -> str:
    """Return the last whole line of a file that a program writes."""
    lines = _last_bytes(file, LINE_BYTES).rpartition(b"\n")[0].splitlines()
    return lines[-1].decode(errors="replace") if lines else ""


def _last_bytes(file: IO[bytes], count: int) -> bytes:
    """Return the end of a file that a program writes."""
    size = os.fstat(file.fileno()).st_size
    start = max(0, size - count)
    return os.pread(file.fileno(), size - start, start)


def _read_ends(file: IO[bytes], limit: int) -> bytes:
    """Return the content of a file; the first and the last half of `limit` where it is longer."""
    size = os.fstat(file.fileno()).st_size
    if size <= limit:
        return os.pread(file.fileno(), size, 0)
    half = limit // 2
    return os.pread(file.fileno(), half, 0) + b"\n...\n" + os.pread(file.fileno(), half, size - half)


def run_of_user(command: Sequence[str], content: str, *, timeout: float) -> CompletedProcess[str]:
    """Run a program of the user's that may start an agent for later programs, which is not ended with envbuild.

    Raises TimeoutExpired, OSError.
    """
    return subprocess.run(command, input=content, capture_output=True, text=True, check=False, timeout=timeout)


def memory_file(content: bytes = b"") -> IO[bytes]:
    """Return a file in memory that is read from its begin."""
    file = os.fdopen(os.memfd_create("envbuild"), "r+b", buffering=0)
    file.write(content)
    file.seek(0)
    return file
