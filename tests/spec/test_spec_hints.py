"""Hints of an image are lines of its spec: written into it, they lead to an answer."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from envbuild.cli.check_images import check_image
from envbuild.core.errors import EnvbuildError
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.recipe_loader import load_recipe
from envbuild.spec.spec_line import layer_text
from tests.support.shipped_facts import shipped_matrix

pytestmark = pytest.mark.unit

IMAGES = Path(__file__).parents[2] / "images"
SEED = 20261123
CHANGED = 24  # shipped images with one changed version
BAD = ("conflict", "unknown", "refused", "error")


def spec_content(path: Path) -> dict[str, Any]:
    """Return the content of a shipped spec, with that of the spec it extends."""
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    if "extends" not in content:
        return content
    whole = spec_content(path.parent / f"{content.pop('extends')}.yaml")
    layers = {**whole["layers"], **content.pop("layers", {})}
    return {**whole, **content, "layers": layers}


def verdict_of(folder: Path, content: dict[str, Any]) -> tuple[str, list[str]]:
    """Return (the verdict about a spec, the hints of its answer)."""
    path = folder / "images" / "changed.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    try:
        result = check_image(str(path))
    except EnvbuildError:
        return "error", []
    answer = result.answer
    hints = [fix for conflict in answer.conflicts for fix in conflict.fixes] + list(answer.nearest)
    return ("refused", []) if result.refusals else (result.verdict, list(dict.fromkeys(hints)))


def write_hint(content: dict[str, Any], hint: str) -> dict[str, Any]:
    """Return a spec with the lines of a hint in it."""
    content = yaml.safe_load(yaml.safe_dump(content))
    assert hint.startswith("write ")
    for part in re.split(r" and (?=[a-z#][a-z0-9-]*:? )|, also needs ", hint.removeprefix("write ")):
        line, _, place = part.rpartition(" in ")
        assert place.removeprefix("layers of ").partition(":")[0].endswith("changed.yaml")
        if line.startswith("# "):
            del content["layers"][line[2:].partition(":")[0]]
        elif line.startswith("base: "):
            for key in line.split(" with "):
                content.update(yaml.safe_load(key))
        else:
            content["layers"].update(yaml.safe_load(line))
    return content


@pytest.mark.slow_unit
def test_hints_written_into_shipped_images_lead_to_an_answer(tmp_path: Path) -> None:
    chance, matrix, typed = random.Random(SEED), shipped_matrix(), 0
    paths = sorted(IMAGES.glob("*.yaml"))
    wrong = []
    for _ in range(CHANGED):
        path = chance.choice(paths)
        recipes = load_image_spec(path.stem, Project.of(path.stem)).recipes
        named = [name for name, recipe in recipes.items() if recipe.component in matrix.number]
        name = chance.choice(named)
        version = chance.choice(matrix.values[matrix.number[recipes[name].component]]).partition("+")[0]
        content = spec_content(path)
        options = content["layers"][name]
        content["layers"][name] = {**(options if isinstance(options, dict) else {}), "version": version}
        _, hints = verdict_of(tmp_path, content)
        for hint in hints:
            typed += 1
            after, _ = verdict_of(tmp_path, write_hint(content, hint))
            if after in BAD:
                wrong.append((path.stem, name, version, hint, after))
    assert typed > 5
    assert wrong == []


def conflict_of(folder: Path, layers: str, target: str = "h100-ib", base: str = "debian:12") -> tuple[str, list[str]]:
    return verdict_of(folder, yaml.safe_load(f"{{schema: 1, target: {target}, base: {base}, layers: {layers}}}"))


def test_two_lines_that_change_together_and_keep_their_options(tmp_path: Path) -> None:
    vendor = '{cuda: {version: "12.6", provider: apt}, torch: {version: "2.6.0", provider: vendor, channel: cu126}}'
    verdict, hints = conflict_of(tmp_path, vendor, "b200-ib")
    assert verdict == "conflict"
    assert 'torch: {version: "2.7.0", provider: vendor, channel: cu128} in ' in hints[0]
    assert 'cuda: {version: "12.8", provider: apt} in ' in hints[0]


def test_a_python_package_is_proposed_as_its_layer(tmp_path: Path) -> None:
    layers = '{cuda: "13.2", torch: "2.15", python-packages: [datasets, "torchvision==0.25.0"]}'
    verdict, hints = conflict_of(tmp_path, layers, base="debian:13")
    assert verdict == "conflict"
    assert any(hint.startswith("write python-packages: [datasets") for hint in hints)


def test_no_hint_names_what_the_spec_has_no_line_for(tmp_path: Path) -> None:
    verdict, hints = conflict_of(tmp_path, '{cuda: "13.2", torch: "2.15", nccl: {}}', "h100-ib-550", "debian:13")
    assert verdict == "conflict"
    assert not [hint for hint in hints if "cuda-compat" in hint or "driver" in hint]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"version": "2.8.0"}, 'torch: "2.8.0"'),
        ({"version": "2.8"}, 'torch: "2.8"'),
        ({}, "torch: {}"),
        ({"version": "2.8.0", "compiler": False}, 'torch: {version: "2.8.0", compiler: false}'),
        ({"provider": "vendor", "channel": "cu128", "beside": ("torchvision",)}, None),
    ],
)
def test_a_layer_as_text_is_the_same_layer(options: dict[str, Any], text: str | None) -> None:
    recipe = load_recipe(IMAGES.parent / "recipes" / "torch.py")(**options)
    line = layer_text("torch", recipe)
    assert text is None or line == text
    ((_, value),) = yaml.safe_load(line).items()
    read = value if isinstance(value, dict) else {"version": value}
    assert {key: tuple(one) if isinstance(one, list) else one for key, one in read.items()} == options
