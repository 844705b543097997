"""Pulls in tests: without pauses between attempts, a further layer, and the digest of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from envbuild.net import download
from tests.support.foreign_images import noise
from tests.support.local_registry import file, tar

MORE = tar(file("opt/more", noise(400_000, 7)))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, _, *others = download.Transfer.__init__.__defaults__ or ()
    monkeypatch.setattr(download.Transfer.__init__, "__defaults__", (progress, 0.1, *others))


def digest(path: str | Path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
