"""Plan: lock + recipes → units.

The units of an image, bottom first: the base; one with the run-time Debian packages; per compiling recipe its build
packages (a root that is not part of the image) and its prefix or wheels; the venv in two parts, the large wheels
first; and a glue unit that runs last. Prefixes and the venv are based on the base alone, so a changed Debian package
rebuilds none of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.build.blocks import hpccm
from envbuild.build.plan import check_extensions
from envbuild.build.plan.debian_units import base_unit, package_unit
from envbuild.build.plan.embedded_documents import documents
from envbuild.build.plan.image_config import image_config, recipe_env
from envbuild.build.plan.python_units import UV_CACHE, install_files, new_venv_commands, uv_env, venv_unit
from envbuild.build.plan.unit_inputs import archives_input, python_input, tools_input, unit_lock
from envbuild.build.plan.units import Input, Plan, Product, Unit
from envbuild.build.steps import INPUTS, Step
from envbuild.lock import unit_names
from envbuild.lock.unit_names import build_unit, devel_unit, root_unit
from envbuild.spec.enroot_rules import PATH_FILE, path_script
from envbuild.spec.host_compiler import compiler_variables, host_compiler, is_compiled_with, recipes_below
from envbuild.spec.recipe import VENV, Recipe, Runtime
from envbuild.spec.recipe_calls import call_recipe, errors_at_recipe_line, recipe_file

if TYPE_CHECKING:
    from envbuild.lock.model import Lock
    from envbuild.spec.resolve import Resolution

CHECK_EXTENSIONS = Path(check_extensions.__file__).read_text()  # a program of the unit, not of this process


def make_plan(resolution: Resolution, lock: Lock) -> Plan:
    """Return the plan of an image. Pure: the same resolution and lock give the same plan, in any thread."""
    if resolution.spec.dev:
        from envbuild.lock.dev_content import check_names

        check_names(resolution, lock)
    with hpccm.hpccm_target(resolution.target.arch):
        units = tuple(Planner(resolution, lock).units())
        return Plan(lock.image, units, image_config(resolution, lock), lock.epoch)


class Planner:
    """The maker of the units of one image."""

    def __init__(self, resolution: Resolution, lock: Lock) -> None:
        self.resolution = resolution
        self.lock = lock
        self.env = recipe_env(resolution, lock)
        self.recipes: dict[str, Recipe] = {name: resolution.spec.recipes[name] for name in resolution.order}
        self.runtimes: dict[str, Runtime] = {
            name: call_recipe(recipe, "runtime", Runtime, self.env) for name, recipe in self.recipes.items()
        }
        self.compiled = {name: recipe for name, recipe in self.recipes.items() if recipe.builds}
        self.developed = {name: self.commands(recipe, "devel") for name, recipe in self.compiled.items()}
        # A wheel that others are compiled against (torch from source) belongs below them.
        self.core_wheels = tuple(
            name
            for name, recipe in self.compiled.items()
            if recipe.wheel and not recipe.on_venv
            if any(other.on_venv and name in self.below(above) for above, other in self.compiled.items())
        )
        toolkit, core = (set(unit_lock(lock, name).python) for name in unit_names.VENV_PARTS)
        self.has_toolkit = bool(toolkit)
        self.has_core = bool(core - toolkit or self.core_wheels)

    def units(self) -> Iterator[Unit]:
        image_units = [unit_names.BASE]
        yield base_unit(self.lock)
        if unit_lock(self.lock, unit_names.DEBIAN).debian:
            image_units.append(unit_names.DEBIAN)
            yield package_unit(self.lock, unit_names.DEBIAN, "Debian packages that the image runs with")
        image_units += self.lower_venv()
        if self.has_toolkit:
            yield venv_unit(self.lock, self.env, unit_names.VENV_TOOLKIT, "Python: the CUDA wheels", ())
        waiting = set(self.core_wheels)
        if self.has_core and not waiting:
            yield self.core()
        for name, recipe in self.compiled.items():
            if unit_lock(self.lock, build_unit(name)).debian:
                yield package_unit(self.lock, build_unit(name), f"packages to build {name}")
            if self.developed[name]:
                yield self.devel(name, recipe)
            yield self.compile(name, recipe)
            if not recipe.wheel:
                image_units.append(name)
            if name in waiting:
                waiting.remove(name)
                if not waiting:
                    yield self.core()
        wheels = tuple(name for name, recipe in self.compiled.items() if recipe.wheel and name not in self.core_wheels)
        if unit_lock(self.lock, unit_names.VENV).python or wheels or self.needs_venv:
            image_units.append(unit_names.VENV)
            title = "Python: kernels and everything else"
            yield venv_unit(self.lock, self.env, unit_names.VENV, title, self.lower_venv(), wheels)
        if self.resolution.contents:
            from envbuild.build.plan.dev_units import dev_unit

            copies = [dev_unit(content, self.lock.epoch) for content in self.resolution.contents]
            image_units += [unit.name for unit in copies]
            yield from copies
        yield self.glue(tuple(image_units))

    @property
    def needs_venv(self) -> bool:
        """Return whether there is a venv for the project folders alone."""
        return bool(self.resolution.spec.dev) and not self.lower_venv()

    def core(self) -> Unit:
        lowers = (unit_names.VENV_TOOLKIT,) if self.has_toolkit else ()
        title = "Python: torch and what it needs"
        return venv_unit(self.lock, self.env, unit_names.VENV_CORE, title, lowers, self.core_wheels)

    def lower_venv(self) -> tuple[str, ...]:
        """Return the units below the venv's last one."""
        found = {unit_names.VENV_TOOLKIT: self.has_toolkit, unit_names.VENV_CORE: self.has_core}
        return tuple(name for name, there in found.items() if there)

    def venv_below(self, recipe: Recipe) -> tuple[str, ...]:
        """Return the units of the venv that a recipe is compiled against."""
        required = {unit_names.VENV_TOOLKIT: recipe.on_toolkit or recipe.on_venv, unit_names.VENV_CORE: recipe.on_venv}
        return tuple(name for name in self.lower_venv() if required[name])

    def compile(self, name: str, recipe: Recipe) -> Unit:
        """Return the unit of a compiling recipe: its build root, below it what it builds on, then its own commands."""
        given = unit_lock(self.lock, build_unit(name))
        lowers = [unit_names.BASE]
        if given.debian:
            lowers.append(root_unit(name))
        lowers += self.venv_below(recipe)
        for other in (*self.below(name), name):
            lowers += [devel_unit(other)] if self.developed.get(other) else []
            lowers += [other] if other != name and other in self.compiled and not self.compiled[other].wheel else []
        inputs: list[Input] = []
        steps: list[Step] = []
        if recipe.wheel:
            packages, installed = install_files(self.lock, given.python)
            inputs += [tools_input(self.lock), *packages]
            made = [] if self.venv_below(recipe) else new_venv_commands(self.lock, self.env)
            commands = [*made, *installed]
            if commands:
                steps.append(Step(" && \\\n    ".join(commands), "Python packages of the build"))
        if recipe.wheel and call_recipe(recipe, "extensions", tuple):
            inputs.append(Input("checks", "text", texts=(("modules.py", CHECK_EXTENSIONS),)))
        if given.sdists:
            inputs.append(python_input(self.lock, "sdists", given.sdists))
        if given.sources:
            inputs.append(archives_input(self.lock, given.sources))
        return Unit(
            name=name,
            title=f"{name} {recipe.version}".strip(),
            lowers=tuple(lowers),
            inputs=tuple(inputs),
            steps=(*steps, *self.commands(recipe, "build"), *self.promised_modules(recipe)),
            env={**(uv_env(self.lock) if recipe.wheel else {}), **self.compiler(name)},
            keep=() if recipe.wheel else (recipe.prefix,),
            build_only=(devel_unit(name),) if self.developed.get(name) and not recipe.wheel else (),
            product=Product.WHEEL if recipe.wheel else Product.LAYER,
            in_image=not recipe.wheel,
            memory_gb=recipe.memory_gb,
            cpu_minutes=recipe.cpu_minutes,
            epoch=self.lock.epoch,
        )

    def compiler(self, name: str) -> dict[str, str]:
        """Return the variables of the compiler that a recipe below requires, if this unit compiles."""
        version = host_compiler(name, self.recipes)
        return compiler_variables(version) if is_compiled_with(version, self.resolution.sources[name]) else {}

    def devel(self, name: str, recipe: Recipe) -> Unit:
        """Return what only builds need of a recipe: the unit below its own, no part of the image. It is made of Python
        packages, or else of the build's Debian packages."""
        folder = f"{recipe.prefix}/python"
        given = unit_lock(self.lock, build_unit(name))
        files = given.python
        packages, installed = install_files(self.lock, files, f"--python /usr/bin/python3 --target {folder}")
        return Unit(
            name=devel_unit(name),
            title=f"{name} {recipe.version}".strip() + " for builds",
            lowers=(unit_names.BASE, *((root_unit(name),) if given.debian and not files else ())),
            inputs=(tools_input(self.lock), *packages) if files else (),
            steps=(
                *(Step(command, f"Python packages that hold {name}") for command in installed),
                *self.developed[name],
                *((Step(f"rm -rf {folder} {UV_CACHE}", "no trace of the installer"),) if files else ()),
            ),
            env=uv_env(self.lock) if files else {},
            keep=(recipe.prefix,),
            in_image=False,
            epoch=self.lock.epoch,
        )

    def commands(self, recipe: Recipe, part: str) -> tuple[Step, ...]:
        """Return the recipe's own steps of ``build`` or ``devel``; a fault in it is reported with its file and line."""
        with errors_at_recipe_line(recipe_file(recipe)):
            return hpccm.steps(call_recipe(recipe, part, list, self.env))

    def promised_modules(self, recipe: Recipe) -> Iterator[Step]:
        """Yield the step that checks whether the wheels hold the extension modules that the recipe names: builds that
        find no GPU, or no compiler, leave some out and succeed."""
        modules = call_recipe(recipe, "extensions", tuple) if recipe.wheel else ()
        if modules:
            words = " ".join(shlex.quote(module) for module in modules)
            command = f"{VENV}/bin/python {INPUTS}/checks/modules.py {INPUTS}/out {words}"
            yield Step(command, "the extension modules that must be there")

    def below(self, name: str) -> list[str]:
        """Return the recipes of the image that `name` builds on, directly or not, in order."""
        return recipes_below(name, self.recipes)

    def glue(self, lowers: tuple[str, ...]) -> Unit:
        """Return what can only be written when everything else is there: the loader's cache, the login shell's PATH,
        the evidence."""
        libraries = [folder for runtime in self.runtimes.values() for folder in runtime.libraries]
        config = image_config(self.resolution, self.lock)
        projects = self.resolution.spec.dev
        texts = {
            # sorts first, so that a library built here wins over Debian's of the same SONAME
            "etc/ld.so.conf.d/00-envbuild.conf": "".join(f"{folder}\n" for folder in libraries),
            # /etc/rc of enroot runs under a login shell, and Debian's /etc/profile overwrites PATH
            PATH_FILE: path_script(config.env["PATH"]),
            **{path.lstrip("/"): text for runtime in self.runtimes.values() for path, text in runtime.files.items()},
            **{f"etc/envbuild/{name}": text for name, text in documents(self.resolution, self.lock).items()},
        }
        copied = f"cp -r {INPUTS}/files/. /"
        if projects:
            from envbuild.build.plan.dev_units import install_command, mode_command, venv_files

            texts |= venv_files(projects, self.env.site_packages)
            copied = f"{install_command(projects)}{copied}{mode_command(projects)}"
        return Unit(
            name=unit_names.GLUE,
            title="loader cache, profile, evidence",
            lowers=lowers,
            inputs=(Input("files", "text", texts=tuple(sorted(texts.items()))),),
            steps=(Step(f"{copied} && \\\n    ldconfig", "loader cache, profile, evidence"),),
            epoch=self.lock.epoch,
        )
