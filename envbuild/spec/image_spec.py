"""Image specs: ``images/NAME.yaml``, read and checked as a whole.

    schema: 1
    description: PyTorch with UCX/UCC and NCCL collectives for 8xH100 InfiniBand nodes
    extends: NAME            # another spec; this one changes what it names
    target: h100-ib
    base: debian:13          # or an image: nvcr.io/nvidia/pytorch:25.10-py3, ./app.tar, NAME of another spec
    python: "3.13"           # may be left out where the base is a distribution, which has one Python
    distribution: ubuntu:24.04   # only where the base is an image: the distribution in it
    layers:
      ucx: {version: "1.20"} # recipe: {options}
      cuda: "13.2"           # recipe: value of the option that its class calls the shorthand
      nccl: {}               # recipe with its defaults
      apex: null             # with extends: without this layer
    dev: ../mytrainer        # project folders: `envbuild.spec.dev_project`
    env: {NAME: "value"}
    waivers: [{fact: ID, reason: text}]

With `extends`, top-level keys, layers, variables and waivers (by fact) replace those of the same name; a layer is
replaced whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.distributions import DISTRIBUTIONS, PLACE
from envbuild.core.errors import SpecError
from envbuild.core.toposort import sort_topologically
from envbuild.core.yaml_reader import Reader, short
from envbuild.matrix.facts.waiver import Waiver
from envbuild.spec.enroot_rules import TUNABLE, env_value_fault, name_fault
from envbuild.spec.project import Project, is_valid_name
from envbuild.spec.recipe import Recipe, RecipeEnv
from envbuild.spec.recipe_loader import load_recipe
from envbuild.spec.recipe_options import read_options
from envbuild.spec.spec_base import SpecBase, read_base
from envbuild.spec.spec_draft import SpecDraft, read_draft

if TYPE_CHECKING:
    from envbuild.spec.dev_project import DevProject
    from envbuild.spec.target import Target

MOST_BASES = 20  # images of the project below each other; each is unpacked into the next


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """One image as its file describes it. `recipes` are in the order of the file; `where` names the place
    (``path:line:column``) of each layer, and under `envbuild.core.distributions.PLACE` that of the base. `files`: those
    that it extends, and its own."""

    name: str
    path: Path
    description: str
    target: str
    base: str
    python: str
    distribution: str
    recipes: Mapping[str, Recipe]
    env: Mapping[str, str]
    waivers: tuple[Waiver, ...]
    where: Mapping[str, str]
    text: str = ""
    dev: tuple[DevProject, ...] = ()
    files: tuple[Path, ...] = ()

    def recipe_env(self, target: Target, versions: Mapping[str, str] = {}) -> RecipeEnv:
        """Return the facts for the recipes about this image on `target`; `versions`: locked versions by package."""
        distribution = DISTRIBUTIONS[self.distribution]
        return RecipeEnv(target, self.python, self.recipes, versions, distribution, self.base)


def fill_versions(spec: ImageSpec, versions: Mapping[str, str]) -> ImageSpec:
    """Return the spec with these versions (by component) in the recipes that have none."""
    recipes = {
        name: replace(recipe, version=versions[recipe.component])
        if not recipe.version and recipe.component in versions
        else recipe
        for name, recipe in spec.recipes.items()
    }
    return replace(spec, recipes=recipes)


def load_image_spec(name: str, project: Project, above: tuple[str, ...] = ()) -> ImageSpec:
    """Return the spec called `name` (or the file of that path), checked against the recipes and targets of `project`.

    `above`: names of the images that are based on it. Raises SpecError with every mistake in its file and in the files
    that it extends, or if it is based on itself."""
    path = project.find_image(name)
    reader = Reader()
    draft = read_draft(path, project, reader, ())
    if not is_valid_name(path.stem):
        reader.wrong(
            draft.where,
            f"'{short(path.stem)}' cannot be the name of an image",
            "name the file with a-z, 0-9, '.', '_' and '-'",
        )
    target = _target(reader, draft, project)
    base = read_base(reader, draft.top, draft.where, project.images(), partial(_base_of, project, (*above, path.stem)))
    recipes = _recipes(reader, draft, project)
    _check_layers(reader, draft, recipes)
    env = _env(reader, draft)
    dev = _dev(reader, draft, base.python)
    description = (
        reader.text(draft.top["description"][1], "description", folded=True) if "description" in draft.top else ""
    )
    reader.finish()
    return ImageSpec(
        name=path.stem,
        path=path,
        description=description or "",
        target=target,
        base=base.name,
        python=base.python,
        distribution=base.distribution,
        recipes=recipes,
        env=env,
        waivers=tuple(draft.waivers.values()),
        where={PLACE: draft.top["base"][0], **{layer: place for layer, (place, _) in draft.layers.items()}},
        text=draft.text,
        dev=dev,
        files=draft.files,
    )


def _base_of(project: Project, chain: tuple[str, ...], name: str) -> SpecBase:
    """Return the base of the image `name`, on which the last of `chain` is based. Raises SpecError for a cycle."""
    if name in chain:
        names = " → ".join((*chain[chain.index(name) :], name))
        raise SpecError(f"'base' forms a cycle: {names}", "name another base in one of them")
    if len(chain) > MOST_BASES:
        raise SpecError(f"more than {MOST_BASES} images are based on each other", "name a base further down")
    spec = load_image_spec(name, project, chain)
    return SpecBase(spec.base, spec.python, spec.distribution)


def _target(reader: Reader, draft: SpecDraft, project: Project) -> str:
    if "target" not in draft.top:
        reader.wrong(
            draft.where, "the spec has no target", f"write target: NAME, one of: {', '.join(project.targets())}"
        )
        return ""
    node = draft.top["target"][1]
    name = reader.text(node, "target")
    if name is None:
        return ""
    try:
        project.find_target(name)
    except SpecError as error:
        reader.wrong(node.where, f"unknown target '{short(name)}'", error.hint)
    return name


def _recipes(reader: Reader, draft: SpecDraft, project: Project) -> dict[str, Recipe]:
    recipes: dict[str, Recipe] = {}
    for name, (place, node) in draft.layers.items():
        try:
            recipe = read_options(reader, load_recipe(project.find_recipe(name)), node)
        except SpecError as error:
            if error.where:  # a mistake in the recipe's file, reported there
                reader.findings.extend(error.findings)
            else:
                reader.wrong(place, f"unknown layer '{short(name)}'", error.hint)
            continue
        if recipe is not None:
            recipes[name] = recipe
    return recipes


def _dev(reader: Reader, draft: SpecDraft, python: str) -> tuple[DevProject, ...]:
    if "dev" not in draft.top:
        return ()
    from envbuild.spec.dev_project import read_dev_projects

    return read_dev_projects(reader, draft.top["dev"][1], draft.dev_folder, python)


def _check_layers(reader: Reader, draft: SpecDraft, recipes: Mapping[str, Recipe]) -> None:
    """Report missing layers, shared prefixes and dependency cycles."""
    for name, recipe in recipes.items():
        for needed in recipe.requires:
            if needed not in draft.layers:
                reader.wrong(
                    draft.layers[name][0], f"layer '{name}' needs layer '{needed}'", f"add under layers: {needed}: {{}}"
                )
    owners: dict[str, str] = {}
    for name, recipe in recipes.items():
        if recipe.prefix and (other := owners.setdefault(recipe.prefix.rstrip("/"), name)) != name:
            first = draft.layers[other][0]
            reader.wrong(
                draft.layers[name][0],
                f"layers '{other}' and '{name}' both install into {recipe.prefix}",
                f"keep one; '{other}' is at {first}",
            )
    _, cycle = sort_topologically({name: recipe.after for name, recipe in recipes.items()})
    if cycle:
        steps = ", ".join(f"'{above}' comes after '{below}'" for above, below in pairwise(cycle))
        reader.wrong(
            draft.layers[cycle[0]][0],
            f"dependency cycle between layers: {steps}",
            "correct 'after' in one of these recipes",
        )


def _env(reader: Reader, draft: SpecDraft) -> dict[str, str]:
    env: dict[str, str] = {}
    for name, (place, node) in draft.env.items():
        value = reader.text(node, name, env_value_fault)
        if reason := name_fault(name):
            reader.wrong(place, reason)
        elif name.startswith(TUNABLE):
            hint = f"remove it here and set it in the job: envbuild launch … -e {name}=…"
            reader.wrong(place, f"'{name}' belongs to the job: the image's value would override the job's", hint)
        elif value is not None:
            env[name] = value
    return env
