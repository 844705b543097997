"""The same file for every user, number of jobs, alone or at the same moment as others, interrupted or not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.store.build_records import PACK_VERSION
from envbuild.core.store.gc import collect
from envbuild.core.store.store import Store
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.store_packs import pack_path
from tests.support import foreign_images
from tests.support.foreign_images import made, workspace
from tests.support.local_registry import Layout, file, tar
from tests.support.programs import import_path, importing

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
PACKAGES = Path(pytest.__file__).parents[1]

# The store, the source and the file are arguments; the layers' digests in order of packing are its output.
PROGRAM = """
import sys
from pathlib import Path
from tests.support.foreign_images import made, workspace
done = made(sys.argv[2], workspace(Path(sys.argv[1])), Path(sys.argv[3]), jobs=int(sys.argv[4]))
print(done.artifact.sha256, sum(not layer.cached for layer in done.layers))
"""


@pytest.fixture
def layout(scratch: Path) -> Iterator[Layout]:
    """Make an image of eight layers that every user may read."""
    own = Layout(scratch / "export-layout")
    more = [tar(file(f"data/{number}", foreign_images.noise(2_000_000, number))) for number in range(5)]
    own.add(foreign_images.image(own, [*foreign_images.layers(), *more]))
    for path in [own.path, *own.path.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield own
    subprocess.run(["rm", "-rf", str(own.path)], check=True)


def test_root_and_user(layout: Layout, scratch: Path, other_user: tuple[str, str], tmp_path: Path) -> None:
    name, python = other_user
    want = made(str(layout.path), workspace(tmp_path / "store"), jobs=1)
    store = f"/home/{name}/export-store"
    out = f"/home/{name}/image.sqsh"
    version = subprocess.run([python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True)
    if version.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip(f"{python} is another version, and cannot use the libraries here")
    environment = ["env", f"HOME=/home/{name}", f"PYTHONPATH={import_path(str(PACKAGES))}"]
    command = ["runuser", "-u", name, "--", *environment, python, "-c", PROGRAM]
    done = subprocess.run(
        [*command, store, str(layout.path), out, "3"], capture_output=True, text=True, check=False, cwd=f"/home/{name}"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == want.artifact.sha256
    assert Path(out).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_users_of_one_group_share_a_store(
    umask: int, layout: Layout, scratch: Path, other_user: tuple[str, str]
) -> None:
    """A pack is readable by all who share the store: the folder of the store decides, not the umask."""
    _, python = other_user
    store, group = scratch / f"group-store-{umask:o}", 50_000
    store.mkdir()
    os.chown(store, -1, group)
    store.chmod(0o3775)
    Store.open(store)

    def export(user: int, *options: str) -> dict[str, Any]:
        out = scratch / f"out-{user}"
        out.mkdir(exist_ok=True)
        os.chown(out, user, group)
        words = ["export", f"oci:{layout.path}", "--to", "squashfs", "--sha256", "--json", *options]
        done = subprocess.run(
            [python, "-m", "envbuild", *words],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{PACKAGES}", "ENVBUILD_STORE": str(store)},
            user=user,
            group=group,
            extra_groups=[],
            umask=umask,
            cwd=out,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    first = export(50_001, "-o", "image.sqsh")
    assert not any(layer["cached"] for layer in first["layers"])
    packs = [path for path in (store / "packs").iterdir() if path.suffix == f".v{PACK_VERSION}"]
    for path in packs:
        os.utime(path, (0, 0))
    second = export(50_002, "-o", "image.sqsh")
    assert all(layer["cached"] for layer in second["layers"]) and second["sha256"] == first["sha256"]
    assert all(path.stat().st_mtime > 0 for path in packs)  # wanted lately: `store gc` leaves them
    assert export(50_002)["sha256"] == export(50_001)["sha256"] == first["sha256"]
    assert export(50_001)["up_to_date"]
    assert not any(layer["cached"] for layer in export(50_002, "--compression", "lz4")["layers"])
    assert export(50_001, "--compression", "lz4")["up_to_date"]


def test_hidden_locks_of_another_user_count_as_in_use(scratch: Path, other_user: tuple[str, str]) -> None:
    _, python = other_user
    folder = scratch / "hidden"
    folder.mkdir(mode=0o700)
    (folder / "alive").touch()
    program = (
        "import sys; from pathlib import Path; from envbuild.core.store.work_folders import is_locked; "
        "print(is_locked(Path(sys.argv[1])))"
    )
    output = subprocess.run(
        [python, "-c", program, str(folder / "alive")],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{ROOT}:{PACKAGES}"},
        user=50_001,
        group=50_001,
        extra_groups=[],
        cwd="/",
    ).stdout
    assert output == "True\n"


def start(store: Path, layout: Layout, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(store), str(layout.path), str(out), "1"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=importing())


def test_two_at_the_same_moment(layout: Layout, tmp_path: Path) -> None:
    """Each layer is packed by one of them, and the other waits for it."""
    running = [start(tmp_path / "store", layout, tmp_path / f"{number}.sqsh") for number in range(2)]
    output = [process.communicate()[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert output[0][0] == output[1][0]
    assert sum(int(packed) for _, packed in output) == 8


def test_a_killed_run_resumes_where_it_stopped(layout: Layout, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "image.sqsh"
    process = start(store, layout, out)
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None and len(list(store.glob("packs/*"))) < 2:
        time.sleep(0.005)
    process.kill()  # unless it is done already
    process.communicate()
    had = len(list(store.glob("packs/*")))
    assert had >= 2
    if process.returncode == -signal.SIGKILL:
        assert not out.exists()
    done = made(str(layout.path), workspace(store), out)
    assert sum(layer.cached for layer in done.layers) == had
    assert done.artifact.sha256 == made(str(layout.path), workspace(tmp_path / "other")).artifact.sha256


def test_packs_that_no_image_needs_are_removed(layout: Layout, tmp_path: Path) -> None:
    at = workspace(tmp_path / "store")
    done = made(str(layout.path), at)
    packs = [pack_path(at.store, layer.diff_id, PackFormat()) for layer in done.layers]
    collect(at.store, SilentReporter(), dry_run=False, everything=True)
    assert all(path.is_file() for path in packs) and done.artifact.path.is_file()
    assert made(str(layout.path), at).up_to_date
    (done.artifact.path.parent / f"{layout.path.name}.sqsh").unlink()
    removed, _ = collect(at.store, SilentReporter(), dry_run=False, everything=True)
    assert not any(path.exists() for path in packs) and not done.artifact.path.exists()
    assert any(name.startswith("images/") for name in removed)
