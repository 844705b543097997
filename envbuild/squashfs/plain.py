"""Make a tree one that an unprivileged user can unpack and run, as an enroot import does.

enroot unpacks as the job's user, for whom a device node makes unsquashfs fail and a file without read permission
cannot be read again. So: device nodes go, everything below /dev goes, files get u+r, those that others may run u+x, and
directories u+rwx (enroot's fixperms, which it cannot do where squashfuse mounts the file). Owners and all extended
attributes go in the writer: the job's user owns everything, file capabilities mean nothing on a nosuid mount, and a
file system without ``user.`` attributes would fail the unpacking. Setuid, setgid and sticky bits stay, as in an import.
"""

from __future__ import annotations

from envbuild.core.text import escaped
from envbuild.squashfs.index import BLOCK, CHAR, DIR, FILE
from envbuild.squashfs.merge import Node, Tree

SHOWN = 3  # paths named in a message


def make_plain(tree: Tree, keep_dev: bool = False) -> tuple[str, ...]:
    """Change `tree` in place; returns one line for each kind of repair that was needed. `keep_dev`: what is below /dev
    stays, but for device nodes."""
    below_dev: list[bytes] = []
    devices: list[bytes] = []
    files: list[bytes] = []
    programs: list[bytes] = []
    directories: list[bytes] = []
    attributes: list[bytes] = []
    dev = tree.root.children.get(b"dev")
    if dev is not None and dev.children and not keep_dev:
        below_dev = [b"dev/" + name for name in sorted(dev.children)]
        dev.children.clear()
    seen: set[int] = set()
    stack: list[tuple[bytes, Node]] = [(b"", tree.root)]
    while stack:
        path, node = stack.pop()
        if node.mode & 0o700 != 0o700:
            node.mode |= 0o700
            directories.append(path or b"/")
        if has_xattrs(node):
            attributes.append(path or b"/")
        prefix = path + b"/" if path else b""
        gone = []
        for name, child in node.children.items():
            kind = child.kind
            if kind == DIR:
                stack.append((prefix + name, child))
            elif kind in (CHAR, BLOCK):
                gone.append(name)
            else:
                if kind == FILE and not child.mode & 0o400:
                    child.mode |= 0o400
                    files.append(prefix + name)
                if kind == FILE and child.mode & 0o111 and not child.mode & 0o100:
                    child.mode |= 0o100
                    programs.append(prefix + name)
                pack = child.pack
                if pack and len(pack.index.xattr_sets) > 1 and id(child) not in seen and has_xattrs(child):
                    seen.add(id(child))
                    attributes.append(prefix + name)
        for name in gone:
            del node.children[name]
            devices.append(prefix + name)
    return tuple(
        f"{what}: {listed(paths)}"
        for what, paths in (
            ("dropped what is below /dev (the host's /dev is mounted there)", below_dev),
            ("dropped device nodes", devices),
            ("made files readable for their owner", files),
            ("made programs executable for their owner", programs),
            ("made directories writable and searchable for their owner", directories),
            ("dropped extended attributes", attributes),
        )
        if paths
    )


def kept_devices(tree: Tree) -> tuple[str, ...]:
    """A line for an image that keeps its device nodes, if it has any."""
    found: list[bytes] = []
    stack: list[tuple[bytes, Node]] = [(b"", tree.root)]
    while stack:
        path, node = stack.pop()
        if node.kind in (CHAR, BLOCK):
            found.append(path[1:])
        stack += [(path + b"/" + name, child) for name, child in node.children.items()]
    return (f"kept device nodes, so that only root can unpack it (enroot create): {listed(found)}",) if found else ()


def has_xattrs(node: Node) -> bool:
    """Whether a layer gives the node extended attributes."""
    return node.pack is not None and node.pack.index.columns["xattrs"][node.row] != 0


def listed(paths: list[bytes]) -> str:
    """``2 (a, b)``: how many, and the first few in byte order."""
    names = ", ".join(escaped(path) for path in sorted(paths)[:SHOWN])
    return f"{len(paths)} ({names}{', …' if len(paths) > SHOWN else ''})"
