"""Reporters: progress and messages for the user, on stderr only; stdout is data.

On a terminal one live block shows what is in flight; without one, plain lines at starts and ends. Libraries get a
`Reporter` and never print.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from envbuild.core.text import passed, printable, printable_message

LONGEST = 160  # characters of a note in a log: it may be a line of a build
WIDE = 100  # columns of a terminal that has room for a whole bar


class Reporter(Protocol):
    """Receives messages and progress of the steps."""

    def info(self, text: str) -> None:
        """Print a permanent line."""
        ...

    def warn(self, text: str) -> None:
        """Print a permanent line that the user should act on."""
        ...

    def start(self, task: str, text: str) -> None:
        """Begin `task` (a name); `text` describes it."""
        ...

    def advance(self, task: str, done: int, total: int = 0) -> None:
        """Report the bytes done, of total (0: unknown), of a task that transfers."""
        ...

    def note(self, task: str, text: str) -> None:
        """Report the current activity of a running task."""
        ...

    def finish(self, task: str, text: str = "") -> None:
        """End `task`; `text`, if given, becomes a permanent line."""
        ...


class SilentReporter:
    """A reporter that prints nothing and collects the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(text)

    def start(self, task: str, text: str) -> None: ...

    def advance(self, task: str, done: int, total: int = 0) -> None: ...

    def note(self, task: str, text: str) -> None: ...

    def finish(self, task: str, text: str = "") -> None:
        if text:
            self.lines.append(text)


class RecordingReporter:
    """A reporter that passes everything on and records the warnings, which are part of the JSON answer."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.warnings: list[str] = []
        self.info, self.start, self.advance = reporter.info, reporter.start, reporter.advance
        self.note, self.finish = reporter.note, reporter.finish

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.reporter.warn(text)

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call."""
        found, self.warnings = self.warnings, []
        return found


class ProgressReporter(SilentReporter):
    """The tasks of another reporter, without its lines: for a step that repeats one whose lines were printed."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self.start, self.advance = reporter.start, reporter.advance  # type: ignore[method-assign]
        self.note, self.finish = reporter.note, reporter.finish  # type: ignore[method-assign]


class LineReporter:
    """Lines on stderr, for logs and CI; what a long task does is reported every ten seconds."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.tasks: dict[str, tuple[str, float, float]] = {}  # name → (text, start, last report)

    def line(self, text: str) -> None:
        # one call with the line end in it: of several threads that print at once, none gets between a line and its end
        sys.stderr.write(f"{time.monotonic() - self.began:7.1f}s  {printable_message(text)}\n")
        sys.stderr.flush()

    def info(self, text: str) -> None:
        self.line(text)

    def warn(self, text: str) -> None:
        self.line(f"warning: {text}")

    def start(self, task: str, text: str) -> None:
        now = time.monotonic()
        self.tasks[task] = (text, now, now)
        self.line(text)

    def advance(self, task: str, done: int, total: int = 0) -> None:
        self._progress(task, lambda took: passed(done, total, took))

    def _progress(self, task: str, describe: Callable[[float], str]) -> None:
        """Print the progress of a running task, at most every ten seconds; `describe` gets the seconds that it took."""
        now = time.monotonic()
        text, start, last = self.tasks.get(task, (task, now, now))
        if now - last >= 10:
            self.tasks[task] = (text, start, now)
            self.line(f"{text}: {describe(now - start)}")

    def note(self, task: str, text: str) -> None:
        self._progress(task, lambda took: text[:LONGEST])

    def finish(self, task: str, text: str = "") -> None:
        self.tasks.pop(task, None)
        if text:
            self.line(text)


class WarningReporter(SilentReporter):
    """Warnings on stderr, and nothing else."""

    def warn(self, text: str) -> None:
        sys.stderr.write(f"warning: {printable_message(text)}\n")
        sys.stderr.flush()


class LiveReporter:
    """A live block on a terminal (rich): what is in flight, bytes with rate and time left, elapsed time."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
        from rich.table import Column
        from rich.text import Text

        class Bar(BarColumn):
            """A bar for tasks whose end is known."""

            def render(self, task: Task) -> Any:
                return super().render(task) if task.total else Text("")

        console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            SpinnerColumn(),
            # shrinks first; brackets in it are text, not rich's markup: it may be a line of a build's log
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            Bar(bar_width=20 if console.width >= WIDE else 8),
            TextColumn("{task.fields[amount]}", style="dim"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            expand=True,
        )
        self.ids: dict[str, Any] = {}
        self.texts: dict[str, str] = {}
        self.began: dict[str, float] = {}

    def info(self, text: str) -> None:
        self.progress.console.print(
            printable_message(text), markup=False, soft_wrap=True
        )  # a command to type is not wrapped

    def warn(self, text: str) -> None:
        self.progress.console.print(printable_message(f"warning: {text}"), style="yellow", markup=False, soft_wrap=True)

    def start(self, task: str, text: str) -> None:
        if not self.ids:
            self.progress.start()
        text = self.texts[task] = printable(text)
        self.began[task] = time.monotonic()
        self.ids[task] = self.progress.add_task(text, total=None, amount="")

    def advance(self, task: str, done: int, total: int = 0) -> None:
        if task in self.ids:
            amount = passed(done, total, time.monotonic() - self.began[task])
            self.progress.update(self.ids[task], amount=amount, completed=done, total=total or None)

    def note(self, task: str, text: str) -> None:
        if task in self.ids:
            self.progress.update(self.ids[task], description=f"{self.texts[task]}: {printable(text[:60])}")

    def finish(self, task: str, text: str = "") -> None:
        if task in self.ids:
            self.progress.remove_task(self.ids.pop(task))
        if not self.ids:
            self.progress.stop()
        if text:
            self.info(text)


def default_reporter() -> Reporter:
    """Return the reporter for stderr: live on a terminal, plain lines elsewhere and with NO_COLOR or TERM=dumb."""
    live = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return LiveReporter() if live else LineReporter()


def terminal_reporter() -> Reporter:
    """Return the reporter for a wait at a terminal: that for stderr on a terminal, silent elsewhere."""
    return default_reporter() if sys.stderr.isatty() else SilentReporter()
