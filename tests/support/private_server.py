"""A server with a login for everything that an image may require: a package archive, a package index, repositories."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from urllib.parse import quote, unquote, urlsplit

from tests.support.git_server import git_backend
from tests.support.http_server import Handler, serving


@dataclass
class PrivateServer:
    """A folder, for one user. `refusal`: the answer for paths that begin with one of `refused` (a
    status, or the address of another server to redirect to); `logins`: the Authorization header of each request, by its
    path. `proxy`: it is the proxy for servers that have the same and need no login."""

    user: str = ""
    password: str = ""
    refused: tuple[str, ...] = ()
    proxy: bool = False
    refusal: int | str = 0
    logins: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    @property
    def authorization(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def address(self, path: str, password: str = "") -> str:
        """Return an address with the login, as a site file has it; `password`: another one."""
        login = f"{quote(self.user, safe='')}:{quote(password or self.password, safe='')}"
        return f"{self.url.replace('://', f'://{login}@')}/{path}"


@contextmanager
def serve_private(
    root: Path, user: str = "", password: str = "", tls: SSLContext | None = None
) -> Iterator[PrivateServer]:
    """Yield a server on the loopback interface; without a user it answers everybody. Repositories are below ``git``."""
    state = PrivateServer(user, password)

    class Answering(Handler):
        protocol_version = "HTTP/1.0"  # what a refused request sends is not read

        def do_GET(self) -> None:
            if state.proxy:
                self.path = "/" + self.path.partition("://")[2].partition("/")[2]
            login = self.headers.get("Proxy-Authorization" if state.proxy else "Authorization", "")
            state.logins.append((self.path, login))
            if self.path.startswith(state.refused):
                away = isinstance(state.refusal, str)
                self.answer(302 if away else state.refusal, {"Location": f"{state.refusal}{self.path}"} if away else {})
            elif state.user and login != state.authorization:
                kind = "Proxy" if state.proxy else "WWW"
                self.answer(407 if state.proxy else 401, {f"{kind}-Authenticate": 'Basic realm="test"'})
            elif self.path.startswith("/git/"):
                self.answer(*git_backend(root, self, self.headers.get("Git-Protocol", "")))
            else:
                self.give(root / unquote(urlsplit(self.path).path).lstrip("/"))

        do_HEAD = do_POST = do_GET

        def give(self, path: Path) -> None:
            path = path / "index.html" if path.is_dir() else path
            if path.is_file():
                self.answer(200, {"Content-Type": "text/html"} if path.suffix == ".html" else {}, path.read_bytes())
            else:
                self.answer(404, {})

        def answer(self, status: int | str, headers: dict[str, str], content: bytes = b"") -> None:
            self.send_response(int(status))
            for name, value in (*headers.items(), ("Content-Length", str(len(content)))):
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    with serving(Answering, tls) as state.url:
        yield state
