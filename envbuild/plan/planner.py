"""Plan: lock + recipes → units.

The units of an image, bottom first: the base; one with the run-time Debian packages; per compiling recipe its build
packages (a root that is not part of the image) and its prefix or wheels; the venv in two parts, the large wheels
first; and a glue unit that runs last. Prefixes and the venv stand on the base alone, so a changed Debian package
rebuilds none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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
    f"for file in $(find {VENV} -path '*.dist-info/uv_cache.json'); do "
    'sed -i \'/\\.dist-info\\/uv_cache\\.json,/d\' "${file%/*}/RECORD" && rm "$file" || exit 1; done'
)
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
    return RecipeEnv(resolution.target, resolution.spec.python, resolution.spec.recipes, versions)


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

    def units(self) -> Iterator[Unit]:
        image_units = ["base"]
        wheels: list[str] = []
        yield self.base()
        if self.locked("debian").debian:
            image_units.append("debian")
            yield self.debian("debian", "Debian packages that the image runs with", in_image=True)
        has_core = bool(self.locked("venv-core").python)
        if has_core:
            image_units.append("venv-core")
            yield self.venv("venv-core", "Python: torch and the CUDA wheels", self.locked("venv-core"), ())
        for name, recipe in self.recipes.items():
            if not (recipe.wheel or recipe.prefix):
                continue
            if self.locked(f"build-{name}").debian:
                yield self.debian(f"build-{name}", f"packages to build {name}", in_image=False)
            yield self.compile(name, recipe)
            (wheels if recipe.wheel else image_units).append(name)
        if self.locked("venv").python or wheels:
            image_units.append("venv")
            lowers = ("venv-core",) if has_core else ()
            yield self.venv("venv", "Python: kernels and everything else", self.locked("venv"), lowers, tuple(wheels))
        yield self.glue(tuple(image_units))

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
        locked = self.locked("base")
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
        packages = list(self.locked(unit).requested)
        return Unit(
            name=unit if in_image else f"root-{unit}",
            title=title,
            lowers=("base",),
            inputs=(self.debs(unit),),
            steps=bridge.steps([bridge.apt_get(ospackages=packages)]),
            in_image=in_image,
            epoch=self.lock.epoch,
        )

    def requirements(self, files: tuple[str, ...]) -> str:
        """Hash-pinned requirement lines of locked files."""
        locked = sorted((self.lock.python_files[file] for file in files), key=lambda item: item.name)
        return "".join(f"{item.name}=={item.version} --hash=sha256:{item.sha256}\n" for item in locked)

    def install(self) -> str:
        return (
            f'"$UV" pip install --python {VENV}/bin/python --no-index --find-links {INPUTS}/python --no-deps '
            f"--require-hashes -r {INPUTS}/requirements/requirements.txt"
        )

    def venv(
        self, name: str, title: str, locked: UnitLock, lowers: tuple[str, ...], wheels: tuple[str, ...] = ()
    ) -> Unit:
        files = tuple(file for file in locked.python if not lowers or file not in self.locked("venv-core").python)
        commands = [] if lowers else [f'"$UV" venv --python /usr/bin/python3 {VENV}']
        inputs = [self.tools()]
        if files:
            inputs += [
                self.python("python", files),
                Input("requirements", "text", texts=(("requirements.txt", self.requirements(files)),)),
            ]
            commands.append(self.install())
        if wheels:
            inputs.append(Input("kernels", "files", units=wheels))
            # by name and version from a folder: installed by path, they would carry the path (direct_url.json)
            commands.append(
                f'"$UV" pip install --python {VENV}/bin/python --no-index --find-links {INPUTS}/kernels --no-deps '
                f"$(cd {INPUTS}/kernels && ls *.whl | sed 's/^\\([^-]*\\)-\\([^-]*\\)-.*/\\1==\\2/')"
            )
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
        if recipe.on_venv:
            lowers.append("venv-core")
        lowers += [other for other in self.below(name) if self.recipes[other].prefix]
        inputs: list[Input] = []
        steps: list[Step] = []
        env: dict[str, str] = {}
        if recipe.wheel:
            inputs.append(self.tools())
            env |= self.uv_env()
            commands = [] if recipe.on_venv else [f'"$UV" venv --python /usr/bin/python3 {VENV}']
            if locked.python:
                inputs += [
                    self.python("python", locked.python),
                    Input("requirements", "text", texts=(("requirements.txt", self.requirements(locked.python)),)),
                ]
                commands.append(self.install())
            if commands:
                steps.append(Step(" && \\\n    ".join(commands), "Python packages of the build"))
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
            steps=(*steps, *self.commands(recipe)),
            env=env,
            keep=() if recipe.wheel else (recipe.prefix,),
            product=Product.WHEEL if recipe.wheel else Product.LAYER,
            in_image=not recipe.wheel,
            memory_gb=recipe.memory_gb,
            epoch=self.lock.epoch,
        )

    def commands(self, recipe: Recipe) -> tuple[Step, ...]:
        """The recipe's own steps; a fault in it is told with its file and line."""
        with blame(file_of(recipe)):
            return bridge.steps(ask(recipe, "build", list, self.env))

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


def lines(words: Sequence[str]) -> str:
    """Words of a command, each on a line of its own."""
    return "".join(f" \\\n        {word}" for word in words).lstrip(" ")


def image_config(resolution: Resolution, lock: Lock) -> ImageConfig:
    """The OCI config: environment, labels. What a job tunes (NCCL_*, UCX_*) belongs to the launch profile, not here."""
    env = recipe_env(resolution, lock)
    recipes = [resolution.spec.recipes[name] for name in resolution.order]
    bins = [f"{recipe.prefix}/bin" for recipe in recipes if recipe.prefix]
    values = {"LANG": "C.UTF-8", "VIRTUAL_ENV": VENV, **resolution.runtime.env}
    for recipe in recipes:  # now with locked versions
        values |= {
            name: value
            for name, value in ask(recipe, "runtime", Runtime, env).env.items()
            if name not in resolution.spec.env and name != "PATH"
        }
    path = [f"{VENV}/bin", *bins, *filter(None, [values.get("PATH", "")]), SYSTEM_PATH]
    values["PATH"] = ":".join(path)
    labels = {
        "org.opencontainers.image.title": lock.image,
        "org.opencontainers.image.description": resolution.spec.description,
        "org.opencontainers.image.base.name": lock.base,
        "io.envbuild.target": resolution.target.name,
        "io.envbuild.inputs": lock.inputs,
        "io.envbuild.version": lock.tools["envbuild"],
    }
    return ImageConfig(lock.arch, dict(sorted(values.items())), labels=labels)
