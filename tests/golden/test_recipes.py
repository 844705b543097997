"""Requirements, steps and checks of every shipped recipe: with each of its providers, in an image made for it.

`recipes/NAME.txt` beside this file is that text. A recipe that needs more than its defaults has the layers of its
sample image in EXAMPLES."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import yaml

from envbuild.build.blocks import hpccm
from envbuild.build.plan.planner import make_plan
from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.core.errors import EnvbuildError
from envbuild.lock.draft import draft_from_request
from envbuild.lock.request import lock_request
from envbuild.spec import target as targets
from envbuild.spec.image_spec import ImageSpec, fill_versions
from envbuild.spec.project import Project
from envbuild.spec.recipe_loader import load_recipe
from envbuild.spec.resolve import resolve
from tests.support.recipes import recipe

pytestmark = pytest.mark.golden

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "recipes"
NAMES = sorted(path.stem.replace("_", "-") for path in (ROOT / "recipes").glob("*.py"))
EXAMPLES: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "recipes.yaml").read_text())
PROJECT = Project.find(ROOT)


def sample(name: str, options: Mapping[str, Any]) -> ImageSpec:
    """Return the smallest image with this recipe: what it requires, and what its example names."""
    example = EXAMPLES["recipes"].get(name) or {}
    for key in ("provider", "version"):
        example = {**example, **example.get(f"{key}s", {}).get(options.get(key), {})}
    layers: dict[str, Any] = {**example.get("layers", {})}
    waiting = [name, *layers]
    while waiting:
        for needed in load_recipe(PROJECT.find_recipe(waiting.pop())).requires:
            if needed not in layers and needed != name:
                layers[needed] = {}
                waiting.append(needed)
    recipes = {other: recipe(other, **given) for other, given in layers.items()}
    recipes[name] = recipe(name, **{**example.get("options", {}), **options})
    base = example.get("base", "debian:13")
    distribution = DISTRIBUTIONS[example.get("distribution", base)]
    spec = ImageSpec(
        name=f"sample-{name}",
        path=ROOT / "images" / f"sample-{name}.yaml",
        description="",
        target=example.get("target", "h100-ib" if any(other.arch_specific for other in recipes.values()) else "cpu"),
        base=base,
        python=distribution.python,
        distribution=distribution.name,
        recipes=recipes,
        env={},
        waivers=(),
        where={},
    )
    return fill_versions(spec, EXAMPLES["versions"])


def providers(name: str) -> Iterator[dict[str, str]]:
    """Yield each provider of the recipe as options, and each flavor but the default; none for a recipe without that
    choice."""
    kinds = get_type_hints(load_recipe(PROJECT.find_recipe(name)))
    choices = {key: get_args(kinds[key]) for key in ("provider", "flavor") if get_origin(kinds.get(key)) is Literal}
    yield from ({"provider": choice} if choice else {} for choice in choices.get("provider", ("",)))
    yield from ({"flavor": choice} for choice in choices.get("flavor", ())[1:])


def described(name: str) -> str:
    parts = []
    for options in providers(name):
        title = ", ".join(f"{key}: {value}" for key, value in options.items()) or "as it is"
        try:
            text = one(name, sample(name, options))
        except EnvbuildError as error:
            text = f"refused\n{error}\n"
        parts.append(f"==== {name}: {title}\n{text}")
    return "\n".join(parts)


def one(name: str, spec: ImageSpec) -> str:
    resolution = resolve(spec, targets.load_target(spec.target, PROJECT))
    request = lock_request(resolution)
    mine, env = spec.recipes[name], resolution.env
    lines = [f"image: {spec.base}, target {spec.target}, layers {', '.join(resolution.order)}"]
    for what, value in (("sources", resolution.sources[name]), ("runtime", resolution.runtimes[name])):
        for field in dataclasses.fields(value):
            content = getattr(value, field.name)
            items = content.items() if isinstance(content, Mapping) else content
            for item in items:
                lines += item_lines(f"{what}.{field.name}", item)
    lines += [f"matrix: {key} {value}" for key, value in mine.matrix(env).items()]
    lines += [f"provides: {library}" for library in mine.provides(env)]
    lines += [f"promised: {path}" for path in mine.promised(env)]
    lines += [f"extension: {module}" for module in mine.extensions()]
    plan = make_plan(resolution, draft_from_request(request))
    for unit in plan.units:
        if unit.name in (name, f"devel-{name}") and mine.builds:
            lines.append(
                f"unit on {', '.join(unit.lowers)}; {unit.memory_gb} GB a job, keeps {', '.join(unit.keep) or 'wheels'}"
            )
            for step in unit.steps:
                lines += ["", f"# {step.title}", step.command]
            lines.append("")
    lines += [
        f"verify ({check.tier}): {check.name}\n  {check.command}\n  expects {check.expect!r}"
        for check in mine.verify(env)
    ]
    return "\n".join(lines) + "\n"


def item_lines(what: str, item: object) -> list[str]:
    if isinstance(item, tuple) and len(item) == 2 and "\n" in str(item[1]):
        return [f"{what}: {item[0]}", *(f"    {line}" for line in str(item[1]).splitlines())]
    if isinstance(item, tuple):
        return [f"{what}: {item[0]}={item[1]}"]
    return [f"{what}: {item}"]


def test_every_recipe_has_its_text() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_recipe(name: str, update_golden: bool) -> None:
    stored = GOLDEN / f"{name}.txt"
    text = described(name)
    if update_golden:
        stored.write_text(text)
    assert text == stored.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_returns_the_same_twice(name: str) -> None:
    """Pure functions: nothing of the first answer is in the second."""
    with hpccm.hpccm_target("arm64"):
        pass  # another architecture in between leaves no trace
    assert described(name) == described(name)
