"""`envbuild list --changed`: an image is listed if its content, start or checks differ from those at a commit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ROOT

pytestmark = pytest.mark.unit

RECIPE = ROOT / "recipes/mpi4py.py"


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a locked image, and one without a lock, in a folder of a repository."""
    root = tmp_path / "repository/cluster"
    (root / "images").mkdir(parents=True)
    for suffix in (".yaml", ".lock"):
        shutil.copy(ROOT / f"images/cpu-ucx{suffix}", root / "images")
    shutil.copy(root / "images/cpu-ucx.yaml", root / "images/extra.yaml")
    (root / "recipes").mkdir()
    shutil.copy(RECIPE, root / "recipes")
    git(tmp_path / "repository", "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ENVBUILD_STORE": str(project.parent.parent / "store")}
    command = [sys.executable, "-m", "envbuild", "list", *words]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False)


def changed(project: Path, commit: str = "HEAD") -> dict[str, Any]:
    done = run(project, "--changed", commit, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    rows = {row["name"]: (row["change"], row["because"]) for row in answer["images"]}
    return {**rows, "removed": answer["removed"]}


def replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_a_comment_in_a_recipe_changes_nothing(project: Path) -> None:
    with (project / "recipes/mpi4py.py").open("a") as file:
        file.write("# a comment\n")
    assert changed(project) == {"removed": []}
    assert "no image changed since" in run(project, "--changed", "HEAD").stdout


def test_the_changed_parts_are_named(project: Path) -> None:
    replace(project / "recipes/mpi4py.py", "two-rank all-reduce", "all-reduce of two ranks")
    assert changed(project) == {"cpu-ucx": ("changed", ["checks"]), "removed": []}
    replace(project / "images/cpu-ucx.yaml", "for CPU nodes", "for nodes with CPUs")
    assert changed(project)["cpu-ucx"] == ("changed", ["unit glue", "start", "checks"])


@pytest.mark.slow_unit
def test_new_removed_and_unlocked_images(project: Path) -> None:
    (project / "images/extra.yaml").rename(project / "images/other.yaml")
    assert changed(project) == {"other": ("new", ["all parts"]), "removed": ["extra"]}
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "second")
    assert changed(project) == {"removed": []} and changed(project, "HEAD~1")["removed"] == ["extra"]
    replace(project / "images/other.yaml", "mpi4py: {}", "mpi4py: {}\n  osu-micro-benchmarks: {}")
    assert changed(project) == {"other": ("changed", ["lock"]), "removed": []}


@pytest.mark.slow_unit
def test_the_commit_where_both_diverge_counts(project: Path) -> None:
    git(project, "checkout", "-q", "-b", "work")
    git(project, "checkout", "-q", "main")
    replace(project / "images/cpu-ucx.yaml", "for CPU nodes", "for nodes with CPUs")
    git(project, "commit", "-q", "-a", "-m", "of others")
    git(project, "checkout", "-q", "work")
    assert changed(project, "main") == {"removed": []}


@pytest.mark.slow_unit
def test_a_commit_that_cannot_be_read(project: Path) -> None:
    good = (project / "recipes/mpi4py.py").read_text()
    (project / "recipes/mpi4py.py").write_text("raise SystemExit(3)\n")
    (project / "images/cpu-ucx.yaml").write_text("layers: [")
    git(project, "commit", "-q", "-a", "-m", "broken")
    done = run(project, "--changed", "HEAD")
    assert done.returncode == 2 and "hint: envbuild check azure-deepspeed" in done.stderr
    (project / "recipes/mpi4py.py").write_text(good)
    shutil.copy(ROOT / "images/cpu-ucx.yaml", project / "images/cpu-ucx.yaml")
    assert changed(project)["cpu-ucx"] == ("new", ["all parts"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("v9", "git merge-base: Not a valid object name v9"),
        ("--output=x", "is not a commit"),
    ],
)
def test_a_commit_that_does_not_exist(project: Path, words: str, text: str) -> None:
    done = run(project, f"--changed={words}")
    assert done.returncode == 2 and text in done.stderr and "hint: " in done.stderr


def test_a_folder_without_a_repository_or_a_project(project: Path, tmp_path: Path) -> None:
    shutil.rmtree(project.parent / ".git")
    assert "the project must be in a git repository of your own" in run(project, "--changed", "HEAD").stderr
    assert "no project here" in run(tmp_path, "--changed", "HEAD").stderr


def test_an_untracked_project_is_new(project: Path) -> None:
    other = project.parent / "other"
    shutil.copytree(project, other)
    assert changed(other) == {"extra": ("new", ["all parts"]), "removed": []}


def test_keys_do_not_depend_on_the_folder(project: Path, tmp_path: Path) -> None:
    found = []
    for folder in (project, tmp_path / "elsewhere"):
        if folder != project:
            shutil.copytree(project, folder)
        rows = json.loads(run(folder, "--keys", "--json").stdout)["images"]
        found.append({row["name"]: row["key"] for row in rows})
    assert found[0] == found[1] and found[0]["cpu-ucx"].startswith("sha256:") and len(found[0]["cpu-ucx"]) == 71


def test_nothing_of_a_repository_is_executed(project: Path, tmp_path: Path) -> None:
    """Neither filters of one's own clone, nor anything of a repository that another user has made above."""
    (project / ".gitattributes").write_text("* filter=evil export-subst\n")
    (project / "absolute").symlink_to("/etc")
    for key in ("smudge", "process"):
        git(project, "config", f"filter.evil.{key}", f"touch {tmp_path}/executed; cat")
    git(project, "config", "filter.evil.required", "false")
    subprocess.run(["git", "-C", str(project), "-c", "filter.evil.process=", "add", "."], check=True)
    git(project, "commit", "-q", "-m", "filters")
    (tmp_path / "executed").unlink(missing_ok=True)
    assert changed(project) == {"removed": []}
    assert not (tmp_path / "executed").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_another_user_is_refused(project: Path) -> None:
    os.chown(project.parent / ".git", 12345, 12345)
    project.parent.chmod(0o1777)
    done = run(project, "--changed", "HEAD")
    assert done.returncode == 2 and "of your own" in done.stderr and "ownership" in done.stderr
