"""Helpers of the tests of locking and fetching: a server that misbehaves on order; small wheels, sdists, indexes."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.http_server import Handler, serving


@dataclass
class Answers:
    """Content by path, and how to answer badly: `faults` holds for each path what the next requests get.

    A fault is a status (503), ``cut:N`` (ends after N bytes), ``no-range`` (all, for any range), ``bytes:…``.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[int | str]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # path, Range header
    url: str = ""


@contextmanager
def serve() -> Iterator[Answers]:
    """Yield a server on the loopback interface."""
    answers = Answers()

    class Answering(Handler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            asked = self.headers.get("Range", "")
            answers.asked.append((self.path, asked))
            faults = answers.faults.get(self.path, [])
            fault = faults.pop(0) if faults else ""
            content = answers.files.get(self.path)
            if isinstance(fault, int) or content is None:
                self.send_response(fault if isinstance(fault, int) else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if fault.startswith("bytes:"):
                content = fault.removeprefix("bytes:").encode()
            start = 0
            if asked and fault != "no-range":
                start = int(asked.removeprefix("bytes=").rstrip("-"))
                if start >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            body = content[start:]
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", answers.kinds.get(self.path, "text/html"))
            self.end_headers()
            if self.command == "HEAD":
                return
            if fault.startswith("cut:"):
                body = body[: int(fault.removeprefix("cut:"))]
                self.close_connection = True
            self.wfile.write(body)

    with serving(Answering) as answers.url:
        yield answers


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel(folder: Path, name: str, version: str, tag: str = "py3-none-any", requires: tuple[str, ...] = ()) -> Path:
    """Return a wheel that installs nothing but its metadata."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    path = folder / f"{name}-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in (
            (f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"),
            (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"),
            (f"{info}/RECORD", ""),
        ):
            archive.writestr(zipfile.ZipInfo(member), text)
    return path


def sdist(folder: Path, name: str, version: str) -> Path:
    """Return an sdist with its metadata only."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        member = tarfile.TarInfo(f"{name}-{version}/PKG-INFO")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return path


def simple_index(folder: Path, files: list[Path]) -> str:
    """Write a simple index of `files` to `folder`; return its ``file://`` address."""
    pages: dict[str, list[str]] = {}
    for file in files:
        link = f'<a href="{file.as_uri()}#sha256={sha256(file.read_bytes())}">{file.name}</a>'
        pages.setdefault(file.name.split("-")[0].replace("_", "-"), []).append(link)
    for project, links in pages.items():
        (folder / project).mkdir(parents=True, exist_ok=True)
        (folder / project / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
    return folder.as_uri()
