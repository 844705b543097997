"""Files that recipes read: a build from other ones is not current."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.file_marks import mark_files
from envbuild.spec.recipe_files import files_beside
from envbuild.spec.recipe_loader import load_recipe

pytestmark = pytest.mark.unit
RECIPE = "from envbuild.sdk import Recipe\n\n\nclass Other(Recipe):\n    pass\n"


def test_all_but_other_recipes_count(tmp_path: Path) -> None:
    folder = tmp_path / "recipes"
    texts = {
        "mine.py": RECIPE,
        "other.py": RECIPE,
        "helper.py": "# of the class Recipe\n",
        "_program.py": RECIPE,
        "my.patch": "",
        "word.txt": "",
        ".hidden": "",
        "data/a/b.conf": "",
        "data/__pycache__/x.pyc": "",
        "__pycache__/y.pyc": "",
        "sub/file": "",
        "sub/.file.swp": "",
        "data/.hidden": "",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (tmp_path / "common").mkdir()
    (tmp_path / "common/app.conf").touch()
    (folder / "data/common").symlink_to(tmp_path / "common")
    (folder / "data/again").symlink_to(folder / "data")
    found = [str(path.relative_to(folder)) for path in files_beside([folder / "mine.py"])]
    assert sorted(found) == [
        "_program.py", "data/.hidden", "data/a/b.conf", "data/common/app.conf", "helper.py", "my.patch", "sub/file",
        "word.txt",
    ]  # fmt: skip


def test_what_a_recipe_imports_counts(tmp_path: Path) -> None:
    """Also another recipe, packages, and what these import; the text of a program in a recipe imports nothing."""
    texts = {
        "mine.py": "def build():\n    from tool_base import Tool, Word\nCHECK = '''\nimport other\n'''\n" + RECIPE,
        "tool_base.py": "\ufeffimport os, \\\n parts.inner as p\n" + RECIPE,
        "other.py": RECIPE,
        "parts/__init__.py": "",
        "parts/inner.py": "\ufeffimport third; from . import words\n",
        "parts/words.txt": "",
        "parts/__pycache__/inner.cpython-313.pyc": "",
        "third.py": RECIPE,
        "unused/__init__.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [str(path.relative_to(tmp_path)) for path in files_beside([tmp_path / "mine.py"])]
    parts = ["parts/__init__.py", "parts/inner.py", "parts/words.txt", "third.py"]
    assert found == [*parts, "tool_base.py", "unused/__init__.py"]
    found = [str(path.relative_to(tmp_path)) for path in files_beside([tmp_path / "other.py"])]
    assert found == [*parts, "unused/__init__.py"]
    (tmp_path / "third.py").write_text("import (\n" + RECIPE)  # not Python, as Python reports
    assert len(list(files_beside([tmp_path / "mine.py"]))) == 6


@pytest.mark.parametrize(
    "statement",
    [
        "from recipes.tool_base import Tool",
        "import recipes.tool_base as base",
        "from recipes import tool_base",
        "import sys; sys.path.insert(0, 'x'); from tool_base import Tool",
        "try: from tool_base import Tool\nexcept ImportError: pass",
        "def f():\n    # cmake -S . -B build \\\n    import tool_base",
        "import os, \\\n    tool_base",
        "from \\\n    tool_base import Tool",
        "from tool_base \\\n    import Tool",
        "from recipes import (\n    other,  # (the old one)\n    tool_base,  # 1) it\n)",
        "from recipes import (# both\r\n    other as o, tool_base)",
        "from.tool_base import*",
        "x = 1 if True else 2;import tool_base",
        "import t\uff4fol_base",
        "# coding: utf-7\nimport tool+AF8-base",
        "from recipes import (\n    # both\n    other,\n    tool_base,\n)",
        "\ufeffimport tool_base",
    ],
)
def test_every_form_of_an_import_counts(statement: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{statement}\n{RECIPE}{'# a long text' * 100_000}", newline="")
    for name in ("tool_base", "never"):
        (tmp_path / f"{name}.py").write_text(RECIPE)
    assert [path.name for path in files_beside([tmp_path / "mine.py"])] == ["tool_base.py"]


def test_a_recipe_is_loaded_again_if_a_file_beside_it_changes(tmp_path: Path) -> None:
    """Of `make a b`, where a takes hours."""
    path, word = tmp_path / "mine.py", tmp_path / "word.txt"
    path.write_text(
        "from dataclasses import dataclass\nfrom pathlib import Path\nfrom envbuild.sdk import Recipe\n"
        "WORD = Path(__file__).with_name('word.txt').read_text()\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(Recipe):\n    said = WORD\n"
    )
    word.write_text("first")
    found = load_recipe(path)
    assert load_recipe(path) is found and vars(found)["said"] == "first"
    word.write_text("second")
    assert vars(load_recipe(path))["said"] == "second"


def test_a_file_that_is_as_before_has_another_mark(tmp_path: Path) -> None:
    file, missing = tmp_path / "a", tmp_path / "b"
    file.write_text("one")
    before = mark_files([file, missing])
    assert before == mark_files([file, missing])
    file.rename(tmp_path / "c")
    file.write_text("one")
    assert mark_files([file, missing]) != before
    missing.touch()
    assert mark_files([missing]) != before[1:]
