"""A ~/.netrc for tests, as requests, git and uv read it."""

from __future__ import annotations

from pathlib import Path

import pytest

LOGIN = ("alice", "secret-of-another-host")


def write_netrc(folder: Path, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Make `folder` the home of a user whose ~/.netrc has `LOGIN` for each host (none: localhost)."""
    folder.mkdir(exist_ok=True)
    lines = [f"machine {host} login {LOGIN[0]} password {LOGIN[1]}\n" for host in hosts or ("localhost",)]
    (folder / ".netrc").write_text("".join(lines))
    (folder / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("NETRC", raising=False)
