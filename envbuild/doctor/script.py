"""The doctor as one file: a Python program for nodes that have nothing but Python >= 3.8.

It contains the modules of this package as readable text, and imports them from there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from .checks import check_names
from .model import Need

PACKAGE = "envbuild_doctor"
LEFT_OUT = ("script.py", "outliers.py")  # what only envbuild itself needs

HEAD = '''#!/usr/bin/env python3
"""envbuild doctor {version}: the facts of this node, and what it lacks{target}.

One file for Python >= 3.8, without packages. Written by `envbuild doctor --print-script`.

    python3 THIS_FILE [--json] [--ctrf] [--as nhc|healthcheck] [--log FILE]

It changes nothing. Exit codes: 0 no failure, 2 usage, 5 /proc or /sys cannot be read, 7 failures."""

import sys

# Python alone: in /tmp, others may have put a json.py beside this file, or one where PYTHONPATH leads.
OWN = tuple(prefix.rstrip("/") + "/lib" for prefix in (sys.base_prefix, sys.base_exec_prefix))
sys.path = [path for path in sys.path if path.startswith(OWN)]

import importlib.abc
import importlib.machinery

SOURCES = {{}}  # module: its text
VERSION = {version!r}
NEED = {need!r}
'''

TAIL = '''

class Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The modules of this file."""

    def find_spec(self, name, path=None, target=None):
        if name not in SOURCES:
            return None
        is_package = any(other.startswith(name + ".") for other in SOURCES)
        return importlib.machinery.ModuleSpec(name, self, origin="envbuild doctor", is_package=is_package)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        code = compile(SOURCES[module.__name__], module.__name__.replace(".", "/") + ".py", "exec")
        exec(code, module.__dict__)

    def check_names(self):
        return CHECKS


sys.meta_path.insert(0, Modules())

if __name__ == "__main__":
    import signal

    from {package}.main import main

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as other programs in a pipe to head
    sys.exit(main(sys.argv[1:], NEED, VERSION))
'''


def single_file(need: Need, version: str) -> str:
    """Return the program. `need`: what it compares the node with."""
    target = f" for {need.source}" if need.source else ""
    parts = [
        HEAD.format(
            version=version,
            target=target,
            need=asdict(need),
        )
    ]
    parts.append(f"CHECKS = {check_names()!r}\n")
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder)
        if place.as_posix() not in LEFT_OUT:
            words = [PACKAGE, *place.with_suffix("").parts]
            name = ".".join(words[:-1] if words[-1] == "__init__" else words)
            parts.append(f"\nSOURCES[{name!r}] = {quote(path.read_text(encoding='utf-8'))}\n")
    return "".join([*parts, TAIL.replace("{package}", PACKAGE)])


def quote(text: str) -> str:
    """Return a text as a literal that reads as the text does."""
    readable = "'''" not in text and not text.endswith(("'", "\\"))
    return f"r'''{text}'''" if readable else repr(text)
