"""The version matrix: sourced facts, a solver that picks, an answer that says because."""

from pathlib import Path

FACTS = Path(__file__).parent / "data"  # the fact files that ship with envbuild
