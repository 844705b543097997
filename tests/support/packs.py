"""Packs from layers written down in Python."""

from pathlib import Path

from envbuild.oci.tar.member import OPAQUE, WHITEOUT, Kind, Member
from envbuild.squashfs.pack.file import Pack, read_pack
from envbuild.squashfs.pack.index import DIR
from envbuild.squashfs.pack.writer import PackWriter
from envbuild.squashfs.write.merge import merge_packs


def file(path, content=b"", mode=0o644, **kw):
    return Member(path, Kind.FILE, mode, size=len(content), **kw), content


def folder(path, mode=0o755, **kw):
    return Member(path, Kind.DIR, mode, **kw), b""


def symlink(path, target):
    return Member(path, Kind.SYMLINK, 0o777, link=target), b""


def hard(path, target, mode=0, **kw):
    return Member(path, Kind.HARDLINK, mode, link=target, **kw), b""


def gone(path):
    above, _, name = path.rpartition(b"/")
    return file((above + b"/" if above else b"") + WHITEOUT + name)


def opaque(path):
    """Return a mark that the folder (b"" is the root) holds nothing from below."""
    return file((path + b"/" if path else b"") + OPAQUE)


def pack(path: Path, layer, chunk: int = 0, **kw) -> Pack:
    """Write the pack of a layer (a list of (member, content)); `chunk` cuts the data into pieces of that many bytes."""
    with PackWriter(path, **kw) as writer:
        for member, content in layer:
            writer.begin(member)
            step = chunk or max(len(content), 1)
            for at in range(0, len(content), step):
                writer.data(content[at : at + step])
            writer.end()
    return read_pack(path)


def packs(folder: Path, *layers) -> list[Pack]:
    return [pack(folder / f"{number}.pack", layer) for number, layer in enumerate(layers)]


def paths(tree) -> list[bytes]:
    """Return all paths of a merged tree; directories end with a slash."""
    found, stack = [], [(b"", tree.root)]
    while stack:
        path, node = stack.pop()
        for name, child in node.children.items():
            found.append(path + name + (b"/" if child.kind == DIR else b""))
            if child.kind == DIR:
                stack.append((path + name + b"/", child))
    return sorted(found)


def tree(folder_of_packs: Path, *more):
    """Return a merged tree with a shell, and `more` above it."""
    shell = [
        folder(b"usr/bin"),
        symlink(b"bin", b"usr/bin"),
        symlink(b"usr/bin/sh", b"dash"),
        file(b"usr/bin/dash", b"#", 0o755),
    ]
    return merge_packs(packs(folder_of_packs, shell, list(more)))
