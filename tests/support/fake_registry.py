"""A registry or a token service on the loopback interface that records what it is sent, for tests of logins."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.lock.base_image.lock_base import lock_base
from envbuild.net.download import Transfer
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.http_server import Handler, serving


class Fake:
    """A server that answers by path: (status, headers, body). `seen`: path and Authorization of every request."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, str]] = []
        self.wants = ""
        self.challenge = 'Basic realm="x"'

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        fake = self

        class Answering(Handler):
            def do_GET(self) -> None:
                login = self.headers.get("Authorization", "")
                fake.seen.append((self.path, login))
                status, headers, body = fake.answers.get(self.path, (404, {}, b""))
                if fake.wants and login != fake.wants:
                    status, headers, body = 401, {"WWW-Authenticate": fake.challenge}, b""
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                self.do_GET()

            do_HEAD, do_PUT, do_PATCH, do_DELETE = do_GET, do_POST, do_POST, do_GET

        with serving(Answering) as url:
            yield url.removeprefix("http://")


def lock(site: Site, reference: str) -> None:
    """Lock a base image, as `envbuild lock` does."""
    store = Store.open(site.store)
    transport = Transport(site.network())
    transfer = Transfer(transport, store, pause=0.01)
    lock_base(
        reference, "amd64", site, transport, transfer, store, SilentReporter(),
        previous=None, distribution="debian:13", python="3.13",
    )  # fmt: skip
