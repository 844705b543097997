"""Metadata of a project folder (`dev:` of a spec), from the static tables of its pyproject.toml. No code of it runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.core.errors import SpecError
from envbuild.core.regular_file import MAX_TEXT, read_bounded
from envbuild.core.text import printable
from envbuild.core.yaml_reader import short
from envbuild.spec.dev_layout import find_modules, has_code, import_root, is_inside
from envbuild.spec.pyproject import BUILD, check_python, load_toml, plain_requirements, table, texts

PYPROJECT = "pyproject.toml"
# Build backends, and requirements of builds, that compile.
COMPILERS = re.compile(
    r"(scikit[-_]build(-core)?|scikit_build_core|skbuild|meson[-_]?py(thon)?|mesonpy|maturin|setuptools[-_]rust|cython|"
    r"pybind11|nanobind|cffi|hatch[-_]cython)\b",
    re.IGNORECASE,
)
COMPILING = re.compile(r"\b(ext_modules|rust_extensions|cffi_modules|cythonize|CUDAExtension|CppExtension)\b")
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
SCRIPT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
REFERENCE = re.compile(r"[A-Za-z_][\w.]*(:[A-Za-z_][\w.]*)?( *\[[\w., -]*\])?")
PROGRAMS = ("console_scripts", "gui_scripts")  # groups of entry points that are programs (PyPA, "Entry points")
TAKEN = re.compile(r"python[0-9.]*|activate.*|deactivate.*|pydoc.*")  # programs of a venv


@dataclass(frozen=True, slots=True)
class DevMetadata:
    """The statements of a project about itself.

    title: the name as it is written; version: "" for plain Python, which has no metadata to install
    entry_points: (group, name, reference), sorted
    root: the folder below it that Python searches for its packages; "": itself
    modules: those whose import is checked
    """

    title: str
    version: str = ""
    requires: tuple[str, ...] = ()
    entry_points: tuple[tuple[str, str, str], ...] = ()
    root: str = ""
    modules: tuple[str, ...] = ()

    @property
    def programs(self) -> dict[str, str]:
        """Return name → reference of its programs."""
        return {name: reference for group, name, reference in self.entry_points if group in PROGRAMS}


def read_metadata(folder: Path, what: str, python: str) -> DevMetadata:
    """Return the metadata of the project in `folder`; `what` names it in messages.

    Raises SpecError for a project that has to be built, that states no version, or that has no Python code.
    """
    text = read_text(folder, PYPROJECT, what)
    try:
        top = load_toml(PYPROJECT, text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{what} has a malformed {PYPROJECT}: {printable(str(error))}") from None
    stated, tools = table(top, "project"), table(top, "tool")
    refuse_compiled(folder, what, top)
    if not stated:
        if "build-system" in top or "poetry" in tools or (folder / "setup.py").is_file():
            hint = f'write [project] with name and version = "0.1" into its {PYPROJECT}'
            raise SpecError(f"{what} has no static [project] table: envbuild does not run its build", hint)
        root = "src" if has_code(folder / "src") else ""
        return DevMetadata(folder.name, root=root, modules=find_modules(folder / root, "", what))
    title = stated.get("name")
    if not isinstance(title, str) or not NAME.fullmatch(title):
        raise SpecError(f"{what} has no valid name in [project]", f'write name = "mytrainer" into its {PYPROJECT}')
    dynamic = texts(stated.get("dynamic"))
    if needed := sorted({"dependencies", "scripts", "gui-scripts", "entry-points"} & set(dynamic)):
        hint = f"write them into [project] of its {PYPROJECT}, and remove them from dynamic"
        raise SpecError(f"{what} computes its {' and '.join(needed)} while it is built", hint)
    if python:  # else the spec has a mistake there
        check_release(what, str(stated.get("requires-python", "")), python)
    root = import_root(folder, tools, what)
    return DevMetadata(
        title,
        version_of(folder, stated, tools, root, what),
        plain_requirements(what, texts(stated.get("dependencies"))),
        tuple(sorted(entry_points(stated, what))),
        root,
        find_modules(folder / root, title.replace("-", "_").replace(".", "_"), what),
    )


def read_text(folder: Path, name: str, what: str) -> str:
    """Return a text of the project; "" if it has none of this name. Raises SpecError."""
    try:
        return read_bounded(folder / name, MAX_TEXT).decode()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise SpecError(f"{what}: {name} cannot be read: {printable(str(error))}") from None


def refuse_compiled(folder: Path, what: str, top: Mapping[str, Any]) -> None:
    """Raise SpecError for a project whose build compiles."""
    system = table(top, "build-system")
    tools = [str(system.get("build-backend", "")), *texts(system.get("requires"))]
    found = next((tool for tool in tools if COMPILERS.match(tool)), "")
    if not found and "ext-modules" in table(table(top, "tool"), "setuptools"):
        found = "tool.setuptools.ext-modules"
    if not found and (word := COMPILING.search(read_text(folder, "setup.py", what))):
        found = f"{word[0]} in setup.py"
    if found:
        raise SpecError(
            f"{what} has compiled extensions ({printable(found)}), and dev copies files", f"{BUILD}, or write a recipe"
        )


def check_release(what: str, requires: str, python: str) -> None:
    """Raise SpecError if no release of `python` (3.13) is one that the project runs on."""
    for release in (f"{python}.0", f"{python}.99"):
        try:
            return check_python(what, requires, release)
        except SpecError:
            continue
    raise SpecError(f"{what} requires Python {printable(requires)}, and the image has {python}")


def version_of(folder: Path, stated: Mapping[str, Any], tools: Mapping[str, Any], root: str, what: str) -> str:
    """Return the version: of [project], or of the file that setuptools or hatch read it from. Raises SpecError."""
    from packaging.version import Version

    found = stated.get("version", "")
    if not found and "version" in texts(stated.get("dynamic")):
        rule = table(table(table(tools, "setuptools"), "dynamic"), "version")
        path = str(table(table(tools, "hatch"), "version").get("path", ""))
        if isinstance(rule.get("file"), str) and is_inside(rule["file"]):
            found = read_text(folder, rule["file"], what).strip()
        elif isinstance(rule.get("attr"), str):
            module, _, name = rule["attr"].rpartition(".")
            file = f"{root}/{module.replace('.', '/')}".lstrip("/")
            names = (f"{file}.py", f"{file}/__init__.py")
            found = next(filter(None, (constant(read_text(folder, path, what), (name,)) for path in names)), "")
        elif path and is_inside(path):
            found = constant(read_text(folder, path, what), ("__version__", "VERSION", "version"))
    try:
        return str(Version(str(found)))
    except ValueError:  # also a number that Python does not read
        text = f"states the version '{short(str(found))}'" if found else "states no version that is readable"
        hint = f'write version = "0.1" into [project] of its {PYPROJECT}, or {BUILD}'
        raise SpecError(f"{what} {text}: envbuild does not run its build", hint) from None


def constant(text: str, names: tuple[str, ...]) -> str:
    """Return the text that a module assigns to one of `names`; "" if it assigns none."""
    try:
        found = [node for node in ast.parse(text).body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ""
    for node in found:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        named = any(isinstance(target, ast.Name) and target.id in names for target in targets)
        if named and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return node.value.value
    return ""


def entry_points(stated: Mapping[str, Any], what: str) -> Iterator[tuple[str, str, str]]:
    """Yield (group, name, reference) of all entry points. Raises SpecError for a malformed one."""
    groups = dict(zip(PROGRAMS, (stated.get("scripts", {}), stated.get("gui-scripts", {})), strict=True))
    more = stated.get("entry-points", {})
    if not isinstance(more, dict) or groups.keys() & more:  # as build backends
        raise SpecError(f"{what} has malformed entry points", "write programs into [project.scripts]")
    groups |= more
    for group, items in groups.items():
        if not isinstance(items, dict) or not re.fullmatch(r"[\w.-]+", group):
            raise SpecError(f"{what} has malformed entry points: {printable(group)}")
        scripts = group in PROGRAMS
        for name, value in items.items():
            named = re.fullmatch(SCRIPT if scripts else r"[^\s=\[][^\n=]*", name)
            text = value if isinstance(value, str) and (not scripts or ":" in value) else ""
            if not named or not REFERENCE.fullmatch(text):
                text = f"{printable(name)} = {printable(str(value))}"
                raise SpecError(f"{what} has a malformed entry point: {text}", 'write NAME = "package.module:function"')
            if scripts and TAKEN.fullmatch(name):
                raise SpecError(f"{what} has a script with the name of a program of Python: {name}", "rename it")
            yield group, name, value
