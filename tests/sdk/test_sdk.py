"""The import of recipes: one module with a list of its names, which costs next to nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild import sdk

pytestmark = pytest.mark.unit

RECIPES = Path(__file__).parents[2] / "recipes"


def test_recipes_import_nothing_else_of_envbuild() -> None:
    for path in [*RECIPES.glob("*.py"), RECIPES / "README.md"]:
        modules = re.findall(r"^\s*(?:from|import) (envbuild[\w.]*)", path.read_text(), re.MULTILINE)
        assert set(modules) <= {"envbuild.sdk"}, path.name


def test_all_names_that_recipes_import_are_exported() -> None:
    for path in RECIPES.glob("*.py"):
        for names in re.findall(r"^from envbuild\.sdk import (\([^)]*\)|.*)$", path.read_text(), re.MULTILINE):
            assert set(re.findall(r"\w+", names)) <= set(sdk.__all__), path.name


def test_every_exported_name_exists() -> None:
    assert all(hasattr(sdk, name) for name in sdk.__all__)
    assert sdk.__all__ == sorted(sdk.__all__, key=lambda name: (not name.isupper(), name.islower(), name))


def test_hpccm_is_loaded_with_the_first_block() -> None:
    program = (
        "import sys; from envbuild.sdk import autotools, shell; assert 'hpccm' not in sys.modules; "
        "shell(commands=['true']); assert 'hpccm' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
