"""A process in the root of an image loads no code from there, and reads no file to describe an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

SCRIPT = """
import sys
from pathlib import Path
from envbuild.core.sealed_interpreter import describe_crash, forbid_imports
forbid_imports()
sys.path.insert(0, sys.argv[1])  # even then
for load in ("import evil", "import json.tool", "b'x'.decode('evil')", "import encodings.cp037"):
    try:
        exec(load)
        print("loaded", load)
    except (ImportError, LookupError) as error:
        print(type(error).__name__)
opened = []
sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == "open" else None)
def fail():
    raise ValueError("a \\x1b[31m\\ndescription")
try:
    fail()
except ValueError as error:
    print(describe_crash(error))
print(opened)
"""


def test_nothing_is_imported_and_no_source_is_read(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("print('run')\n")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.splitlines() == [
        "ImportError",
        "ImportError",
        "LookupError",
        "ImportError",
        r"ValueError: a \x1b[31m\ndescription",
        "  <string>:18 in <module>",
        "  <string>:16 in fail",
        "[]",
    ], done.stderr
