"""The standard streams of a program that the caller does not trust: pipes, and a terminal of its own.

A descriptor is a way to its file: a process that has it can change the file's mode and owner, and open it again for
writing through /proc/self/fd. That is true of a pipe, too: a program that writes into the pipe which is its input types
commands into the shell that reads from it next. So all streams of the caller remain with the caller, which copies.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import subprocess

from envbuild.core.terminal import RawTerminal, following_size, has_program, open_terminal
from envbuild.core.userns.copies import Copy, PeekedInput

STARTING = 50  # milliseconds until the program is checked again


class Streams:
    """Descriptors 0, 1 and 2 for a program, and what connects them with those of this process.

    `child`: the three descriptors to start it with; `relay`, once it has started. A context: it closes what it opened.
    None of the three is closed in this process.
    """

    def __init__(self) -> None:
        self._terminal = -1  # our end of the program's terminal
        self._theirs: list[int] = []
        self._ours: list[int] = []
        self._unread = -1  # the end of the input's pipe from which the program reads
        self._input: Copy | PeekedInput | None = None
        self._piped: Copy | PeekedInput | None = None  # the same, also after its end, unless it is a terminal
        self._outputs: list[Copy] = []
        self.child: list[int] = []
        terminals = [number for number in range(3) if os.isatty(number)]
        slave = self._open_terminal(terminals) if terminals else -1
        for number in range(3):
            earlier = [other for other in range(1, number) if is_same_file(number, other)]
            if number in terminals:
                self.child.append(slave)
            elif earlier:
                self.child.append(self.child[earlier[0]])  # `> file 2>&1`: one pipe preserves the order
            else:
                self.child.append(self._open_pipe(number))

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in [*self._ours, *self._theirs]:
            os.close(descriptor)
        self._ours, self._theirs = [], []

    def _open_terminal(self, terminals: list[int]) -> int:
        typed = 0 in terminals
        visible = next((number for number in terminals if number), 0)
        self._terminal, slave = open_terminal(terminals[0], raw_output=not typed)
        os.set_blocking(self._terminal, False)  # of this end alone
        self._ours.append(self._terminal)
        self._theirs.append(slave)
        self._outputs.append(Copy(self._terminal, visible))
        if typed:
            self._input = Copy(0, self._terminal)
        return slave

    def _open_pipe(self, number: int) -> int:
        read, write = os.pipe()
        if number:
            self._ours.append(read)
            self._theirs.append(write)
            self._outputs.append(Copy(read, number))
            return write
        self._ours += [read, write]
        self._unread = read
        self._input = self._piped = PeekedInput(0, write) if is_pipe_or_socket(0) else Copy(0, write)
        return read

    def relay(self, process: subprocess.Popen[bytes]) -> None:
        """Copy until the process that was started with `child`, and all that have its streams, have ended.

        Input that the program has not read remains for the next reader. Raises OSError for an output that cannot be
        written.
        """
        for descriptor in self._theirs:
            os.close(descriptor)
        self._theirs = []
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(RawTerminal())
            if self._terminal >= 0:
                stack.enter_context(following_size(self._outputs[0].target, self._terminal))
            typing = self._input is not None and self._input.target == self._terminal
            while (self._outputs or self._input) and (self._outputs or process.poll() is None):
                # Until the program has its terminal, keys remain for this process: Ctrl-C ends it.
                typing = typing and not (has_program(self._terminal) and raw.enter())
                self._move(-1 if self._outputs and not typing else STARTING, paused=typing)
        process.wait()
        self._give_back()

    def _move(self, timeout: int, *, paused: bool) -> None:
        """Wait `timeout` milliseconds until something can be copied, and copy it. `paused`: not the input."""
        copies = [*self._outputs, *([self._input] if self._input and not paused else [])]
        poll = select.poll()
        wanted: dict[int, int] = {}
        for copy in copies:
            descriptor, event = copy.waits_for()
            wanted[descriptor] = wanted.get(descriptor, 0) | event
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        ready = dict(poll.poll(timeout))
        for copy in copies:
            descriptor, event = copy.waits_for()
            came = ready.get(descriptor, 0)
            if came & (event | select.POLLERR | select.POLLHUP | select.POLLNVAL) and not copy.move():
                self._end(copy)

    def _end(self, copy: Copy | PeekedInput) -> None:
        if isinstance(copy, Copy) and copy is not self._input:
            self._outputs.remove(copy)
            if copy.source != self._terminal:
                self._ours.remove(copy.source)
                os.close(copy.source)  # where the caller reads no more, the program's next write fails
            return
        self._input = None
        if copy.target != self._terminal:
            self._ours.remove(copy.target)
            os.close(copy.target)  # the program reads its end

    def _give_back(self) -> None:
        """Leave input that the program has not read to its next reader."""
        if self._piped:
            self._piped.finish(self._unread)


def is_pipe_or_socket(descriptor: int) -> bool:
    """Return whether what is read from a descriptor is gone."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def is_same_file(first: int, second: int) -> bool:
    """Return whether two descriptors are open files of one name."""
    try:
        return os.path.sameopenfile(first, second)
    except OSError:
        return False
