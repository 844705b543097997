"""The quickstart image for real: made, made again, made elsewhere, changed, run."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.image_project import Cli, with_inputs
from tests.support.tools import require_tools
from tests.support.unprivileged_user import plain_user

pytestmark = pytest.mark.images

ROOT = Path(__file__).parents[2]
IMAGE = "cpu-ucx"


@pytest.fixture(scope="module")
def cli(refreshed: Callable[[str], Cli]) -> Cli:
    return refreshed(IMAGE)


@pytest.fixture(scope="module")
def made(cli: Cli) -> dict[str, object]:
    return dict(cli.json("make", IMAGE))


@pytest.fixture(scope="module")
def elsewhere(made: dict[str, object], cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """Return the command in another store, which has nothing but the inputs."""
    return Cli(cli.project, with_inputs(cli.store, tmp_path_factory.mktemp("elsewhere") / "store"))


@pytest.fixture(scope="module")
def made_elsewhere(elsewhere: Cli) -> dict[str, object]:
    return dict(elsewhere.json("make", IMAGE, "--workers", "1", "--jobs", "1", "--no-verify"))


def test_make_writes_a_verified_squashfs(made: dict[str, object], cli: Cli) -> None:
    path = Path(str(made["artifact"]))
    assert path.name.startswith(f"{IMAGE}-{str(made['lock'])[7:19]}-") and path.suffix == ".sqsh"
    assert (path.parent / f"{IMAGE}.sqsh").resolve() == path
    assert path.stat().st_mode & 0o777 == 0o644
    evidence = yaml.safe_load(Path(str(made["evidence"])).read_text())
    assert evidence["tiers"]["audit"] == "passed"
    assert evidence["tiers"]["run"] == "passed"
    assert evidence["tiers"]["gpu"].startswith("not run")


def test_the_second_run_reports_that_nothing_is_to_do(made: dict[str, object], cli: Cli) -> None:
    again = cli.run("make", IMAGE)
    assert "up to date, nothing to do" in again.stdout
    assert again.stderr == ""
    assert cli.json("make", IMAGE)["sha256"] == made["sha256"]


def test_two_ranks_reduce_over_ucx_inside_the_finished_file(made: dict[str, object], cli: Cli) -> None:
    program = "from mpi4py import MPI; c = MPI.COMM_WORLD; print('sum', c.allreduce(c.rank + 1))"
    over_ucx = "--mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any"
    command = f'UCX_TLS=self,sm,tcp mpirun --oversubscribe {over_ucx} -n 2 /opt/venv/bin/python -c "{program}"'
    done = cli.run("run", str(made["artifact"]), "--", "sh", "-c", command)
    assert done.stdout.count("sum 3") == 2


def test_run_returns_the_exit_code_and_discards_writes(made: dict[str, object], cli: Cli) -> None:
    assert cli.run("run", IMAGE, "--", "sh", "-c", "touch /opt/venv/new; exit 7", check=False).returncode == 7
    assert cli.run("run", IMAGE, "--", "ls", "/opt/venv/new", check=False).returncode == 2


def test_a_second_build_from_the_lock_has_the_same_bytes(made: dict[str, object], cli: Cli) -> None:
    answer = cli.json("verify", IMAGE, "--rebuild")
    assert answer["equal"] is True and answer["subject"]["squashfs"] == f"sha256:{made['sha256']}"


WALK = """
import hashlib, json, os, stat, sys
seen = {}
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = sorted(set(folders) - {"proc", "sys", "dev", "run", "tmp"})
    for name in folders + files:
        path = os.path.join(folder, name)
        status = os.lstat(path)
        link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
        content = hashlib.sha256(open(path, "rb").read()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
        seen[path] = [stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), link, content, int(status.st_mtime)]
print(json.dumps(seen))
"""
ENROOT = {
    "/etc/rc",
    "/etc/rc.local",
    "/etc/environment",
    "/etc/fstab",
    "/etc",
    "/etc/envbuild/export.json",
}  # the export's
SANDBOX = {"/etc/hosts", "/etc/resolv.conf"}  # bound by the sandbox


def test_the_file_contains_the_built_packages(made: dict[str, object], cli: Cli) -> None:
    """Every path, type, mode, link, content and time of the squashfs file against the stacked layers."""
    root = json.loads(cli.run("run", IMAGE, "--", "/usr/bin/python3", "-c", WALK).stdout)
    file = json.loads(cli.run("run", str(made["artifact"]), "--", "/usr/bin/python3", "-c", WALK).stdout)
    assert len(root) > 8000
    differing = {path for path in root.keys() | file.keys() if root.get(path) != file.get(path)}
    repaired = {path for path in differing if path in root and path in file and readable(root[path]) == file[path]}
    assert differing - repaired - ENROOT - SANDBOX == set()
    assert file.keys() >= ENROOT


def readable(entry: list[object]) -> list[object]:
    """Return the entry with what enroot's import changes: files u+r, folders u+rwx."""
    kind, mode, *rest = entry
    more = 0o700 if kind == stat.S_IFDIR else 0o400 if kind == stat.S_IFREG else 0
    return [kind, int(str(mode)) | more, *rest]


def test_bytes_are_equal_in_another_store_with_one_worker(
    made: dict[str, object], made_elsewhere: dict[str, object]
) -> None:
    assert made_elsewhere["layers"] == made["layers"]
    assert made_elsewhere["sha256"] == made["sha256"]
    assert made_elsewhere["reused"] == []


@pytest.fixture
def plain(cli: Cli) -> Iterator[Cli]:
    """Yield the command of an unprivileged user with subordinate ids, with its own project and store of inputs."""
    with plain_user("newuidmap", "setpriv") as name:
        entry = pwd.getpwnam(name)
        home = Path(entry.pw_dir)
        shutil.copytree(cli.project, home / "project")
        with_inputs(cli.store, home / "store", shutil.copy2)  # chown, just below, is for copies alone
        subprocess.run(["chown", "-R", f"{name}:", str(home)], check=True)
        user = ("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "env")
        packages = f"PYTHONPATH={Path(yaml.__file__).parents[1]}:{ROOT}"
        same = f"python{sys.version_info.major}.{sys.version_info.minor}"
        for python in (sys.executable, f"/usr/bin/{same}", f"/usr/local/bin/{same}"):
            command = [*user, packages, python, "-c", "import envbuild.cli.app, yaml, zstandard"]
            if not subprocess.run(command, capture_output=True, check=False).returncode:
                break
        else:
            pytest.skip(f"no {same} that another user can start")
        yield Cli(home / "project", home / "store", (*user, f"HOME={home}", packages), python)


def test_bytes_are_equal_for_an_unprivileged_user(made: dict[str, object], plain: Cli) -> None:
    """Built with subordinate ids, verified through FUSE or by unpacking."""
    second = plain.json("make", IMAGE)
    assert second["layers"] == made["layers"]
    assert second["sha256"] == made["sha256"]


def test_a_changed_python_package_builds_only_its_units(made: dict[str, object], cli: Cli, tmp_path: Path) -> None:
    """New packages are installed into the venv; everything below is unchanged."""
    changed = tmp_path / "images"
    shutil.copytree(cli.project / "images", changed)
    spec = changed / f"{IMAGE}.yaml"
    spec.write_text(spec.read_text().replace("[numpy]", "[numpy, six]"))
    other = Cli(tmp_path, cli.store)
    refused = other.run("make", IMAGE, check=False)
    assert refused.returncode == 4
    assert f"hint: envbuild lock {IMAGE}" in refused.stderr
    locked = other.run("lock", IMAGE)
    assert "+ six" in locked.stderr
    result = other.json("make", IMAGE, "--no-verify")
    assert sorted(result["built"]) == ["glue", "venv"]


def test_a_package_that_the_archive_no_longer_has_is_named(cli: Cli, made: dict[str, object], tmp_path: Path) -> None:
    shutil.copytree(cli.project / "images", tmp_path / "images")
    path = tmp_path / "images" / f"{IMAGE}.lock"
    lock = yaml.safe_load(path.read_text())
    file = next(name for name in lock["debian"] if name.startswith("openmpi-bin_"))
    gone = lock["debian"].pop(file)
    gone["sha256"] = "ab" * 32
    text = path.read_text().replace(_block(path.read_text(), file)["sha256"], gone["sha256"])
    path.write_text(text.replace(gone["path"], gone["path"].replace("openmpi-bin_", "openmpi-bin_0.1-")))
    other = Cli(tmp_path, with_inputs(cli.store, tmp_path / "store"))  # all others are there
    done = other.run("make", IMAGE, check=False)
    assert done.returncode == 10
    assert "openmpi-bin" in done.stderr
    assert "ab" * 32 in done.stderr
    assert f"envbuild lock {IMAGE} --upgrade openmpi-bin" in done.stderr


def _block(text: str, file: str) -> dict[str, str]:
    return dict(yaml.safe_load(text)["debian"][file])


def test_show_and_list_report_the_built_image(made: dict[str, object], cli: Cli) -> None:
    answer = cli.json("show", IMAGE)
    assert [unit["unit"] for unit in answer["units"]] == [
        "base",
        "debian",
        "root-build-mpi4py",
        "mpi4py",
        "venv",
        "glue",
    ]
    row = next(row for row in cli.json("list")["images"] if row["name"] == IMAGE)
    assert (row["lock"], row["made"]) == ("current", made["artifact"])
    answer = cli.json("show", str(made["artifact"]))
    assert (answer["squashfs"]["codec"], answer["origin"]["image"]) == ("zstd", IMAGE)


def test_gc_preserves_what_a_built_image_needs(elsewhere: Cli, made_elsewhere: dict[str, object]) -> None:
    (elsewhere.store / "blobs" / "sha256" / ("f" * 64)).write_bytes(b"nobody needs this")
    removed = elsewhere.json("store", "gc", "--all")["removed"]
    assert f"blobs/sha256/{'f' * 64}" in removed
    assert elsewhere.run("make", IMAGE, "--no-verify").stdout.startswith(f"{IMAGE}: up to date")
    Path(str(made_elsewhere["artifact"])).unlink()
    again = elsewhere.json("make", IMAGE, "--no-verify")
    assert again["built"] == []
    assert again["sha256"] == made_elsewhere["sha256"]


def test_a_full_disk_while_locking_is_reported(cli: Cli, tmp_path: Path) -> None:
    """A real one: the store on a file system of 64 kB."""
    require_tools("unshare")
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    store = tmp_path / "small"
    store.mkdir()
    script = 'mount -t tmpfs -o size=64k none "$1" && shift && exec "$@"'
    command = [
        "unshare",
        "-m",
        "sh",
        "-c",
        script,
        "sh",
        str(store),
        sys.executable,
        "-m",
        "envbuild",
        "lock",
        "cpu-ucx",
    ]
    environ = {**os.environ, "ENVBUILD_STORE": str(store)}
    command.append("--fresh")
    done = subprocess.run(command, cwd=cli.project, env=environ, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == 5, done.stderr
    assert "No space left" in done.stderr
