"""Rows of a report about a build: sizes of layers, seconds of units; without one, what spec and target declare."""

from __future__ import annotations

from envbuild.build.plan.units import Plan
from envbuild.core.store.store import Store
from envbuild.export.built_image import ImageRecord
from envbuild.matrix.answer.verdict import Answer
from envbuild.report.known_image import KnownImage
from envbuild.report.model import Component, Part, Step
from envbuild.spec.recipe import Sources

BUILD = "build"


def layer_parts(made: ImageRecord, plan: Plan, store: Store) -> tuple[Part, ...]:
    """Return the layers of a built image, bottom first, with the sizes of their archives."""
    titles = {}
    for unit, key in plan.keys().items():
        record = store.unit(key)
        if record and record.layer:
            titles[record.layer.diff_id] = unit
    found = [(layer, store.find_layer(layer)) for layer in made.layers]
    return tuple(
        Part(titles.get(diff_id, "base image"), layer.size, f"{layer.files} files, {diff_id[:19]}")
        for diff_id, layer in found
        if layer
    )


def build_steps(plan: Plan, store: Store) -> tuple[Step, ...]:
    """Return the units that the store has, each with the seconds of its build, the longest first."""
    rows = []
    for unit, key in plan.keys().items():
        if record := store.unit(key):
            about = f"from {record.source}" if record.source else ""
            rows.append(Step(unit, round(record.seconds, 1), BUILD, about))
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name)))


def spec_components(known: KnownImage, answer: Answer) -> tuple[Component, ...]:
    """Return the layers of an image without a lock: the versions that the matrix picks, else those of the spec."""
    rows = []
    for name, recipe in sorted(known.spec.recipes.items()):
        version = answer.chosen.get(recipe.component) or str(getattr(recipe, "version", "") or "")
        sources = known.resolution.sources[name] if known.resolution else Sources()
        origins = [archive.origin for archive in sources.archives]
        origins += [f"{git.origin}@{git.commit}" for git in sources.git]
        rows.append(Component(name, version, ", ".join(origins)))
    return tuple(rows)
