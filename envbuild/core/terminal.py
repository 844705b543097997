"""The terminal of the caller while a program has one of its own: raw, and of the same size."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import termios
import tty
from collections.abc import Iterator
from functools import partial

from envbuild.core import signals

SIZE = 8  # bytes of a struct winsize, ioctl_tty(2)
OUTPUT_FLAGS = 1  # their place in what tcgetattr returns


def open_terminal(like: int, *, raw_output: bool) -> tuple[int, int]:
    """Return both ends (ours, the program's) of a new terminal with the settings and the size of the terminal `like`.

    raw_output: lines end with a line feed alone, because `like` itself adds the carriage return.
    """
    ours, program = os.openpty()
    mode = termios.tcgetattr(like)
    if raw_output:
        mode[OUTPUT_FLAGS] &= ~termios.OPOST
    termios.tcsetattr(program, termios.TCSANOW, mode)
    copy_size(like, ours)
    return ours, program


def copy_size(source: int, target: int) -> None:
    """Give a terminal the size of another, as far as that is known."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(target, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(SIZE)))


@contextlib.contextmanager
def following_size(source: int, target: int) -> Iterator[None]:
    """Give a terminal each new size of another during the context."""
    before = signal.signal(signal.SIGWINCH, lambda *_: copy_size(source, target))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def has_program(ours: int) -> bool:
    """Return whether a program has the other end of a terminal as its controlling terminal: it gets Ctrl-C then."""
    try:
        return os.tcgetpgrp(ours) > 0
    except OSError:
        return False


class RawTerminal:
    """The terminal of descriptor 0 in raw mode: every key is for the program. A context; `enter` begins it."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> RawTerminal:
        return self

    def enter(self) -> bool:
        """Begin, unless this process is in the background, which may not change its terminal.

        Return whether it is raw."""
        with contextlib.suppress(OSError):  # not this process's controlling terminal
            if os.tcgetpgrp(0) != os.getpgrp():
                return False
        with contextlib.suppress(termios.error):
            restore = partial(termios.tcsetattr, 0, termios.TCSADRAIN, termios.tcgetattr(0))
            self._stack.callback(restore)
            self._stack.enter_context(signals.leftover(restore))
            tty.setraw(0, termios.TCSADRAIN)
            return True
        return False

    def __exit__(self, *_: object) -> None:
        self._stack.close()
