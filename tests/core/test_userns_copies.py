"""Input that is copied before it is taken: what the program does with its pipe makes no process busy."""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Iterator

import pytest

from envbuild.core.userns import copies
from envbuild.core.userns.copies import PeekedInput

pytestmark = pytest.mark.unit


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """Yield (end for writing of the caller's pipe, for reading; of the program's, for writing, for reading)."""
    source, feed = os.pipe()
    unread, target = os.pipe()
    yield feed, source, target, unread
    for descriptor in (feed, source, target, unread):
        os.close(descriptor)


def is_ready(waits: tuple[int, int]) -> bool:
    poll = select.poll()
    poll.register(*waits)
    return bool(poll.poll(0))


def test_a_pipe_that_the_program_made_larger_gets_its_size_back(pipes: tuple[int, int, int, int]) -> None:
    feed, source, target, unread = pipes
    moved = PeekedInput(source, target)
    os.write(feed, b"some")
    assert is_ready(moved.waits_for()) and moved.move() and moved.peeked == 4
    assert not is_ready(moved.waits_for())
    fcntl.fcntl(unread, fcntl.F_SETPIPE_SZ, 1 << 16)
    assert is_ready(moved.waits_for()) and moved.move()
    assert not is_ready(moved.waits_for())
    assert os.read(unread, 4) == b"some" and is_ready(moved.waits_for()) and moved.move()
    assert moved.peeked == 0 and not select.select([source], [], [], 0)[0]


def test_a_pipe_that_the_program_filled_is_polled_with_pauses(
    pipes: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, source, target, unread = pipes
    pauses: list[float] = []
    monkeypatch.setattr(copies.time, "sleep", pauses.append)
    moved = PeekedInput(source, target)
    os.write(feed, b"some")
    assert moved.move()
    fcntl.fcntl(unread, fcntl.F_SETPIPE_SZ, 1 << 16)
    os.write(target, bytes(1 << 14))  # by the program, through /proc/self/fd/0
    assert is_ready(moved.waits_for()) and moved.move() and pauses == [copies.PAUSE]
