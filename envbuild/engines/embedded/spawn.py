"""Start the process of a unit: a fresh interpreter that gets a job and gives an answer.

Call it from a thread that lives as long as the unit: the kernel ties the unit's life to the thread that started it
(prctl(2), PR_SET_PDEATHSIG). The command line's main thread is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from envbuild import errors
from envbuild.core.userns.namespaces import BIND
from envbuild.errors import EngineError, EnvbuildError, SpecError

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from envbuild.engines.embedded.unitrun import main; main(*map(int, sys.argv[2:]))"
)


@dataclass
class Child:
    """A running unit process: `answer` is the pipe on which it answers, `process.stdout` its output when it was
    piped."""

    process: subprocess.Popen[bytes]
    answer: IO[bytes]

    def result(self) -> dict[str, Any]:
        """Wait for the answer. Raises what the process raised; EngineError when it was killed."""
        with self.answer:
            text = self.answer.read()
        code = self.process.wait()
        if not text:
            raise EngineError(
                f"the process of a unit was killed (status {code})", hint="look for the out-of-memory killer in dmesg"
            )
        value: dict[str, Any] = json.loads(text)
        raise_for(value)
        return value

    def kill(self) -> None:
        """End it at once; its init and all its processes go with it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.answer.close()


def raise_for(value: dict[str, Any]) -> None:
    """Raise the error in an answer, if it is one."""
    if "error" in value:
        name, message, hint, where = value["error"]
        kind = getattr(errors, name, EngineError)
        raise kind(message, hint, where) if issubclass(kind, EnvbuildError) else EngineError(message, hint, where)
    if "setup" in value:
        from envbuild.core.userns.diagnose import fix_for

        step, reason = value["setup"]
        if step == BIND:
            raise SpecError(f"--bind {reason}", hint="--bind SRC:DST: both a folder, or both a file")
        raise EngineError(f"the embedded engine cannot run here: {step}: {reason}", hint=fix_for(step, reason))
    if "errno" in value:
        raise OSError(value["errno"], value["message"])
    if "crash" in value:
        raise EngineError("the process of a unit failed", hint=f"please report this:\n{value['crash']}")


def spawn(
    job: dict[str, Any], *, stdin: int = subprocess.DEVNULL, output: int | None = subprocess.PIPE, session: bool = True
) -> Child:
    """Start a unit process. `output`: stdout and stderr of the unit (None: this process's own). `session`: its own
    session, away from the terminal and its signals."""
    job = {**job, "parent": os.getpid()}
    job_fd = os.memfd_create("job")
    read, write = os.pipe()
    try:
        with os.fdopen(job_fd, "wb", closefd=False) as file:
            file.write(json.dumps(job).encode())
        os.lseek(job_fd, 0, os.SEEK_SET)
        root = str(Path(__file__).resolve().parents[3])
        path = json.dumps([root, *(item for item in sys.path if item and item != root)])
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-c", BOOT, path, str(job_fd), str(write)],
            stdin=stdin,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            pass_fds=(job_fd, write),
            start_new_session=session,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            cwd="/",
        )
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(job_fd)
        os.close(write)
    return Child(process, os.fdopen(read, "rb"))
