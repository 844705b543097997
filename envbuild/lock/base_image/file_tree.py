"""What is in an image, seen without unpacking it: the paths of all layers together, and a few small files.

A store keeps what was seen of an image (``base/<manifest digest>.json.gz``), because reading a large image takes
minutes and every lock asks again.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import gzip
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envbuild.core.console import Reporter
from envbuild.core.errors import EnvbuildError
from envbuild.core.store.store import Store, write_atomic
from envbuild.oci.layers.changeset import HOPS, Changeset, Kind
from envbuild.oci.tar import member as m
from envbuild.oci.tar.decompress import reading, sound
from envbuild.oci.tar.member import Member

FORMAT = 1  # of what a store keeps; another one is not read
LARGEST = 64 << 20  # of a file that is kept, in bytes
PYTHON = r"usr(/local)?/lib/python3[^/]*/(dist|site)-packages"
KEPT = re.compile(
    r"(etc|usr/lib)/os-release|var/lib/dpkg/status"
    rf"|{PYTHON}/[^/]+\.dist-info/METADATA|{PYTHON}/[^/]+\.egg-info(/PKG-INFO)?"
)
MAGIC = re.compile(r"[*?[]")

Node = Any  # dict: a folder; str: where a link leads; bytes: a file that is kept; None: another file


class ImageTree(Changeset):
    """The tree that layers make. `root`: name → what is there."""

    def __init__(self, root: dict[str, Node] | None = None) -> None:
        super().__init__()
        self.root: dict[str, Node] = {} if root is None else root
        self.kept, self.content = b"", bytearray()  # the file whose content is being read, if any

    # as the target of a layer
    def kind(self, path: bytes) -> Kind | None:
        above, _, name = os.fsdecode(path).rpartition("/")
        folder = self.node(above)
        if not isinstance(folder, dict) or name not in folder:
            return None
        node = folder[name]
        return Kind.FOLDER if isinstance(node, dict) else Kind.LINK if isinstance(node, str) else Kind.OTHER

    def target(self, path: bytes) -> bytes:
        return os.fsencode(self.node(os.fsdecode(path)))

    def names(self, path: bytes) -> list[bytes]:
        return [os.fsencode(name) for name in self.node(os.fsdecode(path))]

    def make(self, path: bytes) -> None:
        self.put(path, {})

    def delete(self, path: bytes, kind: Kind) -> None:
        above, _, name = os.fsdecode(path).rpartition("/")
        del self.node(above)[name]

    def add(self, member: Member, path: bytes) -> None:
        if member.kind is m.Kind.DIR:
            if self.kind(path) is not Kind.FOLDER:
                self.remove(path)
                self.put(path, {})
            return
        if member.kind is m.Kind.HARDLINK:
            self.put(path, self.node(os.fsdecode(self.source(member, path))))
            return
        self.remove(path)
        if member.kind is m.Kind.SYMLINK:
            self.put(path, os.fsdecode(member.link))
        elif member.kind in (m.Kind.FILE, m.Kind.FIFO):
            self.put(path, None)
            if member.kind is m.Kind.FILE and KEPT.fullmatch(os.fsdecode(path)):
                self.kept, self.content = path, bytearray()

    def data(self, chunk: bytes) -> None:
        if self.kept:
            self.content += chunk[: LARGEST - len(self.content)]

    def zeros(self, count: int) -> None:
        if self.kept:
            self.content += bytes(min(count, LARGEST - len(self.content)))

    def end(self) -> None:
        if self.kept:
            self.put(self.kept, bytes(self.content))
        self.kept, self.content = b"", bytearray()

    def put(self, path: bytes, node: Node) -> None:
        above, _, name = os.fsdecode(path).rpartition("/")
        self.node(above)[name] = node

    def node(self, path: str) -> Node:
        """What is at a path that leads through no link; None also when nothing is there."""
        found: Node = self.root
        for part in path.split("/") if path else ():
            found = found.get(part) if isinstance(found, dict) else None
        return found

    # to be asked
    def find(self, path: str) -> tuple[str, Node] | None:
        """(path through no link, what is there), links followed, also a last one; None when nothing is there."""
        found: list[tuple[str, Node]] = [("", self.root)]
        todo = [part for part in path.split("/") if part not in ("", ".")][::-1]
        hops = 0
        while todo:
            part = todo.pop()
            if part == "..":
                found = found[:-1] or found
                continue
            place, folder = found[-1]
            if not isinstance(folder, dict) or part not in folder:
                return None
            node = folder[part]
            if not isinstance(node, str):
                found.append((f"{place}/{part}", node))
                continue
            hops += 1
            if hops > HOPS:
                return None
            if node.startswith("/"):
                found = found[:1]
            todo += [item for item in node.split("/") if item not in ("", ".")][::-1]
        return found[-1]

    def text(self, path: str) -> str | None:
        """The content of a file that is kept; None when there is no such file."""
        found = self.find(path)
        return found[1].decode(errors="replace") if found and isinstance(found[1], bytes) else None

    def listing(self, path: str) -> list[str]:
        """The names in a folder, sorted; none when it is no folder."""
        found = self.find(path)
        return sorted(found[1]) if found and isinstance(found[1], dict) else []

    def matches(self, pattern: str) -> list[str]:
        """The paths that a shell pattern (absolute) stands for, sorted. What a link leads to must be there."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            pairs = [(folder, name) for folder in found for name in self.listing(folder)]
            if MAGIC.search(part):
                found = [f"{folder}/{name}" for folder, name in pairs if fnmatch.fnmatchcase(name, part)]
            else:
                found = [f"{folder}/{name}" for folder, name in pairs if name == part]
        return [path for path in found if self.find(path)]


def read_image_tree(digest: str, layers: Sequence[str], store: Store, reporter: Reporter) -> ImageTree:
    """The tree of the image with the manifest `digest` whose `layers` (digests, bottom first) are in the store.

    Raises InputError for a layer that cannot be unpacked, leads out of its tree, or is damaged in the store.
    """
    kept = store.root / "base" / f"{digest}.json.gz"
    known = _read_cached(kept)
    if known:
        return known
    tree = ImageTree()
    reporter.start("base", f"looking at the {len(layers)} layers of the base image")
    try:
        for number, layer in enumerate(layers, 1):
            reporter.note("base", f"layer {number}")
            try:
                with sound(f"layer {number} of the base image (sha256 {layer})"), reading(store.blob(layer)) as stream:
                    tree.written = {b""}
                    tree.apply(stream)
            except EnvbuildError:
                store.check_blob(layer)  # when it is the store's fault, that is what to tell
                raise
    finally:
        reporter.finish("base")
    with contextlib.suppress(RecursionError):  # folders in folders, a thousand deep
        content = json.dumps({"format": FORMAT, "root": _to_json(tree.root)}).encode()
        kept.parent.mkdir(exist_ok=True)
        write_atomic(kept, lambda file: file.write(gzip.compress(content, 1, mtime=0)))
    return tree


def _read_cached(path: Path) -> ImageTree | None:
    try:
        value = json.loads(gzip.decompress(path.read_bytes()))
        return ImageTree(_from_json(value["root"])) if value["format"] == FORMAT else None
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None


def _to_json(node: Node) -> Any:
    if isinstance(node, dict):
        return {name: _to_json(child) for name, child in node.items()}
    return [base64.b64encode(node).decode()] if isinstance(node, bytes) else node


def _from_json(value: Any) -> Node:
    if isinstance(value, dict):
        return {name: _from_json(child) for name, child in value.items()}
    return base64.b64decode(value[0]) if isinstance(value, list) else value
