"""Layout of a project folder (`dev:` of a spec): where its packages are, by its pyproject.toml and its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envbuild.core.errors import SpecError
from envbuild.core.text import printable
from envbuild.spec.pyproject import BUILD, table, texts

NO_PACKAGES = ("build", "dist", "docs", "doc", "examples", "benchmarks", "scripts", "test", "tests", "tools")


def import_root(folder: Path, tools: Mapping[str, Any], what: str) -> str:
    """Return the folder below the project that Python searches for its packages. Raises SpecError."""
    setuptools = table(tools, "setuptools")
    mapped = table(setuptools, "package-dir")
    searched = texts(table(table(setuptools, "packages"), "find").get("where"))
    hatch = table(table(table(table(tools, "hatch"), "build"), "targets"), "wheel")
    parents = {path.rpartition("/")[0] for path in texts(hatch.get("packages"))}
    if set(mapped) - {""} or len(searched) > 1 or len(parents) > 1:
        raise SpecError(f"{what} has its packages in several folders, and dev puts one on Python's path", BUILD)
    found = str(mapped.get("", "")) or next(iter(searched), "") or next(iter(parents), "")
    found = found.removeprefix("./").strip("/")
    if found not in ("", "."):
        if not is_inside(found) or not (folder / found).is_dir():
            raise SpecError(f"{what} has no folder {printable(found)}, where its pyproject.toml has its packages")
        return found
    return "src" if has_code(folder / "src") else ""


def find_modules(root: Path, expected: str, what: str) -> tuple[str, ...]:
    """Return the modules whose import is checked: the one named as the project, or else all packages. Raises SpecError
    for a folder without Python code."""
    if not has_code(root):
        raise SpecError(f"{what} has no Python code", "name the folder of pyproject.toml, or that of the packages")
    if expected and any((root / name).is_file() for name in (f"{expected}/__init__.py", f"{expected}.py")):
        return (expected,)
    names = sorted(path.parent.name for path in root.glob("*/__init__.py"))
    return tuple(name for name in names if name.isidentifier() and name not in NO_PACKAGES)


def has_code(folder: Path) -> bool:
    """Return whether a folder has modules or packages."""
    return any(path.is_file() for pattern in ("*.py", "*/*.py", "*/*/*.py") for path in folder.glob(pattern))


def is_inside(path: str) -> bool:
    """Return whether a relative path remains in its folder."""
    return not path.startswith("/") and ".." not in path.split("/")
