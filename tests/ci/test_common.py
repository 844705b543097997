"""The parts that all steps of CI share: a checkout cannot have the files that prepare.sh writes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ROOT

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ["plan", "build", "publish"])
@pytest.mark.parametrize("work", ["", ".ci-work/envbuild", "link/envbuild"])
def test_a_folder_of_the_checkout_is_not_the_private_folder(name: str, work: str, tmp_path: Path) -> None:
    """Whether git lists it or not: a bare repository in it is none of its files."""
    checkout, home, seen = tmp_path / "checkout", tmp_path / "home", tmp_path / "seen"
    env_file = checkout / ".ci-work/envbuild/env.sh"
    env_file.parent.mkdir(parents=True)
    home.mkdir()
    env_file.write_text(f'echo "ran ${{REGISTRY_PASSWORD:-}}" > {seen}\n')
    (tmp_path / "link").symlink_to(checkout / ".ci-work")
    env = {name: text for name, text in os.environ.items() if name not in ("RUNNER_TEMP", "XDG_CACHE_HOME", "IMAGE")}
    env |= {"WORK": work and str((checkout if work.startswith(".") else tmp_path) / work), "HOME": str(home)}
    done = subprocess.run(
        ["bash", str(ROOT / f".github/steps/{name}.sh")],
        cwd=checkout,
        env={**env, "REGISTRY_PASSWORD": "secret", "OUT": str(tmp_path / "out"), "ENVBUILD": "/bin/false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode and not seen.exists()
    if work:
        assert done.stderr.startswith(f"error: WORK is in the checkout: {env_file.parent}\nhint: WORK=/another/folder")
    else:
        assert next(path.name for path in (home / ".cache/envbuild-ci").iterdir()).isalnum()


STRANGER = 12345  # an id that no user of a test has


@pytest.mark.parametrize("place", ["work", "above", "file", "open", "mine"])
def test_a_private_folder_of_another_user_is_refused(place: str, tmp_path: Path) -> None:
    """Its env.sh was run, and the password of the registry written into it."""
    if os.geteuid():
        pytest.skip("needs root, who may give a folder to another user")
    tmp_path.chmod(0o755)
    work, seen = tmp_path / "a/work", tmp_path / "seen"
    work.mkdir(parents=True)
    (work / "env.sh").write_text(f"touch {seen}\n")
    if place == "open":
        work.parent.chmod(0o777)
    elif place != "mine":
        os.chown({"work": work, "above": work.parent, "file": work / "env.sh"}[place], STRANGER, STRANGER)
    (tmp_path / "checkout").mkdir()
    done = subprocess.run(
        ["bash", "-c", f". {ROOT}/.github/steps/common.sh"],
        cwd=tmp_path / "checkout",
        env={**os.environ, "WORK": str(work), "OUT": str(tmp_path / "out")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, seen.exists()) == ((0, True) if place == "mine" else (2, False)), done.stderr
    assert place == "mine" or str(work.parent) in done.stderr


@pytest.mark.parametrize("name", ["WORK", "OUT"])
@pytest.mark.parametrize("link", ["last", "above", "second", "own"])
def test_a_link_of_another_user_is_refused(name: str, link: str, tmp_path: Path) -> None:
    """In a folder that all can write, its owner decides where it leads; env.sh was run there."""
    if os.geteuid():
        pytest.skip("needs root, who may give a link to another user")
    tmp_path.chmod(0o755)
    target, shared, seen = tmp_path / "mine/clone", tmp_path / "shared", tmp_path / "seen"
    target.mkdir(parents=True)
    shared.mkdir()
    shared.chmod(0o1777)
    (target / "env.sh").write_text(f"touch {seen}\n")
    theirs = shared / "link"
    theirs.symlink_to(target.parent if link == "above" else target)
    place = theirs / "clone" if link == "above" else theirs
    if link == "second":
        place = tmp_path / "to"
        place.symlink_to("mine/../shared/./link")
    if link != "own":
        os.chown(theirs, STRANGER, STRANGER, follow_symlinks=False)
    (tmp_path / "checkout").mkdir()
    folders = {"WORK": str(target if link == "own" else tmp_path / "w"), "OUT": str(tmp_path / "out"), name: str(place)}
    done = subprocess.run(
        ["bash", str(ROOT / ".github/steps/plan.sh")],
        cwd=tmp_path / "checkout",
        env=dict(os.environ) | folders | {"ENVBUILD": "/bin/false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if link == "own":
        assert seen.exists()
    else:
        assert done.returncode == 2 and not seen.exists()
        assert f"error: {name} is not private: the link {theirs} is another user's\nhint: {name}=" in done.stderr


@pytest.mark.parametrize("whose", ["another", "all", "group", "mine"])
def test_results_are_not_written_where_others_write(whose: str, tmp_path: Path) -> None:
    """A link in it decided which file of this user was overwritten."""
    if os.geteuid():
        pytest.skip("needs root, who may give a folder to another user")
    out = tmp_path / "out"
    out.mkdir()
    if whose == "another":
        os.chown(out, STRANGER, STRANGER)
    if whose == "group":
        os.chown(out, 0, STRANGER)
    out.chmod({"all": 0o777, "group": 0o2775}.get(whose, 0o755))
    (tmp_path / "checkout").mkdir()
    done = subprocess.run(
        ["bash", "-c", f". {ROOT}/.github/steps/common.sh"],
        cwd=tmp_path / "checkout",
        env=dict(os.environ) | {"WORK": str(tmp_path / "w"), "OUT": str(out)},
        capture_output=True,
        text=True,
        check=False,
    )
    if whose == "mine":
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 2 and f"error: other users may write in OUT: {out}\nhint: OUT=" in done.stderr


@pytest.mark.parametrize("place", ["elsewhere", "below the checkout", "in the checkout of another user"])
def test_the_folder_of_the_results_cannot_be_exchanged(place: str, tmp_path: Path) -> None:
    """The step would write through it, and read what another user put there."""
    if os.geteuid():
        pytest.skip("needs root, who may give a folder to another user")
    tmp_path.chmod(0o755)
    checkout = tmp_path / "checkout"
    shared = checkout / "shared" if place == "below the checkout" else tmp_path / "shared"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    checkout.mkdir(exist_ok=True)
    if place == "in the checkout of another user":
        os.chown(checkout, STRANGER, STRANGER)
        shared = checkout
    done = subprocess.run(
        ["bash", "-c", f". {ROOT}/.github/steps/common.sh"],
        cwd=checkout,
        env=dict(os.environ) | {"WORK": str(tmp_path / "w"), "OUT": str(shared / "out")},
        capture_output=True,
        text=True,
        check=False,
    )
    if place == "in the checkout of another user":  # as in a container of GitHub: its owner's recipes run here
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 2
        assert f"error: OUT is not private: other users may write in {shared}\nhint: OUT=" in done.stderr


def test_a_circle_of_links_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    command = ["bash", str(ROOT / ".github/steps/plan.sh")]
    env = dict(os.environ) | {"WORK": str(tmp_path / "a")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "error: WORK has too many links" in done.stderr


def test_the_prolog_of_the_documents_changes_nothing_that_exists(tmp_path: Path) -> None:
    """With `install -d -o USER` the folder that a link of that user names became the user's."""
    if os.geteuid():
        pytest.skip("needs root, as whom Slurm runs a prolog")
    text = (ROOT / "docs/publish.md").read_text()
    lines = text.partition("# prolog of Slurm\n")[2].partition("```")[0]
    place, target = tmp_path / "envbuild", tmp_path / "target"
    script = lines.replace("/local/envbuild", str(place))
    place.mkdir(0o755)
    target.mkdir(0o755)

    def run(user: int) -> int:
        return subprocess.run(["bash", "-c", script], env={**os.environ, "SLURM_JOB_UID": str(user)}).returncode

    assert [run(STRANGER), run(STRANGER)] == [0, 0]
    made = (place / str(STRANGER)).stat()
    assert (made.st_uid, made.st_mode & 0o777) == (STRANGER, 0o700)
    (place / "5").symlink_to(target)  # as if another user could write there
    run(5)
    assert target.stat().st_uid == 0
    os.chown(place, STRANGER, STRANGER)
    assert run(6) != 0
    assert not (place / "6").exists()


def test_what_an_earlier_run_prepared_is_not_what_the_caller_states_now(tmp_path: Path) -> None:
    """On a runner whose folder WORK remains, an upgraded envbuild and another store were ignored."""
    (tmp_path / "checkout").mkdir()
    programs = [tmp_path / name / "envbuild" for name in ("old", "new")]
    for program in programs:
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho {program}\n")
        program.chmod(0o755)

    def step(name: str, **env: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f". {ROOT}/.github/steps/common.sh; run_envbuild; echo $ENVBUILD_STORE"]
            if name == "another"
            else ["bash", str(ROOT / f".github/steps/{name}.sh")],
            cwd=tmp_path / "checkout",
            env={**os.environ, "WORK": str(tmp_path / "work"), "OUT": str(tmp_path / "out"), **env},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    for program in programs:
        store = str(program.parent / "store")
        assert f"{program}\n" in step("prepare", ENVBUILD=str(program), ENVBUILD_STORE=store, TOOLS="no")
        assert step("another", ENVBUILD="", ENVBUILD_STORE="") == f"{program}\n{store}\n"


@pytest.mark.parametrize(
    ("place", "source", "pattern"),
    [
        ("", ".envbuild", "/.envbuild/"),
        ("training", ".envbuild", "/training/.envbuild/"),
        ("training", "../.envbuild", "/.envbuild/"),
        ("a [b]*/c", ".envbuild", "/a \\[b\\]\\*/c/.envbuild/"),
    ],
)
def test_a_checkout_of_envbuild_in_that_of_the_project_is_ignored(
    place: str, source: str, pattern: str, tmp_path: Path
) -> None:
    """It was content of the image of a project folder (`dev: ..`) then."""
    checkout, project = tmp_path / "checkout", tmp_path / "checkout" / place
    project.mkdir(parents=True)
    shutil.copytree(ROOT / ".github/steps", project / source / ".github/steps")
    for folder in (checkout, project / source):
        subprocess.run(["git", "init", "-q", folder], check=True)
    env = {**os.environ, "WORK": str(tmp_path / "work"), "ENVBUILD": "/bin/true", "TOOLS": "no", "HOME": str(tmp_path)}
    env = {name: text for name, text in env.items() if name not in ("OUT", "CACHE")}
    (tmp_path / "link").symlink_to(checkout)
    for folder in (tmp_path / "link" / place, project):  # the one as a runner's folder below a link
        prepare = ["bash", f"{source}/.github/steps/prepare.sh"]
        subprocess.run(prepare, cwd=folder, env={**env, "PWD": str(folder)}, check=True, capture_output=True)
        listed = ["git", "-C", checkout, "ls-files", "--others", "--exclude-standard"]
        assert subprocess.run(listed, capture_output=True, text=True, check=True).stdout == ""
        assert (checkout / ".git/info/exclude").read_text().splitlines().count(pattern) == 1
    assert (project / "ci-out/.gitignore").read_text() == "*\n"
