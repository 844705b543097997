"""`envbuild show NAME` of an image that has no lock yet: what its spec, its recipes and the version matrix say."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from envbuild.core.result import Result
from envbuild.core.text import flow, human_list, table
from envbuild.listing import NAMED, lacking, suppliers
from envbuild.recipefile import keys_of
from envbuild.resolve import Resolution, options
from envbuild.workspace import Workspace

TITLES = {"mirror": "from mirrors", "network": "from the network", "": "without a place"}


def show_spec(name: str, resolution: Resolution, workspace: Workspace) -> Result:
    """Layers in build order with versions and options, where the lock would take its inputs from, and what to type
    next. `name` is what was asked for: a name or a path."""
    spec = resolution.spec
    found = suppliers(resolution, workspace)
    without = lacking(found)
    command = f"envbuild lock {name}"
    data: dict[str, Any] = {
        "image": spec.name,
        "description": spec.description,
        "target": spec.target,
        "base": spec.base,
        "python": spec.python,
        "distribution": spec.distribution,
        "lock": "",
        "layers": [layer(recipe_name, resolution) for recipe_name in resolution.order],
        "env": dict(spec.env),
        "waivers": {waiver.fact: waiver.reason for waiver in resolution.waivers},
        "sources": found,
        **without,
        "made": None,
        "next": command,
    }
    rows = [[item["layer"], versioned(item), "  ".join(shown(item["options"]))] for item in data["layers"]]
    lines = [
        f"{spec.name}: {spec.description}",
        f"  target {spec.target}, base {spec.base}, python {spec.python}; no lock yet",
        table(["LAYER", "VERSION", "OPTIONS"], rows),
        *(f"  env {key}={value}" for key, value in spec.env.items()),
        *(f"  waived {waiver.fact}: {waiver.reason}" for waiver in resolution.waivers),
    ]
    for by, title in TITLES.items():
        if names := [origin for origin, supplier in found.items() if supplier == by]:
            lines += [f"{title}:", *(f"  {origin}" for origin in names)]
    mirrors = human_list(without["needs_mirror"], NAMED)
    first = f"name mirrors of {mirrors} in site.yaml, then " if mirrors else ""
    return Result(data, "\n".join([*lines, f"next: {first}{command}"]))


def layer(name: str, resolution: Resolution) -> dict[str, Any]:
    """One layer: the version, who says it (``spec``, ``matrix``, ``recipe``; empty: the lock will find one), and the
    options that are not at their default."""
    recipe = resolution.spec.recipes[name]
    made = {
        key: field.default_factory()
        for key, field in keys_of(type(recipe)).items()
        if field.default_factory is not MISSING
    }
    given = {
        key: value for key, value in options(recipe).items() if key not in made or getattr(recipe, key) != made[key]
    }
    if recipe.component in resolution.chosen and recipe.version:
        by = "matrix"
    else:
        by = "spec" if "version" in given else "recipe" if recipe.version else ""
    kept = {key: value for key, value in given.items() if key != "version"}
    return {"layer": name, "version": recipe.version, "version_by": by, "options": kept}


def versioned(item: dict[str, Any]) -> str:
    """A version with who says it, where that is not the spec."""
    why = {"matrix": " (picked)", "recipe": " (the recipe's)"}.get(item["version_by"], "")
    return f"{item['version']}{why}"


def shown(given: dict[str, Any]) -> list[str]:
    """Options as a spec writes them."""
    return [f"{key}: {flow(value)}" for key, value in given.items()]
