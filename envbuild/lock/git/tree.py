"""The tree of a commit: its files and the paths of its submodules, read from the git objects themselves.

Formats: a tree is a sequence of ``MODE NAME\\0`` and 20 bytes of hash (Pro Git, "Git Objects"), gitmodules(5).
Attributes are ignored: with ``export-ignore``, ``export-subst`` and the conversion of line ends, the result would
depend on the version of git.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from envbuild.core.errors import InputError
from envbuild.core.text import amount, printable
from envbuild.lock.git.git_program import ObjectReader, blob_sizes, run_git
from envbuild.net.failures import NotFoundError, RefusedError

KIND, TREE, FILE, SYMLINK, LINK = 0o170000, 0o040000, 0o100000, 0o120000, 0o160000
# entries, bytes of a path and of all paths: a tiny tree may contain itself many times
MOST, LONGEST, MAX_NAMES = 2_000_000, 4096, 128 << 20
REVIEW = "the repository may be malicious: review it before you use another commit of it"
HASH, MODE = re.compile(rb"[0-9a-f]{40}"), re.compile(rb"[0-7]{1,7}")
MODULES, MAX_MODULES = b".gitmodules", 1 << 20


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file or symlink of a commit; `path` is relative, without a leading slash. `stored`: the bytes of its object in
    the repository, compressed."""

    path: bytes
    mode: int
    sha: str
    size: int = 0
    stored: int = 0

    @property
    def symlink(self) -> bool:
        return self.mode & KIND == SYMLINK

    @property
    def executable(self) -> bool:
        return bool(self.mode & 0o100)


@dataclass(frozen=True, slots=True)
class CommitTree:
    """A commit in the git directory `folder`, which has every file of it.

    gitlinks: path → commit of a submodule
    submodule_urls: path → its address in the commit's .gitmodules
    """

    folder: Path
    origin: str
    commit: str
    files: tuple[TreeEntry, ...]
    gitlinks: Mapping[bytes, str] = field(default_factory=dict)
    submodule_urls: Mapping[bytes, str] = field(default_factory=dict)


def read_tree(folder: Path, origin: str, commit: str) -> CommitTree:
    """Return the commit `commit` of `origin` from the git directory `folder`.

    Raises NotFoundError when the commit or one of its files is not there, RefusedError when it cannot be read;
    InputError when the commit itself holds what must not be unpacked.
    """
    with ObjectReader(folder) as objects:
        try:
            raw = objects.read(commit, "commit")
        except NotFoundError:
            raise NotFoundError("it does not have this commit") from None
        head = raw.partition(b"\n")[0].split()
        if len(head) != 2 or head[0] != b"tree" or not HASH.fullmatch(head[1]):
            raise RefusedError(f"it is damaged: {commit} is not a commit")
        entries = list(walk_tree(objects, head[1].decode(), f"{origin}@{commit}"))
        listed = next((entry for entry in entries if entry.path == MODULES and entry.mode & KIND == FILE), None)
        submodule_urls = _read_submodule_urls(objects.read(listed.sha, "blob", MAX_MODULES)) if listed else {}
    files = [entry for entry in entries if entry.mode & KIND != LINK]
    sizes = blob_sizes(folder, {entry.sha for entry in files})
    if missing := [entry for entry in files if entry.sha not in sizes]:
        example = printable(missing[0].path.decode(errors="replace"))
        raise NotFoundError(
            f"it lacks {len(missing)} of the commit's {len(files)} files, {example} among them (a partial copy?)"
        )
    return CommitTree(
        folder,
        origin,
        commit,
        tuple(replace(entry, size=sizes[entry.sha].size, stored=sizes[entry.sha].stored) for entry in files),
        {entry.path: entry.sha for entry in entries if entry.mode & KIND == LINK},
        submodule_urls,
    )


def walk_tree(objects: ObjectReader, top: str, what: str) -> Iterator[TreeEntry]:
    """Yield every file, symlink and submodule below the tree `top` of the commit `what`; no path is on the way of
    another. Raises NotFoundError, RefusedError and InputError as `read_tree`."""
    trees, pending = _read_trees(objects, top, what), [(b"", top)]
    while pending:
        folder, sha = pending.pop()
        seen: set[bytes] = set()
        for mode, name, child in trees[sha]:
            path = folder + name
            # git itself writes no such names; a tree that was not written by git may contain them.
            if name in (b"", b".", b"..") or b"/" in name or name.lower() == b".git":
                raise _unsafe_path_error(what, path, "that would leave its folder, or control git")
            if name in seen:
                raise _unsafe_path_error(what, path, "twice")
            if len(path) > LONGEST:
                raise _unsafe_path_error(what, path[:100], "that is too long")
            seen.add(name)
            kind = mode & KIND
            if kind == TREE:
                pending.append((path + b"/", child))
            elif kind in (FILE, SYMLINK, LINK):
                yield TreeEntry(path, mode, child)
            else:
                raise _unsafe_path_error(what, path, f"of the unknown kind {mode:o}")


def _read_trees(objects: ObjectReader, top: str, what: str) -> dict[str, list[tuple[int, bytes, str]]]:
    """Return the entries of each tree below `top`, read once.

    Raises InputError for more entries or bytes of paths than a commit may have, before the paths are made: a tree can
    contain another one any number of times.
    """
    trees: dict[str, list[tuple[int, bytes, str]]] = {}
    sizes: dict[str, tuple[int, int]] = {}  # tree → the entries below it, the bytes of their paths from there
    pending, read = [top], 0
    while pending:
        sha = pending[-1]
        if sha not in trees:
            trees[sha] = list(_parse_tree(objects.read(sha, "tree"), sha))
            read += len(trees[sha])
            pending += [child for mode, _, child in trees[sha] if mode & KIND == TREE and child not in sizes]
        else:
            count = names = 0
            for mode, name, child in trees[sha]:
                below, length = sizes[child] if mode & KIND == TREE else (0, 0)
                count += 1 + below
                names += len(name) + length + below * (len(name) + 1)
            sizes[pending.pop()] = count, names
        entries, paths = sizes.get(sha, (read, 0))
        if entries > MOST or paths > MAX_NAMES:
            raise InputError(
                f"the commit {what} contains more than {MOST} paths, or {amount(MAX_NAMES)} of them; it is not "
                "unpacked",
                hint=REVIEW,
            )
    return trees


def _parse_tree(raw: bytes, sha: str) -> Iterator[tuple[int, bytes, str]]:
    """Yield (mode, name, hash) of each entry of a tree object."""
    at = 0
    while at < len(raw):
        space = raw.find(b" ", at)
        end = raw.find(b"\0", space)
        if space < 0 or end < 0 or end + 21 > len(raw) or not MODE.fullmatch(raw[at:space]):
            raise RefusedError(f"it is damaged: {sha} is not a tree")
        yield int(raw[at:space], 8), raw[space + 1 : end], raw[end + 1 : end + 21].hex()
        at = end + 21


def _read_submodule_urls(content: bytes) -> dict[bytes, str]:
    """Return path → address of a .gitmodules file, as git itself reads it."""
    done = run_git(None, "config", "--file", "-", "--no-includes", "--null", "--list", content=content)
    if done.returncode:
        raise RefusedError("its .gitmodules cannot be read")
    values: dict[bytes, dict[bytes, bytes]] = {}
    for item in done.stdout.split(b"\0"):
        key, _, value = item.partition(b"\n")
        section, _, rest = key.partition(b".")
        name, _, variable = rest.rpartition(b".")
        if section == b"submodule" and name:
            values.setdefault(name, {})[variable] = value
    return {
        value[b"path"].rstrip(b"/"): value[b"url"].decode(errors="replace")
        for value in values.values()
        if b"path" in value and b"url" in value
    }


def _unsafe_path_error(what: str, path: bytes, why: str) -> InputError:
    return InputError(
        f"the commit {what} contains the path {path.decode(errors='replace')!r} {why}; it is not unpacked",
        hint=REVIEW,
    )
