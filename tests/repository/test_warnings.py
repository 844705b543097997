"""Warnings about the code of envbuild and its recipes fail the suite."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("category", [DeprecationWarning, SyntaxWarning])
@pytest.mark.parametrize(
    "module",
    [
        "envbuild",
        "envbuild.lock.python.uv",
        "envbuild_recipes.torch_0a1b2c3d",
        "/src/envbuild/fields",
        "/src/recipes/torch",
    ],
)
def test_a_warning_about_our_own_code_is_an_error(category: type[Warning], module: str) -> None:
    with pytest.raises(category):
        warnings.warn_explicit("old", category, "file.py", 1, module=module)


@pytest.mark.parametrize(
    "module", ["hpccm.common", "myenvbuild", "/src/envbuild/.venv/lib/python3.12/site-packages/hpccm/common"]
)
def test_a_warning_about_other_code_is_not(module: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn_explicit("old", DeprecationWarning, "file.py", 1, module=module)
    assert len(caught) == 1


@pytest.mark.slow_unit
def test_the_compiler_has_no_warnings() -> None:
    """Of every file: what is compiled already is not compiled, nor warned of, again."""
    paths = [path for folder in ("envbuild", "recipes") for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 100
    for path in paths:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
