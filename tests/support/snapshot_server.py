"""A snapshot service as Debian's: imports of an archive at times, a redirect from any time to the import before it, and
no patience with several connections."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.http_server import Handler, serving


@dataclass
class Snapshots:
    """`imports`: time → path → content. `busy`: the statuses of the next answers (429 with Retry-After: 0; 0: the
    connection is cut). `requested`: the paths; `most`: the largest number of requests at a time."""

    imports: dict[str, dict[str, bytes]] = field(default_factory=dict)
    busy: list[int] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)
    most: int = 0
    now: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def enter(self, change: int) -> None:
        with self.guard:
            self.now += change
            self.most = max(self.most, self.now)


@contextmanager
def snapshot_service() -> Iterator[Snapshots]:
    """Yield a service below ``/archive/debian/TIME/``."""
    service = Snapshots()

    class Answering(Handler):
        def do_GET(self) -> None:
            service.enter(1)
            try:
                service.requested.append(self.path)
                threading.Event().wait(0.02)  # long enough that a second connection would be counted
                self.answer()
            finally:
                service.enter(-1)

        def answer(self) -> None:
            if service.busy:
                status = service.busy.pop(0)
                if not status:
                    self.close_connection = True
                    self.connection.close()
                    return
                self.empty(status, {"Retry-After": "0"})
                return
            time, _, path = self.path.removeprefix("/archive/debian/").partition("/")
            before = max((moment for moment in service.imports if moment <= time), default="")
            if before and before != time:
                self.empty(302, {"Location": f"/archive/debian/{before}/{path}"})
            elif content := service.imports.get(before, {}).get(path):
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            else:
                self.empty(404, {})

        def empty(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

    with serving(Answering) as service.url:
        yield service
