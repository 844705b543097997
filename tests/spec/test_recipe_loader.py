"""Recipe files: mistakes in one are reported with their line."""

from __future__ import annotations

import importlib
import os
import py_compile
import sys
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import SpecError
from envbuild.lock.resolve import resolve_in
from envbuild.net.origin_kinds import SOURCE_KINDS
from envbuild.spec import image_spec
from envbuild.spec.project import Project
from envbuild.spec.recipe_calls import call_recipe
from envbuild.spec.recipe_loader import load_recipe

pytestmark = pytest.mark.unit

GOOD = '''
from dataclasses import dataclass
from envbuild.spec.recipe import Recipe

@dataclass(frozen=True, kw_only=True)
class Thing(Recipe):
    """A recipe."""
'''


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("def broken(:\n", ":1:12", "not Python: invalid syntax"),
        ("x = 1\n\nraise RuntimeError('no')\n", ":3:1", "the recipe fails: RuntimeError: no"),
        ("def f():\n    return 1 / 0\nf()\n", ":2:1", "the recipe fails: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", ":2:1", "the recipe fails: SystemExit: 3"),
        ("import no_such_module\n", ":1:1", "the recipe fails: ModuleNotFoundError: No module named 'no_such_module'"),
        ("from envbuild.sdk import Recipe\n", "", "a recipe file defines one Recipe class; this one defines none"),
        (
            GOOD + GOOD.replace("Thing", "Other"),
            "",
            "a recipe file defines one Recipe class; this one defines 2: Thing, Other",
        ),
        (
            GOOD.replace("@dataclass(frozen=True, kw_only=True)\n", ""),
            "",
            "class Thing is not a dataclass, so its fields are not options",
        ),
    ],
)
def test_a_faulty_file(text: str, place: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "thing.py"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_recipe(path)
    assert caught.value.where == f"{path}{place}"
    assert caught.value.message == message


def test_a_binary_file_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "thing.py").write_bytes(b"\0\xff")
    for name in ("thing.py", "other.py"):
        with pytest.raises(SpecError):
            load_recipe(tmp_path / name)


def test_a_recipe_is_a_regular_file_of_bounded_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.py")  # reading it would wait for a writer
    (tmp_path / "large.py").write_bytes(b"#" * (1 << 20) + b"\n")
    for name, message in (("fifo", "not a file"), ("large", "the file is larger than 1 MiB")):
        with pytest.raises(SpecError) as caught:
            load_recipe(tmp_path / f"{name}.py")
        assert (caught.value.message, caught.value.where) == (message, str(tmp_path / f"{name}.py"))


def test_a_file_is_loaded_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "my_thing.py"
    path.write_text(GOOD)
    first = load_recipe(path)
    assert first.name == "my-thing"
    assert load_recipe(path) is first
    path.write_text(GOOD + "    size: int = 1\n")
    os.utime(path, (1, 1))
    assert "size" in load_recipe(path).__dataclass_fields__


def test_two_projects_may_have_a_recipe_of_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thing.py").write_text(GOOD + f"    only_{name}: int = 1\n")
    a, b = (load_recipe(tmp_path / name / "thing.py") for name in ("a", "b"))
    assert "only_a" in a.__dataclass_fields__
    assert "only_b" in b.__dataclass_fields__


def test_a_recipe_may_build_on_another_class(tmp_path: Path) -> None:
    """Only classes that the file defines itself count; imported ones do not."""
    (tmp_path / "thing.py").write_text("from envbuild.sdk import Recipe as Base\n" + GOOD)
    assert load_recipe(tmp_path / "thing.py").__name__ == "Thing"


@pytest.mark.parametrize(
    ("field", "layer", "message"),
    [
        ("    where: complex = 1j\n", "{where: 1}", "the type of 'where' cannot be read from YAML: <class 'complex'>"),
        ("    where: Unknown = 1\n", "{}", "the recipe fails: NameError: name 'Unknown' is not defined"),
        ("    where: str\n", "{}", "layer 'thing' needs a value for 'where'"),
        ("    shorthand = 'nothing'\n", "text", "layer 'thing' must be keys with values, not text"),
    ],
)
def test_fields_that_do_not_fit(field: str, layer: str, message: str, tmp_path: Path) -> None:
    for folder in ("recipes", "images"):
        (tmp_path / folder).mkdir()
    text = "from __future__ import annotations\n" + GOOD + field
    (tmp_path / "recipes" / "thing.py").write_text(text)
    (tmp_path / "images" / "x.yaml").write_text(
        f"schema: 1\ntarget: cpu\nbase: debian:13\nlayers: {{thing: {layer}}}\n"
    )
    with pytest.raises(SpecError) as caught:
        image_spec.load_image_spec("x", Project(tmp_path))
    assert message in caught.value.message


def project(folder: Path, layers: str, recipe: str = "") -> Project:
    """Return a project with the image x and the recipe thing; what ships with envbuild is beside it."""
    for name in ("recipes", "images"):
        (folder / name).mkdir()
    (folder / "recipes" / "thing.py").write_text("from envbuild.sdk import *\n" + GOOD + recipe)
    (folder / "images" / "x.yaml").write_text(f"schema: 1\ntarget: cpu\nbase: debian:13\nlayers: {layers}\n")
    return Project(folder)


@pytest.mark.parametrize("field", ["    package = 'libthing1'\n", "    version: str = '2'\n"])
def test_a_recipe_with_a_version_takes_one(field: str, tmp_path: Path) -> None:
    assert image_spec.load_image_spec("x", project(tmp_path, '{thing: "3"}', field)).recipes["thing"].version == "3"


@pytest.mark.parametrize("field", ["", "    size: int = 1\n"])
def test_a_recipe_without_a_version_takes_none(field: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="unknown key 'version' for layer 'thing'"):
        image_spec.load_image_spec("x", project(tmp_path, '{thing: {version: "3"}}', field))


DEBIAN = "is not the name of a Debian package: a-z, 0-9, '+', '-' and '.', then =VERSION if needed"


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        (
            "{debian-packages: [git, Git, 'a;b', vim-, --download-only]}",
            [
                (33, f"'Git' {DEBIAN}"),
                (38, f"'a;b' {DEBIAN}"),
                (45, f"'vim-' {DEBIAN}"),
                (51, f"'--download-only' {DEBIAN}"),
            ],
        ),
        ("{debian-packages: {packages: [git=]}}", [(39, f"'git=' {DEBIAN}")]),
        (
            "{python-packages: [numpy, 'numpy >== 1', '-r x.txt', demo @ https://files.example/demo.whl]}",
            [
                (35, "'numpy >== 1' is not a Python requirement: "),
                (50, "'-r x.txt' is not a Python requirement: "),
                (
                    62,
                    "'demo @ https://files.example/demo.whl' names an address, and a lock contains packages",
                ),
            ],
        ),
        ('{debian-packages: {version: "1"}}', [(28, "unknown key 'version'")]),
        ('{python-packages: {version: "1"}}', [(28, "unknown key 'version'")]),
    ],
)
def test_packages_are_checked_when_the_spec_is_read(layers: str, found: list[tuple[int, str]], tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        image_spec.load_image_spec("x", project(tmp_path, layers))
    assert len(caught.value.findings) == len(found)
    for finding, (column, text) in zip(caught.value.findings, found, strict=True):
        assert finding.where == f"{tmp_path}/images/x.yaml:4:{column}"
        assert text in finding.message


def test_common_spellings_of_packages(tmp_path: Path) -> None:
    layers = """
  debian-packages: [g++, libstdc++6, python3.13, libc6-dev, "git=1:2.47.3-0+deb13u1", 7zip]
  python-packages: [numpy, "numpy>=2,<3", "torch[opt]~=2.15 ; python_version > '3'", zope.interface, "a==1.*"]"""
    assert len(image_spec.load_image_spec("x", project(tmp_path, layers)).recipes) == 2


LINE = 10  # of the first line below GOOD in the file that `project` writes


@pytest.mark.parametrize(
    ("method", "line", "message"),
    [
        ("runtime(self, env): return 1 / 0", LINE, "the recipe fails: ZeroDivisionError: division by zero"),
        ("sources(self, env):\n        raise OSError('no')", LINE + 1, "the recipe fails: OSError: no"),
        ("runtime(self, env): pass", LINE, "runtime() of recipe 'thing' returns nothing (None), not a Runtime"),
        ("sources(self, env): return Runtime()", LINE, "sources() of recipe 'thing' returns a Runtime, not a Sources"),
        (
            "runtime(self, env): return Runtime(debian='git')",
            LINE,
            "runtime() of recipe 'thing' returns a Runtime whose 'debian' is the text 'git', not a tuple",
        ),
        (
            "runtime(self, env): return Runtime(python=('a', None))",
            LINE,
            "runtime() of recipe 'thing' returns a Runtime whose 'python' contains nothing (None), not only str",
        ),
        (
            "runtime(self, env): return Runtime(env={'A': 1})",
            LINE,
            "runtime() of recipe 'thing' returns a Runtime whose 'env' contains an int, not only str",
        ),
        (
            "sources(self, env): return Sources(archives=('x.tar.gz',))",
            LINE,
            "returns a Sources whose 'archives' contains the text 'x.tar.gz', not only Archive",
        ),
        ("faults(self): return ['bad']", LINE, "faults() of recipe 'thing' returns a list, not a dict"),
        ("faults(self): return {'x': 'bad'}", LINE, "returns a dict with the text 'bad', not only Refusal"),
        ("refusals(self, env): return ('bad',)", LINE, "returns a tuple with the text 'bad', not only Refusal"),
        ("runtime(env): return Runtime()", 0, "the recipe fails: TypeError: "),
    ],
)
def test_a_mistake_in_a_recipe_is_reported_with_its_line(method: str, line: int, message: str, tmp_path: Path) -> None:
    place = project(tmp_path, "{thing: {}}", f"\n    def {method}\n")
    with pytest.raises(SpecError) as caught:
        resolve_in(image_spec.load_image_spec("x", place), place)
    assert message in caught.value.message
    assert caught.value.where == f"{tmp_path}/recipes/thing.py" + (f":{line}:1" if line else "")


@pytest.mark.parametrize(
    ("method", "kind", "message"),
    [
        ("verify(self, env): return None", list, "verify() of recipe 'thing' returns nothing (None), not a list"),
        (
            "verify(self, env): return ['true']",
            list,
            "verify() of recipe 'thing' returns a list with the text 'true', not only Check",
        ),
        ("build(self, env): return 'make'", list, "build() of recipe 'thing' returns the text 'make', not a list"),
        ("build(self, env): return [env.target.nothing]", list, "the recipe fails: AttributeError"),
    ],
)
def test_values_of_later_methods_are_checked(method: str, kind: type, message: str, tmp_path: Path) -> None:
    place = project(tmp_path, "{thing: {}}", f"\n    def {method}\n")
    resolution = resolve_in(image_spec.load_image_spec("x", place), place)
    with pytest.raises(SpecError) as caught:
        call_recipe(resolution.recipes[0], method.partition("(")[0], kind, resolution.env)
    assert message in caught.value.message
    assert caught.value.where == f"{tmp_path}/recipes/thing.py:{LINE}:1"


@pytest.mark.parametrize("origin", ["https://files.example/x.tar.gz", "x.tar.gz", "apt:x", "python:x"])
def test_an_origin_that_no_site_can_map(origin: str, tmp_path: Path) -> None:
    place = project(
        tmp_path,
        "{thing: {}}",
        f"\n    def sources(self, env): return Sources(archives=(Archive('x', '{origin}', 'x.tar.gz'),))\n",
    )
    with pytest.raises(SpecError) as caught:
        resolve_in(image_spec.load_image_spec("x", place), place)
    assert caught.value.message == f"recipe 'thing': origin '{origin}' of x.tar.gz has an unknown kind"
    assert caught.value.hint == f"begin it with one of: {', '.join(f'{kind}:' for kind in SOURCE_KINDS)}"


@pytest.mark.parametrize(
    ("method", "hint"),
    [
        ("runtime(self, env): pass", 'let it return Runtime(debian=("NAME",)), or Runtime() for nothing'),
        ("sources(self, env): return []", 'let it return Sources(debian=("NAME",)), or Sources() for nothing'),
        ("faults(self): return []", "let it return a dict"),
        ("refusals(self, env): return []", "let it return a tuple"),
    ],
)
def test_the_hint_for_another_value_is_the_one_to_return(method: str, hint: str, tmp_path: Path) -> None:
    place = project(tmp_path, "{thing: {}}", f"\n    def {method}\n")
    with pytest.raises(SpecError) as caught:
        resolve_in(image_spec.load_image_spec("x", place), place)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "line", "close"),
    [
        ("    def buildd(self, env):\n        return []\n", 8, "build"),
        ("    def source(self, env):\n        return None\n", 8, "sources"),
        (
            "    @property\n    def build(self):\n        return True\n    def verifi(self, env):\n        return []\n",
            11,
            "verify",
        ),
    ],
)
def test_a_misspelt_method_is_refused(text: str, line: int, close: str, tmp_path: Path) -> None:
    path = tmp_path / "thing.py"
    path.write_text(GOOD + text)
    with pytest.raises(SpecError) as error:
        load_recipe(path)
    assert error.value.where.endswith(f"thing.py:{line}:1")
    assert error.value.hint.startswith(f"did you mean '{close}'?")


def test_helpers_and_options_have_names_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "thing.py"
    helpers = (
        "    builds_on: str = ''\n    def _build(self):\n        return 1\n    def wheels(self):\n        return 1\n"
    )
    path.write_text(
        GOOD + helpers + "    def sources(self, env):\n        return 1\n    def source(self):\n        return 1\n"
    )
    assert load_recipe(path).name == "thing"


def test_no_bytecode_of_a_recipe_is_written_or_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    path = tmp_path / "thing.py"
    path.write_text(GOOD + "    size: int = 1\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    load_recipe(path)
    assert not (tmp_path / "__pycache__").exists()
    # what another program left there, valid by its time and size, is not used
    py_compile.compile(str(path), doraise=True)
    path.write_text(GOOD + "    size: int = 2\n")
    os.utime(path, ns=(10**18, 10**18 + 5))
    assert load_recipe(path)().size == 2


@pytest.mark.parametrize("helper", ["words.py", "parts/words.py", "parts/deep/words.py"])
def test_a_module_beside_a_recipe_is_compiled_each_time(
    helper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytecode is valid for a second and a size: the image would have the former text under the digest of the new."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    file = tmp_path / helper
    file.parent.mkdir(parents=True, exist_ok=True)
    path = tmp_path / "thing.py"
    for size in range(1, 4):
        file.write_text(f"SIZE = {size}\n")
        os.utime(file, (1_000_000_000, 1_000_000_000))
        if size == 1:  # what another program left there
            py_compile.compile(str(file), doraise=True)
        module, _, name = f".{helper.removesuffix('.py')}".replace("/", ".").rpartition(".")
        text = f"from {module.lstrip('.')} import {name}" if module else f"import {name}"
        path.write_text(f"{text}\n{GOOD}    size: int = {name}.SIZE\n# {size}\n")
        found: Any = load_recipe(path)
        assert found().size == size
    assert len(list(file.parent.glob("__pycache__/*"))) == 1


DIRECT = """
import importlib.util
from pathlib import Path
found = importlib.util.spec_from_file_location("words", Path(__file__).with_name("words.py"))
words = importlib.util.module_from_spec(found)
found.loader.exec_module(words)
"""


def test_a_module_that_a_recipe_loads_by_its_path_is_compiled_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    file, path = tmp_path / "words.py", tmp_path / "thing.py"
    for size in (1, 2):
        file.write_text(f"SIZE = {size}\n")
        os.utime(file, (1_000_000_000, 1_000_000_000))
        path.write_text(f"{DIRECT}{GOOD}    size: int = words.SIZE\n# {size}\n")
        found: Any = load_recipe(path)
        assert found().size == size
    assert not (tmp_path / "__pycache__").exists()


def test_recipes_share_the_modules_that_they_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They recognize each other by a class there; after an edit all of them have the new one."""
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(f"from shared_class import Ours\n{GOOD}    ours = Ours\n")
    for text in ("class Ours:\n    pass\n", "class Ours:\n    new = 1\n"):
        (tmp_path / "shared_class.py").write_text(text)
        one, two = (vars(load_recipe(tmp_path / f"{name}.py"))["ours"] for name in ("one", "two"))
        assert one is two and hasattr(one, "new") is ("new" in text)
