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
    (folder / "checkout").mkdir()
    command = ["bash", str(STEPS / "comment.sh")]
    done = subprocess.run(
        command, cwd=folder / "checkout", env=variables | env, capture_output=True, text=True, check=False
    )
    calls = (folder / "calls").read_text() if (folder / "calls").exists() else ""
    return done, calls


def test_a_comment_is_written_once_and_then_replaced(tmp_path: Path) -> None:
    done, calls = comment(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--method POST repos/a/b/issues/7/comments" in calls
    assert (
        (tmp_path / "calls.body").read_text().startswith("<!-- envbuild: images -->\n### `@team\\u{60}`: not built\n")
    )
    assert not (tmp_path / "checkout/hit").exists()
    (tmp_path / "again").mkdir()
    assert "--method PATCH repos/a/b/issues/comments/99 " in comment(tmp_path / "again", COMMENT="99\n")[1]


@pytest.mark.parametrize("pull", ["", "7; echo", "../../x", "1" * 13])
def test_without_an_open_pull_request_of_the_commit_nothing_is_written(tmp_path: Path, pull: str) -> None:
    done, calls = comment(tmp_path, PULL=pull)
    assert done.returncode == 0 and "no open pull request" in done.stdout and calls.count("\n") == 1


def test_a_commit_must_be_one(tmp_path: Path) -> None:
    done, calls = comment(tmp_path, HEAD_SHA='" or true or "')
    assert done.returncode == 2 and "hint: " in done.stderr and not calls


class Proposal:
    """A repository with a clone, and a patch that propose.sh gets."""

    def __init__(self, folder: Path) -> None:
        require_tools("git")
        self.folder, self.calls = folder, folder / "calls"
        for name in ("origin", "checkout"):
            (folder / name).mkdir()
        self.git("init", "-q", "--bare", "-b", "main", at="origin")
        self.git("init", "-q", "-b", "main")
        for name in ("images/app.lock", "steps/run.sh"):
            (folder / "checkout" / name).parent.mkdir()
            (folder / "checkout" / name).write_text("old\n" * 20)
        self.git("add", ".")
        self.git("commit", "-q", "-m", "first")
        self.git("remote", "add", "origin", str(folder / "origin"))

    def git(self, *words: str, at: str = "checkout") -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.folder / at), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def run(self, patch: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "patch").write_text(patch)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/gh").write_text('#!/bin/sh\nprintf "%s\\n" "$*" >> "$CALLS"\n')
        (self.folder / "bin/gh").chmod(0o755)
        env = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "CALLS": str(self.calls),
            "GH_TOKEN": "secret",
            "GITHUB_REPOSITORY": "owner/name",
            "HOME": str(self.folder),
            "PATCH": str(self.folder / "patch"),
            "WORK": str(self.folder / "work"),
            "OUT": str(self.folder),
        }
        command = ["bash", str(STEPS / "propose.sh")]
        return subprocess.run(
            command, cwd=self.folder / "checkout", env=env, capture_output=True, text=True, check=False
        )


def test_only_facts_and_locks_are_proposed(tmp_path: Path) -> None:
    proposal = Proposal(tmp_path)
    for name in ("images/app.lock", "steps/run.sh", "facts/derived/torch.yaml"):
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).write_text("new\n")
    proposal.git("add", "-N", ".")
    patch = proposal.git("diff")
    proposal.git("reset", "-q", "--hard")
    done = proposal.run(patch)
    assert done.returncode == 0, done.stderr
    names = proposal.git("diff", "--name-only", "main", "envbuild-refresh")
    assert names == "facts/derived/torch.yaml\nimages/app.lock\n"
    assert proposal.git("show", "envbuild-refresh:images/app.lock", at="origin") == "new\n"
    calls = proposal.calls.read_text()
    assert "pr create --base main --head envbuild-refresh" in calls
    assert "repos/owner/name/pulls -f state=open -f head=owner:envbuild-refresh" in calls  # of no fork
    assert "secret" not in proposal.calls.read_text()


RENAMED = """\
diff --git a/steps/run.sh b/images/x.lock
similarity index 100%
rename from steps/run.sh
rename to images/x.lock
"""
NEW = """\
diff --git a/{path} b/{path}
new file mode {mode}
index 0000000..1111111
--- /dev/null
+++ b/{path}
@@ -0,0 +1 @@
+../.git/config
"""


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(RENAMED, id="renamed"),
        pytest.param(NEW.format(path="images/z.lock", mode="120000"), id="link"),
        pytest.param(NEW.format(path="images/z.lock", mode="100755"), id="executable"),
        pytest.param(NEW.format(path="images/deep/z.lock", mode="100644"), id="folder"),
        pytest.param(NEW.format(path="images/app.lock/../../z.lock", mode="100644"), id="path"),
    ],
)
def test_a_patch_that_changes_more_than_facts_and_locks_is_not_pushed(tmp_path: Path, patch: str) -> None:
    """`git apply --include` compares the new name of a renamed file alone."""
    proposal = Proposal(tmp_path)
    done = proposal.run(patch)
    assert done.returncode != 0 and not proposal.calls.exists()
    assert proposal.git("branch", "--list", at="origin") == ""
