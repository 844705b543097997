"""The place that states a commit and its submodules: part of the errors of a source."""

from __future__ import annotations

from typing import NamedTuple


class CommitHint(NamedTuple):
    """Texts of an error: what is to be changed for another commit (`change`), and the place of the source in its recipe
    (``recipes/ucx.py:12:1``, or "")."""

    change: str = "the commit in the recipe"
    recipe: str = ""


UNKNOWN = CommitHint()
