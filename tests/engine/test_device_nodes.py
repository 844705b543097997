"""A squashfs file with device nodes where a user can only unpack it: the nodes, which no box opens, are left out."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.userns.removal import remove_tree
from tests.support import tiny_root
from tests.support.run_as_user import run
from tests.support.unprivileged_user import plain_user

pytestmark = pytest.mark.engine

# No squashfuse; loop devices belong to root.
UNPACKING = """
import os, shutil, tempfile
programs = tempfile.mkdtemp()
for name in ("newuidmap", "newgidmap", "unsquashfs"):
    os.symlink(shutil.which(name), f"{programs}/{name}")
os.environ["PATH"] = programs
"""
FAR = 3_000_000_000  # no user has it


@pytest.fixture(scope="module")
def user() -> Iterator[str]:
    with plain_user("runuser", "newuidmap", "mksquashfs", "unsquashfs") as name:
        yield name


@pytest.fixture(scope="module")
def tree(scratch: Path) -> Iterator[Path]:
    """Yield a folder with a shell and device nodes."""
    place = scratch / "device-nodes"
    for name, path in tiny_root.host_files():
        (place / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place / "tree" / name)
    (place / "tree/bin").symlink_to("usr/bin")
    (place / "tree/odd").mkdir()
    os.mknod(place / "tree/odd/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(place / "tree/odd/disk", stat.S_IFBLK | 0o600, os.makedev(7, 200))
    os.mkfifo(place / "tree/odd/pipe")
    (place / "tree/odd/owned").write_text("old\n")
    os.chown(place / "tree/odd/owned", 1000, 1001)
    yield place / "tree"
    remove_tree(place)


def squash(tree: Path, name: str) -> Path:
    path = tree.parent / name
    subprocess.run(["mksquashfs", tree, path, "-quiet", "-no-progress"], check=True, capture_output=True)
    path.chmod(0o644)
    return path


def test_a_file_is_unpacked_without_its_device_nodes(user: str, tree: Path) -> None:
    command = "cd /odd; echo *; stat -c '%u %g' owned"
    code, output, lines, _ = run(user, squash(tree, "nodes.sqsh"), command, before=UNPACKING)
    assert (code, output) == (0, "owned pipe\n1000 1001\n")
    (line,) = (line for line in lines if "was unpacked" in line)
    assert "without its device nodes (mount: /dev/loop-control: " in line
    assert line.endswith("; squashfuse is not installed)")


def test_a_file_whose_owners_cannot_be_set_does_not_run(user: str, tree: Path) -> None:
    """unsquashfs ends with the same exit code."""
    os.chown(tree / "odd/owned", FAR, 0)
    path = squash(tree, "owners.sqsh")
    os.chown(tree / "odd/owned", 1000, 1001)
    with pytest.raises(AssertionError, match=r"EngineError: .*failed to change uid and gids on"):
        run(user, path, "true", before=UNPACKING)
