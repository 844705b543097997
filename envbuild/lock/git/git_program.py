"""The git program, isolated from the user's configuration and from what a repository would make it execute; a reader
of verified objects.

A commit's hash verifies its content only if it is computed. git computes it for fetched objects, but not for those
on disk. So every object that is read here is hashed again: a folder needs no more trust than a server.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from envbuild.core.errors import InputError
from envbuild.core.programs import (
    PIPE,
    CompletedProcess,
    TimeoutExpired,
    memory_file,
    run_program,
    start_program,
)
from envbuild.core.text import printable
from envbuild.net.failures import NotFoundError, RefusedError, summarize
from envbuild.net.limits import LIMITS
from envbuild.net.network_settings import direct_hosts
from envbuild.net.urls import redact_text

CHUNK = 1 << 18
LIMIT = 3600  # seconds of one call; a stalled transfer ends sooner (`SLOW`)
MAX_OBJECT = 64 << 20  # bytes of an object that is read whole; a tree of 1,000,000 entries has fewer
# Of one allocation of git. An object that is stored as a difference to another one is unpacked in memory, and 16 KB of
# a server's answer can be one of 3 GB. Larger files than 512 MiB are streamed (core.bigFileThreshold).
MEMORY = "2g"
SLOW = 60  # seconds without a byte per second after which git aborts a transfer
# None of these is secret: the process list shows them. gc would run in the background and outlive the command.
SETTINGS = (
    "safe.directory=*", "core.hooksPath=/dev/null", "core.askPass=", "credential.helper=", "gc.auto=0",
    "maintenance.auto=false", "fetch.unpackLimit=1", "fetch.recurseSubmodules=false", "protocol.version=2",
)  # fmt: skip
INHERITED = ("GIT_EXEC_PATH", "GIT_SSH", "GIT_SSH_COMMAND")  # where git is, and how ssh is called: not what it does


class SlowError(RefusedError):
    """git has worked for too long. An object that is stored as a difference to another one, of which there may be a
    million in a row, is computed from all of them each time that it is read."""


@functools.cache
def git_path() -> str:
    """Return the path of git. Raises InputError if it is not installed."""
    found = shutil.which("git")
    if not found:
        raise InputError(
            "git is not installed; sources that are commits, and project folders in a work tree, require it",
            "sudo apt install git",
        )
    return found


def git_environment(extra: Mapping[str, str | None] = {}) -> dict[str, str]:
    """Return the environment of a git call: no configuration of the user or the machine, no prompts, no protocol but
    those that `extra` allows (GIT_ALLOW_PROTOCOL). A variable of `extra` that is None is not set."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in INHERITED}
    own |= direct_hosts()
    own |= {
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",  # refs/replace of a repository shows another object under a hash
        "GIT_NO_LAZY_FETCH": "1",  # a partial clone would fetch missing objects from the network
        "GIT_ALLOC_LIMIT": MEMORY,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        # Not "none", nor "": an alias remote-none of a repository is a program for none::, and remote- for ::
        "GIT_ALLOW_PROTOCOL": "/",
        "GIT_HTTP_LOW_SPEED_LIMIT": "1",
        "GIT_HTTP_LOW_SPEED_TIME": str(SLOW),
    }
    own.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=20")
    return {name: value for name, value in {**own, **extra}.items() if value is not None}


def git_command(folder: Path | None, *arguments: str, settings: Iterable[str] = ()) -> list[str]:
    """Return the arguments of a git call in the git directory `folder` (git does not check the owner of an explicit
    one)."""
    given = [word for setting in (*SETTINGS, *settings) for word in ("-c", setting)]
    return [git_path(), *given, *([f"--git-dir={folder}"] if folder else []), *arguments]


def run_git(
    folder: Path | None,
    *arguments: str,
    content: bytes = b"",
    extra: Mapping[str, str | None] = {},
    settings: Iterable[str] = (),
    largest: int = 0,
    timeout: float = LIMIT,
    ends: Callable[[bytes], object] | None = None,
) -> CompletedProcess[bytes]:
    """Run git to its end; the caller checks the exit code. `largest`: bytes of a file that it writes (0: any number).
    `timeout`: seconds. `ends`: as of `run_program`.

    Raises InputError (no git), SlowError.
    """
    try:
        return run_program(
            git_command(folder, *arguments, settings=settings),
            content=content,
            env=git_environment(extra),
            cwd="/",  # a repository around the current folder must have no effect
            timeout=timeout,
            memory=LIMITS.program_memory,  # a server's list of references may be endless
            largest=largest,
            ends=ends,
        )
    except TimeoutExpired:
        raise SlowError(f"git did not end within {timeout:.0f} s") from None


def error_summary(stderr: bytes) -> str:
    """Return git's error output in one line and without passwords."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    # The last error is often a mere "the remote end hung up"; the first one has the cause.
    errors = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    if errors:
        text = errors[0].partition(": ")[2] or errors[0]
        if re.search("terminal prompts disabled|Authentication failed|could not read (Username|Password)", text):
            return "it requires a password, or has no such repository"
        if re.search("certificate|SSL", text):
            return "its certificate is not trusted (set ca_bundle in site.yaml)"
        if "Could not resolve host" in text:
            return "its name cannot be resolved"
        return summarize(text) or printable(redact_text(text)[:200])
    return "git failed without a message"


class ObjectReader:
    """A reader of the objects of one git directory (``git cat-file --batch``), each checked against its hash. `end`:
    when it reads no more (of `time.monotonic`); by default an hour from now."""

    def __init__(self, folder: Path, end: float | None = None) -> None:
        self.end = time.monotonic() + LIMIT if end is None else end
        self.errors = memory_file()
        self.process = start_program(
            git_command(folder, "cat-file", "--batch"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=self.errors.fileno(),
            env=git_environment(),
            cwd="/",
        )
        # git may be silent for days before the first byte of one object
        self.alarm = threading.Timer(max(0, self.end - time.monotonic()), self.process.kill)
        self.alarm.daemon = True
        self.alarm.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.alarm.cancel()
        self.process.__exit__(kind, error, trace)
        self.errors.close()

    def read(self, sha: str, kind: str, limit: int = MAX_OBJECT) -> bytes:
        """Return a whole object of `kind` (commit, tree, blob).

        Raises NotFoundError; RefusedError also for one of more than `limit` bytes, SlowError.
        """
        chunks: list[bytes] = []
        self.copy(sha, kind, chunks.append, limit)
        return b"".join(chunks)

    def copy(self, sha: str, kind: str, write: Callable[[bytes], object], limit: int | None = None) -> None:
        """Pass the content of an object to `write`; it is verified only after the return.

        Raises NotFoundError, RefusedError, SlowError.
        """
        self._check_time()
        asked, answer = self.process.stdin, self.process.stdout
        assert asked and answer
        try:
            asked.write(f"{sha}\n".encode())
            asked.flush()
        except OSError:
            raise self._failure() from None
        line = answer.readline().split()
        if len(line) == 2:
            raise NotFoundError(f"it lacks the {kind} {sha}")
        if len(line) != 3:
            raise self._failure()
        found, size = line[1].decode(), int(line[2])
        if found != kind:
            raise RefusedError(f"{sha} is a {found} there, not a {kind}")
        if limit is not None and size > limit:
            raise RefusedError(f"the {kind} {sha} has {size} bytes; envbuild reads at most {limit}")
        digest = hashlib.sha1(b"%s %d\0" % (line[1], size), usedforsecurity=False)
        while size:
            chunk = answer.read(min(size, CHUNK))
            if not chunk:
                raise self._failure()
            digest.update(chunk)
            write(chunk)
            size -= len(chunk)
            self._check_time()
        answer.read(1)
        if digest.hexdigest() != sha:
            raise RefusedError(f"it is damaged: the {kind} {sha} has other content there")

    def _check_time(self) -> None:
        if time.monotonic() > self.end:
            raise SlowError(f"git has not read the objects of the commit within {LIMIT} s")

    def _failure(self) -> RefusedError:
        self._check_time()
        self.process.kill()
        self.process.wait()
        self.errors.seek(0)
        return RefusedError(f"git cannot read it: {error_summary(self.errors.read())}")


class BlobSize(NamedTuple):
    """Bytes of a blob, and of its object in the repository: compressed, or the difference to another one."""

    size: int
    stored: int


def blob_sizes(folder: Path, hashes: Iterable[str]) -> dict[str, BlobSize]:
    """Return blob → its size, without those that the repository lacks. Raises RefusedError."""
    asked = "".join(f"{sha}\n" for sha in hashes).encode()
    wanted = "%(objectname) %(objecttype) %(objectsize) %(objectsize:disk)"
    done = run_git(folder, "cat-file", "--buffer", f"--batch-check={wanted}", content=asked)
    if done.returncode:
        raise RefusedError(f"git cannot read it: {error_summary(done.stderr)}")
    answers = (line.split() for line in done.stdout.decode().splitlines())
    blobs = (answer for answer in answers if len(answer) == 4 and answer[1] == "blob")
    return {sha: BlobSize(int(size), int(stored)) for sha, _, size, stored in blobs}
