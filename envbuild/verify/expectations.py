"""The expected content of an image, and its own part of it: from the lock, and more from the recipes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from envbuild.lock.debian.dummy_packages import DummyPackage
from envbuild.lock.model import Lock, UnitLock
from envbuild.lock.unit_names import build_unit, built_recipe
from envbuild.spec.recipe_calls import call_recipe
from envbuild.verify.declared_contents import Expectations
from envbuild.verify.run_inspector import OwnContent

if TYPE_CHECKING:
    from envbuild.spec.resolve import Resolution

COMPILERS = ("gcc", "g++", "clang")


def expected_contents(resolution: Resolution, lock: Lock) -> Expectations:
    """Return the content that the lock and the recipes declare."""
    recipes, expected = resolution.recipes, locked_contents(lock)
    if resolution.spec.dev:
        from envbuild.verify.dev_checks import with_projects

        expected = with_projects(expected, {project.name: project.metadata.version for project in resolution.spec.dev})
    return replace(
        expected,
        python_also=compiled_distributions(resolution),
        python_more=False,
        sm=resolution.target.sm_arch,
        cpu=resolution.target.cpu,
        modules=tuple(module for recipe in recipes for module in call_recipe(recipe, "extensions", tuple)),
    )


def compiled_distributions(resolution: Resolution) -> tuple[str, ...]:
    """Return the names of the distributions that are compiled from archives and commits."""
    texts = [text.partition("==")[0] for sources in resolution.sources.values() for text in sources.gives]
    texts += [project.name for sources in resolution.sources.values() for project in sources.projects]
    return tuple(dict.fromkeys(texts))


def own_content(resolution: Resolution, lock: Lock) -> OwnContent:
    """Return the image's own content, as its recipes declare it."""
    locked = locked_own_content(lock)
    prefixes = {recipe.name: recipe.prefix for recipe in resolution.recipes if recipe.builds and recipe.prefix}
    return OwnContent(
        prefixes=tuple(sorted(prefixes.values())),
        folders=tuple(prefix for name, prefix in prefixes.items() if is_compiled(lock, name)),
        dists=(*locked.dists, *compiled_distributions(resolution)),
    )


def locked_own_content(lock: Lock) -> OwnContent:
    """Return the own content that the lock alone defines: a unit ``build-ucx`` installs /opt/ucx; one with sdists,
    their wheels."""
    names = [recipe for recipe in map(built_recipe, lock.units) if recipe]
    return OwnContent(
        folders=tuple(f"/opt/{name}" for name in names if is_compiled(lock, name)),
        dists=tuple(sorted({lock.python_files[file].name for file in lock.sdists()})),
    )


def is_compiled(lock: Lock, name: str) -> bool:
    """Return whether the unit of a recipe compiles source code: it has some, and a compiler (a vendor's archive of
    binaries is unpacked without one)."""
    unit = lock.units.get(build_unit(name), UnitLock())
    return bool(unit.sources) and any(package.startswith(COMPILERS) for package in unit.requested)


def locked_contents(lock: Lock) -> Expectations:
    """Return the content that the lock alone declares: the packages of the image's units, and the wheels compiled from
    sdists."""
    units = lock.image_units()
    debs = [lock.debian[file] for unit in units for file in unit.debian]
    packages = [lock.python_files[file] for file in lock.image_python()]
    return Expectations(
        debian={
            **{deb.name: deb.version for deb in debs},
            **{dummy.name: dummy.version for unit in units for dummy in map(DummyPackage.of, unit.replaced)},
        },
        python={package.name: package.version for package in packages},
        python_more=any(
            unit.sources for unit in lock.units.values()
        ),  # only recipes know which wheels result from them
        complete=lock.base_image is None,
    )
