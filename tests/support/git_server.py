"""Helpers of the tests of commits: real repositories, and a server of them that can be an old or a static one."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.http_server import Handler, serving

QUIET = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_COMMITTER_DATE": "1700000000 +0000",
}  # fmt: skip


def git(folder: Path, *arguments: str | bytes, content: bytes = b"") -> str:
    """Run a git command in `folder`; return its output."""
    command = ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *arguments]
    return subprocess.run(command, input=content, env=QUIET, check=True, capture_output=True).stdout.decode().strip()


@dataclass
class Repo:
    """A repository with a working tree."""

    path: Path

    @classmethod
    def make(cls, path: Path, files: dict[str, bytes] | None = None) -> Repo:
        path.mkdir(parents=True)
        git(path, "init", "--quiet", "--initial-branch=main", "--template=")
        repo = cls(path)
        if files:
            repo.commit(files)
        return repo

    def commit(self, files: dict[str, bytes], message: str = "x") -> str:
        for name, content in files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_bytes(content)
        git(self.path, "add", "--all", "--force")
        git(self.path, "commit", "--quiet", "--allow-empty", "--message", message)
        return self.head

    @property
    def head(self) -> str:
        return git(self.path, "rev-parse", "HEAD")

    def link(self, path: str, address: str, commit: str) -> str:
        """Commit a submodule without fetching it."""
        for key, value in (("path", path), ("url", address)):
            git(self.path, "config", "--file", ".gitmodules", f"submodule.{path}.{key}", value)
        git(self.path, "add", ".gitmodules")
        git(self.path, "update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
        git(self.path, "commit", "--quiet", "--message", "submodule")
        return self.head

    def bare(self, path: Path) -> Path:
        """Return a bare mirror of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        git(self.path, "clone", "--quiet", "--mirror", f"file://{self.path}", str(path))
        return path

    def object(self, kind: str, content: bytes) -> str:
        """Write an object that git itself would refuse to make."""
        return git(self.path, "hash-object", "-w", "-t", kind, "--literally", "--stdin", content=content)

    def hostile(self, *entries: tuple[bytes, bytes, str]) -> str:
        """Return a commit whose tree holds just these entries: (mode, name, hash), as they are."""
        tree = self.object("tree", b"".join(b"%b %b\0" % entry[:2] + bytes.fromhex(entry[2]) for entry in entries))
        who = "A <a@example.org> 1700000000 +0000"
        return self.object("commit", f"tree {tree}\nauthor {who}\ncommitter {who}\n\nx\n".encode())


@dataclass
class Served:
    """A server: `old` answers protocol version 0 only, `plain` serves static files; `password`: USER:PASSWORD.
    `redirect`: path and User-Agent of a request → where it continues (empty: here). `logins`: the Authorization header
    of each request."""

    url: str = ""
    old: bool = False
    plain: bool = False
    password: str = ""
    redirect: Callable[[str, str], str] = lambda path, agent: ""
    asked: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)


def certify(folder: Path) -> tuple[Path, Path]:
    """Return a key and a certificate for the loopback interface, which no client trusts."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


def git_backend(root: Path, request: Handler, version: str) -> tuple[int, dict[str, str], bytes]:
    """Return git's own answer to a request for a repository below `root`: status, headers, content. `version`: the
    protocol that the server admits to know."""
    parts = urlsplit(request.path)
    variables = {
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": parts.path,
        "QUERY_STRING": parts.query,
        "REQUEST_METHOD": request.command,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": version,
    }
    body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    done = subprocess.run(
        ["git", "http-backend"], input=body, env={**QUIET, **variables}, capture_output=True, check=False
    )
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
    return int(headers.pop("Status", "200").split()[0]), headers, content


@contextmanager
def serve_git(root: Path, key: Path | None = None, certificate: Path | None = None) -> Iterator[Served]:
    """Serve the repositories below `root` on the loopback interface by ``git http-backend``; over TLS with a key."""
    served = Served()

    class Answering(Handler):
        protocol_version = "HTTP/1.0"  # what a refused request sends is not read

        def do_GET(self) -> None:
            served.asked.append(f"{self.command} {self.path}")
            served.logins.append(self.headers.get("Authorization", ""))
            if place := served.redirect(self.path, self.headers.get("User-Agent", "")):
                self.answer(302, {"Location": place}, b"")
                return
            wanted = "Basic " + base64.b64encode(served.password.encode()).decode()
            if served.password and self.headers.get("Authorization") != wanted:
                self.answer(401, {"WWW-Authenticate": 'Basic realm="x"'}, b"")
                return
            parts = urlsplit(self.path)
            if served.plain:
                file = root / parts.path.lstrip("/")
                self.answer(200 if file.is_file() else 404, {}, file.read_bytes() if file.is_file() else b"")
                return
            status, headers, content = git_backend(
                root, self, "" if served.old else self.headers.get("Git-Protocol", "")
            )
            self.answer(status, headers, content)

        do_POST = do_GET

        def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for name, value in (*headers.items(), ("Content-Length", str(len(content)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    tls = None
    if key:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(str(certificate), str(key))
    with serving(Answering, tls) as served.url:
        yield served
