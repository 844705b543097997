"""Resolve: a spec and its target become one consistent whole.

`resolve` makes only checks that are certain; the answer of the version matrix and the versions that it picks come
from `resolve_with_matrix`.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from envbuild.core.errors import ConflictError, Finding, SpecError, UnknownError
from envbuild.core.toposort import sort_topologically
from envbuild.core.yaml_nodes import relative_path
from envbuild.core.yaml_reader import short
from envbuild.matrix.facts.waiver import Waiver
from envbuild.net.origin_kinds import SOURCE_KINDS
from envbuild.spec import target as targets
from envbuild.spec.compatible_layers import check_compatible
from envbuild.spec.host_compiler import host_compiler, with_host_compiler
from envbuild.spec.image_spec import ImageSpec
from envbuild.spec.local_wheels import LocalWheel, read_local_wheels
from envbuild.spec.project import Project
from envbuild.spec.recipe import Archive, Git, Recipe, RecipeEnv, Runtime, Sources
from envbuild.spec.recipe_calls import call_recipe, recipe_file
from envbuild.spec.target import Target

if TYPE_CHECKING:
    from envbuild.matrix.answer.verdict import Answer
    from envbuild.spec.dev_project import DevContent


@dataclass(frozen=True, slots=True, eq=False)  # by identity: `lock_request` is computed once for each
class Resolution:
    """A spec with everything that follows from it.

    `order` are the recipes, each after those it depends on. `runtime` are the needs of the finished image, merged from
    all recipes; in its `env` the recipes' variables override the target's, and the spec's override both. `runtimes` and
    `sources` are each recipe's own. `chosen`: component → the version that was picked for a recipe without one;
    `answer` is the answer of the version matrix (None: not queried). `wheels`: those of the project that the image
    gets. `contents`: of its project folders (`dev`), or nothing for an image in which they are mounted."""

    spec: ImageSpec
    target: Target
    order: tuple[str, ...]
    env: RecipeEnv
    runtimes: Mapping[str, Runtime]
    sources: Mapping[str, Sources]
    runtime: Runtime
    waivers: tuple[Waiver, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)
    answer: Answer | None = None
    wheels: tuple[LocalWheel, ...] = ()
    contents: tuple[DevContent, ...] = ()

    def mounted(self) -> Resolution:
        """Return the resolution of the image in which the project folders are mounted, not copied."""
        return replace(self, contents=()) if self.contents else self

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """Return the recipes, in order."""
        return tuple(self.spec.recipes[name] for name in self.order)

    @property
    def compiled(self) -> tuple[str, ...]:
        """Return the names of the recipes that have a build unit, in order."""
        return tuple(recipe.name for recipe in self.recipes if recipe.builds)

    def remarks(self) -> list[str]:
        """Return the remarks of the recipes about themselves, each with the name of its layer."""
        found = [f"{recipe.name}: {text}" for recipe in self.recipes for text in call_recipe(recipe, "remarks", tuple)]
        if self.spec.dev:
            from envbuild.spec.dev_project import dev_remarks

            found += dev_remarks(self.spec.dev, self.contents)
        return found


def resolve(spec: ImageSpec, target: Target) -> Resolution:
    """Return the recipes of `spec` in order, with the inputs and needs of each on `target`.

    Raises ConflictError for an incompatible combination, SpecError for a recipe that fails."""
    order, cycle = sort_topologically({name: recipe.after for name, recipe in spec.recipes.items()})
    if cycle:  # `load_image_spec` reports it with its place; this is for specs made in memory
        raise SpecError(f"dependency cycle between layers: {', '.join(cycle)}", where=spec.name)
    env = spec.recipe_env(target)
    check_compatible(spec, target, env)
    runtimes: dict[str, Runtime] = {}
    sources: dict[str, Sources] = {}
    for name in order:
        recipe = spec.recipes[name]
        runtimes[name] = call_recipe(recipe, "runtime", Runtime, env)
        given = call_recipe(recipe, "sources", Sources, env)
        sources[name] = with_host_compiler(given, host_compiler(name, spec.recipes))
    _check_origins(spec, sources)
    _check_commits(spec, sources)
    runtime = _merge(spec, target, runtimes)
    wheels = tuple(
        wheel
        for name, item in runtimes.items()
        if item.wheels
        for wheel in read_local_wheels(spec.path.parent, item.wheels, name, spec.where.get(name, ""))
    )
    return Resolution(spec, target, order, env, runtimes, sources, runtime, spec.waivers, wheels=wheels)


def resolve_with_matrix(spec: ImageSpec, project: Project, picks: Mapping[str, str]) -> Resolution:
    """Return `resolve` with the target of `project` that the spec names, and with the versions that the matrix picks
    where the spec has none. `picks`: component → a version picked before, which is preserved while it is
    consistent.

    Raises ConflictError for versions that cannot work together, UnknownError if no fact covers them.
    """
    from envbuild.matrix.facts.compile import load_fact_table
    from envbuild.spec.pick_versions import pick_versions, picked_versions

    target = targets.load_target(spec.target, project)
    try:
        whole, answer = pick_versions(spec, target, load_fact_table(project.facts()), picks)
    except (ConflictError, UnknownError):
        check_compatible(spec, target)  # the recipes' reasons are clearer than the matrix's
        raise
    return replace(resolve(whole, target), chosen=picked_versions(spec, answer), answer=answer)


def explicit_options(recipe: Recipe) -> dict[str, object]:
    """Return the options of a recipe that are not at their default, as plain data for JSON and YAML."""
    values = ((field, getattr(recipe, field.name)) for field in dataclasses.fields(recipe))
    return {field.name: plain_value(value) for field, value in values if value != field.default}


def plain_value(value: object) -> object:
    """Return the value of an option as plain data for JSON and YAML."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _check_origins(spec: ImageSpec, sources: Mapping[str, Sources]) -> None:
    """Raise SpecError for an origin of a kind that a site cannot map to an address."""
    findings = [
        Finding(
            f"recipe '{name}': origin '{short(item.origin)}' of {item.file} has an unknown kind",
            relative_path(recipe_file(spec.recipes[name])),
            f"begin it with one of: {', '.join(f'{kind}:' for kind in SOURCE_KINDS)}",
        )
        for name, source in sources.items()
        for item in _named(source)
        if item.origin.partition(":")[0] not in SOURCE_KINDS or ":" not in item.origin
    ]
    if findings:
        raise SpecError.of(findings)


def _named(source: Sources) -> list[Archive | Git]:
    return [*source.archives, *source.git]


def _check_commits(spec: ImageSpec, sources: Mapping[str, Sources]) -> None:
    """Raise SpecError for a commit that is not a full hash: a prefix, a branch or a tag can name another commit
    later."""
    findings = [
        Finding(
            f"recipe '{name}': commit '{short(git.commit)}' of {short(git.origin)} is not a full hash",
            spec.where.get(name, "") or relative_path(recipe_file(spec.recipes[name])),
            "write all 40 hexadecimal digits",
        )
        for name, source in sources.items()
        for git in source.git
        if not re.fullmatch(r"[0-9a-f]{40}", git.commit)
    ]
    if findings:
        raise SpecError.of(findings)


def _merge(spec: ImageSpec, target: Target, runtimes: Mapping[str, Runtime]) -> Runtime:
    """Return all runtimes as one. PATH is joined in the order of the recipes; every other variable and file must have
    one value."""
    env: dict[str, str] = {name: reasoned.value for name, reasoned in target.env.items()}
    owners: dict[str, str] = {}
    paths: list[str] = []
    files: dict[str, str] = {}
    findings: list[Finding] = []

    def claim(what: str, name: str, same: bool) -> None:
        other = owners.setdefault(what, name)
        if not same and other != name:
            message = f"layers '{other}' and '{name}' are incompatible: they define {what} differently"
            findings.append(Finding(message, spec.where.get(name, ""), f"set it in the spec's env, or remove '{name}'"))

    for name, runtime in runtimes.items():
        for key, value in runtime.env.items():
            if key == "PATH":
                paths += [folder for folder in value.split(":") if folder not in paths]
            elif key not in spec.env:
                claim(f"variable {key}", name, env.get(key) == value)
                env[key] = value
        for path, text in runtime.files.items():
            claim(f"file {path}", name, files.get(path) == text)
            files[path] = text
    if findings:
        raise ConflictError.of(findings)
    if paths:
        env["PATH"] = ":".join(paths)
    env.update(spec.env)
    return Runtime(
        debian=_union(runtime.debian for runtime in runtimes.values()),
        python=_union(runtime.python for runtime in runtimes.values()),
        core=_union(runtime.core for runtime in runtimes.values()),
        toolkit=_union(runtime.toolkit for runtime in runtimes.values()),
        env=dict(sorted(env.items())),
        libraries=_union(runtime.libraries for runtime in runtimes.values()),
        wheels=_union(runtime.wheels for runtime in runtimes.values()),
        files=dict(sorted(files.items())),
        replaces={name: version for runtime in runtimes.values() for name, version in runtime.replaces.items()},
    )


def _union(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))
