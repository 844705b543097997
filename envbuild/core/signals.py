"""Signals: the effect of SIGINT, SIGTERM and SIGHUP on every command.

The main thread gets `Interrupted`, and the work in progress cleans up while the exception is raised through it. A
thread that waits for a silent server, a lock or a pipe would delay that: `at_stop` wakes it where possible. If the main
thread has not ended after PATIENCE seconds, a thread of this module removes what would be left (`leftover`) and ends
the process, CLEANING seconds later at most: large trees may need longer, and the next command removes their rest. A
second Ctrl-C ends it at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

# Five seconds together: less than the ten that `docker stop` waits before it kills.
PATIENCE = 4.0
CLEANING = 0.9
SLICE = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Call = Callable[[], object]

_wakers: dict[object, Call] = {}
_leftovers: dict[object, Call] = {}
_leaving = threading.Lock()
_number = 0  # of the first signal that came
_limit = 0.0  # when the process ends at the latest
_taken: list[int] = []  # by the main thread: its cleaning up is not disturbed by a second one
_inside = False
_finished = False  # the command is complete: only its output is still written


class Interrupted(BaseException):
    """The process got a signal to stop. Not KeyboardInterrupt, for which typer prints a message of its own."""


def number() -> int:
    """Return the signal that stops the process; 0: none."""
    return _number


def reason() -> str:
    """Return what the signal did, as text."""
    return "interrupted" if _number == signal.SIGINT else f"stopped by {signal.Signals(_number).name}"


def exit_code() -> int:
    """Return the exit code after the signal, as shells have it."""
    return 128 + _number


def finish() -> None:
    """Take no further signal in the main thread: the command is complete but for the end of its output.

    A signal that comes later has no effect on the exit code, unless the output is not read for PATIENCE seconds.
    """
    global _finished
    _finished = True


def pause(seconds: float) -> None:
    """Sleep, but not once the process is to stop."""
    end = time.monotonic() + seconds
    while not _number and (left := end - time.monotonic()) > 0:
        time.sleep(min(SLICE, left))


@contextlib.contextmanager
def at_stop(call: Call) -> Iterator[None]:
    """Call `call` from another thread if the process is to stop during the context: it ends a wait."""
    with _entered(_wakers, call):
        if _number:
            with contextlib.suppress(Exception):
                call()
        yield


@contextlib.contextmanager
def leftover(call: Call) -> Iterator[None]:
    """Call `call` if the process ends before the context does: it removes what the context would have removed."""
    with _entered(_leftovers, call):
        yield


@contextlib.contextmanager
def _entered(calls: dict[object, Call], call: Call) -> Iterator[None]:
    key = object()
    calls[key] = call
    try:
        yield
    finally:
        calls.pop(key, None)


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Handle the signals from now on, for a command that runs inside in the main thread.

    A signal that is ignored remains ignored (nohup), except Ctrl-C, which shells ignore in background jobs.
    """
    global _inside
    read, write = os.pipe()
    os.set_blocking(write, False)
    for wanted in SIGNALS:
        if wanted == signal.SIGINT or signal.getsignal(wanted) != signal.SIG_IGN:
            signal.signal(wanted, _interrupt)
    # The pipe is written by the C handler: its reader gets a signal even if the main thread does not run.
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read,), name="stopping", daemon=True).start()
    sys.unraisablehook = _not_ignored
    try:
        _inside = True
        yield
    except BaseException:
        if _number and not _finished:  # errors while everything stops are not reported
            leave()
        raise
    finally:
        _inside = False


def _interrupt(came: int, _: object) -> None:
    if _taken or _finished:
        return
    _taken.append(came)
    _note(came)
    if _inside:
        raise Interrupted
    leave()


def _not_ignored(error: sys.UnraisableHookArgs) -> None:
    """End the process when Python ignores `Interrupted`, as it does in callbacks of weak references and in __del__."""
    if isinstance(error.exc_value, Interrupted):
        leave()
    sys.__unraisablehook__(error)


def _note(came: int) -> None:
    global _number, _limit
    _number = _number or came
    _limit = _limit or time.monotonic() + PATIENCE + CLEANING


def _watch(read: int) -> None:
    global _limit
    while (came := os.read(read, 1)[0]) not in SIGNALS:
        pass
    _note(came)
    end = _limit - CLEANING
    for call in list(_wakers.values()):
        with contextlib.suppress(Exception):
            call()
    while (left := end - time.monotonic()) > 0:
        if select.select([read], [], [], left)[0] and os.read(read, 1)[0] == signal.SIGINT:
            _limit = time.monotonic() + CLEANING
            break
    leave()


def leave() -> NoReturn:
    """End the process after a signal: run the leftover calls, and exit as shells do with 128 + signal.

    Other threads are not joined.
    """
    with _leaving:
        _run_beside(reversed(list(_leftovers.values())))
        cursor = "\x1b[?25h" if os.isatty(2) else ""  # a live block hides it
        _run_beside([sys.stdout.flush])  # after SIGHUP the terminal may be gone, or stdout is not read
        with contextlib.suppress(OSError):
            os.write(2, f"{cursor}{reason()}; the next run resumes here\n".encode())
        os._exit(exit_code())


def _run_beside(calls: Iterable[Call]) -> None:
    """Make calls beside each other, so that a slow one does not delay the others. Return at the limit."""
    threads = []
    for call in calls:
        thread = threading.Thread(target=_run_quietly, args=(call,), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the limit of threads is reached
            _run_quietly(call)
        else:
            threads.append(thread)
    for thread in threads:
        thread.join(max(0.0, _limit - time.monotonic()))


def _run_quietly(call: Call) -> None:
    with contextlib.suppress(Exception):
        call()
