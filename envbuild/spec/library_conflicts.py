"""Second copies: Debian and Python packages that contain a library which the image also has from another source.

A program then loads the copy that the loader finds first, and a process that loads both hangs or crashes. The audit
checks the finished image for second copies (`envbuild.verify.single_copy`). Those that the names of packages reveal are
refused before anything is fetched, those of dependencies as soon as the Python packages are resolved
(`find_wheel_copies`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields
from typing import get_args

from envbuild.core.errors import Finding
from envbuild.spec.library_names import debian_libraries, python_name, required_wheel, wheel_libraries
from envbuild.spec.recipe import Recipe, RecipeEnv, Runtime
from envbuild.spec.recipe_calls import call_recipe

SEARCH_ORDER = "and the search order decides which copy a program loads"
LISTS = ("debian-packages", "python-packages")  # the layers that only list packages


def find_second_copies(env: RecipeEnv, where: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each package that a recipe installs by name and that contains a library of another recipe.

    where: place of each layer in the spec.
    Two recipes that both provide a library are not reported here.
    """
    runtimes = {name: call_recipe(recipe, "runtime", Runtime, env) for name, recipe in env.recipes.items()}
    provides = {name: call_recipe(recipe, "provides", tuple, env) for name, recipe in env.recipes.items()}
    for owner, libraries in provides.items():
        own = set(libraries) - {library for package in runtimes[owner].debian for library in debian_libraries(package)}
        for name, runtime in runtimes.items():
            if name != owner:
                yield from debian_copy_findings(env, where, name, runtime, owner, own - set(provides[name]))
    wheels: dict[str, tuple[str, ...]] = {}
    # a requirement with a marker applies to this image or not: that is known when it is locked
    for text in (text for runtime in runtimes.values() for text in python_requirements(runtime) if ";" not in text):
        package = python_name(text)
        wheels[package] = ()
        if required_wheel(package):
            wheels.setdefault(required_wheel(package), (package,))
    yield from find_wheel_copies(env, where, wheels)


def debian_copy_findings(
    env: RecipeEnv, where: Mapping[str, str], name: str, runtime: Runtime, owner: str, libraries: Set[str]
) -> Iterator[Finding]:
    """Yield a finding if recipe `name` installs Debian packages that contain `libraries` of recipe `owner`."""
    found = {
        package: [library for library in debian_libraries(package) if library in libraries]
        for package in runtime.debian
    }
    named = ", ".join(package for package, twice in found.items() if twice)
    if named:
        twice = ", ".join(dict.fromkeys(library for libraries in found.values() for library in libraries))
        hint = f"compile '{name}' (provider: source), or remove one of the two"
        if name in LISTS:
            hint = f"remove {named}: the image has {twice} from '{owner}'"
        elif not hasattr(env.recipes[name], "provider"):
            hint = "remove one of the two"
        message = f"layer '{name}' installs {named}, which is incompatible with layer '{owner}'"
        yield Finding(f"{message}: both contain {twice}, {SEARCH_ORDER}", where.get(name, ""), hint)


def find_wheel_copies(
    env: RecipeEnv, where: Mapping[str, str], wheels: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    """Yield a finding for each Python package of an image with a second copy of a library: of a recipe that does not
    require this package, or of another Python package.

    wheels: name of each package → names of packages that require it, in addition to layers.
    where: place of each layer in the spec.
    """
    requested = {
        name: {python_name(text) for text in python_requirements(call_recipe(recipe, "runtime", Runtime, env))}
        for name, recipe in env.recipes.items()
    }
    provides = {name: call_recipe(recipe, "provides", tuple, env) for name, recipe in env.recipes.items()}
    holders = {
        package: requesting_layer(package, wheels, requested) for package in sorted(wheels) if wheel_libraries(package)
    }
    # of two packages, the one that only a list requires is reported
    ordered = sorted(holders.items(), key=lambda item: item[1][0] in LISTS)
    owners = providing_layers(provides)
    first: dict[str, str] = {}  # library → the first package that contains it
    for package, _ in ordered:
        first = dict.fromkeys(wheel_libraries(package), package) | first
    for package, (layer, root) in ordered:
        for other, found in incompatible_owners(package, layer, owners, first, requested).items():
            both = ", ".join(found)
            beside = f"layer '{other}'" if other in provides else package_text(other, wheels)
            installs = f"layer '{layer}' installs" if layer else "the image gets"
            message = f"{installs} {package_text(package, wheels)}, which is incompatible with {beside}"
            hint = f"remove one of the two, or take a version of {root} that does not need {package}"
            if layer in LISTS and package in (root, required_wheel(root)):
                hint = f"remove {root}: the image has {both} from {beside.removeprefix('layer ')}"
            elif other in provides and has_wheel_provider(env.recipes[other]):
                hint = f"write provider: wheel under {other}, with the CUDA of {package}"
            yield Finding(f"{message}: both contain {both}, {SEARCH_ORDER}", where.get(layer, ""), hint)


def providing_layers(provides: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return library → the layers that provide it, from layer → its libraries."""
    owners: dict[str, list[str]] = {}
    for name, libraries in provides.items():
        for library in dict.fromkeys(libraries):
            owners.setdefault(library, []).append(name)
    return owners


def incompatible_owners(
    package: str,
    layer: str,
    owners: Mapping[str, Sequence[str]],
    first: Mapping[str, str],
    requested: Mapping[str, Set[str]],
) -> dict[str, list[str]]:
    """Return the layers and packages that a package of `layer` is incompatible with → the libraries of both.

    owners: library → layers that provide it.
    first: library → the first package that contains it.
    requested: layer → names of the packages that it requires.
    """
    twice: dict[str, list[str]] = {}
    for library in wheel_libraries(package):
        others = owners.get(library, ())
        if not others and first[library] != package:
            twice.setdefault(first[library], []).append(library)
        for owner in others if layer not in others else ():
            if package not in requested[owner]:
                twice.setdefault(owner, []).append(library)
    return twice


def requesting_layer(
    package: str, wheels: Mapping[str, Sequence[str]], requested: Mapping[str, set[str]]
) -> tuple[str, str]:
    """Return the layer that installs a package, and the name in its list: the package, or one that requires it.

    Both are "" if no layer requires it.
    """
    queue = [package]
    for name in queue:
        layers = [layer for layer, names in requested.items() if name in names]
        if layers:
            return min(layers, key=lambda layer: layer in LISTS), name
        queue += [user for user in wheels.get(name, ()) if user not in queue]
    return "", ""


def package_text(package: str, wheels: Mapping[str, Sequence[str]]) -> str:
    """Return a package as text, with the packages that require it."""
    users = wheels.get(package, ())
    return f"{package} (required by {', '.join(users)})" if users else package


def has_wheel_provider(recipe: Recipe) -> bool:
    """Return whether a recipe has a provider `wheel` that its spec does not use."""
    choice = next((field for field in fields(recipe) if field.name == "provider"), None)
    return choice is not None and "wheel" in get_args(choice.type) and getattr(recipe, "provider", "") != "wheel"


def python_requirements(runtime: Runtime) -> tuple[str, ...]:
    """Return the Python requirements of a recipe."""
    return (*runtime.python, *runtime.core, *runtime.toolkit)
