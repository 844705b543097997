"""The progress of an export: shown on the terminal by its Reporter, and to other users by a small record in the store.

A record is exports/HOST-PID-HEX.json: source, output, state, bytes done and total, times, and the process (`Owner`). It
is replaced at most once a second while the export runs, and remains for a day (`envbuild.export.progress_list` reads
records). It is optional: an export continues when its record cannot be written.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from envbuild.core import signals
from envbuild.core.errors import EnvbuildError, SpecError
from envbuild.core.store.permissions import make_shared_folder
from envbuild.core.store.store import write_atomic
from envbuild.core.unfinished_names import unfinished_names
from envbuild.export.formats import FORMATS
from envbuild.export.progress_records import FOLDER, Owner, remove_old_records
from envbuild.spec.workspace import Workspace

READING, PACKING, MERGING = "reading layers", "packing", "merging"
TASKS = {"layers": READING, "packs": PACKING, **dict.fromkeys(FORMATS, MERGING)}
TICK, WINDOW = 1.0, 20  # seconds; ticks that the rate is computed from
TOUCH = 30.0  # seconds: an unchanged record is written again after this time, as a sign of life for other hosts


class Progress:
    """A reporter that passes everything on and records it.

    `output` may be set once it is known; `workspace` is the one that reports to it.
    """

    def __init__(self, workspace: Workspace, source: str, output: Path | None, state: str) -> None:
        reporter, root = workspace.reporter, workspace.store.root
        self.reporter, self.source, self.output, self.state = reporter, redact_source(source), output, state
        self.workspace = replace(workspace, reporter=self)
        self.info, self.warn, self.note = reporter.info, reporter.warn, reporter.note
        self.owner, self.started = Owner.here(), time.time()
        self.path = root / FOLDER / f"{self.owner.host.replace('/', '-')}-{self.owner.pid}-{secrets.token_hex(4)}.json"
        self.task, self.done, self.total, self.error, self.ended = "", 0, 0, "", 0.0
        self.samples: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self.guard, self.stopped = threading.Lock(), threading.Event()
        self.last_record, self.written_at, self.has_work = b"", 0.0, False

    # Reporter
    def start(self, task: str, text: str) -> None:
        with self.guard:
            self.reporter.start(task, text)
            if task in TASKS:
                self.task, self.state, self.done, self.total = task, TASKS[task], 0, 0
                self.has_work = True
                self.samples.clear()

    def advance(self, task: str, done: int, total: int = 0) -> None:
        self.reporter.advance(task, done, total)
        if task == self.task:
            self.done, self.total = done, total
            if self.state == READING and 0 < total <= done:
                self.state = PACKING  # the last bytes are still compressed

    def finish(self, task: str, text: str = "") -> None:
        with self.guard:
            if task == self.task == "squashfs":
                self.done = self.total
            self.reporter.finish(task, text)
            if task == self.task and self.state == READING:
                self.state = PACKING
            self.task = "" if task == self.task else self.task

    # the record
    def run_ticks(self) -> None:
        """Write the record once a second until the export ends, and measure the file that is written."""
        while not self.stopped.wait(TICK):
            self.measure()
            self.samples.append((time.monotonic(), self.done))
            self.write_record()

    def measure(self) -> None:
        """Report the bytes done; while merging, measure them by the size of the file itself."""
        with self.guard:
            if self.task == "squashfs" and self.total and self.output:
                size = sum(_allocated_size(path) for path in unnamed_files(self.output))
                self.done = max(self.done, min(size, self.total))
            if self.task and (self.done or self.total):  # rate and time left change while nothing comes, too
                self.reporter.advance(self.task, self.done, self.total)

    def rate(self) -> float:
        """Return the recent bytes a second; of an export that ended, the average."""
        if self.ended:
            return self.done / max(self.ended - self.started, 0.1)
        if len(self.samples) < 2:
            return 0.0
        (first, before), (last, now) = self.samples[0], self.samples[-1]
        return max(now - before, 0) / max(last - first, 0.1)

    def write_record(self) -> None:
        """Replace the record when it has news, or for a sign of life."""
        value = {
            "source": self.source,
            "output": str(self.output.absolute()) if self.output else "",
            "state": self.state,
            "bytes": self.done,
            "total": self.total,
            "rate": round(self.rate()),
            "started": round(self.started, 1),
            "ended": round(self.ended, 1),
            "error": self.error,
            "process": asdict(self.owner),
        }
        text, now = json.dumps(value, sort_keys=True).encode(), time.monotonic()
        if text != self.last_record or now - self.written_at >= TOUCH:
            with contextlib.suppress(OSError):
                write_atomic(self.path, lambda file: file.write(text + b"\n"), durable=False)
                self.last_record, self.written_at = text, now

    def create_record(self) -> None:
        """Create the folder, with the permissions of the store's other folders, and the first record."""
        folder = self.path.parent
        with contextlib.suppress(OSError):
            make_shared_folder(folder)
        self.write_record()

    def close_record(self, state: str, error: str = "") -> None:
        """Write the last record."""
        self.stopped.set()
        self.state, self.error, self.ended = state, error, time.time()
        if state == "done" and self.output and self.output.exists():
            files = self.output.rglob("*") if self.output.is_dir() else [self.output]  # a layout is a folder
            self.done = self.total = sum(path.stat().st_size for path in files if path.is_file())
        self.write_record()

    def abandon(self) -> None:
        """Clean up when the process ends at once: remove the temporary file and write the last record."""
        for path in unnamed_files(self.output) if self.output else ():
            path.unlink(missing_ok=True)
        self.close_record("interrupted")


@contextlib.contextmanager
def track_export(source: str, output: Path | None, workspace: Workspace, state: str = READING) -> Iterator[Progress]:
    """Update a record of the export of `source` while the context lasts.

    Report progress to the yielded reporter, best by its `workspace`. An export that found nothing to do, or a wrong
    command line, leaves no record.
    """
    progress = Progress(workspace, source, output, state)
    remove_old_records(workspace.store.root)
    progress.create_record()
    ticker = threading.Thread(target=progress.run_ticks, name="progress", daemon=True)
    ticker.start()
    try:
        with signals.leftover(progress.abandon):
            yield progress
            progress.close_record("done")
    except BaseException as error:
        progress.has_work = not isinstance(error, SpecError)
        failed = isinstance(error, Exception) and not signals.number()
        why = error.message if isinstance(error, EnvbuildError) else str(error) or type(error).__name__
        progress.close_record("failed" if failed else "interrupted", why[:500] if failed else "")
        raise
    finally:
        progress.stopped.set()
        ticker.join(2 * TICK)  # not longer: it may wait for a file server
        if not progress.has_work:
            with contextlib.suppress(OSError):
                progress.path.unlink()


def redact_source(source: str) -> str:
    """Return a source without the password that it may contain: every user may read the record."""
    name, at, digest = source.partition("@sha256:")
    return re.sub(r"^([a-z]+://).*@", r"\1…@", name, flags=re.DOTALL) + at + digest


def unnamed_files(out: Path) -> list[Path]:
    """Return the files beside `out` that this process writes under a temporary name (``.NAME.…``)."""
    found, name = set(), unfinished_names(out.name)
    with contextlib.suppress(OSError):
        folder = out.parent.resolve()
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                path = link.readlink()
                if path.parent == folder and name.fullmatch(path.name):
                    found.add(path)
    return sorted(found)


def _allocated_size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_blocks * 512
    return 0
