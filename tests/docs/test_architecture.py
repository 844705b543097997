"""docs/architecture.md names what exists: rooms, tables, functions, parameters; every kind has its documentation."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from envbuild.build.engines.base import Engine
from envbuild.build.engines.select import load_engine
from envbuild.cli.app import COMMANDS
from envbuild.cli.matrix import matrix_app
from envbuild.core.engines import ENGINES
from envbuild.core.late_import import import_object
from envbuild.export.formats import FORMATS
from envbuild.matrix.collect.refresh import COLLECTORS
from envbuild.net.origin_kinds import ORIGINS
from envbuild.oci.sources.kinds import SOURCES
from envbuild.verify.audit import CHECKS

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
EXTENSIONS = PAGE.partition("## Where to add something")[2].partition("\n## ")[0]
NAMES_IN_FILE = re.compile(r"((?:`[A-Za-z]\w*`(?:, | and )?)+) (?:of|in) `([\w/.]+\.py)`")


def module(path: str) -> ast.Module:
    """Return the code of a file, whose path may leave out the folder of the package."""
    file = next(place for place in (ROOT / path, ROOT / "envbuild" / path) if place.is_file())
    return ast.parse(file.read_text())


def bound_names(code: ast.Module) -> set[str]:
    """Return the names that a module defines or imports, and the parts of its classes."""
    found: set[str] = set()
    for node in ast.walk(code):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


PAIRS = [(name, path) for names, path in NAMES_IN_FILE.findall(PAGE) for name in re.findall(r"\w+", names)]


def test_the_page_names_the_tables_of_extensions() -> None:
    named = {name for name, _ in PAIRS}
    assert {"FORMATS", "CHECKS", "RULES", "SOURCES", "ORIGINS", "ENGINES", "COLLECTORS", "COMMANDS"} <= named


@pytest.mark.parametrize(("name", "path"), PAIRS)
def test_a_name_is_defined_in_the_file_of_the_page(name: str, path: str) -> None:
    assert name in bound_names(module(path))


def test_the_rooms_are_those_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [set(layer.split(" | ")) for layer in contracts[0]["layers"]]
    table = PAGE.partition("## Rooms")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert [{Path(room).stem for room in re.findall(r"`([\w/.]+)`", row)} for row in rows] == layers
    assert {path.stem for path in (ROOT / "envbuild").iterdir() if is_room(path)} == set().union(*layers)


def is_room(path: Path) -> bool:
    return (path / "__init__.py").is_file() or (path.suffix == ".py" and not path.stem.startswith("__"))


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


SHAPES: dict[str, Iterable[Callable[..., Any]]] = {
    "NAME_results": CHECKS,
    "write_NAME_output": [import_object(form.writer) for form in FORMATS.values()],
    "collect": COLLECTORS.values(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_functions_have_the_shape_that_the_page_states(shape: str) -> None:
    (stated,) = re.findall(rf"`{shape}\(([\w, ]+)\)`", EXTENSIONS)
    for function in SHAPES[shape]:
        assert re.fullmatch(shape.replace("NAME", "[a-z_]+"), function.__name__)
        assert parameters(function) == stated.split(", ")


def test_openers_and_commands_have_the_shape_that_the_page_states() -> None:
    (stated,) = re.findall(r"`open_NAME\(([\w, ]+)\)`", EXTENSIONS)
    for kind in SOURCES.values():
        assert parameters(import_object(kind.opener)) == stated.split(", ")
    assert "`NAME_command`" in EXTENSIONS
    for name, place in COMMANDS.items():
        assert place in (f"envbuild.cli.{name}:{name}_command", f"envbuild.cli.{name}:{name}_app")


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_has_the_methods_of_the_interface(name: str) -> None:
    engine = load_engine(name)
    assert engine.name == name
    for method in ("probe", "build"):
        assert parameters(getattr(type(engine), method)) == parameters(getattr(Engine, method))


def test_the_help_of_refresh_names_the_collectors() -> None:
    (parameter,) = [item for item in get_command(matrix_app).commands["refresh"].params if item.name == "names"]  # type: ignore[attr-defined]
    assert [name for name in COLLECTORS if not re.search(rf"\b{name}\b", parameter.help)] == []


@pytest.mark.parametrize(
    ("page", "pattern", "kinds"),
    [
        ("commands.md", r"--to [\w\\|]*\b{}\b", FORMATS),
        ("export.md", r"`{}", [prefix for kind in SOURCES.values() for prefix in kind.prefixes[:1]]),
        ("sites.md", r"`{}:", ORIGINS),
        ("engines.md", r"^\| `{}`", ENGINES),
    ],
)
def test_every_kind_is_documented(page: str, pattern: str, kinds: Iterable[str]) -> None:
    text = (ROOT / "docs" / page).read_text()
    assert [kind for kind in kinds if not re.search(pattern.format(re.escape(kind)), text, re.MULTILINE)] == []
