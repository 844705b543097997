"""A lock that is killed takes apt with it, and no other command removes what it works with."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import ROOT
from tests.support.processes import descendants, end, with_variable
from tests.support.signals import reset_signals

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
]
IMAGE = """
schema: 1
description: an image whose archive does not answer
target: cpu
base: debian:13
layers:
  debian-packages: [dash]
"""
SITE = """
schema: 1
upstream: false
mirrors: {{"debian:": "http://127.0.0.1:{port}/debian", "debian-security:": "http://127.0.0.1:{port}/security"}}
"""
WAIT = 60.0  # seconds


class Stall:
    """A server that takes connections and never answers."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.reached = threading.Event()
        self.clients: list[socket.socket] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            self.clients.append(client)
            if client.recv(1):
                self.reached.set()

    def close(self) -> None:
        self.server.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def stall() -> Iterator[Stall]:
    server = Stall()
    yield server
    server.close()


@pytest.fixture
def locking(tmp_path: Path, stall: Stall) -> Iterator[subprocess.Popen[str]]:
    """Yield an ``envbuild lock`` in the middle of apt's first download."""
    project = tmp_path / "project"
    (project / "images").mkdir(parents=True)
    (project / "images/mine.yaml").write_text(IMAGE)
    (project / "site.yaml").write_text(SITE.format(port=stall.port))
    process = subprocess.Popen(
        [sys.executable, "-m", "envbuild", "lock", "mine"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ENVBUILD_STORE": str(tmp_path / "store")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=reset_signals,
    )
    while not stall.reached.wait(0.05):
        assert process.poll() is None, process.communicate()
    yield process
    process.kill()
    process.communicate()


def test_apt_ends_with_a_lock_that_is_killed(locking: subprocess.Popen[str], tmp_path: Path) -> None:
    mine = f"ENVBUILD_STORE={tmp_path / 'store'}"
    assert len(descendants(locking.pid)) >= 3, "apt-get and its method"
    locking.kill()
    locking.communicate()
    assert end(lambda: with_variable(mine), 20) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_apt_ends_with_a_lock_that_is_stopped(
    number: signal.Signals, locking: subprocess.Popen[str], tmp_path: Path
) -> None:
    mine = f"ENVBUILD_STORE={tmp_path / 'store'}"
    locking.send_signal(number)
    _, errors = locking.communicate(timeout=WAIT)
    assert locking.returncode == 128 + number and "Traceback" not in errors
    assert end(lambda: with_variable(mine), 20) == []
    assert list((tmp_path / "store/tmp").iterdir()) == []


def test_the_store_of_a_running_lock_is_not_collected(locking: subprocess.Popen[str], tmp_path: Path) -> None:
    (lists,) = (tmp_path / "store/apt").glob("*/state/lists")
    done = subprocess.run(
        [sys.executable, "-m", "envbuild", "store", "gc", "--all"],
        cwd=tmp_path / "project",
        env={**os.environ, "PYTHONPATH": str(ROOT), "ENVBUILD_STORE": str(tmp_path / "store")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert lists.is_dir() and locking.poll() is None
