"""Helpers of the tests of recipes: a recipe as a spec would have it, an image for it, what it runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from envbuild.build.blocks import hpccm
from envbuild.build.steps import INPUTS
from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.core.yaml_parser import parse
from envbuild.core.yaml_reader import Reader
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.spec import target as targets
from envbuild.spec.project import Project
from envbuild.spec.recipe import Check, Recipe, RecipeEnv
from envbuild.spec.recipe_loader import load_recipe
from envbuild.spec.recipe_options import read_options

ROOT = Path(__file__).parents[2]
KEY = "0123456789abcdef0123456789ABCDEF01234567"
COMPILING = ("neox-kernels", "megatron-kernels", "deeperspeed", "metaseq")
SOURCE_ONLY = {"compiled": ["ftfy==6.0.1", "pathtools==0.1.2", "promise==2.3", "subprocess32==3.5.4"]}
NGC = "nvcr.io/nvidia/pytorch:25.10-py3"


def recipe(name: str, **options: Any) -> Any:
    """Return the recipe as a spec with these options would have it. Raises SpecError."""
    reader = Reader()
    node = parse(yaml.safe_dump(options), "x.yaml", reader.findings)
    found = read_options(reader, load_recipe(ROOT / "recipes" / f"{name.replace('-', '_')}.py"), node)
    reader.finish()
    assert found is not None
    return found


def bare(name: str) -> Any:
    """Return the recipe with its defaults, and with a sample of the options that have none."""
    return recipe(name, **({"run": ["true"]} if name == "script" else {}))


def table(name: str) -> Any:
    """Return the module of a recipe, for its tables."""
    return sys.modules[type(recipe(name)).__module__]


def image(*recipes: Recipe, target: str = "h100-ib", base: str = "debian:13", versions: Any = None) -> RecipeEnv:
    """Return an image with these recipes; one on an image reference is Ubuntu 24.04."""
    distribution = DISTRIBUTIONS.get(base, DISTRIBUTIONS["ubuntu:24.04"])
    made = {item.name: item for item in recipes}
    node = targets.load_target(target, Project(ROOT))
    return RecipeEnv(node, distribution.python, made, versions or {}, distribution, base)


def steps(made: Recipe, env: RecipeEnv) -> list[str]:
    """Return the commands of its unit, one a step."""
    with hpccm.hpccm_target("amd64"):
        return [step.command for step in hpccm.steps(made.build(env))]


def commands(made: Recipe, env: RecipeEnv) -> str:
    """Return the commands of its unit as one text."""
    return "\n".join(steps(made, env))


def exported(made: Recipe, env: RecipeEnv) -> dict[str, str]:
    """Return the variables that its build sets."""
    return dict(re.findall(r'export (\w+)="([^"]*)"', commands(made, env)))


def line(made: Recipe, env: RecipeEnv, words: str) -> Check:
    """Return the verify line whose name holds `words`."""
    (found,) = [check for check in made.verify(env) if words in check.name]
    return found


def matches(check: Check, output: str) -> bool:
    return bool(re.search(check.expect, output, re.MULTILINE))


def moved(command: str, tmp_path: Path, prefix: str) -> str:
    """Return the command with its fixed folders below `tmp_path`."""
    return re.sub(rf"(?<!tree){prefix}", f"{tmp_path}{prefix}", command.replace(INPUTS, f"{tmp_path}{INPUTS}"))


class Named(Recipe):
    """A recipe without content, with a prefix or without."""

    def __init__(self, name: str, *, builds: bool = True) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "prefix", f"/opt/{name}" if builds else "")


def stack(*recipes: Recipe, torch: str = "2.6.0", **more: str) -> RecipeEnv:
    """Return an image with torch and CUDA below the recipes."""
    return image(recipe("torch", version=torch), recipe("cuda", version="12.4"), *recipes, **more)


@pytest.fixture(scope="module")
def matrix() -> FactTable:
    return load_fact_table(Project(ROOT).facts())
