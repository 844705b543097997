"""The version matrix: sourced facts, a solver that picks versions, an answer with its reasons."""

from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.core.regular_file import MAX_TEXT, read_bounded

FACTS = Path(__file__).parent / "data"  # the fact files that ship with envbuild


def fact_files(folder: Path) -> list[Path]:
    """Return the fact files of one folder, by name: those written by hand, then those that collectors wrote."""
    return [path for part in (folder, folder / "derived") for path in sorted(part.glob("*.yaml"))]


def read_fact_file(path: Path) -> bytes:
    """Return the bytes of a fact file. Raises SpecError for one that cannot be read, is not a regular file, or is
    larger than a file that a user writes."""
    try:
        return read_bounded(path, MAX_TEXT)
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
