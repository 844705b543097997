"""Plan: lock + recipes → units.

The units of an image, bottom first: the base; one with the run-time Debian packages; per compiling recipe its build
packages (a root that is not part of the image) and its prefix or wheels; the venv in two parts, the large wheels
first; and a glue unit that runs last. Prefixes and the venv stand on the base alone, so a changed Debian package
rebuilds none of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.lock.standin import StandIn
from envbuild.plan import bridge, evidence
from envbuild.plan.units import INPUTS, SYSTEM_PATH, Blob, ImageConfig, Input, Plan, Product, Step, Unit
from envbuild.recipe import VENV, Recipe, RecipeEnv, Runtime
from envbuild.recipefile import ask, blame, file_of
from envbuild.squashfs.enroot import PATH_FILE, path_script

if TYPE_CHECKING:
    from envbuild.lock.lockfile import Lock, UnitLock
    from envbuild.resolve import Resolution

# uv writes the time at which the file of a wheel came into its folder (its ctime) into each package: uv_cache.json
FORGET_TIMES = (
    f"find {VENV} -path '*.dist-info/uv_cache.json' -exec sh -c 'for file; do "
    'sed -i "/\\.dist-info\\/uv_cache\\.json,/d" "${file%/*}/RECORD" && rm "$file" || exit 1; done\' sh {} +'
)
DEVEL = "devel-"  # of the units with what only builds need of a recipe
MODULES = (Path(__file__).with_name("modules.py")).read_text()  # a program of the unit, not of this process
UV_CACHE = "/opt/.uv-cache"  # beside the venv on the same file system, so that uv links instead of copying


def make_plan(resolution: Resolution, lock: Lock) -> Plan:
    """The plan of an image. Pure: the same resolution and lock give the same plan, in any thread."""
    with bridge.hpccm_target(resolution.target.arch):
        units = tuple(Planner(resolution, lock).units())
        return Plan(lock.image, units, image_config(resolution, lock), lock.epoch)


def recipe_env(resolution: Resolution, lock: Lock) -> RecipeEnv:
    """What recipes may know once there is a lock: versions by package name."""
    versions = {file.name: file.version for file in lock.debian.values()}
    versions |= {file.name: file.version for file in lock.python_files.values()}
    return resolution.spec.recipe_env(resolution.target, versions)


class Planner:
    """Makes the units of one image."""

    def __init__(self, resolution: Resolution, lock: Lock) -> None:
        self.resolution = resolution
        self.lock = lock
        self.env = recipe_env(resolution, lock)
        self.recipes: dict[str, Recipe] = {name: resolution.spec.recipes[name] for name in resolution.order}
        self.runtimes: dict[str, Runtime] = {
            name: ask(recipe, "runtime", Runtime, self.env) for name, recipe in self.recipes.items()
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
        self.has_toolkit = bool(self.locked("venv-toolkit").python)
        more = set(self.locked("venv-core").python) - set(self.locked("venv-toolkit").python)
        self.has_core = bool(more or self.core_wheels)

    def units(self) -> Iterator[Unit]:
        image_units = ["base"]
        yield self.base()
        if self.locked("debian").debian:
            image_units.append("debian")
            yield self.debian("debian", "Debian packages that the image runs with", in_image=True)
        image_units += self.lower_venv()
        if self.has_toolkit:
            yield self.venv("venv-toolkit", "Python: the CUDA wheels", ())
        waiting = set(self.core_wheels)
        if self.has_core and not waiting:
            yield self.core()
        for name, recipe in self.compiled.items():
            if self.locked(f"build-{name}").debian:
                yield self.debian(f"build-{name}", f"packages to build {name}", in_image=False)
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
        if self.locked("venv").python or wheels:
            image_units.append("venv")
            yield self.venv("venv", "Python: kernels and everything else", self.lower_venv(), wheels)
        yield self.glue(tuple(image_units))

    def core(self) -> Unit:
        lowers = ("venv-toolkit",) if self.has_toolkit else ()
        return self.venv("venv-core", "Python: torch and what it needs", lowers, self.core_wheels)

    def lower_venv(self) -> tuple[str, ...]:
        """The units that the venv's last one stands on."""
        found = {"venv-toolkit": self.has_toolkit, "venv-core": self.has_core}
        return tuple(name for name, there in found.items() if there)

    def venv_below(self, recipe: Recipe) -> tuple[str, ...]:
        """The units of the venv that a recipe is compiled against."""
        wanted = {"venv-toolkit": recipe.on_toolkit or recipe.on_venv, "venv-core": recipe.on_venv}
        return tuple(name for name in self.lower_venv() if wanted[name])

    def locked(self, unit: str) -> UnitLock:
        from envbuild.lock.lockfile import UnitLock

        return self.lock.units.get(unit, UnitLock())

    def debs(self, unit: str) -> Input:
        files = [self.lock.debian[file] for file in self.locked(unit).debian]
        return Input("debs", "debian", tuple(Blob(item.file, item.sha256, item.size) for item in files))

    def python(self, name: str, files: tuple[str, ...]) -> Input:
        locked = [self.lock.python_files[file] for file in files]
        return Input(name, "files", tuple(Blob(item.file, item.sha256, item.size) for item in locked))

    def tools(self) -> Input:
        """The locked uv, so that the host's does not decide over the bytes of a venv."""
        return Input("tools", "tree", self.python("tools", self.locked("tools").python).blobs)

    def uv_env(self) -> dict[str, str]:
        version = self.lock.tools["uv"]
        return {
            "UV": f"{INPUTS}/tools/uv-{version}.data/scripts/uv",
            "UV_CACHE_DIR": UV_CACHE,
            "UV_LINK_MODE": "hardlink",
            "UV_NO_CONFIG": "1",
            "UV_OFFLINE": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_PROGRESS": "1",
        }

    def base(self) -> Unit:
        locked, image = self.locked("base"), self.lock.base_image
        if image:
            blobs = tuple(Blob(f"{number:03}", sha256, size) for number, (sha256, size, _) in enumerate(image.layers))
            return Unit(
                name="base",
                title=image.reference,
                layers=tuple(blob.name for blob in blobs),
                inputs=(Input("layers", "files", blobs),),
                steps=(),
                epoch=self.lock.epoch,
            )
        return Unit(
            name="base",
            title=f"{self.lock.base} from {len(locked.debian)} packages",
            seed=locked.essential,
            inputs=(self.debs("base"),),
            steps=(
                # As debootstrap and mmdebstrap do it: the essential packages are unpacked (Unit.seed), then installed
                # over themselves.
                Step("touch /var/lib/dpkg/status /var/lib/dpkg/available", "an empty package database"),
                Step(
                    f"cd {INPUTS}/debs && \\\n    dpkg --force-depends --install {lines(locked.essential)}",
                    "the essential packages and apt, configured",
                ),
                *bridge.steps(
                    [bridge.comment("what every image has"), bridge.apt_get(ospackages=list(locked.requested))]
                ),
            ),
            epoch=self.lock.epoch,
        )

    def debian(self, unit: str, title: str, *, in_image: bool) -> Unit:
        packages, replaced = list(self.locked(unit).requested), self.locked(unit).replaced
        stands = [bridge.shell(commands=list(stand_in(StandIn.of(text), self.lock.arch))) for text in replaced]
        told = [bridge.comment("in name only: the image compiles what these would bring")]
        return Unit(
            name=unit if in_image else f"root-{unit}",
            title=title,
            lowers=("base",),
            inputs=(self.debs(unit),),
            steps=bridge.steps([*(told if stands else []), *stands, bridge.apt_get(ospackages=packages)]),
            in_image=in_image,
            epoch=self.lock.epoch,
        )

    def requirements(self, files: tuple[str, ...]) -> str:
        """Hash-pinned requirement lines of locked files."""
        locked = sorted((self.lock.python_files[file] for file in files), key=lambda item: item.name)
        return "".join(f"{item.name}=={item.version} --hash=sha256:{item.sha256}\n" for item in locked)

    def new_venv(self) -> str:
        """Makes the venv. One on somebody's image sees the Python packages that this image has."""
        if self.env.on_image:
            return f'"$UV" venv --python {self.env.python} --system-site-packages {VENV}'
        return f'"$UV" venv --python /usr/bin/python3 {VENV}'

    def install(
        self, files: tuple[str, ...], where: str = f"--python {VENV}/bin/python"
    ) -> tuple[list[Input], list[str]]:
        """What a unit gets, and runs, to have locked Python files; nothing for no files."""
        if not files:
            return [], []
        inputs = [
            self.python("python", files),
            Input("requirements", "text", texts=(("requirements.txt", self.requirements(files)),)),
        ]
        command = (
            f'"$UV" pip install {where} --no-index --find-links {INPUTS}/python --no-deps '
            f"--require-hashes -r {INPUTS}/requirements/requirements.txt"
        )
        return inputs, [command]

    def venv(self, name: str, title: str, lowers: tuple[str, ...], wheels: tuple[str, ...] = ()) -> Unit:
        """One part of the venv, over the parts in `lowers`; `wheels` are units that give some."""
        below = {file for lower in lowers for file in self.locked(lower).python}
        files = tuple(file for file in self.locked(name).python if file not in below)
        given, installed = self.install(files)
        commands = [*([] if lowers else [self.new_venv()]), *installed]
        inputs = [self.tools(), *given]
        if wheels:
            inputs.append(Input("kernels", "files", units=wheels))
            # by name and version from a folder: installed by path, they would carry the path (direct_url.json)
            commands += [
                f'set -- && for wheel in {INPUTS}/kernels/*.whl; do name="${{wheel##*/}}"; rest="${{name#*-}}"; '
                'set -- "$@" "${name%%-*}==${rest%%-*}"; done',
                f'"$UV" pip install --python {VENV}/bin/python --no-index --find-links {INPUTS}/kernels --no-deps "$@"',
            ]
        commands += [FORGET_TIMES, f"rm -rf {UV_CACHE}"]
        return Unit(
            name=name,
            title=title,
            lowers=("base", *lowers),
            inputs=tuple(inputs),
            steps=(Step(" && \\\n    ".join(commands), title),),
            env=self.uv_env(),
            keep=(VENV,),
            epoch=self.lock.epoch,
        )

    def compile(self, name: str, recipe: Recipe) -> Unit:
        """The unit of a compiling recipe: its build root, below it what it builds on, then its own commands."""
        locked = self.locked(f"build-{name}")
        lowers = ["base"]
        if locked.debian:
            lowers.append(f"root-build-{name}")
        lowers += self.venv_below(recipe)
        for other in (*self.below(name), name):
            lowers += [f"{DEVEL}{other}"] if self.developed.get(other) else []
            lowers += [other] if other != name and other in self.compiled and not self.compiled[other].wheel else []
        inputs: list[Input] = []
        steps: list[Step] = []
        env: dict[str, str] = {}
        if recipe.wheel:
            inputs.append(self.tools())
            env |= self.uv_env()
            given, installed = self.install(locked.python)
            inputs += given
            commands = [*([] if self.venv_below(recipe) else [self.new_venv()]), *installed]
            if commands:
                steps.append(Step(" && \\\n    ".join(commands), "Python packages of the build"))
        if recipe.wheel and ask(recipe, "extensions", tuple):
            inputs.append(Input("checks", "text", texts=(("modules.py", MODULES),)))
        if locked.sdists:
            inputs.append(self.python("sdists", locked.sdists))
        if locked.sources:
            sources = [self.lock.sources[file] for file in locked.sources]
            inputs.append(
                Input("archives", "files", tuple(Blob(item.file, item.sha256, item.size) for item in sources))
            )
        return Unit(
            name=name,
            title=f"{name} {recipe.version}".strip(),
            lowers=tuple(lowers),
            inputs=tuple(inputs),
            steps=(*steps, *self.commands(recipe, "build"), *self.promised_modules(recipe)),
            env=env,
            keep=() if recipe.wheel else (recipe.prefix,),
            product=Product.WHEEL if recipe.wheel else Product.LAYER,
            in_image=not recipe.wheel,
            memory_gb=recipe.memory_gb,
            cpu_minutes=recipe.cpu_minutes,
            epoch=self.lock.epoch,
        )

    def devel(self, name: str, recipe: Recipe) -> Unit:
        """What only builds need of a recipe: the unit below its own, no part of the image."""
        folder = f"{recipe.prefix}/python"
        given, installed = self.install(
            self.locked(f"build-{name}").python, f"--python /usr/bin/python3 --target {folder}"
        )
        return Unit(
            name=f"{DEVEL}{name}",
            title=f"{name} {recipe.version}".strip() + " for builds",
            lowers=("base",),
            inputs=(self.tools(), *given),
            steps=(
                *(Step(command, f"Python packages that hold {name}") for command in installed),
                *self.developed[name],
                Step(f"rm -rf {folder} {UV_CACHE}", "no trace of the installer"),
            ),
            env=self.uv_env(),
            keep=(recipe.prefix,),
            in_image=False,
            epoch=self.lock.epoch,
        )

    def commands(self, recipe: Recipe, part: str) -> tuple[Step, ...]:
        """The recipe's own steps of ``build`` or ``devel``; a fault in it is told with its file and line."""
        with blame(file_of(recipe)):
            return bridge.steps(ask(recipe, part, list, self.env))

    def promised_modules(self, recipe: Recipe) -> Iterator[Step]:
        """Looks whether the wheels hold the extension modules that the recipe names: builds that find no GPU, or no
        compiler, leave some out and succeed."""
        modules = ask(recipe, "extensions", tuple) if recipe.wheel else ()
        if modules:
            words = " ".join(shlex.quote(module) for module in modules)
            command = f"{VENV}/bin/python {INPUTS}/checks/modules.py {INPUTS}/out {words}"
            yield Step(command, "the extension modules that must be there")

    def below(self, name: str) -> list[str]:
        """Recipes of the image that `name` builds on, directly or not, in order."""
        found: set[str] = set()
        todo = list(self.recipes[name].after)
        while todo:
            other = todo.pop()
            if other in self.recipes and other not in found:
                found.add(other)
                todo += self.recipes[other].after
        return [other for other in self.recipes if other in found]

    def glue(self, lowers: tuple[str, ...]) -> Unit:
        """What can only be written when everything else is there: the loader's cache, the login shell's PATH, the
        evidence."""
        libraries = [folder for runtime in self.runtimes.values() for folder in runtime.libraries]
        config = image_config(self.resolution, self.lock)
        texts = {
            # sorts first, so that a library built here wins over Debian's of the same SONAME
            "etc/ld.so.conf.d/00-envbuild.conf": "".join(f"{folder}\n" for folder in libraries),
            # /etc/rc of enroot runs under a login shell, and Debian's /etc/profile sets PATH anew
            PATH_FILE: path_script(config.env["PATH"]),
            **{path.lstrip("/"): text for runtime in self.runtimes.values() for path, text in runtime.files.items()},
            **{f"etc/envbuild/{name}": text for name, text in evidence.documents(self.resolution, self.lock).items()},
        }
        return Unit(
            name="glue",
            title="loader cache, profile, evidence",
            lowers=lowers,
            inputs=(Input("files", "text", texts=tuple(sorted(texts.items()))),),
            steps=(Step(f"cp -r {INPUTS}/files/. / && \\\n    ldconfig", "loader cache, profile, evidence"),),
            epoch=self.lock.epoch,
        )


def stand_in(stand: StandIn, arch: str) -> Iterator[str]:
    """Commands that tell dpkg of a package in name only."""
    folder = f"/tmp/{stand.name}"
    yield f"mkdir -p {folder}/DEBIAN"
    yield f"printf '%s\\n' {shlex.join(stand.control(arch))} > {folder}/DEBIAN/control"
    yield f"dpkg-deb --build --root-owner-group {folder} {folder}.deb"
    yield f"dpkg --install {folder}.deb"
    yield f"rm -r {folder} {folder}.deb"


def lines(words: Sequence[str]) -> str:
    """Words of a command, each on a line of its own."""
    return "".join(f" \\\n        {word}" for word in words).lstrip(" ")


def image_config(resolution: Resolution, lock: Lock) -> ImageConfig:
    """The OCI config: environment, labels. What a job tunes (NCCL_*, UCX_*) belongs to the launch profile, not here."""
    env = recipe_env(resolution, lock)
    recipes = [resolution.spec.recipes[name] for name in resolution.order]
    bins = [folder for recipe in recipes for folder in recipe.bins]
    below = dict(lock.base_image.env) if lock.base_image else {}
    values = {**below, "LANG": "C.UTF-8", "VIRTUAL_ENV": VENV, **resolution.runtime.env}
    for recipe in recipes:  # now with locked versions
        values |= {
            name: value
            for name, value in ask(recipe, "runtime", Runtime, env).env.items()
            if name not in resolution.spec.env and name != "PATH"
        }
    own = resolution.runtime.env.get("PATH", "")
    folders = ":".join([f"{VENV}/bin", *bins, own, below.get("PATH", ""), SYSTEM_PATH]).split(":")
    values["PATH"] = ":".join(dict.fromkeys(filter(None, folders)))
    labels = {
        "org.opencontainers.image.title": lock.image,
        "org.opencontainers.image.description": resolution.spec.description,
        "org.opencontainers.image.base.name": lock.base,
        "io.envbuild.target": resolution.target.name,
        "io.envbuild.inputs": lock.inputs,
        "io.envbuild.version": lock.tools["envbuild"],
    }
    return ImageConfig(lock.arch, dict(sorted(values.items())), labels=labels)
