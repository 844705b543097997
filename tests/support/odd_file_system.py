"""A file system (fuse(4)) of files in one folder, in memory, that root mounts for a test and that has odd answers."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

import pytest

from envbuild.core.userns import libc

SET_MODE, SET_SIZE = 1, 8
HEAD = struct.Struct("=IIQQIIII")  # length, operation, number of the request, node, …
ROOT = 1


class Op(IntEnum):
    """Operations of linux/fuse.h, and a SETATTR that sets the mode."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    UNLINK = 10
    RENAME = 12
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    CREATE = 35
    BATCH_FORGET = 42
    RENAME2 = 45
    CHMOD = -4


@dataclass
class OddFiles:
    """`links`: of each file; `fails`: operation → the error of each call."""

    links: int = 1
    fails: Mapping[int, int] = field(default_factory=dict)
    names: dict[bytes, int] = field(default_factory=dict)
    contents: dict[int, bytearray] = field(default_factory=dict)
    modes: dict[int, int] = field(default_factory=dict)

    def serve(self, device: int) -> None:
        """Answer until the file system is not mounted any more."""
        while True:
            try:
                request = os.read(device, 1 << 18)
            except OSError:
                return
            _, operation, number, node, *_ = HEAD.unpack_from(request)
            if operation in (Op.FORGET, Op.BATCH_FORGET):
                continue
            try:
                answer, error = self.answer(operation, node, request[HEAD.size :]), 0
            except OSError as failed:
                answer, error = b"", -(failed.errno or errno.EIO)
            os.write(device, struct.pack("=IiQ", 16 + len(answer), error, number) + answer)

    def answer(self, operation: int, node: int, body: bytes) -> bytes:
        if operation == Op.SETATTR and body[0] & SET_MODE:
            self.fail(Op.CHMOD)
        self.fail(operation)
        match operation:
            case Op.INIT:
                return struct.pack("=4I2HI40x", 7, 31, 1 << 16, 0, 0, 0, 1 << 17)
            case Op.LOOKUP:
                return self.entry(self.find(body))
            case Op.GETATTR:
                return self.attributes(node)
            case Op.SETATTR:
                if body[0] & SET_SIZE:
                    (size,) = struct.unpack_from("=Q", body, 16)
                    content = self.contents[node]
                    self.contents[node] = content[:size] + bytes(max(0, size - len(content)))
                if body[0] & SET_MODE:
                    self.modes[node] = struct.unpack_from("=I", body, 68)[0]
                return self.attributes(node)
            case Op.CREATE:
                made = self.names[body[16:].rstrip(b"\0")] = 2 + len(self.contents)
                self.contents[made], self.modes[made] = bytearray(), stat.S_IFREG | 0o600
                return self.entry(made) + bytes(16)
            case Op.OPEN | Op.OPENDIR:
                return bytes(16)
            case Op.READ:
                _, offset, size = struct.unpack_from("=QQI", body)
                return bytes(self.contents[node][offset : offset + size])
            case Op.WRITE:
                _, offset, size = struct.unpack_from("=QQI", body)
                content = self.contents[node]
                content.extend(bytes(max(0, offset + size - len(content))))
                content[offset : offset + size] = body[40 : 40 + size]
                return struct.pack("=II", size, 0)
            case Op.RENAME | Op.RENAME2:
                old, new = body[8 if operation == Op.RENAME else 16 :].rstrip(b"\0").split(b"\0")
                self.names[new] = self.names.pop(old)
                return b""
            case Op.UNLINK:
                del self.names[body.rstrip(b"\0")]
                return b""
            case Op.READDIR:
                return self.entries(struct.unpack_from("=QQ", body)[1])
            case Op.STATFS:
                return struct.pack("=5Q4I24x", 1 << 30, 1 << 30, 1 << 30, 1 << 20, 1 << 20, 4096, 255, 4096, 0)
            case Op.RELEASE | Op.FSYNC | Op.FLUSH | Op.RELEASEDIR:
                return b""
        raise OSError(errno.ENOSYS, "")

    def fail(self, operation: int) -> None:
        if operation in self.fails:
            raise OSError(self.fails[operation], "")

    def find(self, body: bytes) -> int:
        if found := self.names.get(body.rstrip(b"\0")):
            return found
        raise OSError(errno.ENOENT, "")

    def entry(self, node: int) -> bytes:
        return struct.pack("=4Q2I", node, 0, 0, 0, 0, 0) + self.attributes(node)[16:]

    def attributes(self, node: int) -> bytes:
        mode = stat.S_IFDIR | 0o755 if node == ROOT else self.modes[node]
        size = len(self.contents.get(node, b""))
        return struct.pack("=QII6Q10I", 0, 0, 0, node, size, size // 512, *[0] * 6, mode, self.links, *[0] * 3, 4096, 0)

    def entries(self, offset: int) -> bytes:
        listed = b""
        for at, (name, node) in enumerate(self.names.items()):
            if at >= offset:
                listed += struct.pack("=QQII", node, at + 1, len(name), stat.S_IFREG >> 12) + name
                listed += bytes(-len(listed) % 8)
        return listed


@contextlib.contextmanager
def mount_odd(folder: Path, files: OddFiles) -> Iterator[Path]:
    """Mount the files at a new folder; skip without root or /dev/fuse."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("only root mounts a file system of /dev/fuse")
    folder.mkdir()
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    libc.mount(
        "odd", str(folder), "fuse", libc.MS_NOSUID, f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    )
    thread = threading.Thread(target=files.serve, args=(device,), daemon=True)
    thread.start()
    try:
        yield folder
    finally:
        libc.umount(folder)
        thread.join(10)
        os.close(device)
