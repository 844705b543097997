"""Fixtures of several programs that read squashfs files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dockerd import dockerd

__all__ = ["dockerd", "loop"]


@pytest.fixture(scope="module")
def loop() -> None:
    """Loop devices: the kernel's own reader mounts through them."""
    if not Path("/dev/loop-control").exists():
        pytest.skip("/dev/loop-control is not there: the kernel cannot mount a file")
