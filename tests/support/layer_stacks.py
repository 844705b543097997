"""Random stacks of layers: every kind of entry, mark and replacement that layers of images have, by a seed."""

from __future__ import annotations

import io
import random
import struct
import tarfile
from copy import copy
from dataclasses import dataclass, field

from tests.support.local_registry import file, folder

Entry = tuple[tarfile.TarInfo, bytes]

NAMES = (
    "a", "b", "c", "d-long" * 20, "e e", "-f", "g\n", "h\\", "dev", ".wh", "i.wh.", "ä", "caf\udce9", "\udcff\udcfe",
)  # fmt: skip
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0).decode(errors="surrogateescape")
ATTRIBUTES = ({"user.note": "text"}, {"user.raw": "\udcff\n=x", "user.b": "2"}, {"security.capability": CAPABILITY})
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
DEVICES = (tarfile.CHRTYPE, tarfile.BLKTYPE)
KINDS = {
    tarfile.REGTYPE: 8, tarfile.DIRTYPE: 5, tarfile.SYMTYPE: 4, tarfile.LNKTYPE: 4, tarfile.FIFOTYPE: 1,
    tarfile.CHRTYPE: 1, tarfile.BLKTYPE: 1,
}  # fmt: skip


@dataclass
class Stack:
    """Tars of the layers, bottom first. `marks_first`: the same layers with whiteouts and opaque marks before all other
    entries; in OCI the order has no meaning. `implied`: folders that a layer needs and has no entry for."""

    tars: list[bytes] = field(default_factory=list)
    marks_first: list[bytes] = field(default_factory=list)
    implied: set[str] = field(default_factory=set)


class StackMaker:
    """A stack in the making. `tree`: path → its entry, as the layers so far show it.

    plain: without devices, paths through links, and hard links to files of other layers
    """

    def __init__(self, seed: str, plain: bool = False) -> None:
        self.draw, self.plain = random.Random(seed), plain
        self.tree: dict[str, tarfile.TarInfo] = {}
        self.own: set[str] = set()  # paths of the current layer
        self.stack = Stack()
        self.pax = self.draw.random() < 0.7

    def make(self) -> Stack:
        for _ in range(self.draw.randint(2, 5)):
            self.add_layer()
        self.add([], [folder("bin"), file("bin/sh", b"#!", 0o755), folder("etc")])
        return self.stack

    def add_layer(self) -> None:
        marks = [self.mark() for _ in range(self.draw.randint(0, 4)) if self.tree]
        entries: list[Entry] = []
        self.own.clear()
        for _ in range(self.draw.randint(1, 14)):
            entries += self.change()
        self.add([file(name) for name in sorted(set(marks))], entries)

    def add(self, marks: list[Entry], entries: list[Entry]) -> None:
        self.stack.marks_first.append(self.tar([*marks, *entries]))
        for mark in marks:
            entries.insert(self.draw.randint(0, len(entries)), mark)
        self.stack.tars.append(self.tar(entries))

    def mark(self) -> str:
        """Hide something of the layers below; return the path of the mark."""
        path = self.draw.choice(sorted(self.tree))
        if self.tree[path].isdir() and self.draw.random() < 0.5:
            self.hide(path, itself=False)
            return f"{path}/{OPAQUE}"
        if self.draw.random() < 0.05:
            self.tree.clear()
            return OPAQUE
        self.hide(path)
        above, slash, name = path.rpartition("/")
        return f"{above}{slash}{WHITEOUT}{name}"

    def hide(self, path: str, itself: bool = True) -> None:
        for other in [other for other in self.tree if other.startswith(f"{path}/")]:
            del self.tree[other]
        if itself:
            self.tree.pop(path, None)

    def change(self) -> list[Entry]:
        """Add or replace one entry, and the folders above it; return the entries for them."""
        draw = self.draw
        entries: list[Entry] = []
        spelled, real = self.folder()
        for _ in range(draw.choice([0, 0, 0, 1, 2])):
            name = draw.choice(NAMES)
            spelled, real = f"{spelled}{name}/", f"{real}{name}/"
            known = self.tree.get(real[:-1])
            if draw.random() < 0.7 or (known and not known.isdir()):
                entries.append((self.put(spelled[:-1], real[:-1], tarfile.DIRTYPE), b""))
            else:
                self.stack.implied.add(real[:-1])
                self.tree.setdefault(real[:-1], folder(real[:-1])[0])
        self.stack.implied.update(self.parents(real))
        name = draw.choice(NAMES)
        kinds = {kind: count for kind, count in KINDS.items() if not self.plain or kind not in DEVICES}
        kind = draw.choices([*kinds], [*kinds.values()])[0]
        info = self.put(spelled + name, real + name, kind)
        content = draw.randbytes(draw.choice([0, 1, 600, 5000])) * draw.choice([1, 1, 50]) if info.isreg() else b""
        info.size = len(content)
        return [*entries, (info, content)]

    def parents(self, path: str) -> set[str]:
        parts = path.split("/")
        return {"/".join(parts[:count]) for count in range(1, len(parts))} - {""}

    def folder(self) -> tuple[str, str]:
        """Return a folder of the tree, or the root: as a name spells it, which may go through a link; and its path."""
        folders = ["", *(path + "/" for path, entry in sorted(self.tree.items()) if entry.isdir())]
        links = [path for path, entry in sorted(self.tree.items()) if entry.issym() and self.target(path)]
        if links and not self.plain and self.draw.random() < 0.15:
            path = self.draw.choice(links)
            return path + "/", f"{self.target(path)}/"
        path = self.draw.choice(folders)
        return path, path

    def target(self, path: str) -> str:
        """Return the folder that an absolute link leads to; empty if there is none."""
        found = self.tree[path].linkname.lstrip("/")
        if path.startswith(f"{found}/"):
            return ""  # an entry through the link might replace it
        return found if found in self.tree and self.tree[found].isdir() else ""

    def put(self, name: str, path: str, kind: bytes) -> tarfile.TarInfo:
        """Change the tree; return the entry."""
        draw = self.draw
        self.own.add(path)
        others = [
            other
            for other, entry in sorted(self.tree.items())
            if not entry.isdir() and not f"{other}/".startswith(f"{path}/") and (not self.plain or other in self.own)
        ]
        if kind == tarfile.LNKTYPE and not others:
            kind = tarfile.REGTYPE
        if kind == tarfile.LNKTYPE:
            other = draw.choice(others)
            info = copy(self.tree[other])
            info.name, info.linkname, info.type, info.size, info.pax_headers = name, other, kind, 0, {}
            self.hide(path)
            shared = self.tree[path] = copy(self.tree[other])
            shared.name = path
            return info
        old = self.tree.get(path)
        info = tarfile.TarInfo(name)
        info.type = kind
        info.mode = draw.choice([0o644, 0o755, 0o700, 0o4755, 0o2755, 0o1777, 0o6711, 0o600])
        info.uid, info.gid = draw.choice([(0, 0), (0, 0), (1000, 1000), (7, 65534), (3_000_000, 12)])
        info.mtime = draw.choice(
            [0, 1, 1_000_000_000, 1_700_000_000, (1 << 31) + 5, 1_234_567_890.5 if self.pax else 5]
        )
        if kind == tarfile.SYMTYPE:
            info.mode = 0o777
            info.linkname = draw.choice(["/" + other for other in sorted(self.tree)] + ["../../..", "gone", "x" * 150])
        elif kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
            info.devmajor, info.devminor = draw.choice([(1, 3), (5, 1), (200, 300)])
        elif self.pax and kind in (tarfile.REGTYPE, tarfile.DIRTYPE) and draw.random() < 0.3:
            found = draw.choice(ATTRIBUTES[: 3 if kind == tarfile.REGTYPE else 2])
            info.pax_headers = {f"SCHILY.xattr.{key}": value for key, value in found.items()}
        if not (old and old.isdir() and info.isdir()):
            self.hide(path)
        self.tree[path] = copy(info)
        self.tree[path].name = path
        return info

    def tar(self, entries: list[Entry]) -> bytes:
        buffer = io.BytesIO()
        form = tarfile.PAX_FORMAT if self.pax else tarfile.GNU_FORMAT
        with tarfile.open(fileobj=buffer, mode="w", format=form, errors="surrogateescape") as archive:
            for info, content in entries:
                archive.addfile(info, io.BytesIO(content))
        return buffer.getvalue()
