"""The file tree of an image, read without unpacking it: the paths of all layers together, and a few small files.

A store caches the tree of an image (``base/<manifest digest>.json.gz``), because reading a large image takes minutes
and every lock needs the tree again.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from envbuild.core.console import Reporter
from envbuild.core.errors import EnvbuildError, InputError
from envbuild.core.link_walk import LinkCycleError, Place, Step, walk
from envbuild.core.regular_file import NotRegularError, open_regular
from envbuild.core.store.store import Store, write_atomic
from envbuild.oci.layers.changeset import Changeset, EntryKind
from envbuild.oci.tar import member as m
from envbuild.oci.tar.chunks import CHUNK
from envbuild.oci.tar.decompress import convert_layer_errors
from envbuild.oci.tar.fields import LayerError
from envbuild.oci.tar.member import Member
from envbuild.oci.tar.unpack_limit import open_limited
from envbuild.spec.recipe import VENV

FORMAT = 2  # of the cached file; another format is not read
LARGEST = 64 << 20  # of a captured file, in bytes
LARGEST_METADATA = 1 << 20  # of one that describes a Python package: only its headers are read
ALL = 64 << 20  # of the captured files of all layers together
PYTHON = rf"(usr(/local)?|{VENV[1:]})/lib/python3[^/]*/(dist|site)-packages"
CAPTURED = re.compile(
    r"(etc|usr/lib)/os-release|var/lib/dpkg/status"
    rf"|{PYTHON}/[^/]+\.dist-info/METADATA|{PYTHON}/[^/]+\.egg-info(/PKG-INFO)?|{VENV[1:]}/pyvenv\.cfg"
)
# Of a cached tree, in bytes: 85 MiB for the captured files in base64, and 40 for each of four million names.
LARGEST_CACHED = 256 << 20
MAGIC = re.compile(r"[*?[]")

Node = Any  # dict: a folder; str: where a link leads; bytes: a captured file; None: another file


class ImageTree(Changeset):
    """The tree of an image's layers. `root`: name → node."""

    def __init__(self, root: dict[str, Node] | None = None) -> None:
        super().__init__()
        self.root: dict[str, Node] = {} if root is None else root
        self.captured, self.content = b"", bytearray()  # the file whose content is being read, if any
        self.limit = 0  # of its content
        self.last: tuple[str, Node] = ("", self.root)  # the folder of the last entry: a path may have 2,000 parts
        self.total = 0  # bytes of captured files of all layers, also of those that a later layer replaces

    # as the target of a layer
    def kind(self, path: bytes) -> EntryKind | None:
        above, _, name = os.fsdecode(path).rpartition("/")
        folder = self.node(above)
        if not isinstance(folder, dict) or name not in folder:
            return None
        node = folder[name]
        return (
            EntryKind.FOLDER if isinstance(node, dict) else EntryKind.LINK if isinstance(node, str) else EntryKind.OTHER
        )

    def target(self, path: bytes) -> bytes:
        return os.fsencode(self.node(os.fsdecode(path)))

    def names(self, path: bytes) -> list[bytes]:
        return [os.fsencode(name) for name in self.node(os.fsdecode(path))]

    def make(self, path: bytes) -> None:
        self.put(path, {})

    def delete(self, path: bytes, kind: EntryKind) -> None:
        above, _, name = os.fsdecode(path).rpartition("/")
        del self.node(above)[name]
        self.last = ("", self.root)

    def add(self, member: Member, path: bytes) -> None:
        if member.kind is m.Kind.DIR:
            if self.kind(path) is not EntryKind.FOLDER:
                self.remove(path)
                self.put(path, {})
            return
        if member.kind is m.Kind.HARDLINK:
            node = self.node(os.fsdecode(self.link_source(member, path)))
            if isinstance(node, bytes):  # each name has its content in the cached tree
                node = node if CAPTURED.fullmatch(os.fsdecode(path)) else None
                self.count(len(node or b""))
            self.put(path, node)
            return
        self.remove(path)
        if member.kind is m.Kind.SYMLINK:
            self.put(path, os.fsdecode(member.link))
        elif member.kind in (m.Kind.FILE, m.Kind.FIFO):
            self.put(path, None)
            if member.kind is m.Kind.FILE and CAPTURED.fullmatch(os.fsdecode(path)):
                self.captured, self.content = path, bytearray()
                is_metadata = path.endswith((b"METADATA", b"PKG-INFO", b".egg-info"))
                self.limit = LARGEST_METADATA if is_metadata else LARGEST

    def data(self, chunk: bytes) -> None:
        if self.captured:
            self.content += chunk[: self.limit - len(self.content)]

    def zeros(self, count: int) -> None:
        if self.captured:
            self.content += bytes(min(count, self.limit - len(self.content)))

    def end(self) -> None:
        if self.captured:
            self.count(len(self.content))
            self.put(self.captured, bytes(self.content))
        self.captured, self.content = b"", bytearray()

    def count(self, size: int) -> None:
        """Count the bytes of a captured file. Raises LayerError."""
        self.total += size
        if self.total > ALL:
            raise LayerError(f"its package lists are longer than {ALL >> 20} MiB")

    def put(self, path: bytes, node: Node) -> None:
        above, _, name = os.fsdecode(path).rpartition("/")
        folder = self.node(above)
        if name in folder:
            self.last = ("", self.root)
        folder[name] = node

    def node(self, path: str) -> Node:
        """Return the node at a path that leads through no link; None also when it does not exist."""
        if path == self.last[0]:
            return self.last[1]
        found: Node = self.root
        for part in path.split("/") if path else ():
            found = found.get(part) if isinstance(found, dict) else None
        if isinstance(found, dict):
            self.last = (path, found)
        return found

    # queries
    def find(self, path: str) -> tuple[str, Node] | None:
        """Return (path through no link, node), links followed, also a last one; None when the path does not exist, or
        its links go in a circle."""

        def enter(folder: Node, name: bytes, last: bool) -> Step[Node] | None:
            text = os.fsdecode(name)
            if not isinstance(folder, dict) or text not in folder:
                return None
            node = folder[text]
            return Step(node, os.fsencode(node) if isinstance(node, str) else None, isinstance(node, dict))

        try:
            place = walk(Place((self.root,)), os.fsencode(path), enter)
        except LinkCycleError:
            return None
        if place is None or place.missing:
            return None
        return os.fsdecode(b"".join(b"/" + name for name in place.names)), place.node

    def text(self, path: str) -> str | None:
        """Return the content of a captured file; None when there is no such file."""
        found = self.find(path)
        return found[1].decode(errors="replace") if found and isinstance(found[1], bytes) else None

    def listing(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none when it is not a folder."""
        found = self.find(path)
        return sorted(found[1]) if found and isinstance(found[1], dict) else []

    def matches(self, pattern: str) -> list[str]:
        """Return the paths that match a shell pattern (absolute), sorted. The target of a link must exist."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            pairs = [(folder, name) for folder in found for name in self.listing(folder)]
            if MAGIC.search(part):
                found = [f"{folder}/{name}" for folder, name in pairs if fnmatch.fnmatchcase(name, part)]
            else:
                found = [f"{folder}/{name}" for folder, name in pairs if name == part]
        return [path for path in found if self.find(path)]


def read_image_tree(digest: str, layers: Sequence[str], store: Store, reporter: Reporter) -> ImageTree:
    """Return the tree of the image with the manifest `digest` whose `layers` (digests, bottom first) are in the store.

    Raises InputError for a layer that cannot be unpacked, leads out of its tree, or is corrupt in the store.
    """
    cache = store.own / "base" / f"{digest}.json.gz"  # not another member's: locks depend on it
    cached = _read_cached(cache)
    if cached:
        return cached
    tree = ImageTree()
    reporter.start("base", f"reading the {len(layers)} layers of the base image")
    try:
        for number, layer in enumerate(layers, 1):
            reporter.note("base", f"layer {number}")
            try:
                with convert_layer_errors(f"layer {number} of the base image (sha256 {layer})"):
                    _apply_checked(tree, store.blob(layer), layer)
            except (EnvbuildError, NotRegularError):
                store.check_blob(layer)  # a corrupt blob of the store is the error to report
                raise
    finally:
        reporter.finish("base")
    with contextlib.suppress(RecursionError):  # a thousand nested folders
        content = json.dumps({"format": FORMAT, "root": _to_json(tree.root)}).encode()
        if len(content) > LARGEST_CACHED:  # it would not be read
            return tree
        store.own_folder("base")
        write_atomic(cache, lambda file: file.write(gzip.compress(content, 1, mtime=0)))
    return tree


class _HashedFile:
    """A file whose digest is computed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.digest = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        chunk = self.file.read(size)
        self.digest.update(chunk)
        return chunk


def _apply_checked(tree: ImageTree, blob: Path, digest: str) -> None:
    """Apply a layer to a tree. Raises InputError if it is not the one with `digest`: another member of the group that
    shares the store may have replaced it, and the tree is cached."""
    with open_regular(blob, buffering=0, follow=False) as file:
        source = _HashedFile(file)
        with open_limited(source, os.fstat(file.fileno()).st_size) as stream:
            tree.apply(stream)
        while source.read(CHUNK):
            pass
    if source.digest.hexdigest() != digest:
        raise InputError(
            f"corrupt blob in the store: expected sha256 {digest}, got {source.digest.hexdigest()}",
            hint="run the command again",
            where=str(blob),
        )


def _read_cached(path: Path) -> ImageTree | None:
    try:
        with open_regular(path) as packed, gzip.open(packed) as file:
            text = file.read(LARGEST_CACHED + 1)
        if len(text) > LARGEST_CACHED:
            return None
        value = json.loads(text)
        return ImageTree(_from_json(value["root"])) if value["format"] == FORMAT else None
    except (OSError, EOFError, ValueError, LookupError, TypeError, zlib.error, RecursionError):
        return None  # it is made again


def _to_json(node: Node) -> Any:
    if isinstance(node, dict):
        return {name: _to_json(child) for name, child in node.items()}
    return [base64.b64encode(node).decode()] if isinstance(node, bytes) else node


def _from_json(value: Any) -> Node:
    if isinstance(value, dict):
        return {name: _from_json(child) for name, child in value.items()}
    return base64.b64decode(value[0]) if isinstance(value, list) else value
