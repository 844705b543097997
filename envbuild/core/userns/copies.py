"""Bytes on their way between a stream of the caller and the program's own: copied, or peeked at and taken afterwards.

What is read from a pipe or socket is lost for its next reader: the shell, for example, that reads its commands from the
pipe which is also the program's input. So the program gets a copy first, and what it has read of that is taken
afterwards."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import stat
import struct
import termios
import time
from dataclasses import dataclass

from envbuild.core.userns.file_calls import tee

CHUNK = 1 << 16  # bytes
PAUSE = 0.05  # seconds
ONE_PAGE = 1  # bytes of a pipe, which the kernel rounds up to a page: it may be written when it is empty, and only then


@dataclass
class Copy:
    """Bytes on their way from one descriptor to another. `data`: read, and not yet written; `moved`: all that were
    written."""

    source: int
    target: int
    data: bytes = b""
    moved: int = 0

    def waits_for(self) -> tuple[int, int]:
        """Return the descriptor and the event of poll(2) that this waits for."""
        return (self.target, select.POLLOUT) if self.data else (self.source, select.POLLIN)

    def move(self) -> bool:
        """Read, or write what was read, without a wait. Return False at the end of the source, or when no process reads
        the target any more."""
        file = self.target if self.data else self.source
        mode = os.fstat(file).st_mode
        try:
            if not self.data:
                self.data = os.read(file, CHUNK)
                return bool(self.data)
            # A pipe that is ready takes PIPE_BUF bytes; more could wait, and the other streams with it. The program's
            # terminal may take one byte only: it is not blocking.
            written = os.write(file, self.data[: CHUNK if stat.S_ISREG(mode) else select.PIPE_BUF])
            self.data, self.moved = self.data[written:], self.moved + written
            return True
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        except OSError as error:
            # A terminal whose other end no process has open any more; a folder as input.
            if (error.errno == errno.EIO and stat.S_ISCHR(mode)) or error.errno == errno.EISDIR:
                return False
            raise

    def finish(self, unread_end: int) -> None:
        """Set an input file back by what was read of it and not taken by the program, which has `unread_end` open;
        never further than this has read, also if the program has written there."""
        unread = min(unread_bytes(unread_end), self.moved) + len(self.data)
        if unread and stat.S_ISREG(os.fstat(self.source).st_mode):
            os.lseek(self.source, -unread, os.SEEK_CUR)


@dataclass
class PeekedInput:
    """Input of a pipe or a socket. `peeked`: bytes that are in the program's pipe, and in the caller's still."""

    source: int
    target: int
    peeked: int = 0
    full: bool = False  # by what the program wrote into its own input

    def __post_init__(self) -> None:
        fcntl.fcntl(self.target, fcntl.F_SETPIPE_SZ, ONE_PAGE)
        os.set_blocking(self.target, False)  # of this end alone

    def waits_for(self) -> tuple[int, int]:
        """Return the descriptor and the event of poll(2) that this waits for."""
        waiting = self.peeked or self.full
        return (self.target, select.POLLOUT) if waiting else (self.source, select.POLLIN)

    def move(self) -> bool:
        """Take what the program has read, or copy more. Return False at the end of the source, or when no process
        reads the target any more."""
        try:
            if self.peeked:
                if not unread_bytes(self.target):
                    self._take(self.peeked)
                else:
                    self._restore_size()
                return True
            if self.full:
                self.full = False
                return True
            self.peeked = self._peek()
            return bool(self.peeked)
        except BlockingIOError:
            self.full = True
            return True
        except BrokenPipeError:
            return False

    def _restore_size(self) -> None:
        """Let the pipe have one page again: the program made it larger, so that it may always be written."""
        try:
            fcntl.fcntl(self.target, fcntl.F_SETPIPE_SZ, ONE_PAGE)
        except OSError:  # it has more in it, which the program wrote
            time.sleep(PAUSE)

    def _peek(self) -> int:
        if stat.S_ISFIFO(os.fstat(self.source).st_mode):
            return tee(self.source, self.target, CHUNK)
        with socket.socket(fileno=os.dup(self.source)) as connection:
            try:
                data = connection.recv(select.PIPE_BUF, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                raise
            except OSError:  # not connected, or reset by the other end
                return 0
        return os.write(self.target, data) if data else 0

    def _take(self, count: int) -> None:
        """Read what was copied, so that the next reader gets what follows."""
        self.peeked = 0
        with contextlib.suppress(BlockingIOError):  # another reader was faster
            while count and (taken := len(os.read(self.source, count))):
                count -= taken

    def finish(self, unread_end: int) -> None:
        """Take what the program has read of the copy."""
        self._take(self.peeked - min(unread_bytes(unread_end), self.peeked))


def unread_bytes(pipe: int) -> int:
    """Return how many bytes are in a pipe (FIONREAD of pipe(7)), by one of its ends."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])
