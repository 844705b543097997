"""Submodules of a source that are not fetched: a reason of the recipe's is required for them.

A build of a tree with an empty folder fails late, or silently without a part of the component."""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.core.errors import Finding
from envbuild.core.text import printable
from envbuild.lock.git.commits import submodule_path
from envbuild.lock.git.tree import CommitTree
from envbuild.spec.recipe import Git


def left_out_findings(git: Git, trees: Mapping[str, CommitTree], where: str) -> list[Finding]:
    """Return a finding for each submodule that is neither fetched nor left out with a reason.

    trees: path → commit, of the source (an empty path) and the submodules that are fetched
    where: the place of the source in its recipe
    """
    if git.left_out or "*" in git.fetched_submodules:
        return []
    links = {submodule_path(path, link) for path, tree in trees.items() for link in tree.gitlinks}
    return [
        Finding(
            f"{git.origin}@{git.commit[:12]} has the submodule {printable(path)}, which the recipe does not fetch",
            where,
            _hint(git, printable(path)),
        )
        for path in sorted(links - set(trees))
    ]


def _hint(git: Git, path: str) -> str:
    fetched = git.fetched_submodules
    every = ", ".join(f'"{name}"' for name in (*fetched, path))
    both = f"submodules=({every}{'' if fetched else ','})"
    have = f"submodules=({', '.join(repr(name) for name in fetched)},)" if fetched else "submodules=False"
    return f'write {both} to fetch it, or {have}, left_out="WHY THE BUILD DOES NOT NEED IT"'.replace("'", '"')
