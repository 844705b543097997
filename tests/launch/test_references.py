"""The five reference launches: the text that is printed for each, and a list of where it differs from the original."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from envbuild.launch.launch import Launch
from tests.support.launching import check_script, launch_shipped

pytestmark = pytest.mark.golden

FOLDER = Path(__file__).parent / "references"
CASES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))}
TUPLES = ("hosts", "mounts")


def launch(case: Mapping[str, Any], folder: Path) -> Launch:
    request = {key: tuple(value) if key in TUPLES else value for key, value in case["request"].items()}
    return launch_shipped(case["image"], case["as"], case["site"], folder, case["command"], **request)


def printed(found: Launch) -> dict[str, str]:
    """Return the variables and options of a launch by name."""
    plan = found.plan
    options = [*plan.job, *plan.step, *plan.container] if found.slurm else []
    words = [item.text for item in options]
    if "docker run" in found.written.text:
        lines = [line.strip(" \\") for line in found.written.text.partition("\n# on worker")[0].splitlines()]
        words += ["--rm", *(line for line in lines if line.startswith("--") and not line.startswith("--env="))]
    named = {word.partition("=")[0]: word.partition("=")[2].strip("'") for word in words}
    return {**{item.name: item.value for item in plan.env}, **named}


def differences(case: Mapping[str, Any], found: Launch) -> Iterator[str]:
    """Yield the names of variables and options that differ from the original."""
    original = {**case["reference"]["env"], **case["reference"]["options"]}
    ours = printed(found)
    yield from (name for name in {**original, **ours} if original.get(name) != ours.get(name))


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Launch]:
    return {name: launch(case, tmp_path_factory.mktemp(name)) for name, case in CASES.items()}


def test_there_are_five() -> None:
    assert len(CASES) == 5
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_text(name: str, launches: dict[str, Launch], update_golden: bool) -> None:
    stored = FOLDER / f"{name}.txt"
    text = re.sub(r":[0-9a-f]{12} ", ":LOCK ", launches[name].written.text)  # a lock that is made again has another
    if update_golden:
        stored.write_text(text)
    assert text == stored.read_text()


@pytest.mark.parametrize("name", CASES)
def test_each_difference_has_its_reason(name: str, launches: dict[str, Launch]) -> None:
    listed = CASES[name]["differs"]
    assert sorted(differences(CASES[name], launches[name])) == sorted(listed)
    assert all(len(why) > 15 for why in listed.values())


@pytest.mark.parametrize("name", CASES)
def test_the_text_passes_shellcheck(name: str, launches: dict[str, Launch], tmp_path: Path) -> None:
    check_script(launches[name].written.text, tmp_path)


@pytest.mark.parametrize("name", [name for name in CASES if "lines" in CASES[name]["reference"]])
def test_lines_of_the_original(name: str, launches: dict[str, Launch]) -> None:
    for line in CASES[name]["reference"]["lines"]:
        assert line in launches[name].written.text
