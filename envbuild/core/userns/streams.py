"""The standard streams of a program that the caller does not trust: pipes, and a terminal of its own.

A descriptor is a way to its file: a process that has it can change the file's mode and owner, and open it again for
writing through /proc/self/fd. So files, devices and terminals of the caller remain with the caller, which copies their
input and output. Pipes and sockets without a name are passed on: they lead to nothing but their other end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import struct
import subprocess
import termios
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.terminal import RawTerminal, following_size, has_program, open_terminal

CHUNK = 1 << 16  # bytes
STARTING = 50  # milliseconds until the program is checked again


@dataclass
class Copy:
    """Bytes on their way from one descriptor to another. `data`: read, and not yet written."""

    source: int
    target: int
    data: bytes = b""

    def move(self) -> bool:
        """Read, or write what was read, without a wait. Return False at the end of the source."""
        file = self.target if self.data else self.source
        mode = os.fstat(file).st_mode
        try:
            if not self.data:
                self.data = os.read(file, CHUNK)
                return bool(self.data)
            # A pipe that is ready takes PIPE_BUF bytes; more could wait, and the other streams with it. The program's
            # terminal may take one byte only: it is not blocking.
            self.data = self.data[os.write(file, self.data[: CHUNK if stat.S_ISREG(mode) else select.PIPE_BUF]) :]
            return True
        except BlockingIOError:
            return True
        except OSError as error:
            # A terminal whose other end no process has open any more; a folder as input.
            if (error.errno == errno.EIO and stat.S_ISCHR(mode)) or error.errno == errno.EISDIR:
                return False
            raise


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
        self._input: Copy | None = None
        self._outputs: list[Copy] = []
        self.child: list[int] = []
        terminals = [number for number in range(3) if os.isatty(number)]
        slave = self._open_terminal(terminals) if terminals else -1
        for number in range(3):
            earlier = [other for other in range(1, number) if is_same_file(number, other)]
            if number in terminals:
                self.child.append(slave)
            elif is_nameless(number):
                self.child.append(number)
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
        self._unread, self._input = read, Copy(0, write)
        return read

    def relay(self, process: subprocess.Popen[bytes]) -> None:
        """Copy until the process that was started with `child`, and all that have its streams, have ended.

        Input of a file that no process has read remains for the next reader. Raises OSError for an output that cannot
        be written.
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
            descriptor, event = (copy.target, select.POLLOUT) if copy.data else (copy.source, select.POLLIN)
            wanted[descriptor] = wanted.get(descriptor, 0) | event
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        ready = dict(poll.poll(timeout))
        for copy in copies:
            event = select.POLLOUT if copy.data else select.POLLIN
            came = ready.get(copy.target if copy.data else copy.source, 0)
            if came & (event | select.POLLERR | select.POLLHUP | select.POLLNVAL) and not copy.move():
                self._end(copy)

    def _end(self, copy: Copy) -> None:
        if copy is not self._input:
            self._outputs.remove(copy)
            return
        self._input = None
        if copy.target != self._terminal:
            self._ours.remove(copy.target)
            os.close(copy.target)  # the program reads its end

    def _give_back(self) -> None:
        """Set the input file back by what was read of it and not taken by the program."""
        if self._unread >= 0:
            unread = struct.unpack("i", fcntl.ioctl(self._unread, termios.FIONREAD, bytes(4)))[0]
            with contextlib.suppress(OSError):  # no regular file
                os.lseek(0, -unread - len(self._input.data if self._input else b""), os.SEEK_CUR)


def is_nameless(descriptor: int) -> bool:
    """Return whether a descriptor is a pipe or a socket without a name in any file system."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(("pipe:[", "socket:["))
    except OSError:
        return False


def is_same_file(first: int, second: int) -> bool:
    """Return whether two descriptors are open files of one name."""
    try:
        return os.path.sameopenfile(first, second)
    except OSError:
        return False
