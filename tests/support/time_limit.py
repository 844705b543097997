"""A limit for code that would wait for ever if it failed: the test fails instead of the whole run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def ends_within(seconds: int) -> Iterator[None]:
    """Fail if the block takes longer. The limit is for hangs, so it is generous; main thread only."""

    def stop(*_: object) -> None:
        pytest.fail(f"it did not end within {seconds} s")  # no Exception, which the code under test could catch

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
