"""Texts of an image that `show FILE` turns into tables: small in the file, large in memory without a limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.packs import file, folder, packs
from tests.support.programs import importing
from tests.support.squashfs_image import write_image

pytestmark = pytest.mark.clients

MEMORY = 256 << 20  # bytes that the command may use at most
# getrusage would count the memory of the test itself, from which the process is forked
PROGRAM = """
import atexit, runpy, sys
atexit.register(lambda: sys.stderr.write(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))))
runpy.run_module("envbuild", run_name="__main__", alter_sys=True)
"""
TEXTS = {
    b"etc/rc": "# {} \n",
    b"etc/environment": "{}=\n",
    b"var/lib/dpkg/status": "Package: {}\nStatus: install ok installed\n\n",
}


def show(path: Path) -> tuple[int, str, int]:
    """Return exit code, messages and the most memory (bytes) of ``envbuild show FILE``."""
    env = {**importing(), "ENVBUILD_STORE": str(path.parent / "store")}
    command = [sys.executable, "-c", PROGRAM, "show", str(path)]
    done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    messages, _, peak = done.stderr.rpartition("VmHWM:")
    return done.returncode, messages, int(peak.split()[0]) << 10


@pytest.mark.parametrize("size,code", [(1_000_000, 0), (24_000_000, 7)])
@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_many_lines_take_little_memory(name: bytes, size: int, code: int, tmp_path: Path) -> None:
    text = "".join(map(TEXTS[name].format, range(size // len(TEXTS[name].format(1_000_000)))))
    parents = [name[:at] for at in range(len(name)) if name[at : at + 1] == b"/"]
    path = tmp_path / "x.sqsh"
    write_image(packs(tmp_path, [*map(folder, parents), file(name, text.encode())]), path, epoch=0)
    found, messages, peak = show(path)
    assert found == code and "Traceback" not in messages and peak < MEMORY, (found, messages[-2000:], peak)
    assert (name.decode() in messages) == bool(code)
