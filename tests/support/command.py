"""The command line as a user has it.

`envbuild` is a fork of the process that runs the tests: it has streams, signals, a folder and an environment of its own
as any program, without the time that an interpreter and its imports take. `process` is a program of its own, to test
how Python starts.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, NoReturn

from envbuild.matrix import FACTS
from envbuild.matrix.facts.compile import load_fact_table

ROOT = Path(__file__).parents[2]


def envbuild(*arguments: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Return the output and exit code of ``envbuild ARGUMENTS``; `env` is added to the variables of the test run."""
    import_everything()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            become_command(arguments, cwd, {"COLUMNS": "120", **env}, (out, err))
        _, status = os.waitpid(child, 0)
        texts = [read_back(stream) for stream in (out, err)]
    return subprocess.CompletedProcess(arguments, os.waitstatus_to_exitcode(status), *texts)


def process(*arguments: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Return the same by an interpreter of its own, which reads variables such as PYTHONPATH."""
    environ = {**os.environ, "COLUMNS": "120", **env}
    command = [sys.executable, "-m", "envbuild", *arguments]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)


def refused(done: subprocess.CompletedProcess[str], code: int, *texts: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    for text in texts:
        assert text in done.stderr


@cache
def import_everything() -> None:
    """Import what commands import, and read the facts, once for all forks."""
    package = import_module("envbuild")
    for module in pkgutil.walk_packages(package.__path__, "envbuild."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    load_fact_table([FACTS])  # in memory, where forks in this folder find it
    gc.freeze()  # a garbage collection in a fork copies the pages of every object that it visits


def become_command(
    arguments: tuple[str, ...], cwd: Path, env: Mapping[str, str], streams: tuple[BinaryIO, BinaryIO]
) -> NoReturn:
    """Be ``python -m envbuild ARGUMENTS``, and end as it does. Nothing of the tests runs after that."""
    from envbuild.cli.json_answer import answer  # tests of this process may have printed one

    answer.requested, answer.printed, answer.results = False, False, {}
    code = 1
    try:
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream.fileno(), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        os.environ.update(env)
        sys.argv = ["envbuild", *arguments]
        sys.orig_argv = [sys.executable, "-m", "envbuild", *arguments]
        runpy.run_module("envbuild", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def read_back(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read().decode()
