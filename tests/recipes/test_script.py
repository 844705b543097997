"""The one-off step of a spec: literal, in one folder, and marked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.verify.recipe_checks import check_result
from envbuild.verify.results import Status
from tests.support.recipes import commands, image, matches, moved, recipe

pytestmark = pytest.mark.unit


def test_a_script_is_literal_and_ends_with_its_first_failure(tmp_path: Path) -> None:
    def run(*lines: str) -> int:
        made = recipe("script", run=list(lines), into="/opt/words")
        text = moved(commands(made, image(made, target="cpu")), tmp_path, "/opt")
        return subprocess.run(
            ["/bin/sh", "-c", text], env={"PATH": "/usr/bin:/bin", "WORD": "x"}, check=False
        ).returncode

    assert run('echo "$WORD" `echo y` > words', "echo '${WORD}%s' >> words") == 0
    assert (tmp_path / "opt/words/words").read_text() == "x y\n${WORD}%s\n"
    assert run("false", "touch never") == 1 and not (tmp_path / "opt/words/never").exists()
    assert run("echo $NOT_SET") != 0


@pytest.mark.parametrize(
    "into", ["/", "/etc", "/opt", "/opt/", "/usr/local", "/opt/a b", "/opt/../etc", "/opt/$HOME", "opt/x"]
)
def test_a_script_fills_a_folder_of_its_own(into: str) -> None:
    with pytest.raises(SpecError):
        recipe("script", run=["true"], into=into)


def test_the_evidence_names_the_script() -> None:
    one, other = (recipe("script", run=[line]) for line in ("echo a > x", "echo b > x"))
    (check,), (changed,) = (made.verify(image(made, target="cpu")) for made in (one, other))
    assert "not by a recipe" in check.name and check.name != changed.name
    assert matches(check, "/opt/script/x\n") and not matches(check, "")


def test_a_folder_that_is_missing_or_empty_fails_its_check(tmp_path: Path) -> None:
    made = recipe("script", run=["true"])
    (check,) = made.verify(image(made, target="cpu"))
    for name, content in (("missing", False), ("empty", False), ("full", True)):
        folder = tmp_path / name
        if name != "missing":
            folder.mkdir()
        if content:
            (folder / "x").touch()
        command = check.command.replace(made.prefix, str(folder))
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
        passed = check_result(check, done.returncode, done.stdout + done.stderr).status == Status.PASS
        assert passed == content
