"""An air-gapped site for real: inputs copied in a folder, and the image built from it with the network unplugged."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.image_project import Cli

pytestmark = [
    pytest.mark.images,
    pytest.mark.skipif(not shutil.which("git"), reason="git is not installed"),
]
IMAGE = "gapped"
SPEC = """
schema: 1
description: one Debian package, one Python package, one source from a repository
target: cpu
base: debian:13
layers:
  tool: {}
  debian-packages: [hello]
  python-packages: [six]
"""
RECIPE = '''
from dataclasses import dataclass
from typing import ClassVar

from envbuild.sdk import Check, Git, Recipe, Sources, comment, folder, shell, source

SOURCE = Git("tool", "github:acme/tool", "COMMIT")


@dataclass(frozen=True, kw_only=True)
class Tool(Recipe):
    """A script out of a repository."""

    prefix: ClassVar[str] = "/opt/tool"

    def sources(self, env):
        return Sources(git=(SOURCE,))

    def build(self, env):
        copy = f"install -D {folder(SOURCE)}/tool.sh {self.prefix}/bin/tool"
        return [*source(SOURCE), comment("tool: the script"), shell(commands=[copy])]

    def verify(self, env):
        return [Check("tool: runs", "/opt/tool/bin/tool", "^tool says hello$")]
'''
WITHOUT_NETWORK = ("unshare", "--net")


@pytest.fixture(scope="module", autouse=True)
def unplugged() -> None:
    """Enter a network namespace, which has no interface but a loopback one that is down."""
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed")
    if subprocess.run([*WITHOUT_NETWORK, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare --net is not permitted here (it needs root)")


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    alone = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    command = ["git", "-C", folder, *who, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=alone)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def connected(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """Return a project with network, whose recipe compiles a commit of a repository on this machine."""
    folder = tmp_path_factory.mktemp("connected")
    repository = folder / "git" / "acme" / "tool"
    repository.mkdir(parents=True)
    git(repository, "init", "--quiet")
    (repository / "tool.sh").write_text("#!/bin/sh\necho tool says hello\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "x")
    project = folder / "project"
    for name, text in (
        (f"images/{IMAGE}.yaml", SPEC),
        ("recipes/tool.py", RECIPE.replace("COMMIT", git(repository, "rev-parse", "HEAD"))),
        ("site.yaml", 'schema: 1\nmirrors: {"github:acme/": [../git/acme]}\n'),
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    return Cli(project, store)


@pytest.fixture(scope="module")
def made(connected: Cli) -> dict[str, Any]:
    return dict(connected.json("make", IMAGE))


@pytest.fixture(scope="module")
def bundle(connected: Cli, made: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the exported folder, moved as a disk is."""
    folder = tmp_path_factory.mktemp("disk") / "bundle"
    row = connected.json("fetch", IMAGE, "--to", str(folder))
    assert row["new"] == row["files"] > 80
    assert (folder / "debian/pool/main/h/hello").is_dir()
    return folder.rename(folder.with_name("disk"))


def site(project: Path, bundle: Path, folder: Path) -> Cli:
    """Another machine: the project without its site, a home and a store with nothing in them, no network."""
    other = folder / "project"
    shutil.copytree(project, other, ignore=shutil.ignore_patterns("site.yaml"))
    (other / "site.yaml").symlink_to(bundle / "site.yaml")
    (folder / "home").mkdir()
    kept = [f"{name}={os.environ[name]}" for name in ("PATH", "LANG", "TMPDIR", "PYTHONPATH") if name in os.environ]
    clean = ("env", "-i", *kept, f"HOME={folder / 'home'}", f"ENVBUILD_STORE={folder / 'store'}")
    return Cli(other, folder / "store", (*WITHOUT_NETWORK, *clean))


def test_the_image_is_made_and_verified_without_network(
    connected: Cli, made: dict[str, Any], bundle: Path, tmp_path: Path
) -> None:
    cli = site(connected.project, bundle, tmp_path)
    again = cli.json("make", IMAGE)
    assert again["reused"] == []
    assert again["sha256"] == made["sha256"]
    tiers = yaml.safe_load(Path(again["evidence"]).read_text())["tiers"]
    assert (tiers["audit"], tiers["run"]) == ("passed", "passed")
    done = cli.run("run", IMAGE, "--", "sh", "-c", "hello; /opt/tool/bin/tool; /opt/venv/bin/python -c 'import six'")
    assert done.stdout == "Hello, world!\ntool says hello\n"


def test_files_missing_from_the_mirror_are_named(
    connected: Cli, made: dict[str, Any], bundle: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    shutil.copytree(bundle, disk, copy_function=os.link)
    (source,) = (disk / "sources").iterdir()
    (wheel,) = (disk / "python").glob("six-*.whl")
    for file in (source, wheel):
        file.unlink()
    cli = site(connected.project, disk, tmp_path)
    done = cli.run("fetch", IMAGE, check=False)
    assert done.returncode == 10, done.stderr
    assert done.stderr.count("error: ") == 2
    assert source.name in done.stderr and 'mirrors: {"github:acme/tool": [' in done.stderr
    assert wheel.name in done.stderr and "mirrors: {python: [" in done.stderr
