"""``envbuild show NAME``: the units and versions of an image; without a lock, what its spec, its recipes and the
version matrix provide."""

from __future__ import annotations

from dataclasses import MISSING, asdict
from typing import Any

from envbuild.build.plan.units import Plan
from envbuild.cli.inputs_state import NAMED, lacking, suppliers
from envbuild.core.result import Result
from envbuild.core.store.store import Store
from envbuild.core.text import amount, flow, human_list, table
from envbuild.export.built_image import read_image_record
from envbuild.lock.model import lock_digest
from envbuild.lock.resolve import resolve_image
from envbuild.lock.update import current_lock
from envbuild.spec.recipe_options import option_fields
from envbuild.spec.resolve import Resolution, explicit_options
from envbuild.spec.workspace import Workspace
from envbuild.verify.contents.squashfs_path import find_squashfs_file

TITLES = {"mirror": "from mirrors", "network": "from public places", "": "without a place"}


def show_image(name: str, workspace: Workspace) -> Result:
    """Return a description of an image or of a squashfs file.

    With a lock: units with keys and state, and versions. Without a lock: its spec (`show_spec`). A squashfs file: its
    origin and contents (`envbuild.cli.show_file`).
    """
    file = find_squashfs_file(name)
    if file:
        from envbuild.cli.show_file import show_file

        return show_file(file)
    resolution = resolve_image(name, workspace)
    if not workspace.project.lock_path(resolution.spec.path).is_file():
        return show_spec(name, resolution, workspace)
    return show_locked(name, resolution, workspace)


def show_locked(name: str, resolution: Resolution, workspace: Workspace) -> Result:
    """Return the units with their keys and state, and the locked versions."""
    from envbuild.build.plan.planner import make_plan

    lock = current_lock(resolution, workspace)
    plan = make_plan(resolution, lock)
    done = read_image_record(resolution, workspace)
    units = unit_rows(plan, workspace.store)
    data = {
        "image": lock.image,
        "target": resolution.target.name,
        "base": lock.base,
        "lock": lock_digest(lock),
        "epoch": lock.epoch,
        "versions": dict(lock.versions),
        "env": dict(plan.config.env),
        "remarks": resolution.remarks(),
        "units": units,
        "made": asdict(done) if done else None,
    }
    rows = [
        [
            u["unit"],
            u["key"],
            "image" if u["in_image"] else "build",
            amount(u["size"]) if u["size"] else "",
            f"{u['seconds']} s",
            short(str(u["product"])),
        ]
        for u in units
    ]
    head = (
        f"{lock.image}: {resolution.spec.description}\n"
        f"  target {resolution.target.name}, base {lock.base}, lock {lock_digest(lock)[7:19]}\n"
    )
    versions = "".join(f"  {component} {version}\n" for component, version in sorted(lock.versions.items()))
    versions += "".join(f"  note: {remark}\n" for remark in resolution.remarks())
    made = f"  squashfs {done.artifact}\n" if done else f"  not built: envbuild make {name}\n"
    return Result(data, head + versions + made + table(["UNIT", "KEY", "PART", "SIZE", "TOOK", "PRODUCT"], rows))


def unit_rows(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """Return the units of a plan with their keys and what the store has of each."""
    keys = plan.keys()
    units: list[dict[str, Any]] = []
    for unit in plan.units:
        record = store.unit(keys[unit.name])
        product = (
            record.layer.diff_id
            if record and record.layer
            else ", ".join(file for file, _ in record.wheels)
            if record
            else ""
        )
        units.append(
            {
                "unit": unit.name,
                "key": keys[unit.name][:12],
                "in_image": unit.in_image,
                "depends_on": list(plan.needs(unit)),
                "product": product,
                "size": record.layer.size if record and record.layer else 0,
                "seconds": round(record.seconds, 1) if record else 0.0,
                "box": dict(record.box) if record else {},
                "source": record.source if record else "",
            }
        )
    return units


def short(digest: str) -> str:
    """Return a digest cut to 12 hexadecimal digits."""
    return digest[:19] if digest.startswith("sha256:") else digest


def show_spec(name: str, resolution: Resolution, workspace: Workspace) -> Result:
    """Return the layers in build order with versions and options, the places of the inputs, and the next command.

    name: what the user typed, a name or a path.
    """
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
        "remarks": resolution.remarks(),
        "sources": found,
        **without,
        "made": None,
        "next": command,
    }
    rows = [[item["layer"], versioned(item), "  ".join(option_lines(item["options"]))] for item in data["layers"]]
    lines = [
        f"{spec.name}: {spec.description}",
        f"  target {spec.target}, base {spec.base}, python {spec.python}; no lock yet",
        table(["LAYER", "VERSION", "OPTIONS"], rows),
        *(f"  env {key}={value}" for key, value in spec.env.items()),
        *(f"  waived {waiver.fact}: {waiver.reason}" for waiver in resolution.waivers),
        *(f"  note: {remark}" for remark in resolution.remarks()),
    ]
    for by, title in TITLES.items():
        if names := [origin for origin, supplier in found.items() if supplier == by]:
            lines += [f"{title}:", *(f"  {origin}" for origin in names)]
    mirrors = human_list(without["needs_mirror"], NAMED)
    first = f"name mirrors of {mirrors} in site.yaml, then " if mirrors else ""
    return Result(data, "\n".join([*lines, f"next: {first}{command}"]))


def layer(name: str, resolution: Resolution) -> dict[str, Any]:
    """Return a layer: its version, where the version comes from (``spec``, ``matrix``, ``recipe``; "": the lock will
    find one), and the options that differ from their default."""
    recipe = resolution.spec.recipes[name]
    made = {
        key: field.default_factory()
        for key, field in option_fields(type(recipe)).items()
        if field.default_factory is not MISSING
    }
    given = {
        key: value
        for key, value in explicit_options(recipe).items()
        if key not in made or getattr(recipe, key) != made[key]
    }
    if recipe.component in resolution.chosen and recipe.version:
        by = "matrix"
    else:
        by = "spec" if "version" in given else "recipe" if recipe.version else ""
    rest = {key: value for key, value in given.items() if key != "version"}
    return {"layer": name, "version": recipe.version, "version_by": by, "options": rest}


def versioned(item: dict[str, Any]) -> str:
    """Return a version as text, with where it comes from unless that is the spec."""
    why = {"matrix": " (picked)", "recipe": " (the recipe's)"}.get(item["version_by"], "")
    return f"{item['version']}{why}"


def option_lines(given: dict[str, Any]) -> list[str]:
    """Return options as a spec writes them."""
    return [f"{key}: {flow(value)}" for key, value in given.items()]
