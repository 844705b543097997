"""The version matrix: sourced facts, a solver that picks versions, an answer with its reasons."""

from pathlib import Path

FACTS = Path(__file__).parent / "data"  # the fact files that ship with envbuild


def fact_files(folder: Path) -> list[Path]:
    """Return the fact files of one folder, by name: those written by hand, then those that collectors wrote."""
    return [path for part in (folder, folder / "derived") for path in sorted(part.glob("*.yaml"))]
