"""A line of a given speed in front of a registry on this machine: what a node sees of a registry elsewhere."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from registries import Registry

STEP = 1 << 18  # bytes that a line passes at a time


class Line:
    """A line of `rate` bytes per second, which all connections share."""

    def __init__(self, rate: float) -> None:
        self.rate, self.guard, self.free = rate, threading.Lock(), 0.0

    def wait(self, size: int) -> None:
        """Wait until `size` bytes have passed the line."""
        with self.guard:
            self.free = end = max(self.free, time.monotonic()) + size / self.rate
        time.sleep(max(0.0, end - time.monotonic()))


@contextmanager
def limited(there: Registry, rate: float) -> Iterator[Registry]:
    """Serve what a registry has over a line of `rate` bytes per second: blobs straight from its files."""
    line = Line(rate)

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None: ...

        def do_GET(self) -> None:
            digest = re.fullmatch(r"/v2/.*/blobs/sha256:([0-9a-f]{64})", self.path)
            if digest:
                self.blob(there.place / "data/docker/registry/v2/blobs/sha256" / digest[1][:2] / digest[1] / "data")
                return
            connection = HTTPConnection(there.host)
            connection.request(self.command, self.path, headers={"Accept": self.headers.get("Accept", "*/*")})
            answer = connection.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Type", "Docker-Content-Digest"):
                self.send_header(name, answer.headers.get(name, ""))
            self.send_header("Content-Length", answer.headers.get("Content-Length", str(len(content))))
            self.end_headers()
            self.wfile.write(content)

        do_HEAD = do_GET

        def blob(self, path: Path) -> None:
            with path.open("rb") as file:
                size, at = path.stat().st_size, 0
                self.send_response(200)
                self.send_header("Content-Length", str(size))
                self.end_headers()
                self.wfile.flush()
                while at < size:
                    line.wait(min(STEP, size - at))
                    end = min(at + STEP, size)
                    while at < end:
                        at += os.sendfile(self.connection.fileno(), file.fileno(), at, end - at)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Registry(f"127.0.0.1:{server.server_address[1]}", there.place)
    finally:
        server.shutdown()
        server.server_close()
