"""Repairs of a tree, so that an unprivileged user can unpack and run it, as an enroot import does.

enroot unpacks as the job's user, for whom a device node makes unsquashfs fail and a file without read permission cannot
be read again. So: device nodes go, everything below /dev goes, files get u+r, those that others may run u+x, and
directories u+rwx (enroot's fixperms, which it cannot do where squashfuse mounts the file). Owners and all extended
attributes go in the writer: the job's user owns everything, file capabilities mean nothing on a nosuid mount, and a
file system without ``user.`` attributes would fail the unpacking. Setuid, setgid and sticky bits remain, as in an
import.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from envbuild.core.text import escaped
from envbuild.squashfs.pack.index import BLOCK, CHAR, DIR, FILE
from envbuild.squashfs.write.merge import MergedTree, Node

NAMED_PATHS = 3  # paths named in a message
USABLE = frozenset({0o400, 0o500, 0o501, 0o510, 0o511})  # rights of a file, `& 0o511`, that need no repair


@dataclass(frozen=True, slots=True)
class Repairs:
    """Paths of what was changed, by the kind of change."""

    below_dev: list[bytes] = field(default_factory=list)
    devices: list[bytes] = field(default_factory=list)
    files: list[bytes] = field(default_factory=list)
    programs: list[bytes] = field(default_factory=list)
    directories: list[bytes] = field(default_factory=list)
    attributes: list[bytes] = field(default_factory=list)

    def lines(self) -> tuple[str, ...]:
        """Return one line for each kind that was needed."""
        kinds = (
            ("dropped what is below /dev (the host's /dev is mounted there)", self.below_dev),
            ("dropped device nodes", self.devices),
            ("made files readable for their owner", self.files),
            ("made programs executable for their owner", self.programs),
            ("made directories writable and searchable for their owner", self.directories),
            ("dropped extended attributes", self.attributes),
        )
        return tuple(f"{what}: {list_paths(paths)}" for what, paths in kinds if paths)

    def empty_dev(self, tree: MergedTree) -> None:
        """Drop what is below /dev."""
        dev = tree.root.children.get(b"dev")
        if dev is not None:
            self.below_dev.extend(b"dev/" + name for name in sorted(dev.children))
            dev.children.clear()

    def directory(self, path: bytes, node: Node) -> None:
        """Give the owner all rights of a directory."""
        if node.mode & 0o700 != 0o700:
            node.mode |= 0o700
            self.directories.append(path or b"/")
        if has_xattrs(node):
            self.attributes.append(path or b"/")

    def file(self, path: bytes, node: Node) -> None:
        """Let the owner read a file, and run it where others may."""
        if not node.mode & 0o400:
            node.mode |= 0o400
            self.files.append(path)
        if node.mode & 0o111 and not node.mode & 0o100:
            node.mode |= 0o100
            self.programs.append(path)


def make_unprivileged(tree: MergedTree, keep_dev: bool = False) -> tuple[str, ...]:
    """Change `tree` in place; return one line for each kind of repair that was needed. `keep_dev`: what is below /dev
    is preserved, except device nodes."""
    repairs = Repairs()
    if not keep_dev:
        repairs.empty_dev(tree)
    seen: set[int] = set()
    stack: list[tuple[bytes, Node]] = [(b"", tree.root)]
    while stack:
        path, node = stack.pop()
        repairs.directory(path, node)
        prefix = path + b"/" if path else b""
        gone = []
        for name, child in node.children.items():
            kind = child.kind
            if kind == DIR:
                stack.append((prefix + name, child))
            elif kind in (CHAR, BLOCK):
                gone.append(name)
            else:
                if kind == FILE and child.mode & 0o511 not in USABLE:
                    repairs.file(prefix + name, child)
                pack = child.pack
                if pack and len(pack.index.xattr_sets) > 1 and id(child) not in seen and has_xattrs(child):
                    seen.add(id(child))
                    repairs.attributes.append(prefix + name)
        for name in gone:
            del node.children[name]
            repairs.devices.append(prefix + name)
    return repairs.lines()


def device_node_messages(tree: MergedTree) -> tuple[str, ...]:
    """Return a line for an image that keeps its device nodes, if it has any."""
    found: list[bytes] = []
    stack: list[tuple[bytes, Node]] = [(b"", tree.root)]
    while stack:
        path, node = stack.pop()
        if node.kind in (CHAR, BLOCK):
            found.append(path[1:])
        stack += [(path + b"/" + name, child) for name, child in node.children.items()]
    if not found:
        return ()
    # prose: keep
    return (f"kept device nodes, so that only root can unpack it (enroot create): {list_paths(found)}",)


def has_xattrs(node: Node) -> bool:
    """Return whether the node has extended attributes in its layer."""
    return node.pack is not None and node.pack.index.columns["xattrs"][node.row] != 0


def list_paths(paths: list[bytes]) -> str:
    """Return ``2 (a, b)``: how many, and the first few in byte order."""
    names = ", ".join(escaped(path) for path in sorted(paths)[:NAMED_PATHS])
    return f"{len(paths)} ({names}{', …' if len(paths) > NAMED_PATHS else ''})"
