"""The facts that ship with envbuild, read and compiled once in a process for all tests."""

from __future__ import annotations

from functools import cache

from envbuild.matrix import FACTS
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.load import load_facts
from envbuild.matrix.facts.model import Facts


@cache
def shipped_facts() -> Facts:
    return load_facts([FACTS])


@cache
def shipped_matrix() -> FactTable:
    """Return their matrix, from the user's cache as commands do: compiling takes seconds in each process of a run."""
    return load_fact_table([FACTS])
