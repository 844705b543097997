"""The steps that write to GitHub, with a program in the place of gh that records how it is called."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ROOT
from tests.support.tools import require_tools

pytestmark = pytest.mark.unit
STEPS = ROOT / ".github/steps"
SHA = "a" * 40
GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in
  *"/pulls -f"*) printf '%s' "$PULL" ;;
  *"--paginate"*) printf '%s' "$COMMENT" ;;
  *"-F body=@"*) for word; do :; done; cat "${word#body=@}" > "$CALLS.body" ;;
esac
"""


def comment(folder: Path, **env: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Call comment.sh with one report; return how it ended, and the calls of gh."""
    (folder / "bin").mkdir()
    (folder / "bin/gh").write_text(GH)
    (folder / "bin/gh").chmod(0o755)
    place = folder / "reports/report-app"
    place.mkdir(parents=True)
    (place / "report.json").write_text(json.dumps({"schema": 1, "image": "@team`", "error": "failed"}))
    variables = {
        "PATH": f"{folder}/bin:{os.environ['PATH']}", "CALLS": str(folder / "calls"), "PULL": "7\n", "COMMENT": "",
        "WORK": str(folder / "work"), "OUT": str(folder / "out"), "REPORTS": str(folder / "reports"),
        "HEAD_SHA": SHA, "HEAD_OWNER": "fork", "HEAD_BRANCH": "x\"; $(touch hit)", "GITHUB_REPOSITORY": "a/b",
        "GH_TOKEN": "t",
    }  # fmt: skip
    command = ["bash", str(STEPS / "comment.sh")]
    done = subprocess.run(command, cwd=folder, env=variables | env, capture_output=True, text=True, check=False)
    calls = (folder / "calls").read_text() if (folder / "calls").exists() else ""
    return done, calls


def test_a_comment_is_written_once_and_then_replaced(tmp_path: Path) -> None:
    done, calls = comment(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--method POST repos/a/b/issues/7/comments" in calls
    assert (
        (tmp_path / "calls.body").read_text().startswith("<!-- envbuild: images -->\n### `@team\\u{60}`: not built\n")
    )
    assert not (tmp_path / "hit").exists()
    (tmp_path / "again").mkdir()
    assert "--method PATCH repos/a/b/issues/comments/99 " in comment(tmp_path / "again", COMMENT="99\n")[1]


@pytest.mark.parametrize("pull", ["", "7; echo", "../../x", "1" * 13])
def test_without_an_open_pull_request_of_the_commit_nothing_is_written(tmp_path: Path, pull: str) -> None:
    done, calls = comment(tmp_path, PULL=pull)
    assert done.returncode == 0 and "no open pull request" in done.stdout and calls.count("\n") == 1


def test_a_commit_must_be_one(tmp_path: Path) -> None:
    done, calls = comment(tmp_path, HEAD_SHA='" or true or "')
    assert done.returncode == 2 and "hint: " in done.stderr and not calls


def test_only_facts_and_locks_are_proposed(tmp_path: Path) -> None:
    require_tools("git")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]

    def git(*words: str, at: str = "checkout") -> str:
        command = ["git", "-C", str(tmp_path / at), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    for name in ("origin", "checkout"):
        (tmp_path / name).mkdir()
    git("init", "-q", "--bare", "-b", "main", at="origin")
    git("init", "-q", "-b", "main")
    for name in ("images/app.lock", "steps/run.sh"):
        (tmp_path / "checkout" / name).parent.mkdir()
        (tmp_path / "checkout" / name).write_text("old\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    git("remote", "add", "origin", str(tmp_path / "origin"))
    for name in ("images/app.lock", "steps/run.sh"):
        (tmp_path / "checkout" / name).write_text("new\n")
    (tmp_path / "patch").write_text(git("diff"))
    git("checkout", "-q", ".")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gh").write_text('#!/bin/sh\nprintf "%s\\n" "$*" >> "$CALLS"\n')
    (tmp_path / "bin/gh").chmod(0o755)
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls"), "GH_TOKEN": "secret"}
    env |= {
        "HOME": str(tmp_path),
        "PATCH": str(tmp_path / "patch"),
        "WORK": str(tmp_path / "work"),
        "OUT": str(tmp_path),
    }
    done = subprocess.run(
        ["bash", str(STEPS / "propose.sh")],
        cwd=tmp_path / "checkout",
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert git("diff", "--name-only", "main", "envbuild-refresh", at="checkout") == "images/app.lock\n"
    assert git("show", "envbuild-refresh:images/app.lock", at="origin") == "new\n"
    assert "pr create --base main --head envbuild-refresh" in (tmp_path / "calls").read_text()
    assert "secret" not in (tmp_path / "calls").read_text()
