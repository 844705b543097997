"""Bytecode of installed Python packages: a squashfs file is read-only, so without it each rank of a job compiles every
module that it imports, at each start (torch: some 2,000 modules, 5 s of CPU)."""

from __future__ import annotations

import shlex

# One line, so that it is a RUN of a Containerfile. Headers have a hash of the source and not its time (PEP 552): tools
# that import images set times (enroot), and an edit in a writable container takes effect. A file that does not compile
# (a template, Python 2) has no bytecode. What a unit below compiled remains: written again, it would be in this layer.
PROGRAM = (
    "import os, py_compile, sys; from importlib.util import cache_from_source as cache; "
    "mode = py_compile.PycInvalidationMode.CHECKED_HASH; "
    "walk = (os.path.join(at, name) for at, _, names in os.walk(sys.argv[1]) for name in names); "
    'files = sorted(path for path in walk if path.endswith(".py") and not os.path.exists(cache(path))); '
    "[py_compile.compile(path, invalidation_mode=mode, quiet=2) for path in files]"
)
# Sets of constants are in the order of their hashes before Python 3.11; .pth files of packages are not run (-S).
OPTIONS = "-S -s -B -W ignore"


def compile_command(python: str, folder: str) -> str:
    """Return the shell command that compiles the packages in a folder with an interpreter, in one process and by name:
    always the same bytes. A full disk ends it with an error."""
    return f"PYTHONHASHSEED=0 {python} {OPTIONS} -c {shlex.quote(PROGRAM)} {folder}"
