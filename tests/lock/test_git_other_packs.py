"""A git server that sends whole packs without what was requested: git has stored them before it finds that."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.spec.recipe import Git
from tests.support.git_site import MARKS, ORIGIN, Desk
from tests.support.http_server import Handler, serving

pytestmark = MARKS

COMMIT = "1" * 40
SIZE = 100_000
FLUSH, DELIMITER = b"0000", b"0001"  # gitprotocol-v2(5)


def packets(*lines: bytes) -> bytes:
    return b"".join(b"%04x%b" % (len(line) + 4, line) for line in lines)


def pack_of(blob: bytes) -> bytes:
    """Return a pack with one blob (gitformat-pack(5))."""
    rest, head = len(blob) >> 4, [3 << 4 | len(blob) & 15]
    while rest:
        head[-1] |= 128
        head.append(rest & 127)
        rest >>= 7
    content = b"PACK" + struct.pack(">II", 2, 1) + bytes(head) + zlib.compress(blob)
    return content + hashlib.sha1(content).digest()


class LyingGit(Handler):
    """Protocol version 2 over HTTP (gitprotocol-http(5))."""

    def do_GET(self) -> None:
        abilities = packets(b"version 2\n", b"ls-refs=unborn\n", b"fetch=shallow\n", b"object-format=sha1\n")
        service = packets(b"# service=git-upload-pack\n") + FLUSH
        self.answer(service + abilities + FLUSH, "application/x-git-upload-pack-advertisement")

    def do_POST(self) -> None:
        request = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            request = zlib.decompress(request, 31)
        if b"command=ls-refs" in request:
            answer = packets(f"{COMMIT} refs/tags/v1\n".encode()) + FLUSH
        else:
            pack = pack_of(os.urandom(SIZE))
            answer = packets(b"shallow-info\n", f"shallow {COMMIT}\n".encode()) + DELIMITER + packets(b"packfile\n")
            answer += packets(*(b"\x01" + pack[at : at + 60_000] for at in range(0, len(pack), 60_000))) + FLUSH
        self.answer(answer, "application/x-git-upload-pack-result")

    def answer(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def test_what_it_sends_does_not_remain(tmp_path: Path) -> None:
    with serving(LyingGit) as url:
        desk = Desk(tmp_path / "s", github=url)
        for _ in range(3):
            with pytest.raises(InputError, match="not available"):
                desk.lock(Git("demo", ORIGIN, COMMIT))
    (cache,) = (tmp_path / "s/git").iterdir()
    assert sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) < SIZE
