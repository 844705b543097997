"""Limits of one source: a repository of some kilobytes can contain itself, or one large file, any number of times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envbuild.core import bombs
from envbuild.core.text import amount
from envbuild.lock.git.tree import MAX_NAMES, MOST, REVIEW, CommitTree
from envbuild.lock.missing_inputs import InvalidInputError

MAX_SUBMODULES, MAX_DEPTH = 1000, 16
MAX_REFS = 20_000  # branches and tags that are fetched of a server, each a file of the store
MAX_BYTES = 64 << 30  # of the files in a tarball; an archive that is locked for the first time has the same limit


def check_submodules(top: str, count: int, depth: int) -> None:
    """Raise InvalidInputError if the source `top` has too many submodules, or too many within each other."""
    if depth > MAX_DEPTH:
        raise InvalidInputError(
            f"the source {top} has submodules within each other on more than {MAX_DEPTH} levels; it is not locked",
            hint=REVIEW,
        )
    if count > MAX_SUBMODULES:
        raise InvalidInputError(
            f"the source {top} has more than {MAX_SUBMODULES} submodules (at least {count}); it is not locked",
            hint=REVIEW,
        )


def check_entries(top: str, trees: Iterable[CommitTree]) -> None:
    """Raise InvalidInputError if the commits of the source `top` have too many files, or of their paths, together."""
    paths = [path for tree in trees for path in (*(entry.path for entry in tree.files), *tree.gitlinks)]
    if len(paths) > MOST:
        raise InvalidInputError(
            f"the source {top} has more than {MOST} files with its submodules (at least {len(paths)}); "
            "it is not locked",
            hint=REVIEW,
        )
    if (size := sum(map(len, paths))) > MAX_NAMES:
        raise InvalidInputError(
            f"the source {top} has more than {amount(MAX_NAMES)} of paths with its submodules (at least "
            f"{amount(size)}); it is not locked",
            hint=REVIEW,
        )


def describe_excess(most: int) -> str:
    """Return the cause if git received more than `most` bytes for a source."""
    return f"the repositories of the source have more than {most >> 20} MiB"


def check_received(top: str, received: int, most: int) -> None:
    """Raise InvalidInputError if git received more than `most` bytes for the source `top`, with its submodules."""
    if received > most:
        raise InvalidInputError(f"{top}: {describe_excess(most)} with its submodules; it is not fetched", hint=REVIEW)


def check_size(trees: Mapping[str, CommitTree]) -> None:
    """Raise InvalidInputError if the files of a source, `trees` by path, are too long for a tarball together, or for
    the objects that hold them: one object may be many files, and a small one a large file."""
    size = sum(entry.size for tree in trees.values() for entry in tree.files)
    stored = sum({(tree.folder, entry.sha): entry.stored for tree in trees.values() for entry in tree.files}.values())
    limit = min(MAX_BYTES, bombs.most_unpacked(stored))
    if size > limit:
        top = trees[""]
        raise InvalidInputError(
            f"the source {top.origin}@{top.commit} has {amount(size)} of files with its submodules, in "
            f"{amount(stored)} of objects; envbuild writes at most {amount(limit)} of them into a tarball",
            hint=REVIEW,
        )
