"""Extension modules that recipes promise: one line that imports them all in the finished image."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from envbuild.build.blocks.checks import PYTHON, STUB_DRIVER
from envbuild.core.text import printable
from envbuild.verify.recipe_checks import OUTPUT_LINES, SHELL_COMMAND
from envbuild.verify.results import AuditResult, Status, quote_output
from envbuild.verify.run_inspector import Runner

# torch first: extensions find its libraries in the process. Names come before the import, so that a module that ends
# the process is the last one named. What needs the driver itself can be imported only beside one, or beside its
# stubs.
PROGRAM = """
import importlib, importlib.util, re, sys
modules, without, failed = {modules!r}, [], []
if importlib.util.find_spec("torch"):
    import torch
for name in modules:
    print("import", name, flush=True)
    try:
        importlib.import_module(name)
    except ImportError as error:
        if re.match(r"lib(cuda|nvidia-ml)[.]so", str(error)):
            without.append(name)
        else:
            failed.append(name + ": " + str(error))
print("imported", len(modules) - len(without) - len(failed), "of", len(modules))
for name in without:
    print("not without a driver:", name)
for text in failed:
    print("failed:", text)
sys.exit(bool(failed))
"""


def import_results(modules: Sequence[str], runner: Runner, shell: str = SHELL_COMMAND) -> list[AuditResult]:
    """Return whether the modules (dotted names) import, beside the driver's stubs where the image has them.

    The result names those that need a driver and were not imported. No result for no modules.
    """
    if not modules:
        return []
    program = PROGRAM.strip().format(modules=sorted(set(modules)))
    paths = f"LD_LIBRARY_PATH={STUB_DRIVER}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
    code, output = runner(["/bin/sh", "-c", f"{paths} {PYTHON} -c {shlex.quote(program)}"])
    name, lines = "promised extension modules import", output.rstrip().splitlines()
    printed = [line for line in lines if line.startswith(("imported ", "not without a driver: "))]
    if code == 0 and printed:
        return [AuditResult(name, Status.PASS, printable("; ".join(printed)), "run")]
    last = quote_output(output, OUTPUT_LINES)
    hint = f"it was compiled for other versions, or lacks a library; open a shell in the image: {shell}"
    return [AuditResult(name, Status.FAIL, f"exit code {code}\n{last}", "run", hint)]
