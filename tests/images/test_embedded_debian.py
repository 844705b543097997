"""A real Debian 13 base and a unit of awkward packages: the same layers as root and as a user, and dpkg finds nothing
wrong.

The packages come from the archive that the host's apt is configured for; ENVBUILD_TEST_STORE names a folder that keeps
them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.core.userns.removal import remove_tree
from tests.support import debian_plan
from tests.support import tiny_root as kit
from tests.support.captured_run import run_captured
from tests.support.debian_plan import AWKWARD, debian, fill
from tests.support.engine_fixtures import other_user, scratch  # noqa: F401
from tests.support.programs import importing

pytestmark = [pytest.mark.images, pytest.mark.slow]


def archive_uri() -> str:
    """Return the Debian archive of the host's apt."""
    if shutil.which("apt-get") is None:
        pytest.skip("apt-get is not installed")
    lines = subprocess.run(["apt-get", "indextargets"], capture_output=True, text=True, check=True).stdout.split("\n\n")
    for target in lines:
        found = re.search(r"^Repo-URI: (\S+/debian)/?$", target, re.MULTILINE)
        if found:
            return found.group(1)
    pytest.skip("the host's apt knows no Debian archive")


@pytest.fixture(scope="module")
def packages(scratch: Path) -> Path:  # noqa: F811
    """Return a folder with the .debs of the base (list ``essential``) and of the awkward unit (list ``awkward``)."""
    folder = Path(os.environ.get("ENVBUILD_TEST_STORE", scratch)) / "trixie"
    if (folder / "awkward").is_file():
        return folder
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources").write_text(f"deb {archive_uri()} trixie main\n")
    (folder / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{folder}/sources"; Dir::Etc::SourceParts "-"; Dir::State "{folder}";\n'
        f'Dir::State::Lists "{folder}/lists"; Dir::State::Status "{folder}/status"; Dir::Cache "{folder}/cache";\n'
        'Acquire::Languages "none"; APT::Install-Recommends "false"; APT::Sandbox::User "root";\n'
    )
    env = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}

    def apt(*arguments: str) -> str:
        done = subprocess.run(["apt-get", *arguments], capture_output=True, text=True, check=False, env=env)
        if done.returncode:
            pytest.skip(f"the Debian archive cannot be read: {done.stderr[-300:]}")
        return done.stdout

    apt("update")
    lists = {}
    for name, more in (("essential", ()), ("base", ("apt",)), ("awkward", ("apt", *AWKWARD))):
        wanted = ["?essential", *more]
        lines = apt("install", "-s", *wanted).splitlines()
        lists[name] = {line.split()[1] for line in lines if line.startswith("Inst ")}
        apt("install", "-y", "-d", *wanted)
    files = sorted(path.name for path in (folder / "cache/archives").glob("*.deb"))
    for name, names in lists.items():
        (folder / name).write_text("\n".join(file for file in files if file.split("_")[0] in names))
    return folder


@pytest.fixture
def store(scratch: Path, packages: Path) -> Iterator[Store]:  # noqa: F811
    yield fill(scratch / "debian", packages)
    remove_tree(scratch / "debian")


def test_a_debian_image(
    store: Store,
    packages: Path,
    scratch: Path,  # noqa: F811
    other_user: tuple[str, str],  # noqa: F811
) -> None:
    built = kit.Embedded(packs=()).build(debian(store, packages), store, kit.SilentReporter(), kit.BuildOptions())
    trees = [store.layer_tree(layer.diff_id) for layer in built.layers]
    look = """
        dpkg --audit; dpkg --verify; dpkg-query -W -f '${Status}\\n' | sort -u; python3 -c 'print(6 * 7)'
        stat -c '%U:%G %a %n' /etc/shadow /usr/bin/sudo /usr/bin/crontab /usr/bin/ssh-agent
        ls /etc/ssh/ssh_host* /usr/sbin/policy-rc.d; true"""
    code, output = run_captured(trees, ["/bin/sh", "-c", look], env={}, store=store)
    lines = output.decode().splitlines()
    assert code == 0 and "install ok installed" in lines and "42" in lines
    assert "root:shadow 640 /etc/shadow" in lines and "root:root 4755 /usr/bin/sudo" in lines
    assert "root:crontab 2755 /usr/bin/crontab" in lines and "root:_ssh 2755 /usr/bin/ssh-agent" in lines
    rest = [line for line in lines if "ok installed" not in line and " /" in line and line.startswith(("?", "missing"))]
    assert rest == [], "dpkg --verify finds changed files"
    again = kit.Embedded(packs=()).build(
        debian(store, packages), store, kit.SilentReporter(), kit.BuildOptions(rebuild=True)
    )
    assert again.layers == built.layers

    name, python = other_user
    folder = scratch / "debian-user"
    folder.mkdir()
    shutil.chown(folder, name)
    command = [python, debian_plan.__file__, str(folder), str(packages)]
    done = subprocess.run(
        ["runuser", "-u", name, "--", *command], capture_output=True, text=True, check=False, env=importing()
    )
    remove_tree(folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [layer.diff_id for layer in built.layers]
