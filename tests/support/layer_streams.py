"""A layer of some MiB, and a sink that counts what it receives."""

from __future__ import annotations

import os

from envbuild.oci.tar.member import Member
from tests.support import tars as kit

MIB = 1 << 20


def big() -> bytes:
    """Return a tar of more than one and a half MiB, half of it random."""
    files = [kit.file(b"f%d" % number, os.urandom(number * 4500) + bytes(number * 4500)) for number in range(1, 20)]
    return b"".join(files) + kit.END


TAR = big()


WRONG = "sha256:" + "0" * 64


class Count:
    """A sink that only counts."""

    def __init__(self) -> None:
        self.size = 0

    def begin(self, member: Member) -> None: ...

    def data(self, chunk: bytes) -> None:
        self.size += len(chunk)
        assert len(chunk) <= MIB

    def zeros(self, count: int) -> None:
        self.size += count

    def end(self) -> None: ...

    def close(self) -> None: ...
