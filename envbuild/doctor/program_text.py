"""A Python program (>= 3.8) of one file: modules as readable text, and what imports them from there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HEAD = '''#!/usr/bin/env python3
"""{title}"""

import sys

if sys.version_info < (3, 8):  # of Red Hat 8: 3.6
    sys.stderr.write("error: Python >= 3.8 is needed, and this is %d.%d\\n" % sys.version_info[:2])
    sys.stderr.write("hint: ls /usr/bin/python3.*; dnf install python3.11; python3.11 THIS_FILE\\n")
    sys.exit(2)

# Python's own folders alone: in /tmp, others may have put a json.py beside this file, or one where PYTHONPATH leads.
PREFIXES = {{sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}}
OWN = tuple(prefix.rstrip("/") + below for prefix in PREFIXES for below in ("/lib", "/local/lib"))
sys.path = [path for path in sys.path if path.startswith(OWN)]

import importlib.abc
import importlib.machinery

SOURCES = {{}}  # module: its text
'''

TAIL = '''

class Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The modules of this file."""

    def find_spec(self, name, path=None, target=None):
        if name not in SOURCES:
            return None
        is_package = any(other.startswith(name + ".") for other in SOURCES)
        return importlib.machinery.ModuleSpec(name, self, origin="envbuild", is_package=is_package)

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

    from {module} import main

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as other programs in a pipe to head
    sys.exit(main(sys.argv[1:], {arguments}))
'''


def program_text(
    title: str, constants: Mapping[str, object], sources: Mapping[str, str], module: str, arguments: str
) -> str:
    """Return the program.

    title: its docstring. constants: names and their values. sources: module → its text. module: whose function `main`
    is called, with the words of the command line and then `arguments`, as Python.
    """
    parts = [HEAD.format(title=title)]
    parts += [f"{name} = {value!r}\n" for name, value in constants.items()]
    parts += [f"\nSOURCES[{name!r}] = {quote(text)}\n" for name, text in sources.items()]
    return "".join([*parts, TAIL.replace("{module}", module).replace("{arguments}", arguments)])


def package_sources(folder: Path, package: str, left_out: tuple[str, ...] = ()) -> dict[str, str]:
    """Return module → its text of the modules below a folder, as those of a package with another name."""
    sources = {}
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder)
        if place.as_posix() not in left_out:
            words = [package, *place.with_suffix("").parts]
            name = ".".join(words[:-1] if words[-1] == "__init__" else words)
            sources[name] = path.read_text(encoding="utf-8")
    return sources


def quote(text: str) -> str:
    """Return a text as a literal that reads as the text does."""
    readable = "'''" not in text and not text.endswith(("'", "\\"))
    return f"r'''{text}'''" if readable else repr(text)
