"""A proxy in front of a registry that fails pushes: sizes that it refuses, connections that it cuts, busy answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection

from tests.support.http_server import Handler, serving


@dataclass
class PushProxy:
    """`most`: bytes of a body that are taken, more is answered with 413. `busy`: the next statuses of PUT, PATCH and
    POST requests, before anything is handed on. `dropped`: so many of the next chunks are handed on, and their answers
    replaced by 502. `patched`: the status of the answers to chunks that succeeded. `asked`: (method, path, bytes) of
    every request."""

    host: str
    url: str = ""
    most: int = 1 << 40
    busy: list[int] = field(default_factory=list)
    dropped: int = 0
    patched: int = 202
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    def sent(self, method: str) -> list[int]:
        """Return the sizes of the bodies of a method, in order, without empty ones."""
        return [size for name, _, size in self.asked if name == method and size]


@contextmanager
def pushing(host: str) -> Iterator[PushProxy]:
    """Yield a PushProxy before the registry `host` (with its port)."""
    proxy = PushProxy(host)

    class Answering(Handler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            proxy.asked.append((self.command, self.path, length))
            writing = self.command in ("PUT", "PATCH", "POST")
            if length > proxy.most:
                return self.empty(413)
            if writing and proxy.busy:
                return self.empty(proxy.busy.pop(0))
            there = HTTPConnection(proxy.host)
            there.request(self.command, self.path, body, dict(self.headers.items()))
            found = there.getresponse()
            content = found.read()
            there.close()
            if self.command == "PATCH" and proxy.dropped:
                proxy.dropped -= 1
                return self.empty(502)
            chunk = self.command == "PATCH" and found.status == 202
            self.send_response(proxy.patched if chunk else found.status)
            for name, value in found.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            length = found.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return None

        def empty(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    with serving(Answering) as proxy.url:
        yield proxy
