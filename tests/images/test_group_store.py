"""`envbuild make` by two users of a group in one store, whole: what one built, the other takes, and builds on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.core.userns.removal import remove_tree
from tests.support.engine_fixtures import scratch  # noqa: F401
from tests.support.image_project import Cli
from tests.support.programs import import_path
from tests.support.unprivileged_user import users_of_a_group

pytestmark = [pytest.mark.images, pytest.mark.slow]

PACKAGES = Path(pytest.__file__).parents[1]
SPEC = "schema: 1\ntarget: cpu\nbase: debian:13\nlayers:\n  debian-packages: [python3, hello]\n"
SPECS = {"small": SPEC, "larger": f'{SPEC}  python-packages: [packaging]\npython: "3.13"\n'}


@pytest.fixture
def members(scratch: Path) -> Iterator[tuple[Cli, Cli]]:  # noqa: F811
    """Yield the commands of two members, each with a project of their own, in one store with mode 3770."""
    uv = shutil.which("uv")
    with users_of_a_group("newuidmap", "runuser") as (name, *users, _):
        for python in (sys.executable, "/usr/bin/python3"):
            check = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
            if not subprocess.run(
                ["runuser", "-u", users[0], "--", python, "-c", check], capture_output=True, check=False
            ).returncode:
                break
        else:
            pytest.skip("no python of this version that another user can start")
        store = scratch / "store-of-two"
        store.mkdir()
        shutil.chown(store, group=name)
        store.chmod(0o3770)
        Store.open(store)  # as its owner's first command does
        commands = []
        for user in users:
            home = Path("/home", user)
            (home / "bin").mkdir()
            (home / "project/images").mkdir(parents=True)
            for spec, text in SPECS.items():
                (home / f"project/images/{spec}.yaml").write_text(text)
            if uv:
                shutil.copy(uv, home / "bin")
            subprocess.run(["chown", "-R", f"{user}:", str(home)], check=True)
            own = [f"HOME={home}", f"XDG_RUNTIME_DIR={home}", f"TMPDIR={home}", f"PATH={home}/bin:/usr/bin:/bin"]
            own += [f"ENVBUILD_STORE={store}", f"PYTHONPATH={import_path(str(PACKAGES))}"]
            commands.append(Cli(home / "project", store, ("runuser", "-u", user, "--", "env", *own), python))
        yield commands[0], commands[1]
        remove_tree(store)


@pytest.mark.parametrize("engine", ["embedded", "buildah"])
def test_two_members_make_images_in_one_store(engine: str, members: tuple[Cli, Cli]) -> None:
    if shutil.which(engine) is None and engine != "embedded":
        pytest.skip(f"{engine} is not installed")
    one, two = members
    one.run("lock", *SPECS)
    for name in SPECS:
        shutil.copy(one.project / f"images/{name}.lock", two.project / "images")
    first = one.json("make", "small", "--engine", engine)
    assert two.json("make", "small", "--engine", engine)["sha256"] == first["sha256"]
    second = two.json("make", "larger", "--engine", engine)
    assert "base" in second["reused"] and "venv" in second["built"]
    assert one.json("make", "larger", "--engine", engine)["sha256"] == second["sha256"]
    titles = [member.json("report", "small")["verdict"]["title"] for member in members]
    assert titles == ["verified", "not verified"], "each has evidence of its own alone"
    two.run("publish", "small", "--to", "oci:./published:1", "--squashfs-only")
    assert two.json("report", "small")["verdict"]["title"] == "verified", "verified before it was published"
    for member in members:
        assert "Hello" in member.run("run", "small", "--", "hello").stdout
        assert member.run("verify", "small").returncode == 0
        assert member.run("store", "check").returncode == 0
