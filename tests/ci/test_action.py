"""The action for other projects: its steps with their variables, from a checkout to a started image."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.ci_project import ROOT, CiProject, make_ci_project
from tests.support.debian_archive import Signer
from tests.support.local_registry import Server, serve
from tests.support.token_server import tokens
from tests.support.tools import require_tools

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(os.geteuid() != 0, reason="the base image of the host's files needs root"),
]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
SCRIPT = re.compile(r'"\$GITHUB_ACTION_PATH/\.github/steps/([a-z]+)\.sh"')
GITHUB = {"github.actor": "robot", "github.token": "pass word", "github.repository": "Team/project"}


def evaluate(text: str, values: dict[str, str]) -> str:
    """Return a text of the action with its expressions replaced: those of GitHub that it uses, and no others."""

    def value(expression: str) -> Any:
        choice = re.fullmatch(r"(.+) && '(\w+)' \|\| '(\w+)'", expression)
        if choice:
            return choice[2] if value(choice[1]) else choice[3]
        if " && " in expression:
            return all(value(part) for part in expression.split(" && "))
        compared = re.fullmatch(r"(\S+) (==|!=) '(\w*)'", expression)
        if compared:
            return (values[compared[1]] == compared[3]) == (compared[2] == "==")
        return True if expression == "!cancelled()" else values[expression]

    whole = re.fullmatch(r"\$\{\{ (.+?) \}\}", text)
    return str(value(whole[1])) if whole else re.sub(r"\$\{\{ (.+?) \}\}", lambda found: str(value(found[1])), text)


def run_action(at: CiProject, check: bool = True, **inputs: str) -> list[str]:
    """Run the steps as a runner of GitHub does, with `inputs`; return the names of the scripts."""
    defaults = {name: evaluate(str(item.get("default", "")), GITHUB) for name, item in ACTION["inputs"].items()}
    values = GITHUB | {f"inputs.{name}": value for name, value in (defaults | inputs).items()}
    done = []
    for step in ACTION["runs"]["steps"]:
        if evaluate(step.get("if", "${{ !cancelled() }}"), values) == "True":
            found = SCRIPT.fullmatch(step["run"])
            assert found and step["shell"] == "bash"
            done.append(found[1])
            env = {name: evaluate(text, values) for name, text in step.get("env", {}).items()}
            at.step(found[1], check, GITHUB_ACTION_PATH=str(ROOT), **env)
    return done


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, key: Signer) -> Iterator[tuple[CiProject, Server]]:
    """Yield a project, and a registry that can be read by all and written with the login of the job."""
    require_tools("apt-get", "gpg", "git", "docker-registry")
    folder = tmp_path_factory.mktemp("action")
    with tokens(folder / "tokens") as service:
        service.public = True
        service.allowed = {f"Basic {base64.b64encode(b'robot:pass word').decode()}"}
        with serve(folder / "registry", service.configuration()) as registry:
            yield make_ci_project(folder, key, registry), registry


def places(registry: Server) -> dict[str, str]:
    return {"repository": f"{registry.host}/Team/project/images", "cache": f"{registry.host}/Team/project/units"}


def test_a_pull_request_builds_and_writes_nothing(case: tuple[CiProject, Server]) -> None:
    project, registry = case
    at = project.another("request")
    assert run_action(at, image="app", **places(registry)) == ["prepare", "build", "report"]
    assert "### `app`: built" in at.summary() and at.outputs()["results"] == str(at.out)
    assert not [path for path in registry.root.rglob("*") if path.is_file()]


def test_a_push_publishes_the_image_and_starts_it(case: tuple[CiProject, Server]) -> None:
    project, registry = case
    at = project.another("push")
    steps = run_action(at, image="app", publish="true", command="cat /opt/said/word", **places(registry))
    assert steps == ["prepare", "build", "report", "publish", "start"]
    reference = at.outputs()["reference"]
    assert reference == f"{registry.host}/team/project/images@{at.answer('publish.json')['digest']}"
    assert (at.out / "app/start.txt").read_text() == "first\n"
    assert not [path for path in at.out.rglob("*") if path.is_file() and b"pass word" in path.read_bytes()]
    again = project.another("later")
    run_action(again, image="app", **places(registry))
    assert json.loads((again.out / "app/make.json").read_text())["images"][0]["built"] == [], "all units of the cache"


def test_an_unknown_image_ends_the_job(case: tuple[CiProject, Server]) -> None:
    project, registry = case
    with pytest.raises(AssertionError, match="build ended with 2"):
        run_action(project.another("unknown"), image="aqq", **places(registry))


def test_every_value_of_a_caller_is_a_variable() -> None:
    """A text in a script would be a part of the program."""
    for step in ACTION["runs"]["steps"]:
        found = SCRIPT.fullmatch(step["run"])
        assert found and (ROOT / ".github/steps" / f"{found[1]}.sh").exists()
    names = {word for step in ACTION["runs"]["steps"] for word in re.findall(r"inputs\.([\w-]+)", str(step))}
    assert names == set(ACTION["inputs"])
