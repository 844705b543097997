"""docs/images.md: one row for each shipped image, from its spec, its target and the record of what was built.

The record (docs/images.yaml) has for each image either figures of a build with verify, or the reason why none was made.
It is written by hand from the evidence of a build; the page is made from it and from the specs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from envbuild.spec.image_spec import ImageSpec, load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.recipe import Recipe

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "images.yaml"
PAGE = ROOT / "docs" / "images.md"
# Layers whose names do not show what an image is for.
PLAIN = ("python-packages", "debian-packages", "files")
INTRODUCTION = """\
# Shipped images

Made from the specs in [images/](../images) and from `docs/images.yaml`, the record of builds, by `pytest
tests/docs/test_images_page.py --update-golden`; a test compares. *Built* means: built, audited and verified without a
GPU on the date given. Checks of the tiers `gpu` and `fabric` need a node and did not run for any image. *Not run*
means that no build of this state is recorded; the reason names what was missing. Such a spec is checked against the
version matrix, and its build steps against stored texts, and no more.

A version that a spec leaves open is picked when the image is locked (`envbuild show NAME`).

| image | for | components | state |
|---|---|---|---|
"""


def read_record() -> Mapping[str, Any]:
    """Return the record of builds: image → its entry."""
    return dict(yaml.safe_load(RECORD.read_text())["images"])


def specs() -> list[ImageSpec]:
    """Return the shipped images, by name."""
    project = Project.find(ROOT)
    return [load_image_spec(name, project) for name in sorted(path.stem for path in (ROOT / "images").glob("*.yaml"))]


def images_page() -> str:
    """Return the text of docs/images.md."""
    record = read_record()
    rows = [row(spec, record[spec.name]) for spec in specs()]
    return INTRODUCTION + "\n".join(rows) + "\n"


def row(spec: ImageSpec, entry: Mapping[str, Any]) -> str:
    components = ", ".join(component(recipe) for name, recipe in spec.recipes.items() if name not in PLAIN)
    where = f"`{spec.target}`, on `{spec.base}`"
    return f"| `{spec.name}` | {spec.description} ({where}) | {components} | {state(spec, entry)} |"


def component(recipe: Recipe) -> str:
    """Return the name of a layer, with its version if the spec names one."""
    return f"{recipe.name} {recipe.version}".strip()


def state(spec: ImageSpec, entry: Mapping[str, Any]) -> str:
    locked = "locked; " if (ROOT / "images" / f"{spec.name}.lock").exists() else ""
    if "not_run" in entry:
        return f"{locked}*not run*: {entry['not_run']}"
    built = entry["built"]
    note = f"; {built['note']}" if "note" in built else ""
    return (
        f"{locked}built {built['date']}: squashfs file of {built['squashfs_mb']:,} MB, {built['passed']} checks "
        f"passed{note}"
    )
