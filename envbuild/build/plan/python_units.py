"""Python packages in units: the parts of the venv, and what builds install beside it. All of it is the locked uv's
work, on locked files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.build.plan.bytecode import compile_command
from envbuild.build.plan.unit_inputs import python_input, requirements_input, tools_input, unit_lock
from envbuild.build.plan.units import Input, Unit
from envbuild.build.steps import INPUTS, Step
from envbuild.lock.model import VenvRule
from envbuild.lock.unit_names import BASE
from envbuild.spec.recipe import VENV, RecipeEnv

if TYPE_CHECKING:
    from envbuild.lock.model import Lock

# uv writes the time at which the file of a wheel came into its folder (its ctime) into each package: uv_cache.json
FORGET_TIMES = (
    f"find {VENV} -path '*.dist-info/uv_cache.json' -exec sh -c 'for file; do "
    'sed -i "/\\.dist-info\\/uv_cache\\.json,/d" "${file%/*}/RECORD" && rm "$file" || exit 1; done\' sh {} +'
)
UV_CACHE = "/opt/.uv-cache"  # beside the venv on the same file system, so that uv links instead of copying


def uv_env(lock: Lock) -> dict[str, str]:
    """Return the environment of a unit that runs uv."""
    version = lock.tools["uv"]
    return {
        "UV": f"{INPUTS}/tools/uv-{version}.data/scripts/uv",
        "UV_CACHE_DIR": UV_CACHE,
        "UV_LINK_MODE": "hardlink",
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
    }


def new_venv_commands(lock: Lock, env: RecipeEnv) -> list[str]:
    """Return the commands that make the venv: none for one of the base image that is extended. A new one on a
    third-party base image sees the Python packages that this image has."""
    rule = lock.base_image.venv if lock.base_image else VenvRule.NONE
    if rule is VenvRule.EXTENDED:
        return []
    removed = [f"rm -rf {VENV}"] if rule is VenvRule.REPLACED else []
    if env.on_image:
        return [*removed, f'"$UV" venv --python {env.python} --system-site-packages {VENV}']
    return [f'"$UV" venv --python /usr/bin/python3 {VENV}']


def install_files(
    lock: Lock, files: tuple[str, ...], where: str = f"--python {VENV}/bin/python"
) -> tuple[list[Input], list[str]]:
    """Return what a unit gets, and runs, to have locked Python files; nothing for no files."""
    if not files:
        return [], []
    command = (
        f'"$UV" pip install {where} --no-index --find-links {INPUTS}/python --no-deps '
        f"--require-hashes -r {INPUTS}/requirements/requirements.txt"
    )
    return [python_input(lock, "python", files), requirements_input(lock, files)], [command]


def venv_unit(
    lock: Lock, env: RecipeEnv, name: str, title: str, lowers: tuple[str, ...], wheels: tuple[str, ...] = ()
) -> Unit:
    """Return one part of the venv, over the parts in `lowers`; `wheels` are units that give some."""
    below = {file for lower in lowers for file in unit_lock(lock, lower).python}
    files = tuple(file for file in unit_lock(lock, name).python if file not in below)
    given, installed = install_files(lock, files)
    commands = [*([] if lowers else new_venv_commands(lock, env)), *installed]
    inputs = [tools_input(lock), *given]
    if wheels:
        inputs.append(Input("kernels", "files", units=wheels))
        # by name and version from a folder: installed by path, they would contain the path (direct_url.json)
        commands += [
            f'set -- && for wheel in {INPUTS}/kernels/*.whl; do name="${{wheel##*/}}"; rest="${{name#*-}}"; '
            'set -- "$@" "${name%%-*}==${rest%%-*}"; done',
            f'"$UV" pip install --python {VENV}/bin/python --no-index --find-links {INPUTS}/kernels --no-deps "$@"',
        ]
    commands += [FORGET_TIMES, f"rm -rf {UV_CACHE}", compile_command(f"{VENV}/bin/python", f"{VENV}/lib")]
    return Unit(
        name=name,
        title=title,
        lowers=(BASE, *lowers),
        inputs=tuple(inputs),
        steps=(Step(" && \\\n    ".join(commands), title),),
        env=uv_env(lock),
        keep=(VENV,),
        epoch=lock.epoch,
    )
