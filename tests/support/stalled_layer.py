"""An image whose second layer does not come: a registry that stops in the middle of it, or a pipe without a writer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support import foreign_images
from tests.support.local_registry import MANIFEST, Layout
from tests.support.signals import reset_signals

ROOT = Path(__file__).parents[2]
LARGE = 1_000_000  # bytes of a blob that stalls
PATIENCE = 60.0  # seconds that a test waits


@dataclass
class Registry:
    """`stall`: after how many bytes of a large blob the server sends nothing more (-1: before its answer); `reached`:
    a client waits there; `go`: the server continues."""

    layout: Layout
    url: str = ""
    stall: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    @property
    def source(self) -> str:
        return f"docker://{self.url.removeprefix('http://')}/some/app:1"


@contextmanager
def stalling(place: Path, stall: int) -> Iterator[Registry]:
    """Yield a registry on a loopback port with an image of three layers, of which the second is large."""
    layout = Layout(place)
    layout.add(foreign_images.image(layout, foreign_images.layers()), "1")
    registry = Registry(layout, stall=stall)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def wait(self) -> None:
            registry.reached.set()
            registry.go.wait()  # `stalling` ends it

        def do_GET(self) -> None:
            index = json.loads((layout.path / "index.json").read_bytes())["manifests"][0]
            kind, _, wanted = self.path.removeprefix("/v2/some/app/").partition("/")
            digest = index["digest"] if wanted == "1" else wanted
            path = layout.path / "blobs/sha256" / digest.removeprefix("sha256:")
            if kind not in ("manifests", "blobs") or not path.is_file():
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = path.read_bytes()
            large = len(body) >= LARGE
            if large and registry.stall < 0:
                self.wait()
            try:
                self.send_response(200)
                self.send_header("Content-Type", MANIFEST if kind == "manifests" else "application/octet-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                first = registry.stall if large and registry.stall > 0 else len(body)
                self.wfile.write(body[:first])
                self.wfile.flush()
                if large and registry.stall > 0:
                    self.wait()
                self.wfile.write(body[first:])
            except OSError:  # the client reads no more
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        registry.go.set()
        server.shutdown()
        server.server_close()
        thread.join()


def start(*words: str, store: Path, **changes: Any) -> subprocess.Popen[str]:
    """Start the command as a process of its own; Ctrl-C in the test run does not reach it."""
    environment = {**os.environ, "ENVBUILD_STORE": str(store), "NO_COLOR": "1", "COLUMNS": "200"}
    environment |= {"DOCKER_CONFIG": str(store / "no-logins"), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "envbuild", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        **{"preexec_fn": reset_signals, **changes},
    )


def until(what: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.02)


def listed(store: Path) -> list[dict[str, Any]]:
    """Return the exports that `export --list` prints of a store."""
    process = start("export", "--list", "--json", store=store)
    output, wrong = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, wrong
    found: list[dict[str, Any]] = json.loads(output)["exports"]
    return found
