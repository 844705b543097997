"""Workflows and steps are free of findings of their linters, and have the least rights."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.support.command import ROOT

pytestmark = pytest.mark.docs
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
STEPS = sorted((ROOT / ".github/steps").glob("*.sh"))
WRITES = {
    ("publish.yml", "publish"): {"packages"},
    ("comment.yml", "comment"): {"pull-requests"},
    ("refresh.yml", "propose"): {"contents", "pull-requests"},
}


def lint(name: str, *arguments: str | Path) -> None:
    """Run a linter of the development environment, which prints what it finds."""
    program = Path(sys.executable).with_name(name)
    assert program.exists(), f"{name} is not installed; type: make dev"
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load(path.read_text())["jobs"])


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda path: str(path.name))
def test_actionlint_finds_nothing(path: Path) -> None:
    """With the rules of actionlint; zizmor checks security."""
    lint("jactionlint", "--no-color", "--profile=correctness", path)


def test_zizmor_finds_nothing() -> None:
    lint("zizmor", "--offline", "--no-progress", "--color=never", ".github/workflows", "action.yml")


def test_shellcheck_finds_nothing_in_the_steps() -> None:
    lint("shellcheck", "--external-sources", "--source-path=SCRIPTDIR", *STEPS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.name))
def test_only_the_jobs_that_publish_can_write(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == {}
    for name, job in jobs(path).items():
        writes = {right for right, level in job["permissions"].items() if level == "write"}
        assert writes == WRITES.get((path.name, name), set()), name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.name))
def test_jobs_end_and_actions_are_pinned(path: Path) -> None:
    text = path.read_text()
    pinned = re.findall(r"uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", text, re.MULTILINE)
    assert len(pinned) == text.count("uses: actions/")
    for job in jobs(path).values():
        assert "uses" in job or 0 < job["timeout-minutes"] <= 350
        for step in job.get("steps", []):
            assert "${{" not in step.get("run", "")
            assert (
                not step.get("uses", "").startswith("actions/checkout") or step["with"]["persist-credentials"] is False
            )


def test_every_step_documents_its_variables() -> None:
    """Those that it requires, and those that have a default."""
    common = (ROOT / ".github/steps/common.sh").read_text()
    for path in STEPS:
        text = path.read_text()
        head = text.partition("\n. ")[0] + common.partition("\nset ")[0]
        used = set(re.findall(r"\$\{([A-Z_]+):?-", text)) | set(re.findall(r"^require ([A-Z_]+)", text, re.MULTILINE))
        assert {name for name in used - {"XDG_CONFIG_HOME", "RUNNER_ENVIRONMENT"} if name not in head} <= {
            "GITHUB_OUTPUT", "REPOSITORY", "CACHE", "REGISTRY_PASSWORD", "ENVBUILD",
        }, path.name  # fmt: skip


def test_the_pinned_packages_are_those_that_envbuild_requires() -> None:
    text = (ROOT / ".github/steps/requirements.txt").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    assert all("--hash=sha256:" in part for part in re.split(r"\n(?=\w)", text))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for line in [*project["project"]["dependencies"], *project["build-system"]["requires"]]:
        wanted = Requirement(line)
        assert wanted.specifier.contains(pins[wanted.name.lower()]), f"{line}; type: make requirements"


@pytest.mark.parametrize("step", ["common", "plan", "prepare", "refresh"])
def test_recipes_do_not_see_the_passwords_of_the_pipeline(step: str, tmp_path: Path) -> None:
    """Recipes are programs, which run with the environment of envbuild."""
    lines = (ROOT / f".github/steps/{step}.sh").read_text().splitlines()
    script = [line for line in lines if line.startswith(("unset ", ". "))]
    script = [line.replace("${BASH_SOURCE[0]}", str(ROOT / ".github/steps/x")) for line in script]
    names = ["CI_JOB_TOKEN", "CI_REGISTRY_PASSWORD", *(["REGISTRY_PASSWORD"] if step != "common" else [])]
    env = {"PATH": os.environ["PATH"], "OUT": str(tmp_path), "WORK": str(tmp_path), **dict.fromkeys(names, "hush")}
    done = subprocess.run(
        ["bash", "-c", "\n".join([*script, "env"])], env=env, capture_output=True, text=True, check=True
    )
    assert "hush" not in done.stdout
