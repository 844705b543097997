"""Limits of one source: a repository of some kilobytes can contain itself, or one large file, any number of times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envbuild.core.text import amount
from envbuild.lock.git.tree import MOST, CommitTree
from envbuild.lock.missing_inputs import InvalidInputError

MAX_SUBMODULES, MAX_DEPTH = 1000, 16
MAX_BYTES = 64 << 30  # of the files in a tarball; an archive that is locked for the first time has the same limit
REVIEW = "the repository may be malicious: review it before you use another commit of it"


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
    """Raise InvalidInputError if the commits of the source `top` have too many files together."""
    if (count := sum(len(tree.files) + len(tree.gitlinks) for tree in trees)) > MOST:
        raise InvalidInputError(
            f"the source {top} has more than {MOST} files with its submodules (at least {count}); it is not locked",
            hint=REVIEW,
        )


def check_size(trees: Mapping[str, CommitTree]) -> None:
    """Raise InvalidInputError if the files of a source, `trees` by path, are too long for a tarball together."""
    size = sum(entry.size for tree in trees.values() for entry in tree.files)
    if size > MAX_BYTES:
        top = trees[""]
        raise InvalidInputError(
            f"the source {top.origin}@{top.commit} has {amount(size)} of files with its submodules; "
            f"envbuild writes at most {amount(MAX_BYTES)} into a tarball",
            hint=REVIEW,
        )
