"""Programs of the machine: each command line runs at most once, all side by side, for at most LIMIT seconds, and
those of SLOW for several times that.

A program that takes longer is ended with every process that it started. One that cannot be ended (it waits in the
kernel, as nvidia-smi on a sick GPU does) is left behind. Output goes to files in memory: a process that is left behind
does not block the reader."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO

from .process_tree import END, end_tree

LIMIT = 10.0  # seconds
SLOW = {"nvidia-smi": 3}  # times the limit: without persistence mode it initialises one GPU after another
# enroot makes its folders before each command, as root with modes that no user passes (NVIDIA/enroot, enroot.in); these
# variables come before its settings, and a folder that exists remains as it is
VARIABLES = {"enroot": dict.fromkeys(("ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_RUNTIME_PATH"), "/")}
FRAME = re.compile(r"[ \t=]|GPU [0-9A-Fa-f:.]+$")  # of nvidia-smi -q: indentation, its banner, the name of a GPU
FIRST_WORD = 3.0  # seconds without a word to the user, at most
MAX_OUTPUT = 8 << 20  # bytes


def ignore(line: str) -> None:
    """Receive a line and print nothing."""


@dataclass(frozen=True)
class Output:
    """The end of a program. `fault`: why its output is not usable: missing, timed out, killed; empty otherwise."""

    text: str = ""
    errors: str = ""
    code: int = 0
    fault: str = ""
    seconds: float = 0.0

    @property
    def missing(self) -> bool:
        return self.code == 127 and bool(self.fault)

    def failure(self, command: str, *, last: bool = False) -> str:
        """Return why a command has no usable output: its fault, or its exit code and the first line that it printed, or
        the `last` one."""
        printed = [line for line in (self.errors + "\n" + self.text).splitlines() if line.strip()]
        # of a report that has ended too early, the line about it has no indentation, no value and no frame
        words = [line for line in printed if " : " not in line and not FRAME.match(line)]
        lines = [line.strip() for line in words or printed]
        line = f": {lines[-1 if last else 0][:200]}" if lines else ""
        return self.fault or f"{command} failed with exit code {self.code}{line}"


def output_file() -> IO[bytes]:
    """Return a file of this process's memory: a full or read-only disk ends no program. Raises OSError."""
    try:
        return os.fdopen(os.memfd_create("output"), "w+b")
    except (OSError, AttributeError):  # forbidden here, or a C library without it
        return tempfile.TemporaryFile()


@dataclass
class Running:
    """A program that was started."""

    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]
    start: float = field(default_factory=time.monotonic)


class Programs:
    """The programs of one pass, by command line. `notice` receives a line about one that takes long; `largest`: bytes
    of a file that they write, 0: no limit (shared memory is a file, too)."""

    def __init__(
        self,
        environ: Mapping[str, str],
        limit: float = LIMIT,
        notice: Callable[[str], object] = ignore,
        largest: int = MAX_OUTPUT,
    ) -> None:
        self.environ = {**environ, "LC_ALL": "C"}
        self.limit, self.notice, self.largest = limit, notice, largest
        self.end = float("inf")  # of all programs, by the clock of this process
        self.running: dict[tuple[str, ...], Running] = {}
        self.done: dict[tuple[str, ...], Output] = {}

    def find(self, name: str) -> str:
        """Return the path of a program, or ""."""
        return shutil.which(name, path=self.environ.get("PATH", os.defpath)) or ""

    def start(self, *command: str) -> None:
        """Start a program, unless it was started before; `output` waits for it."""
        if command in self.running or command in self.done:
            return
        program = self.find(command[0])
        if not program:
            self.done[command] = Output(code=127, fault=f"{command[0]} is not installed")
            return
        try:
            out, err = output_file(), output_file()
        except OSError as error:  # of a machine without memory, or whose temporary folders are full
            self.done[command] = Output(code=126, fault=f"{command[0]} has no file for its output: {error.strerror}")
            return
        try:
            process = subprocess.Popen(
                [program, *command[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**self.environ, **VARIABLES.get(command[0], {})}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self.done[command] = Output(code=126, fault=f"{command[0]} cannot be started: {error.strerror}")
            return
        if self.largest:
            with contextlib.suppress(OSError):  # it has ended
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (self.largest, self.largest))
        self.running[command] = Running(process, out, err)

    def output(self, *command: str) -> Output:
        """Return the end of a program, which is started now if it was not before."""
        self.start(*command)
        if command not in self.done:
            self.done[command] = self._end(command, self.running.pop(command))
        return self.done[command]

    def close(self) -> None:
        """End the programs whose output was not read."""
        for running in self.running.values():
            end_tree(running.process)
        self.running.clear()

    def limit_of(self, command: tuple[str, ...]) -> float:
        """Return the seconds that a program may take."""
        return self.limit * SLOW.get(command[0], 1)

    def _end(self, command: tuple[str, ...], running: Running) -> Output:
        name, fault = command[0], ""
        try:
            self._wait(command, running)
        except subprocess.TimeoutExpired:
            ended = end_tree(running.process)
            limit = min(self.limit_of(command), self.end - running.start)
            fault = f"{name} did not end within {limit:.0f} s" + ("" if ended else ", and cannot be killed")
        texts = []
        for file in (running.out, running.err):
            with file:
                file.seek(0)
                texts.append(file.read(MAX_OUTPUT).decode("utf-8", "replace"))
        code = running.process.poll()
        if not fault and code is not None and code < 0:
            fault = f"{name} was ended by signal {-code}"
        return Output(texts[0], texts[1], -1 if code is None else code, fault, time.monotonic() - running.start)

    def _wait(self, command: tuple[str, ...], running: Running) -> None:
        """Wait for a program until its limit, and report one that takes long. Raises TimeoutExpired."""
        limit = self.limit_of(command)
        last = min(running.start + limit, self.end)
        if limit > FIRST_WORD:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(max(running.start + FIRST_WORD - time.monotonic(), 0.001))
                return
            if last - time.monotonic() > END:
                self.notice(f"waiting for {' '.join(command)}, at most {last - running.start:.0f} s")
        running.process.wait(max(last - time.monotonic(), 0.001))
