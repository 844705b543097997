"""Start a function in a fresh process that is root of a user namespace (of the machine, where the caller is root).

It is always a fresh interpreter, never a fork of a process with threads. Call `spawn` from a thread that runs as long
as the process: the kernel binds its lifetime to the thread that started it (prctl(2), PR_SET_PDEATHSIG). The main
thread of the command line is one.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from envbuild.core.errors import EngineError
from envbuild.core.interpreter import MODE
from envbuild.core.paths import import_path
from envbuild.core.userns import entry
from envbuild.core.userns.answer import decode

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    f"from {entry.__name__} import main; main(*map(int, sys.argv[2:]))"
)
MAX_ANSWER = 1 << 28  # bytes
ENDING = 1.0  # seconds until the kernel has ended all processes of a namespace
PROCESS = "a process in a user namespace"


@dataclass
class Child:
    """A running process: `answer` is the file in memory that gets its answer, `process.stdout` its output when it was
    piped. A pipe would not do: the caller reads the output first, and an answer may be longer than a pipe holds.

    `what`: its name in messages.
    """

    process: subprocess.Popen[bytes]
    answer: IO[bytes]
    what: str

    def result(self, output: bytes = b"") -> Any:
        """Return what the function returned, after it has ended.

        output: its output, for the error if it ends without an answer.

        Raises what the function raised, SetupError, and EngineError when the process was killed.
        """
        code = self.process.wait()
        with self.answer:
            self.answer.seek(0)
            text = self.answer.read(MAX_ANSWER)
        if not text or code:
            reason = f": {output.decode(errors='replace').strip()}" if output else ""
            raise EngineError(
                f"{self.what} was killed (status {code}){reason}", hint="look for the out-of-memory killer in dmesg"
            )
        return decode(text, self.what)

    def kill(self) -> None:
        """End it at once; its init and all its processes go with it, and have ended when they have closed its
        output."""
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stdout and not self.process.stdout.closed:
            wait_for_end(self.process.stdout.fileno())
        self.process.wait()
        self.answer.close()


def wait_for_end(output: int) -> None:
    """Wait until no process has the other end of a pipe open, ENDING seconds at most."""
    poll = select.poll()
    poll.register(output, 0)  # POLLHUP alone, which comes with unread data, too
    poll.poll(1000 * ENDING)


def spawn(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    what: str = PROCESS,
    output: int = subprocess.PIPE,
    streams: Sequence[int] | None = None,
    one_id: bool = False,
) -> Child:
    """Start ``function(**arguments)``, a function of a module; arguments and result are JSON, paths in them absolute.

    `output`: stdout and stderr of the process, which has no input. `streams`: its stdin, stdout and stderr instead.
    `one_id`: where this user has no subordinate ids, a namespace with the user's own id is enough.
    """
    job = {
        "entry": f"{function.__module__}:{function.__qualname__}",
        "arguments": dict(arguments),
        "one_id": one_id,
        "parent": os.getpid(),
    }
    job_fd, answer = os.memfd_create("job"), os.memfd_create("answer")
    try:
        with os.fdopen(job_fd, "wb", closefd=False) as file:
            file.write(json.dumps(job).encode())
        os.lseek(job_fd, 0, os.SEEK_SET)
        process = subprocess.Popen(
            [sys.executable, *MODE, "-I", "-B", "-c", BOOT, json.dumps(import_path()), str(job_fd), str(answer)],
            stdin=streams[0] if streams else subprocess.DEVNULL,
            stdout=streams[1] if streams else output,
            stderr=streams[2] if streams else subprocess.STDOUT,
            pass_fds=(job_fd, answer),
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            cwd="/",
        )
    except BaseException:
        os.close(answer)
        raise
    finally:
        os.close(job_fd)
    return Child(process, os.fdopen(answer, "rb"), what)
