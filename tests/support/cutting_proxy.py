"""A registry's doorkeeper that breaks connections off: it hands everything on, but of some blobs only a part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection

from tests.support.http_server import Handler, serving


@dataclass
class Cutter:
    """`cuts`: for each of the next answers with a large blob, after how many bytes of it the connection breaks.
    `asked`: (path, Range header) of every blob. `ranges`: whether range requests are understood. `wrong`: blobs come
    with their first byte changed."""

    host: str
    url: str = ""
    cuts: list[int] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    ranges: bool = True
    wrong: bool = False
    least: int = 4096


@contextmanager
def cutting(host: str) -> Iterator[Cutter]:
    """Yield a Cutter before the registry `host` (with its port)."""
    cutter = Cutter(host)

    class Answering(Handler):
        def do_GET(self) -> None:
            headers = {name: value for name, value in self.headers.items() if name.lower() in ("accept", "range")}
            blob = "/blobs/" in self.path
            if blob:
                cutter.asked.append((self.path, self.headers.get("Range", "")))
            if not cutter.ranges:
                headers.pop("Range", None)
            there = HTTPConnection(cutter.host)
            there.request("GET", self.path, headers=headers)
            answer = there.getresponse()
            body = answer.read()
            there.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.end_headers()
            if blob and cutter.wrong and len(body) >= cutter.least:
                body = bytes([body[0] ^ 1]) + body[1:]
            if blob and cutter.cuts and len(body) >= cutter.least:
                body = body[: cutter.cuts.pop(0)]
                self.close_connection = True
            self.wfile.write(body)

    with serving(Answering) as cutter.url:
        yield cutter
