"""Programs of envbuild that a user of `tests.support.unprivileged_user` starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import import_path

PACKAGES = Path(pytest.__file__).parents[1]

# Arguments: the store, the file, the command, the seconds that it may take.
RUN = """
import json, sys
from pathlib import Path
from tests.support.captured_run import run_captured
from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
store, reporter, box = Store.open(Path(sys.argv[1])), SilentReporter(), {}
code, output = run_captured(Path(sys.argv[2]), ["/bin/sh", "-c", sys.argv[3]], env={}, store=store,
                           timeout=float(sys.argv[4]), reporter=reporter, observe=box.update)
print(json.dumps([code, output.decode(), reporter.lines, box]))
"""


def as_user(user: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program text of Python as the user."""
    home = f"/home/{user}"
    for python in (sys.executable, "/usr/bin/python3"):
        words = ["runuser", "-u", user, "--", "env", f"HOME={home}", f"TMPDIR={home}"]
        words += [f"PYTHONPATH={import_path(str(PACKAGES))}", python, "-c"]
        check = f"import sys, zstandard; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        if subprocess.run([*words, check], capture_output=True, check=False, cwd=home).returncode == 0:
            return subprocess.run(
                [*words, program, *arguments], capture_output=True, text=True, check=False, cwd=home, umask=0o022
            )
    pytest.skip("no python of this version that another user can start")


def run(user: str, path: Path, command: str, timeout: int = 60, *, before: str = "") -> Any:
    """Return the code and the output of a command of the shell in the image `path`, the lines of the reporter, and the
    properties of the box. `before`: lines of Python."""
    store = Path(f"/home/{user}/store")
    done = as_user(user, before + RUN, str(store), str(path), command, str(timeout))
    assert done.returncode == 0, done.stderr
    assert list((store / "tmp").iterdir()) == []
    return json.loads(done.stdout)
