"""Repositories of project folders, which a program of the image must not write: found, and mounted read-only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from envbuild.cli.writable_dev import list_work_trees, project_parts, report_new
from envbuild.core.console import SilentReporter
from envbuild.core.errors import SpecError
from envbuild.lock import dev_repositories
from envbuild.lock.dev_repositories import find_all_repositories, find_repositories, project_mounts
from envbuild.spec.project import Project
from tests.support.as_user import open_folder, run_as
from tests.support.dev_folder import fill, make_repo
from tests.support.foreign_projects import BOB
from tests.support.git_server import Repo, git
from tests.support.lock_site import MARKS

pytestmark = MARKS


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def test_the_repositories_of_a_folder_are_its_own_and_those_of_submodules(repo: Repo, tmp_path: Path) -> None:
    inner = Repo.make(tmp_path / "inner", {"a.py": b""})
    for top, name in ((inner.path, "deep"), (repo.path, "sub")):
        other = inner.path if name == "sub" else Repo.make(tmp_path / "deepest", {"b.py": b""}).path
        git(top, "submodule", "--quiet", "add", str(other), name)
        git(top, "commit", "-qm", "a submodule")
    git(repo.path, "submodule", "--quiet", "update", "--init", "--recursive")
    git_folder = repo.path / ".git"
    assert list(dict.fromkeys(find_repositories(repo.path))) == [
        git_folder, repo.path / "sub/.git", git_folder / "modules/sub", repo.path / "sub/deep/.git",
        git_folder / "modules/sub/modules/deep",
    ]  # fmt: skip
    assert project_mounts([(repo.path, "/opt/dev/p")], writable=True) == [  # no folder on the way can be renamed
        (str(repo.path), "/opt/dev/p", False),
        *(("", f"/opt/dev/p/{path}", False) for path in ("sub", "sub/deep")),
        *(("", f"/opt/dev/p/{path}", True) for path in (".git", "sub/.git", "sub/deep/.git")),
    ]
    assert list(find_repositories(fill(tmp_path / "plain", {"x.py": b""}))) == []
    (repo.path / ".git").rename(repo.path / ".repo")
    (repo.path / ".git").symlink_to(".repo")
    with pytest.raises(SpecError, match="is a link, which a program of the image could replace") as caught:
        list(find_repositories(repo.path))
    assert f"git init --separate-git-dir={repo.path / '.repo'} {repo.path}" in caught.value.hint


def test_a_git_directory_in_the_folder_is_read_only_too(repo: Repo, tmp_path: Path) -> None:
    """What ``git init --separate-git-dir`` and working trees beside a bare repository leave."""
    top = repo.path
    (top / ".git").rename(top / "a.repo")
    (top / ".git").write_text("gitdir: a.repo\n")
    assert [mount for mount in project_mounts([(top, "/p")], writable=True) if mount[2]] == [
        ("", "/p/.git", True), ("", "/p/a.repo", True),
    ]  # fmt: skip
    (top / "link").symlink_to(".")
    (top / ".git").write_text("gitdir: link/a.repo\n")
    with pytest.raises(SpecError, match="is a link on the way to a git directory"):
        project_mounts([(top, "/p")], writable=True)
    (top / ".git").write_text("gitdir: a.repo\n")
    git(top, "worktree", "add", "-q", str(tmp_path / "tree"))
    places = [(tmp_path / "tree", "/tree"), (top, "/p")]  # the common directory is in the other project
    closed = {target for _, target, read_only in project_mounts(places, writable=True) if read_only}
    assert closed == {"/tree/.git", "/p/.git", "/p/a.repo"}


def test_repositories_that_git_does_not_report_are_read_only_too(repo: Repo, tmp_path: Path) -> None:
    """A clone that .gitignore names, one whose files the repository above tracks, one in a folder without a
    repository, and nothing that the search does not reach."""
    ignored = Repo.make(repo.path / "src/ignored", {"a.py": b""}).path  # as `pip install -e git+…` leaves it
    tracked = repo.path / "vendor/lib"
    fill(tracked, {"b.py": b""})
    (repo.path / ".gitignore").write_text("/src/\n")
    git(repo.path, "add", ".")
    subprocess.run(["git", "init", "-q", tracked], check=True)
    closed = [target for _, target, read_only in project_mounts([(repo.path, "/p")], writable=True) if read_only]
    assert closed == ["/p/.git", "/p/src/ignored/.git", "/p/vendor/lib/.git"]
    plain = fill(tmp_path / "plain", {"x.py": b""})
    Repo.make(plain / "deep/er", {"c.py": b""})
    (plain / "link").symlink_to(ignored)
    assert project_mounts([(plain, "/p")], writable=True) == [
        (str(plain), "/p", False), ("", "/p/deep", False), ("", "/p/deep/er", False), ("", "/p/deep/er/.git", True),
    ]  # fmt: skip


def test_the_folder_of_a_submodule_without_a_repository_is_read_only(repo: Repo) -> None:
    """git reads the settings of a repository that a program makes there, also from the top."""
    git(repo.path, "update-index", "--add", "--cacheinfo", f"160000,{repo.head},third/sub")
    (repo.path / "third/sub").mkdir(parents=True)
    closed = [target for _, target, read_only in project_mounts([(repo.path, "/p")], writable=True) if read_only]
    assert closed == ["/p/.git", "/p/third/sub"]


def test_a_repository_that_is_new_is_reported(repo: Repo, tmp_path: Path) -> None:
    """Also one in a folder of a larger repository, whose own `.git` is elsewhere."""
    reporter, places = SilentReporter(), [(repo.path / "part", "/p"), (tmp_path / "other", "/q")]
    fill(repo.path / "part", {"deep/er/x.py": b"", "old/.git/HEAD": b""})
    fill(tmp_path / "other", {"y.py": b""})
    before = list_work_trees(places)
    report_new([tmp_path / "recipes"], before, places, reporter)
    assert reporter.lines == [] and before == [repo.path / "part/old"]
    for folder in (repo.path / "part", repo.path / "part/deep/er", tmp_path / "other"):
        fill(folder, {".git/HEAD": b""})
    (tmp_path / "recipes").mkdir()
    report_new([tmp_path / "recipes"], before, places, reporter)
    assert [line.partition(" is new: ")[0] for line in reporter.lines] == [
        str(tmp_path / "recipes"), str(repo.path / "part/.git"), str(repo.path / "part/deep/er/.git"),
        str(tmp_path / "other/.git"),
    ]  # fmt: skip
    assert reporter.lines[1].endswith(f"Unless you made it: rm -r {repo.path / 'part/.git'}")


def test_specs_and_recipes_of_the_project_itself_are_read_only(tmp_path: Path) -> None:
    """With `dev: ..`, a program of the image could write what the next command runs."""
    top = fill(tmp_path / "p", {"images/a.yaml": b"", "facts/derived/b.yaml": b"", "site.yaml": b"", "train/x.py": b""})
    (top / "m.yaml").touch()
    (top / "m.lock").touch()
    (top / ".store").mkdir()

    def parts(project: Project) -> tuple[list[Path], list[Path]]:
        return project_parts(project, [top / "m.yaml"], top / ".store")

    found, missing = parts(Project(top))
    assert [path.name for path in found] == ["images", "facts", "derived", "site.yaml", "m.yaml", "m.lock", ".store"]
    assert [path.name for path in missing] == ["recipes", "targets"]
    assert project_mounts([(top, "/p")], found, writable=True) == [
        (str(top), "/p", False), ("", "/p/images", True), ("", "/p/facts", True), ("", "/p/site.yaml", True),
        ("", "/p/m.yaml", True), ("", "/p/m.lock", True), ("", "/p/.store", True),
    ]  # fmt: skip
    assert project_mounts([(top / "train", "/p")], found, writable=True) == [(str(top / "train"), "/p", False)]
    assert parts(Project()) == (found, missing)  # a spec that is named by its path
    (tmp_path / "site.yaml").touch()
    assert parts(Project(site_alone=tmp_path))[0] == [*found, tmp_path / "site.yaml"]
    (top / "recipes").symlink_to("train")
    with pytest.raises(SpecError, match="recipes is a link, which a program of the image could replace"):
        project_mounts([(top, "/p")], parts(Project(top))[0], writable=True)


def test_project_folders_are_read_only_by_default(repo: Repo, tmp_path: Path) -> None:
    """What the host runs next is in them: code, settings of git, an environment of Python, keys that a site names."""
    inner = fill(repo.path / "inner", {"b.py": b""})
    assert project_mounts([(repo.path, "/p"), (inner, "/q")]) == [
        (str(repo.path), "/p", True),
        (str(inner), "/q", True),
    ]
    with pytest.raises(SpecError, match=f"the project folder {inner} is in another one") as caught:
        project_mounts([(repo.path, "/p"), (inner, "/q")], writable=True)
    assert "without --writable-dev" in caught.value.hint


def test_repositories_without_number_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev_repositories, "MOST_REPOSITORIES", 2)
    for name in "abc":
        (tmp_path / name / ".git").mkdir(parents=True)
    with pytest.raises(SpecError, match="has more than 2 repositories"):
        project_mounts([(tmp_path, "/p")], writable=True)


def test_a_search_for_repositories_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = (Repo.make(tmp_path / name, {"a": b""}).path for name in ("a/near", "a/b/c/far"))
    assert set(find_all_repositories(tmp_path)) == {near / ".git", far / ".git"}
    monkeypatch.setattr(dev_repositories, "MOST_FOLDERS", 4)
    assert set(find_all_repositories(tmp_path)) == {near / ".git"}


def test_a_folder_that_cannot_be_searched_for_repositories_is_an_error() -> None:
    """A program of the image, which is root of its user namespace, could read it all the same."""
    with open_folder() as place:
        Repo.make(place / "p/vendor/lib", {"a.py": b""})
        for path in (place, *place.rglob("*")):
            os.chown(path, BOB, BOB)
        (place / "p/vendor").chmod(0)

        def refused() -> list[tuple[str, str]]:
            try:
                project_mounts([(place / "p", "/p")], writable=True)
            except SpecError as error:
                return [(error.message, error.hint)]
            return []

        try:
            (found,) = run_as(BOB, BOB, (), refused)
        finally:
            (place / "p/vendor").chmod(0o755)
    assert found == (f"{place}/p/vendor cannot be searched for repositories", f"chmod u+rwx {place}/p/vendor")
