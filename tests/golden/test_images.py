"""The printed Containerfile of every shipped image, as it is before anything is locked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from envbuild.build.plan.containerfile import containerfile
from envbuild.build.plan.planner import make_plan
from envbuild.build.plan.units import Plan
from envbuild.lock.resolve import resolve_in
from envbuild.lock.update import draft_lock
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project

pytestmark = pytest.mark.golden

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "images"
NAMES = sorted(path.stem for path in (ROOT / "images").glob("*.yaml"))


def plan(name: str) -> Plan:
    project = Project.find(ROOT)
    resolution = resolve_in(load_image_spec(name, project), project)
    return make_plan(resolution, draft_lock(resolution))


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {name: containerfile(plan(name), locked=False) for name in NAMES}


def test_every_image_has_its_text() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.Containerfile")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_image(name: str, texts: dict[str, str], update_golden: bool) -> None:
    stored = GOLDEN / f"{name}.Containerfile"
    if update_golden:
        stored.write_text(texts[name])
    assert texts[name] == stored.read_text()


def tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(str(ROOT / ".venv" / "bin" / name))
    if not found:
        pytest.skip(f"{name} is not installed: pip install '.[test]'")
    return found


# One image has a step of most kinds; the linters take seconds for all of them.
SAMPLE = [
    pytest.param([name for name in NAMES if name == "cpu-ucx"], id="cpu-ucx"),
    pytest.param([name for name in NAMES if name != "cpu-ucx"], id="others", marks=pytest.mark.slow_unit),
]


@pytest.mark.parametrize("names", SAMPLE)
def test_hadolint_finds_nothing(names: list[str], texts: dict[str, str], tmp_path: Path) -> None:
    """hadolint checks the shell of each RUN with ShellCheck too."""
    paths = []
    for name in names:
        paths.append(tmp_path / f"{name}.Containerfile")
        paths[-1].write_text(texts[name])
    assert paths
    done = subprocess.run(
        [tool("hadolint"), "--no-color", *map(str, paths)], capture_output=True, text=True, check=False
    )
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize("names", SAMPLE)
def test_shellcheck_finds_nothing(names: list[str], tmp_path: Path) -> None:
    """Every step of every unit, as /bin/sh gets it."""
    steps = {step.command for name in names for unit in plan(name).units for step in unit.steps}
    paths = []
    for number, command in enumerate(sorted(steps)):
        paths.append(tmp_path / f"{number:03}.sh")
        paths[-1].write_text(f"#!/bin/sh\n{command}\n")
    # SC2016: texts of programs are in single quotes.
    command = [tool("shellcheck"), "--shell=sh", "--exclude=SC2016", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)
