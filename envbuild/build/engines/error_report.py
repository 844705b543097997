"""The report of a failed unit: its name, its command, exit code, last lines, log, and how to get a shell in it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from envbuild.build.plan.units import Unit
from envbuild.core.errors import FREE_SOME, FULL_DISK, BuildError, EngineError, SpecError
from envbuild.core.free_space import free_bytes, is_full
from envbuild.core.shell import shell_word
from envbuild.core.text import amount, printable
from envbuild.core.userns.diagnose import fix_for
from envbuild.core.userns.namespaces import BIND, SetupError

LINES = 30
LONGEST = 300  # characters of a path in a message: a step can make folders of any depth
FULL = re.compile(
    rb"No space left on device|Disk quota exceeded|ENOSPC|you don't have enough free space", re.IGNORECASE
)
IN_MEMORY = "/tmp and /run of a unit are in memory"
BIND_HINT = "--bind SRC:DST: both a folder, or both a file; in a read-only folder DST must exist"


def read_last_lines(log: Path, count: int = LINES) -> str:
    """Return the last lines of a log; carriage returns of progress bars count as line ends."""
    return "\n".join(read_tail(log).decode(errors="replace").replace("\r", "\n").rstrip().splitlines()[-count:])


def read_tail(log: Path, size: int = 1 << 16) -> bytes:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read()
    except OSError:
        return b""


def step_error(
    unit: Unit, image: str, step: int, code: int, log: Path, store: Path, free: int | None = None
) -> BuildError | EngineError:
    """Return the error for a command that exited with `code`: an EngineError when the store's disk was full.

    `free`: bytes that the disk had left then, before the unit's files were removed (None: read it now)."""
    command = unit.steps[step]
    lines = [
        f"unit {unit.name} failed in step {step + 1} of {len(unit.steps)}"
        + (f" ({command.title})" if command.title else ""),
        f"command: {command.command}",
        f"exit code: {code}" + (f" (signal {code - 128})" if code > 128 else ""),
    ]
    if code == 137:
        lines.append("signal 9 is often the kernel's out-of-memory killer: fewer --jobs need less memory")
    full = ""
    if found := FULL.search(read_tail(log)):
        free = free_bytes(store) if free is None else free
        full = full_store_message(store) if is_full(found, free) else ""
        lines.append(full or f"a file system was full, but not the store's ({amount(free)} free): {IN_MEMORY}")
    lines += [f"the last lines of {log}:", read_last_lines(log)]
    if full:
        return EngineError("\n".join(lines), hint=FREE_SOME, where=str(log))
    return BuildError(
        "\n".join(lines),
        hint=f"envbuild make {shell_word(image)} --shell-on-fail  (opens a shell in the failed unit)",
        where=str(log),
    )


def setup_error(error: SetupError) -> EngineError | SpecError:
    """Return the error for a process that could not be set up: the machine's fault, or that of a bind that the user
    requested."""
    if error.step == BIND:
        return SpecError(
            f"--bind {error.reason}",
            hint=BIND_HINT,
        )
    return EngineError(f"the embedded engine cannot run here: {error}", hint=fix_for(error.step, error.code))


def full_store_message(store: Path) -> str:
    return f"the store {store} is full"


def system_error(unit: Unit, error: OSError, log: Path, store: Path) -> BuildError | EngineError:
    """Return the error for a system call that failed outside of a command (inputs, packing): most often the disk is
    full."""
    if error.errno in FULL_DISK:
        full = f"{os.strerror(error.errno)}: {full_store_message(store)}"
        return EngineError(f"unit {unit.name} failed: {full}", hint=FREE_SOME, where=str(log))
    name = printable(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else ""
    place = f": {name if len(name) <= LONGEST else f'{name[:LONGEST]}…'}" if name else ""
    return BuildError(
        f"unit {unit.name} failed: {error.strerror or error}{place}", hint=f"cat {shell_word(log)}", where=str(log)
    )
