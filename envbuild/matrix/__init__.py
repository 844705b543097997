"""The version matrix: sourced facts, a solver that picks versions, an answer with its reasons."""

from pathlib import Path

FACTS = Path(__file__).parent / "data"  # the fact files that ship with envbuild
