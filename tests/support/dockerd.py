"""A Docker Engine for tests, and its client programs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.tools import require_tools


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a Docker Engine of its own: own socket, own data, own network and mount namespaces."""
    require_tools("dockerd", "docker", "unshare")
    if os.geteuid() != 0:
        pytest.skip("dockerd needs root")
    folder = tmp_path_factory.mktemp("docker")
    host = f"unix://{folder}/docker.sock"
    reasons = []
    for driver in ("overlay2", "vfs"):
        log = folder / f"{driver}.log"
        command = ["unshare", "--net", "--mount", "dockerd", "--host", host, "--data-root", f"{folder}/{driver}"]
        command += ["--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid", "--storage-driver", driver]
        command += ["--iptables=false", "--bridge=none"]
        with log.open("wb") as file:
            daemon = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        try:
            if answers(host, daemon):
                yield host
                return
        finally:
            daemon.terminate()
            daemon.wait(60)
        reasons.append(f"{driver}: {log.read_text(errors='replace').strip().splitlines()[-1:]}")
    pytest.skip(f"dockerd does not start here: {'; '.join(reasons)}")


def answers(host: str, daemon: subprocess.Popen[bytes]) -> bool:
    end = time.monotonic() + 120
    while time.monotonic() < end and daemon.poll() is None:
        if subprocess.run(["docker", "-H", host, "info"], capture_output=True, check=False).returncode == 0:
            return True
        time.sleep(0.2)
    return False
