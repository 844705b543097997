"""The list of mounts, in which a user's file system has the name that the user chose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import ROOT

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting file systems in this test needs root"),
]

CODE = r"""
import sys
from pathlib import Path
from envbuild.build.engines.embedded.mounts import mounts_below
from envbuild.core.userns import libc

root = Path(sys.argv[1])
for name, source in (("one", "x\x0cy"), ("two", "x\u2028y"), ("a b", "\x1c")):
    (root / name).mkdir()
    libc.mount(source, str(root / name), "tmpfs", 0, "size=4k")
print(sorted(Path(point).name for point in mounts_below(str(root))))
"""


def test_the_name_of_a_file_system_ends_no_line(tmp_path: Path) -> None:
    command = ["unshare", "-m", sys.executable, "-c", CODE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "['a b', 'one', 'two']\n", done.stderr
