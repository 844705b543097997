"""The inspection of a finished image: passes `envbuild.inspector` to the image's own Python and reads its report.

The program is passed as one argument, so nothing is mounted into the image and any way of running a command in it is
sufficient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from envbuild.core.errors import EngineError, VerifyError
from envbuild.core.json_text import json_value
from envbuild.inspector import (
    dynamic_loader,
    elf,
    elf_symbols,
    fatbin,
    file_walk,
    gnu_notes,
    link_check,
    machine_code,
    packages,
    pyc,
    report,
    x86_isa,
)
from envbuild.inspector.report import LIMIT, MARK, SINGLES
from envbuild.verify.results import quote_output

Runner = Callable[[Sequence[str]], tuple[int, str]]
"""Runs a command in the image with the image's environment; returns the exit code and the output."""

PYTHON = "/usr/bin/python3"
LARGEST = 16 << 20  # characters of a report; a real one has a few million
PACKAGE = "envbuild_inside"  # its name in the image's interpreter
START = """\
import sys, types
def load(name, text):
    module = types.ModuleType(name)
    module.__package__ = {package!r}
    sys.modules[name] = module
    exec(compile(text, name, "exec"), module.__dict__)
    return module
load({package!r}, "").__path__ = []
for name, text in {parts!r}:
    setattr(sys.modules[{package!r}], name, load({package!r} + "." + name, text))
sys.modules[{package!r} + "." + {main!r}].main({options!r})
"""
# Each after those it imports; modules and not their names, so that what is sent is what was imported here.
MODULES = (
    elf,
    fatbin,
    gnu_notes,
    elf_symbols,
    x86_isa,
    dynamic_loader,
    link_check,
    pyc,
    packages,
    file_walk,
    machine_code,
    report,
)


@dataclass(frozen=True, slots=True)
class OwnContent:
    """The own content of an image.

    `prefixes`: folders that contain one product each (None: all those of /opt). `folders` and `dists` (distributions by
    name) were compiled for this image, by its own units.
    """

    prefixes: tuple[str, ...] | None = None
    folders: tuple[str, ...] = ()
    dists: tuple[str, ...] = ()


def inspector_program(options: Mapping[str, Any]) -> str:
    """Return the whole program as one text for ``python3 -c`` (Linux allows 128 KiB for one argument)."""
    parts = [(module_name(module), inspect.getsource(module)) for module in MODULES]
    return START.format(package=PACKAGE, parts=parts, main=module_name(report), options=dict(options))


def module_name(module: ModuleType) -> str:
    """Return the name of a module in its package."""
    return module.__name__.rpartition(".")[2]


def inspect_image(
    runner: Runner,
    own: OwnContent | None = None,
    *,
    singles: Sequence[str] = SINGLES,
    cuobjdump: bool = True,
    python: str = PYTHON,
) -> dict[str, Any]:
    """Return the report of `envbuild.inspector.report` on the image that `runner` runs commands in.

    `singles`: libraries to count.
    `cuobjdump`: run it, if the image has it.
    `python`: interpreter of the image, 3.8 or later.

    Raises VerifyError, and EngineError where a limit of this machine ends the inspection.
    """
    own = own or OwnContent()
    options = {
        "singles": list(singles),
        "cuobjdump": cuobjdump,
        "prefixes": None if own.prefixes is None else list(own.prefixes),
        "compiled": {"folders": list(own.folders), "dists": list(own.dists)},
    }
    # -S: `site` would run .pth files and sitecustomize of the image before the inspector.
    code, output = runner([python, "-I", "-S", "-B", "-c", inspector_program(options)])
    for line in reversed(output.splitlines()):
        if line.startswith(MARK) and code == 0:
            document = parse_report(line.removeprefix(MARK))
            if LIMIT in document:
                raise EngineError(
                    f"the image could not be inspected\n{quote_output(str(document[LIMIT]), 1)}",
                    hint="raise the limits: ulimit -n 65536; ulimit -v unlimited",
                )
            return document
    raise VerifyError(
        f"the image could not be inspected: {python} ended with exit code {code}\n{quote_output(output, 10)}".rstrip(),
        hint="python3 of the distribution must be in the image: add debian-packages: [python3] to the spec's layers",
    )


def parse_report(text: str) -> dict[str, Any]:
    """Return the report that a program of the image printed. Raises VerifyError for another text."""
    try:
        document = json_value(text) if len(text) <= LARGEST else None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise VerifyError("the image could not be inspected: its python3 printed something else than the report")
    return document
