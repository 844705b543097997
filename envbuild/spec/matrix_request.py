"""The request of an image to the version matrix, made from its spec and the versions in its lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from envbuild.core.distributions import is_image
from envbuild.core.errors import Finding, SpecError
from envbuild.core.yaml_nodes import relative_path
from envbuild.core.yaml_reader import one_of, short
from envbuild.matrix.facts.atoms import pick_penalty
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.values import InvalidValueError, normalize_value
from envbuild.matrix.solve.request import Ask, is_known_value, parse_ask
from envbuild.spec.image_spec import ImageSpec
from envbuild.spec.recipe import RecipeEnv, Runtime
from envbuild.spec.recipe_calls import call_recipe, recipe_file
from envbuild.spec.target import SITE_DRIVER, Target

# The release of NVIDIA's image in the version of its own torch: 2.9.0a0+….nv25.10.
NVIDIA = re.compile(r"\.nv\d\d\.\d\d\Z")

OWN_IMAGE = "own image"  # a base image that the facts do not know, of which the spec states what it is

Line = tuple[str, str, str, str]  # (component, constraint, place in the spec, origin)


def image_request(spec: ImageSpec, target: Target, matrix: FactTable) -> tuple[Ask, ...]:
    """Return the request of an image: its base and Python, its target's hardware, its recipes. Raises SpecError with
    every mistake."""
    env = spec.recipe_env(target)
    requested = [*_base_lines(spec, matrix), *_target_lines(spec, target), *_recipe_lines(spec, env)]
    channels = [] if any(waiver.fact == "unheard" for waiver in spec.waivers) else _unknown_channels(requested, matrix)
    findings = list(channels)
    named = {component for component, *_ in requested}
    for name, recipe in spec.recipes.items():
        runtime = call_recipe(recipe, "runtime", Runtime, env)
        for component, text in required_components((*runtime.toolkit, *runtime.core, *runtime.python), matrix):
            if component not in named:
                requested.append((component, text, spec.where.get(name, ""), ""))
    asks: dict[tuple[str, str], Ask] = {}
    for component, text, where, by in requested:
        if channels and component == "torch":
            continue
        try:
            ask = parse_ask(matrix, component, text, where=where, by=by)
            asks[component, ask.text] = ask
        except SpecError as error:
            prefix = f"{by}: " if by else ""
            findings += [Finding(prefix + found.message, where, found.hint) for found in error.findings]
    if findings:
        raise SpecError.of(findings)
    return tuple(asks.values())


def _base_lines(spec: ImageSpec, matrix: FactTable) -> list[Line]:
    """Return what the base requests."""
    line = key_place(spec, "base")
    requested: list[Line] = []
    base = spec.base.partition("@")[0]
    if not is_image(spec.base) or is_known_value(matrix, "base", base):
        requested.append(("base", base, line, ""))
    elif is_known_value(matrix, "base", OWN_IMAGE):
        requested.append(("base", OWN_IMAGE, line, f"base {spec.base}"))
    requested.append(("python", spec.python, line, f"base {spec.base}"))  # a base has one Python
    if is_image(spec.base):
        system = spec.distribution.replace(":", "")
        requested.append(("os", system, key_place(spec, "distribution"), "the spec's distribution"))
    return requested


def _target_lines(spec: ImageSpec, target: Target) -> list[Line]:
    """Return what the hardware of the target requests."""
    line = key_place(spec, "target")
    hardware = {"arch": target.arch, "gpu": target.gpu, "sm": target.sm, "driver": target.driver}
    hardware["fabric"] = target.fabric if target.fabric != "none" else ""
    site = SITE_DRIVER if target.driver_because == SITE_DRIVER else ""
    return [
        (component, text, line, site if site and component == "driver" else f"target {target.name}")
        for component, text in hardware.items()
        if text
    ]


def _recipe_lines(spec: ImageSpec, env: RecipeEnv) -> Iterator[Line]:
    """Yield what the recipes request."""
    for name, recipe in spec.recipes.items():
        for component, text in call_recipe(recipe, "matrix", dict, env).items():
            place = spec.where.get(name, "") or relative_path(recipe_file(recipe))
            yield str(component), str(text), place, "" if component == recipe.component else f"recipe {name}"


def _unknown_channels(requested: Sequence[Line], matrix: FactTable) -> list[Finding]:
    """Return findings for channels that PyTorch's own index does not have: the label of its builds is the channel
    (``+cu126``). A recipe without a full version names the CUDA of the channel instead."""
    if "torch" not in matrix.number or ("channel", "pytorch") not in {
        (component, text) for component, text, *_ in requested
    }:
        return []
    values = (value for value in matrix.values[matrix.number["torch"]] if pick_penalty(value) == 1)
    labels = sorted({value.partition("+")[2] for value in values})
    found = []
    for component, text, where, by in requested:
        label = ""
        if component == "torch":
            label = text.partition("+")[2]
        elif component == "torch-cuda" and by == "recipe torch" and text != "-":
            label = f"cu{text.replace('.', '')}"
        if label and labels and label not in labels:
            message = f"layer 'torch': no fact has a channel '{short(label)}' of PyTorch's own index"
            found.append(Finding(message, where, one_of(label, labels, "there are")))
    return found


def key_place(spec: ImageSpec, key: str) -> str:
    """Return the place of a top-level key of a spec; if the key comes from the spec that this one extends, the file."""
    lines = spec.text.splitlines()
    own = len(lines) - next((at for at, line in enumerate(reversed(lines)) if line == "---"), len(lines))
    number = next((at for at, line in enumerate(lines[own:], 1) if line.startswith(f"{key}:")), 0)
    return f"{relative_path(spec.path)}:{number}:1" if number else relative_path(spec.path)


def required_components(requirements: Iterable[str], matrix: FactTable) -> Iterator[tuple[str, str]]:
    """Yield (component, constraint) of those Python requirements that are components: ``vllm==0.11.0``. Those with
    markers are left to the lock, which evaluates markers."""
    packages = {
        package: component.name
        for component in matrix.components
        if component.kind == "version"
        for package in component.packages or (component.name,)
    }
    for requirement in requirements:
        match = re.fullmatch(r"([A-Za-z0-9._-]+?)(\[[^\]]*\])?\s*([<>=!~].*)?", requirement.strip())
        component = packages.get(match[1].replace("_", "-").lower()) if match and ";" not in requirement else None
        if match and component:
            yield component, (match[3] or "*").replace(" ", "")


def shipped_versions(shipped: Mapping[str, str], matrix: FactTable, warn: Callable[[str], None]) -> dict[str, str]:
    """Return component → version, for the components among the Python packages that an image ships with
    (`envbuild.lock.component_versions.shipped_python`).

    One in a version that the matrix does not read is unknown to it, as one that the image does not have: a base image
    states any text. `warn` is called for it."""
    found = {name.replace("_", "-").lower(): NVIDIA.sub("", version) for name, version in shipped.items()}
    versions: dict[str, str] = {}
    for component in matrix.components:
        for package in component.packages or (component.name,):
            if component.kind == "version" and package in found:
                try:
                    versions[component.name] = normalize_value(component, found[package])
                except InvalidValueError as error:
                    warn(f"{package} of the image is not checked: {error.message}")
                break
    return versions
