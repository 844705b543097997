"""Every ``--json`` answer is one object with `schema`, also of a command that fails (docs/json.md)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from envbuild.cli.json_answer import answer, encode_error
from envbuild.core import errors
from envbuild.core.errors import EnvbuildError, Finding, SignatureError, SpecError
from tests.support.command import ROOT, envbuild

pytestmark = pytest.mark.unit

KINDS = [EnvbuildError, *EnvbuildError.__subclasses__(), SignatureError]


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("list",), "images"),
        (("recipes",), "recipes"),
        (("recipes", "cuda"), "options"),
        (("check", "gpu=H100", "torch=2.8.0"), "answers"),
        (("check", "h100-nccl", "cpu-ucx"), "answers"),
        (("matrix", "show"), "components"),
        (("matrix", "show", "driver"), "rows"),
        (("show", "cpu-ucx"), "units"),
        (("compile", "cpu-ucx"), "containerfile"),
        (("store", "du"), "total"),
        (("store", "gc", "--dry-run"), "removed"),
        (("export", "--list"), "exports"),
    ],
)
def test_an_answer_is_one_object_with_its_schema(words: tuple[str, ...], key: str, tmp_path: Path) -> None:
    done = envbuild(*words, "--json", ENVBUILD_STORE=str(tmp_path / "store"))
    found = json.loads(done.stdout)
    assert (done.returncode, found["schema"]) == (0, 1), done.stderr
    assert key in found and "error" not in found


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (("show", "nosuch"), "spec", 2),
        (("make", "nosuch"), "spec", 2),
        (("diff", "nosuch", "cpu-ucx"), "spec", 2),
        (("compile", "b200-ib", "--context", "nowhere"), "lock", 4),
        (("verify", "cpu-ucx"), "not-built", 1),
        (("matrix", "show", "trch"), "spec", 2),
    ],
)
def test_an_error_is_an_object_as_well(words: tuple[str, ...], code: str, exit_code: int, tmp_path: Path) -> None:
    done = envbuild(*words, "--json", ENVBUILD_STORE=str(tmp_path / "store"))
    found = json.loads(done.stdout)
    assert (found["schema"], found["error"]["code"], found["error"]["exit_code"]) == (1, code, exit_code)
    assert done.returncode == exit_code
    errors = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert [f"{one['where']}: {one['message']}".removeprefix(": ") for one in found["error"]["findings"]] == errors


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--nope", "--json"),
        ("check", "--json", "--why"),
        ("show", "--json"),
        ("matrix", "lint", "--json", "--older-than", "x"),
        ("matrix", "nope", "--json"),
        ("nope", "--json"),
    ],
)
def test_a_wrong_command_line_is_an_object_as_well(words: tuple[str, ...]) -> None:
    done = envbuild(*words)
    found = json.loads(done.stdout)
    assert (found["schema"], found["error"]["code"], done.returncode) == (1, "spec", 2)
    assert found["error"]["findings"][0]["message"].rstrip(".") in done.stderr


def test_an_option_json_of_a_program_is_its_own() -> None:
    done = envbuild("run", "--nope", "--", "--json")
    assert (done.stdout, done.returncode) == ("", 2)


def test_a_store_that_cannot_be_made_is_an_error_object(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = envbuild("list", "--json", ENVBUILD_STORE=str(tmp_path / "file" / "store"))
    found = json.loads(done.stdout)
    assert (found["error"]["code"], found["error"]["exit_code"], done.returncode) == ("engine", 5, 5)


def test_answers_before_an_error_are_in_its_object(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "bad.yaml").write_text("schema: 1\ntarget: nosuch\nbase: debian:13\nlayers: {}\n")
    done = envbuild("check", "cpu-ucx", "bad", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert [one["image"] for one in found["answers"]] == ["cpu-ucx"]
    assert (found["error"]["code"], done.returncode) == ("spec", 2)
    assert found["error"]["findings"][0]["where"] == "images/bad.yaml:2:9"


def test_without_json_an_error_leaves_stdout_empty() -> None:
    done = envbuild("show", "nosuch")
    assert (done.stdout, done.returncode) == ("", 2)


def test_every_kind_of_error_has_a_code_of_its_own_that_is_documented() -> None:
    table = dict(re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", (ROOT / "docs" / "json.md").read_text(), re.M))
    assert {kind.code: str(kind.exit_code) for kind in KINDS} | {"internal": "1"} == table
    assert len({kind.code for kind in KINDS}) == len(KINDS)
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert set(KINDS) == {value for value in classes if "code" in vars(value)}  # the others have that of their base
    assert all(issubclass(value, tuple(KINDS)) for value in classes)


def test_findings_have_message_place_and_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = [{"image": "a"}]
    monkeypatch.setattr(answer, "results", {"images": rows})
    found = json.loads(encode_error(SpecError.of([Finding("no", "a.yaml:1:2", "write b"), Finding("two")])))
    assert found == {
        "schema": 1,
        "images": rows,
        "error": {
            "code": "spec",
            "exit_code": 2,
            "findings": [
                {"message": "no", "where": "a.yaml:1:2", "hint": "write b"},
                {"message": "two", "where": "", "hint": ""},
            ],
        },
    }
