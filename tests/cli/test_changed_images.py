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
    command = [sys.executable, "-P", "-m", "envbuild", "list", *words]
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


def test_an_image_without_a_lock_is_changed_by_its_recipes(project: Path) -> None:
    recipe = project / "recipes/mpi4py.py"
    replace(recipe, 'environment={"MPICC"', 'environment={"SAID": "x", "MPICC"')
    assert changed(project)["extra"] == ("changed", ["lock"])


def test_a_recipe_that_needs_a_lock_ends_nothing(project: Path) -> None:
    """`RecipeEnv.versions` is empty until there is one. Of an image without a lock the files of its recipes count."""
    recipe = project / "recipes/mpi4py.py"
    text = recipe.read_text()
    begin = text.index("    def build(")
    body = text.index("\n", text.index(":\n", begin)) + 1
    recipe.write_text(f'{text[:body]}        assert env.versions["cython"]\n{text[body:]}')
    git(project, "commit", "-q", "-a", "-m", "second")
    assert changed(project) == {"removed": []}
    found = changed(project, "HEAD~1")
    assert found["extra"] == ("changed", ["lock"]) and "cpu-ucx" not in found  # whose plan is the same
    replace(recipe, 'environment={"MPICC"', 'environment={"SAID": "x", "MPICC"')
    assert changed(project)["extra"] == ("changed", ["lock"])


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


def test_a_work_tree_elsewhere_is_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    git(project, "config", "core.worktree", str(tmp_path / "elsewhere"))
    done = run(project, "--changed", "HEAD")
    assert done.returncode == 2 and "has its work tree elsewhere" in done.stderr and "--unset" in done.stderr


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


def test_modules_in_a_project_are_not_those_of_envbuild(project: Path, tmp_path: Path) -> None:
    """Nor do they run: only recipes are programs."""
    for name in ("yaml/__init__.py", "packaging/__init__.py", "typer.py", "json.py", "envbuild/__init__.py"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "modules")
    assert changed(project) == {"removed": []}
    assert not (tmp_path / "executed").exists()


def hash_object(folder: Path, kind: str, content: bytes) -> str:
    """Store an object that git itself would not make; return its hash."""
    command = ["git", "-C", str(folder), "hash-object", "-w", "-t", kind, "--literally", "--stdin"]
    return subprocess.run(command, input=content, capture_output=True, check=True).stdout.decode().strip()


def commit_of(project: Path, *entries: tuple[bytes, bytes, str]) -> str:
    """Make the commit, the current one, whose project has `entries` (mode, name, hash); return its hash."""
    raw = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(child) for mode, name, child in entries)
    top = hash_object(project, "tree", b"40000 cluster\0" + bytes.fromhex(hash_object(project, "tree", raw)))
    who = b"author a <a> 0 +0000\ncommitter a <a> 0 +0000\n"
    commit = hash_object(project, "commit", f"tree {top}\n".encode() + who + b"\nhostile\n")
    git(project, "reset", "-q", "--soft", commit)
    return commit


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((b"120000", b"a"), (b"40000", b"a")),
        ((b"120000", b"a"), (b"100644", b"a")),
        ((b"40000", b".."), (b"40000", b"b")),
    ],
)
def test_no_file_of_a_commit_is_written_outside_of_its_folder(
    project: Path, tmp_path: Path, first: tuple[bytes, bytes], second: tuple[bytes, bytes]
) -> None:
    """A tree that git does not make: a link, and below it, by the name of a folder, another link."""
    (outside := tmp_path / "outside").mkdir()
    link = hash_object(project, "blob", str(outside).encode())
    for number in range(100):  # of both orders of the hashes
        target = hash_object(project, "blob", b"/target%d" % number)
        if target > link:
            break
    below = hash_object(project, "tree", b"120000 made\0" + bytes.fromhex(target))
    entries = [(*entry, below if entry[0] == b"40000" else link) for entry in (first, second)]
    commit = commit_of(project, *entries)
    done = run(project, "--changed", commit)
    assert done.returncode == 10 and "hint: " in done.stderr and "contains the path" in done.stderr
    assert not [path for path in tmp_path.rglob("made") if path.is_symlink()]


@pytest.mark.slow_unit
def test_a_small_repository_cannot_be_many_files(project: Path) -> None:
    """300,000 names of one empty file, in kilobytes of trees."""
    child, mode = hash_object(project, "blob", b""), b"100644"
    for count in (100, 100, 30):
        names = [b"%s %02d\0" % (mode, number) for number in range(count)]
        child, mode = hash_object(project, "tree", b"".join(name + bytes.fromhex(child) for name in names)), b"40000"
    done = run(project, "--changed", commit_of(project, (mode, b"x", child)))
    assert done.returncode == 2 and "unpack to more than 1.1 GB" in done.stderr and "hint: " in done.stderr


@pytest.mark.parametrize("mode", [b"100644", b"120000"])
def test_a_small_repository_cannot_be_a_large_file(project: Path, mode: bytes) -> None:
    child = hash_object(project, "blob", bytes(64 << 20))
    entries = [(mode, b"%02d" % number, child) for number in range(1 if mode == b"120000" else 17)]
    done = run(project, "--changed", commit_of(project, *entries))
    assert done.returncode == 2 and "hint: " in done.stderr
    assert ("envbuild reads at most 4096" if mode == b"120000" else "at most 1.1 GB are read") in done.stderr


def test_a_project_at_the_top_of_its_repository(project: Path) -> None:
    shutil.rmtree(project.parent / ".git")
    git(project, "init", "-q", "-b", "main")
    (project / "sub").symlink_to("recipes")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    replace(project / "images/cpu-ucx.yaml", "for CPU nodes", "for nodes with CPUs")
    assert set(changed(project)) == {"cpu-ucx", "removed"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_another_user_is_refused(project: Path) -> None:
    os.chown(project.parent / ".git", 12345, 12345)
    project.parent.chmod(0o1777)
    done = run(project, "--changed", "HEAD")
    assert done.returncode == 2 and "of your own" in done.stderr and "ownership" in done.stderr


@pytest.mark.parametrize("name", [".git", ".git/refs/heads", ".git/objects", ".git/refs/heads/main", ".git/HEAD"])
def test_a_repository_that_others_may_write_is_refused(name: str, project: Path) -> None:
    """Who writes its references decides which recipes run, although recipes/ itself is closed to others."""
    place = project.parent / name
    place.chmod(place.stat().st_mode | 0o022)
    done = run(project, "--changed", "HEAD")
    assert done.returncode == 2 and str(place) in done.stderr and "--trust" in done.stderr


def test_the_content_of_a_project_folder_counts(project: Path) -> None:
    """One in the repository is compared with that of the commit, one outside of it with itself."""
    inside, outside = project.parent / "inside", project.parent.parent / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "pyproject.toml").write_text(f'[project]\nname = "{folder.name}"\nversion = "1"\n')
        (folder / f"{folder.name}.py").write_text("VALUE = 1\n")
    with (project / "images/cpu-ucx.yaml").open("a") as file:
        file.write("dev: [../../inside, ../../../outside]\n")
    git(project.parent, "add", ".")
    git(project.parent, "commit", "-q", "-m", "second")
    assert changed(project) == {"removed": []}
    (outside / "outside.py").write_text("VALUE = 2\n")
    assert changed(project) == {"removed": []}
    (inside / "inside.py").write_text("VALUE = 2\n")
    assert changed(project)["cpu-ucx"] == ("changed", ["unit dev-inside", "unit glue"])
    assert changed(project, "HEAD~1")["cpu-ucx"][0] == "changed"
