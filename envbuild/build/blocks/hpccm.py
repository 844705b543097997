"""The one module that imports HPCCM.

hpccm keeps its target in module globals, swallows misspelt keywords and changes its callers' lists. Nothing else in
envbuild imports it: `hpccm_target` holds a lock and restores every global, and recipes get blocks and primitives from
here, whose keywords are checked before they reach hpccm and whose arguments are copied. What recipes return is turned
into commands by `steps`, and stages into text by `render`.

hpccm is loaded with the first call, so that a recipe names its blocks at the top of its file and `envbuild list`, which
only reads the files, does not pay for it.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import posixpath
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from envbuild.build.steps import INPUTS, Step
from envbuild.core.errors import SpecError

LONGEST = 127 << 10  # bytes of a step: Linux allows 128 KiB for one argument (execve(2)), and engines add little
_LOCK = threading.RLock()
_ARCH = {"amd64": "x86_64", "arm64": "aarch64"}  # any other word leaves hpccm on the architecture of the compile before
_WILD = ("enable_", "disable_", "with_", "without_")  # turned into configure options by hpccm's autotools template


@cache
def _hpccm() -> Any:
    """Return hpccm with the parts of it that are used here."""
    import hpccm
    import hpccm.building_blocks
    import hpccm.config
    import hpccm.primitives

    return hpccm


@contextlib.contextmanager
def hpccm_target(arch: str) -> Iterator[None]:
    """Hold hpccm for one target (`arch`: amd64 or arm64); build and render inside, some text is fixed at construction,
    some at rendering.

    Debian is unknown to hpccm, which then silently takes Ubuntu 16.04: the nearest Ubuntu is set explicitly.
    """
    with _LOCK:
        config = _hpccm().config
        saved = {name: getattr(config, name) for name in dir(config) if name.startswith("g_")}
        try:
            config.set_container_format("docker")
            config.set_cpu_architecture(_ARCH[arch])
            config.set_linux_distro("ubuntu24")
            config.set_working_directory("/run/envbuild/work")
            yield
        finally:
            for name, value in saved.items():
                setattr(config, name, value)


@cache
def _keywords(block: type) -> tuple[frozenset[str], bool]:
    """Return the keywords that a block or its bases read, and whether it takes configure-style ones: from hpccm's own
    source, so a new release needs no list here."""
    names: set[str] = set()
    wild = False
    for base in block.__mro__[:-1]:
        # Of its functions: of a whole class, Python up to 3.12 compiles the module again, and prints its warnings.
        source = "".join(inspect.getsource(item) for item in vars(base).values() if inspect.isfunction(item))
        names.update(re.findall(r"kwargs\.(?:get|pop)\(\s*['\"](\w+)['\"]", source))
        names.update(name for name in inspect.signature(base).parameters if name not in ("self", "kwargs"))
        wild = wild or base.__name__ == "ConfigureMake"
    return frozenset(names), wild


def _with_checked_keywords(find: Callable[[], type]) -> Callable[..., Any]:
    """Return what makes the block that `find` finds, with its keywords checked and its arguments copied."""

    def make(**kwargs: Any) -> Any:
        block = find()
        known, wild = _keywords(block)
        for name in kwargs:
            if name not in known and not (wild and name.startswith(_WILD)):
                import difflib

                close = difflib.get_close_matches(name, known, 1)
                raise SpecError(
                    f"{block.__name__}() has no option {name!r}",
                    hint=f"did you mean {close[0]!r}?" if close else f"it takes: {', '.join(sorted(known))}",
                )
        if "parallel" in known:  # hpccm's default, $(nproc), knows neither memory nor the units beside this one
            kwargs.setdefault("parallel", '"$ENVBUILD_JOBS"')
        return block(**copy.deepcopy(kwargs))

    return make


shell = _with_checked_keywords(lambda: _hpccm().primitives.shell)
environment = _with_checked_keywords(lambda: _hpccm().primitives.environment)
apt_get = _with_checked_keywords(lambda: _hpccm().building_blocks.apt_get)
generic_autotools = _with_checked_keywords(lambda: _hpccm().building_blocks.generic_autotools)
generic_cmake = _with_checked_keywords(lambda: _hpccm().building_blocks.generic_cmake)
generic_build = _with_checked_keywords(lambda: _hpccm().building_blocks.generic_build)


def comment(text: str, **kwargs: Any) -> Any:
    """Return the title of the step after it."""
    return _hpccm().primitives.comment(text, **kwargs)


def _primitives(items: Iterable[Any]) -> Iterator[Any]:
    """Yield primitives in order; building blocks iterate over theirs."""
    for item in items:
        if type(item).__module__.startswith("hpccm.primitives"):
            yield item
        else:
            yield from _primitives(item)


def steps(items: Sequence[Any]) -> tuple[Step, ...]:
    """Return the commands of primitives and blocks: one step per `shell`, titled by the comment before it;
    `environment` is exported in those after.

    A unit has no build context and no network: the archives of a recipe are in /run/envbuild/archives, and a block
    that copies its `package` from the context copies it from there. user, label and the like have no place in a
    recipe: SpecError. So are more than LONGEST bytes of a step.
    """
    result: list[Step] = []
    exports: list[str] = []
    title = ""
    for item in _primitives(items):
        kind = type(item).__name__
        if kind == "comment":
            title = str(item).removeprefix("# ")
        elif kind == "environment":
            values = item._environment__variables
            exports += [f"export {name}={quote(str(value))}" for name, value in sorted(values.items())]
        elif kind == "shell":
            commands = [command for command in item.commands if command]
            command = " && \\\n    ".join([*exports, *commands])
            if (size := len(command.encode())) > LONGEST:
                raise SpecError(
                    f"the commands '{title or commands[0][:60]}' have {size} bytes; one step has at most {LONGEST}",
                    hint="the patches and texts that they write are part of them: make these smaller, "
                    "or lock the changed source as a commit or archive",
                )
            result.append(Step(command, title))
            title = ""
        elif kind == "copy" and not item._copy__from:
            source, dest = f"{INPUTS}/archives/{item._copy__src}", str(item._copy__dest)
            folder = shlex.quote(posixpath.dirname(dest))
            result.append(Step(f"mkdir -p {folder} && cp {shlex.quote(source)} {shlex.quote(dest)}"))
        elif str(item).strip():  # an empty label comes out of every generic block
            raise SpecError(
                f"a recipe's build() returned {kind}, which has no place in a unit",
                hint="use shell, environment, comment or a block",
            )
    return tuple(result)


def quote(value: str) -> str:
    """Return a double-quoted shell word in which ``$NAME`` still expands (PATH needs it)."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`") + '"'


def render(layers: Sequence[Any]) -> str:
    """Return the Dockerfile text of primitives, one blank line between them."""
    stage = _hpccm().Stage()
    for layer in layers:
        stage += layer
    return str(stage)


def stage(name: str, base: str, arch: str) -> Any:
    """Return ``FROM base AS name``."""
    return _hpccm().primitives.baseimage(image=base, _as=name, _arch=_ARCH[arch], _distro="ubuntu24", _docker_env=False)


def run(command: str, mounts: Sequence[str] = ()) -> Any:
    """Return ``RUN --mount=… command``, one mount a line."""
    arguments = "".join(f"--mount={mount} \\\n    " for mount in mounts).removesuffix(" ")  # hpccm adds the last space
    return _hpccm().primitives.shell(commands=[command], **({"_arguments": arguments} if arguments else {}))


def raw(text: str) -> Any:
    """Return a line as it is: ADD, CMD, ARG (hpccm has no quoting for those)."""
    return _hpccm().primitives.raw(docker=text)


def copy_from(stage_name: str, path: str) -> Any:
    """Return ``COPY --from=stage path path``."""
    return _hpccm().primitives.copy(_from=stage_name, src=path, dest=path)


def version() -> str:
    """Return hpccm's version, which the lock records: its text changes with releases."""
    return str(_hpccm().__version__)
