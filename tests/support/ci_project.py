"""A project in a git repository, as CI has it, and the steps of `.github/steps` as CI calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.debian_archive import Signer
from tests.support.host_base import VERSION, write_host_base
from tests.support.local_registry import Server
from tests.support.lock_project import BASE, LockProject

ROOT = Path(__file__).parents[2]
STEPS = ROOT / ".github/steps"
SPEC = """
schema: 1
description: of a test
target: cpu
base: base.example/host:1
distribution: debian:13
python: "{python}"
layers:
  script: {{run: ["echo {word} > word"], into: /opt/said}}
"""


@dataclass
class CiProject:
    """A checkout; `run` is a run of CI on a machine of its own: with its store, results and private folder.

    `env`: variables of all steps of this run."""

    folder: Path
    checkout: Path
    run: str = "run"
    env: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.folder / self.run / "out"

    def step(self, name: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        """Call a step; with `check` it must succeed."""
        own = self.folder / self.run
        fixed = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "APT_CONFIG": str(self.folder / "apt.conf"),
            "ENVBUILD": str(self.folder / "bin/envbuild"),
            "ENVBUILD_STORE": str(own / "store"),
            "OUT": str(self.out),
            "WORK": str(own / "work"),
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
            "GITHUB_STEP_SUMMARY": str(own / "summary.md"),
            "GITHUB_OUTPUT": str(own / "output"),
            "no_proxy": os.environ.get("no_proxy", ""),
        }
        own.mkdir(exist_ok=True)
        command = ["bash", str(STEPS / f"{name}.sh")]
        done = subprocess.run(
            command, cwd=self.checkout, env=fixed | self.env | env, capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"{name} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def another(self, run: str, **env: str) -> CiProject:
        """Return a run on another machine, with a clone of the repository."""
        clone = self.folder / run / "checkout"
        clone.parent.mkdir()
        self.git("clone", "-q", str(self.checkout), str(clone))
        return CiProject(self.folder, clone, run, {**self.env, **env})

    def answer(self, name: str) -> Any:
        """Return what a step wrote about the image."""
        return json.loads((self.out / "app" / name).read_text())

    def summary(self) -> str:
        return (self.folder / self.run / "summary.md").read_text()

    def outputs(self) -> dict[str, str]:
        """Return the outputs of the job, the last of each name; none if no step wrote one."""
        path = self.folder / self.run / "output"
        lines = path.read_text().splitlines() if path.exists() else []
        return dict(line.split("=", 1) for line in lines)  # type: ignore[misc]

    def commit(self, word: str) -> str:
        """Change what the image has, lock and commit; return the commit."""
        (self.checkout / "images").mkdir(exist_ok=True)
        (self.checkout / "images/app.yaml").write_text(SPEC.format(python=VERSION, word=word))
        self.develop("lock", "app")
        return self.commit_all(word)

    def commit_all(self, message: str) -> str:
        """Commit what is in the checkout; return the commit."""
        self.git("add", ".")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def develop(self, *words: str) -> None:
        """Call envbuild as the developer of the project, who has a store."""
        home = self.folder / "home"
        env = {
            "ENVBUILD_STORE": str(self.folder / "developer"),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
        }
        env |= {"APT_CONFIG": str(self.folder / "apt.conf")}
        subprocess.run(
            [str(self.folder / "bin/envbuild"), *words],
            cwd=self.checkout, env=os.environ | env, check=True, capture_output=True,
        )  # fmt: skip

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.checkout), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_ci_project(folder: Path, key: Signer, registry: Server) -> CiProject:
    """Return a project with the image app, whose inputs are all in `folder`; its site file is the user's."""
    mirrors = {"oci:base.example/": [str(folder / "bases")], f"oci:{registry.host}/": [registry.url]}
    archive = LockProject(folder, key, mirrors=mirrors)
    archive.publish()
    archive.index()
    archive.write()
    write_host_base(folder / "bases/host", BASE)
    site = folder / "home/.config/envbuild/site.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(yaml.safe_dump(json.loads((folder / "project/site.yaml").read_text())))
    (folder / "bin").mkdir()
    program = folder / "bin/envbuild"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m envbuild "$@"\n')
    program.chmod(0o755)
    found = CiProject(folder, folder / "checkout")
    found.checkout.mkdir()
    found.git("init", "-q", "-b", "main")
    found.commit("first")
    return found
