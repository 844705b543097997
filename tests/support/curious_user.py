"""Another user of the machine, who reads everything that is readable while a command runs."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

NOBODY = 65534


@dataclass
class Curious:
    """Findings of that user: (where, secret). `rounds`: how often all processes and files were read; `programs`: names
    of the processes that were seen, for a test to know that it saw those that matter; `read_files`: whether that user
    could read a file of the folder at all."""

    found: set[tuple[str, str]] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)
    rounds: int = 0
    read_files: bool = False


CANARY = "a file that everybody can read"


@contextmanager
def curious_user(folder: Path, secrets: Iterable[str]) -> Iterator[Curious]:
    """Let another user look for `secrets` in the arguments and variables of all processes and in the files below
    `folder`, again and again. Without root it is the same user, who reads arguments alone."""
    seen = Curious()
    (folder / "canary").write_text(CANARY)
    reading, writing = os.pipe()
    begun, begin = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            _look(folder, [secret.encode() for secret in (*secrets, CANARY)], writing, begin)
        finally:
            os._exit(1)
    os.close(writing)
    os.close(begin)
    try:
        os.read(begun, 1)  # its first round is over
        yield seen
    finally:
        os.kill(child, signal.SIGTERM)
        with os.fdopen(reading, "rb") as stream:
            text = stream.read()
        os.close(begun)
        os.waitpid(child, 0)
    answer = json.loads(text)
    seen.found, seen.programs = set(map(tuple, answer["found"])), set(answer["programs"])
    seen.rounds = answer["rounds"]
    seen.read_files = any(secret == CANARY for _, secret in seen.found)
    seen.found = {(where, secret) for where, secret in seen.found if secret != CANARY}


def _look(folder: Path, secrets: list[bytes], writing: int, begin: int) -> None:
    """Look until SIGTERM; write the result to `writing`. A byte for `begin` after the first round."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    another = os.geteuid() == 0
    if another:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    found: set[tuple[str, str]] = set()
    programs: set[str] = set()
    rounds, files = 0, 0.0
    while not stopped:
        for process in Path("/proc").glob("[0-9]*"):
            arguments = _content(f"{process}/cmdline")
            programs.add(Path(arguments.partition(b"\0")[0].decode(errors="replace")).name)
            variables = _content(f"{process}/environ") if another else b""
            for kind, text in (("arguments", arguments), ("variables", variables)):
                found |= {(f"{kind} of {arguments!r}", secret.decode()) for secret in secrets if secret in text}
        if another and time.monotonic() - files > 0.2:  # files remain, processes do not
            for path, _, names in os.walk(folder):
                for name in names:
                    text = _content(f"{path}/{name}")
                    found |= {(f"{path}/{name}", secret.decode()) for secret in secrets if secret in text}
            files = time.monotonic()
        rounds += 1
        time.sleep(0.002)
        if rounds == 1:
            os.write(begin, b"1")
    os.write(writing, json.dumps({"found": sorted(found), "programs": sorted(programs), "rounds": rounds}).encode())
    os._exit(0)


def _content(path: str) -> bytes:
    """Return the first megabyte of a file that can be read."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.read(handle, 1 << 20)
        finally:
            os.close(handle)
    return b""
