"""Helpers of the collectors' tests: a server of parts of files, with faults on request; wheels with members;
a folder that is an index of them."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.core.console import SilentReporter
from envbuild.matrix.collect.fact_writer import Context
from envbuild.matrix.collect.remote_wheel import Wheels
from envbuild.net.host_config import PythonIndexes
from envbuild.net.python_index import IndexFile, PackageIndex
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.http_server import Handler, serving
from tests.support.lock_server import simple_index


@dataclass
class Parts:
    """Content by path. `ways`: what the next requests get instead of a proper answer (the last one repeats): a status
    (503), ``whole`` (200 with everything), ``no-suffix`` (416 for ranges from the end), ``short``, ``long``, ``other``
    (the wrong part), ``grow`` (another size)."""

    files: dict[str, bytes] = field(default_factory=dict)
    ways: list[int | str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # Range headers
    url: str = ""


@contextmanager
def serve_parts() -> Iterator[Parts]:
    """Yield a server on the loopback interface that knows ``bytes=A-B`` and ``bytes=-N``."""
    parts = Parts()

    class Answering(Handler):
        def answer(
            self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, cut: int = 0
        ) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if cut:
                self.close_connection = True
            self.wfile.write(body[: len(body) - cut])

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            parts.asked.append(wanted)
            way = parts.ways.pop(0) if len(parts.ways) > 1 else (parts.ways or [""])[0]
            content = parts.files.get(self.path)
            found = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
            if isinstance(way, int) or content is None:
                return self.answer(way if isinstance(way, int) else 404)
            if way == "whole" or not found:
                return self.answer(200, content)
            if not found[1]:
                if way == "no-suffix":
                    return self.answer(416)
                begin, end = max(len(content) - int(found[2]), 0), len(content)
            else:
                begin, end = int(found[1]), min(int(found[2] or len(content)) + 1, len(content))
            if way == "other":
                begin, end = max(begin - 1, 0), end - 1
            size = len(content) + (len(parts.asked) if way == "grow" else 0)
            body = content[begin:end] + (b"more" if way == "long" else b"")
            span = {"Content-Range": f"bytes {begin}-{begin + len(body) - 1}/{size}"}
            return self.answer(206, body, span, cut=1 if way == "short" else 0)

    with serving(Answering) as parts.url:
        yield parts


def wheels() -> Wheels:
    return Wheels(Transport(bare_site().network()))


def bare_site() -> Site:
    """Return a site that takes nothing from the host."""
    return Site(Path("/none"), mirrors={"python:": ()}, use_host=False)


def listed(path: Path | str) -> IndexFile:
    """Return a file as an index lists it."""
    return IndexFile(str(path).rpartition("/")[2], str(path))


def make_wheel(
    folder: Path,
    name: str,
    *,
    requires: tuple[str, ...] = (),
    requires_python: str = "",
    members: Mapping[str, bytes] | None = None,
) -> Path:
    """Return a wheel of that file name with METADATA and `members`."""
    project, version = name.split("-")[:2]
    text = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    text += f"Requires-Python: {requires_python}\n" if requires_python else ""
    text += "".join(f"Requires-Dist: {line}\n" for line in requires)
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in (members or {}).items():
            archive.writestr(zipfile.ZipInfo(member), content, zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo(f"{project}-{version}.dist-info/METADATA"), text)
    return path


def index_site(folder: Path, files: list[Path]) -> Site:
    """Return a site whose only package index is a folder with `files`."""
    return Site(Path("/none"), mirrors={"python:": (simple_index(folder, files),)}, use_host=False)


def context(site: Site) -> Context:
    transport = Transport(site.network())
    return Context(PackageIndex(transport, site.python()), Wheels(transport), SilentReporter(), run_script)


# Collectors call this from threads: a program is not executed ("Text file busy") while a process that another thread
# starts has the file open that was being written.
ONE = threading.Lock()


def run_script(program: bytes, words: Sequence[str]) -> tuple[int, str]:
    """Run a program that a test wrote, as it is."""
    with ONE, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program"
        path.write_bytes(program)
        path.chmod(0o755)
        try:
            done = subprocess.run([path, *words], capture_output=True, text=True, check=False, env={})
        except OSError as error:
            return 126, str(error)
    return done.returncode, done.stdout


def empty_index() -> PackageIndex:
    return PackageIndex(Transport(bare_site().network()), PythonIndexes())
