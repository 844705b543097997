"""Requests: what is asked of the matrix, by words on the command line, by an image spec, or by its lock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from envbuild.bases import is_image
from envbuild.errors import Finding, SpecError
from envbuild.fields import one_of, short
from envbuild.matrix import values
from envbuild.matrix.atoms import reserve
from envbuild.matrix.masks import Matrix
from envbuild.matrix.model import Component, Constraint, Term
from envbuild.recipe import Runtime
from envbuild.recipefile import ask as ask_recipe
from envbuild.recipefile import file_of
from envbuild.spec import ImageSpec
from envbuild.target import Target
from envbuild.yamlfile import shown

LOCK = "lock"
NVIDIA = re.compile(
    r"\.nv\d\d\.\d\d\Z"
)  # the release of NVIDIA's image in the version of its own torch: 2.9.0a0+….nv25.10

Line = tuple[str, str, str, str]  # (component, what it may be, its place in the spec, who says so)


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing that a request says: `component` is to be as `constraint` has it. `text` is how people read it
    (``torch==2.0.1``), `where` the place in a file, `by` who says so when it is not the person ("target h100-ib")."""

    component: str
    constraint: Constraint
    text: str
    where: str = ""
    by: str = ""


def place_of(names: Iterable[str], asks: Iterable[Ask]) -> str:
    """The place in a spec where the first of the components `names` that has one is asked for; "" when none has."""
    places = {ask.component: ask.where for ask in asks if ask.where}
    return next((places[name] for name in names if name in places), "")


def of_words(words: Sequence[str], matrix: Matrix) -> tuple[Ask, ...]:
    """The request that ``torch=2.0.1 gpu=H100 apex`` makes. Raises SpecError with every mistake."""
    asks: list[Ask] = []
    findings: list[Finding] = []
    known = {component.name: component for component in matrix.components}
    for word in words:
        try:
            component, constraint = values.asked(word, known)
            asks.append(_ask(matrix, component, constraint, plain=word))
        except SpecError as error:
            findings.extend(error.findings)
    findings += _contradictions(asks, matrix)
    if findings:
        raise SpecError.of(findings)
    return tuple(asks)


def of_image(spec: ImageSpec, target: Target, matrix: Matrix) -> tuple[Ask, ...]:
    """The request that an image makes: its base and Python, its target's hardware, its recipes. Raises SpecError with
    every mistake."""
    line = line_of(spec, "base")
    told: list[Line] = [("python", spec.python, line, f"base {spec.base}")]  # a base has one Python
    if is_image(spec.base):
        system = spec.distribution.replace(":", "")
        told.append(("os", system, line_of(spec, "distribution"), "the spec's distribution"))
    base = spec.base.partition("@")[0]
    if not is_image(spec.base) or knows(matrix, "base", base):  # of an image of one's own the facts say nothing
        told.insert(0, ("base", base, line, ""))
    node, line = f"target {target.name}", line_of(spec, "target")
    said = {"arch": target.arch, "gpu": target.gpu, "sm": target.sm, "driver": target.driver}
    told += [(component, text, line, node) for component, text in said.items() if text]
    env = spec.recipe_env(target)
    for name, recipe in spec.recipes.items():
        for component, text in ask_recipe(recipe, "matrix", dict, env).items():
            place = spec.where.get(name, "") or shown(file_of(recipe))
            told.append((str(component), str(text), place, "" if component == recipe.component else f"recipe {name}"))
    findings = [] if any(waiver.fact == "unheard" for waiver in spec.waivers) else _strange_labels(told, matrix)
    named = {component for component, *_ in told}
    for name, recipe in spec.recipes.items():
        runtime = ask_recipe(recipe, "runtime", Runtime, env)
        for component, text in required((*runtime.toolkit, *runtime.core, *runtime.python), matrix):
            if component not in named:
                told.append((component, text, spec.where.get(name, ""), ""))
    asks: dict[tuple[str, str], Ask] = {}
    for component, text, where, by in told:
        try:
            ask = _tell(matrix, component, text, where=where, by=by)
            asks[component, ask.text] = ask
        except SpecError as error:
            prefix = f"{by}: " if by else ""
            findings += [Finding(prefix + found.message, where, found.hint) for found in error.findings]
    if findings:
        raise SpecError.of(findings)
    return tuple(asks.values())


def _strange_labels(told: Sequence[Line], matrix: Matrix) -> list[Finding]:
    """Channels of PyTorch's own index that are none: its builds carry the channel as their label (``+cu126``). A recipe
    without a whole version names the CUDA of the channel instead."""
    if "torch" not in matrix.number or ("channel", "pytorch") not in {
        (component, text) for component, text, *_ in told
    }:
        return []
    values = (value for value in matrix.values[matrix.number["torch"]] if reserve(value) == 1)
    labels = sorted({value.partition("+")[2] for value in values})
    found = []
    for component, text, where, by in told:
        label = ""
        if component == "torch":
            label = text.partition("+")[2]
        elif component == "torch-cuda" and by == "recipe torch" and text != "-":
            label = f"cu{text.replace('.', '')}"
        if label and labels and label not in labels:
            message = f"layer 'torch': PyTorch's own index has no channel '{short(label)}' that the facts know"
            found.append(Finding(message, where, one_of(label, labels, "there are")))
    return found


def line_of(spec: ImageSpec, key: str) -> str:
    """Where a key of the top of a spec stands; where it comes from the spec that this one extends, the file."""
    lines = spec.text.splitlines()
    own = len(lines) - next((at for at, line in enumerate(reversed(lines)) if line == "---"), len(lines))
    number = next((at for at, line in enumerate(lines[own:], 1) if line.startswith(f"{key}:")), 0)
    return f"{shown(spec.path)}:{number}:1" if number else shown(spec.path)


def required(requirements: Iterable[str], matrix: Matrix) -> Iterator[tuple[str, str]]:
    """(component, constraint) of those Python requirements that are components: ``vllm==0.11.0``. Those with markers
    are left to the lock, which knows whether they apply."""
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


def overlaid(asks: Iterable[Ask], exact: Iterable[Ask]) -> tuple[Ask, ...]:
    """`asks` with the `exact` ones in place of those of the same components."""
    known = {ask.component: ask for ask in exact}
    kept = [replace(known[ask.component], where=ask.where) if ask.component in known else ask for ask in asks]
    return tuple(
        dict.fromkeys([*kept, *(ask for ask in known.values() if ask.component not in {k.component for k in kept})])
    )


def settled_in(shipped: Mapping[str, str], matrix: Matrix) -> dict[str, str]:
    """Component → the version of what the matrix knows among the Python packages that an image ships with
    (`envbuild.lock.versions.shipped_python`)."""
    found = {name.replace("_", "-").lower(): NVIDIA.sub("", version) for name, version in shipped.items()}
    versions: dict[str, str] = {}
    for component in matrix.components:
        for package in component.packages or (component.name,):
            if component.kind == "version" and package in found:
                versions[component.name] = values.normal(component, found[package])
                break
    return versions


def knows(matrix: Matrix, name: str, value: str) -> bool:
    """Whether the facts have heard of this value of a component."""
    try:
        _tell(matrix, name, value)
    except SpecError:
        return False
    return True


def _tell(matrix: Matrix, name: str, text: str, *, where: str = "", by: str = "") -> Ask:
    known = {component.name: component for component in matrix.components}
    component, constraint = values.asked(_word(name, text), known)
    return _ask(matrix, component, constraint, where=where, by=by)


def _word(name: str, text: str) -> str:
    if text == "*":
        return name
    return f"{name}{text}" if text[:1] in "<>=!~" else f"{name}={text}"


def _ask(
    matrix: Matrix, component: Component, constraint: Constraint, *, plain: str = "", where: str = "", by: str = ""
) -> Ask:
    if by != LOCK:  # what was locked did exist, whatever the facts have heard of
        _existed(component, constraint)
    return Ask(component.name, constraint, phrase(component, constraint, plain), where, by)


def _only(constraint: Constraint) -> Term | None:
    """The one term of a constraint that has one."""
    one = constraint.alternatives[0] if len(constraint.alternatives) == 1 else ()
    return one[0] if len(one) == 1 else None


def phrase(component: Component, constraint: Constraint, plain: str = "") -> str:
    """How people read an ask: ``H100``, ``torch==2.0.1``, ``torch>=2.1``."""
    term = _only(constraint)
    if term and term.op in ("==", "is", "in") and term.operand:
        shown = f"sm_{term.operand.replace('.', '')}" if component.kind == "sm" else term.operand
        return component.shown.format(name=component.name, value=shown)
    if constraint.text == "*":
        return component.name
    return plain or f"{component.name}{constraint.text}"


def _existed(component: Component, constraint: Constraint) -> None:
    """Raises SpecError for one version asked for by name that lies between those that there were."""
    term, known = _only(constraint), component.values
    if not (component.complete and known and term and component.kind == "version" and term.op in ("==", "in")):
        return
    if any(values.matches(component, constraint, value) for value in known) or "+" in term.operand:
        return
    if (neighbours := values.between(component, term.operand)) is not None:
        below, above = (f"{component.name}={value}" for value in neighbours)
        raise SpecError(
            f"there never was a {component.name} {short(term.operand)}", f"next to it are {below} and {above}"
        )


def _contradictions(asks: Iterable[Ask], matrix: Matrix) -> list[Finding]:
    """Asks about one component that no value can satisfy together."""
    findings = []
    by_name: dict[str, list[Ask]] = {}
    for ask in asks:
        by_name.setdefault(ask.component, []).append(ask)
    for name, group in by_name.items():
        if len(group) > 1 and not matrix.together(name, [ask.constraint for ask in group]):
            texts = " and ".join(dict.fromkeys(ask.text for ask in group))
            findings.append(Finding(f"contradictory arguments: {texts}", hint=f"give {name} once"))
    return findings


def picked(versions: Mapping[str, str], matrix: Matrix) -> tuple[Ask, ...]:
    """Asks for versions that were picked once; those that nobody knows any more are left out."""
    return tuple(
        _tell(matrix, name, f"=={value}", by=LOCK) for name, value in versions.items() if matrix.component(name)
    )
