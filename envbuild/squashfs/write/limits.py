"""Metadata of layers that squashfs cannot hold: times before 1970 and after 2106, extended attributes of other kinds
than user., trusted. and security. The writer moves or drops it; here it is found before anything is written, so that
the evidence inside the image can list it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from envbuild.core.text import escaped
from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.pack.index import DIR
from envbuild.squashfs.write.merge import MergedTree, Node
from envbuild.squashfs.write.unprivileged import list_paths
from envbuild.squashfs.write.xattr_table import PREFIXES

LAST_TIME = 0xFFFFFFFF  # seconds: in 2106


def unsupported_metadata_messages(dropped: Iterable[bytes], clamped: Iterable[bytes]) -> list[str]:
    """Return one line for each kind: names of dropped attributes, paths whose time was moved."""
    result = []
    if names := ", ".join(sorted(escaped(name) for name in dropped)):
        result.append(f"dropped extended attributes that squashfs cannot hold: {names}")
    if paths := [path or b"/" for path in clamped]:
        result.append(f"moved times before 1970 or after 2106 to the nearest that squashfs holds: {list_paths(paths)}")
    return result


def find_unsupported_metadata(
    tree: MergedTree, packs: Sequence[Pack], *, attributes: bool, hidden: Collection[bytes] = ()
) -> list[str]:
    """Return the lines for a merged `tree`, except for the paths `hidden`. `attributes`: whether the image has any. The
    tree is walked only when a layer holds such a thing."""
    times = any(len(pack.index) and not has_supported_times(pack) for pack in packs)
    unsupported = attributes and any(unsupported_names(pairs) for pack in packs for pairs in pack.index.xattr_sets)
    if not times and not unsupported:
        return []
    clamped: list[bytes] = []
    dropped: set[bytes] = set()
    seen: set[int] = set()  # hard links
    stack: list[tuple[bytes, Node]] = [(b"", tree.root)]
    while stack:
        path, node = stack.pop()
        prefix = path + b"/" if path else b""
        stack += [(prefix + name, child) for name, child in node.children.items()]
        if node.pack is None or id(node) in seen or path in hidden:
            continue
        if node.kind != DIR:
            seen.add(id(node))
        index = node.pack.index
        if not 0 <= index.columns["mtimes"][node.row] <= LAST_TIME:
            clamped.append(index.paths[node.row])
        if attributes:
            dropped.update(unsupported_names(index.xattr_sets[index.columns["xattrs"][node.row]]))
    return unsupported_metadata_messages(dropped, clamped)


def has_supported_times(pack: Pack) -> bool:
    """Return whether squashfs holds all times of a pack."""
    times = pack.index.columns["mtimes"]
    return min(times) >= 0 and max(times) <= LAST_TIME


def unsupported_names(pairs: Sequence[tuple[bytes, bytes]]) -> set[bytes]:
    """Return the names in a set of attributes that squashfs has no prefix for."""
    return {name for name, _ in pairs if name[: name.find(b".") + 1] not in PREFIXES}
