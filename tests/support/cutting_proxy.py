"""A registry's doorkeeper that breaks connections off: it hands everything on, but of some blobs only a part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection

from tests.support.http_server import Handler, serving

PASSED = ("accept", "range", "if-range", "authorization")


@dataclass
class Cutter:
    """`cuts`: for each of the next answers with a large blob, after how many bytes of it the connection breaks.
    `ranges`: whether range requests are understood. `wrong`: blobs come with their first byte changed. `busy`: the next
    statuses of answers with blobs, 0 for none; `elsewhere`: the address of a server that blobs are redirected to;
    `pause`: seconds before each.

    `asked`: (path, Range header) of every blob, `conditions`: their If-Range headers, `logins`: whether they had a
    login, `most`: how many were requested at the same time."""

    host: str
    url: str = ""
    cuts: list[int] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    ranges: bool = True
    wrong: bool = False
    least: int = 4096
    conditions: list[str] = field(default_factory=list)
    logins: list[bool] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    elsewhere: str = ""
    now: int = 0
    most: list[int] = field(default_factory=list)
    pause: float = 0


@contextmanager
def cutting(host: str) -> Iterator[Cutter]:
    """Yield a Cutter before the registry `host` (with its port)."""
    cutter = Cutter(host)

    class Answering(Handler):
        def do_GET(self) -> None:
            headers = {name: value for name, value in self.headers.items() if name.lower() in PASSED}
            blob = "/blobs/" in self.path
            if blob:
                cutter.asked.append((self.path, self.headers.get("Range", "")))
                cutter.conditions.append(self.headers.get("If-Range", ""))
                cutter.logins.append("Authorization" in self.headers)
                if cutter.busy and (status := cutter.busy.pop(0)):
                    return self.short(status, "Retry-After", "0")
                if cutter.elsewhere:
                    return self.short(307, "Location", cutter.elsewhere + self.path)
                cutter.now += 1
                cutter.most.append(cutter.now)
                time.sleep(cutter.pause)
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
            cutter.now -= blob
            self.wfile.write(body)
            return None

        def short(self, status: int, name: str, value: str) -> None:
            self.send_response(status)
            self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with serving(Answering) as cutter.url:
        yield cutter
