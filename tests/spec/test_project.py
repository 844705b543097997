"""Folders in which specs, recipes, targets and locks are searched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.spec import project
from envbuild.spec.project import Project

pytestmark = pytest.mark.unit


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the package's folder of an installed wheel, with envbuild/shipped and envbuild/targets."""
    package = tmp_path / "site-packages" / "envbuild"
    for file in ("shipped/images/demo.yaml", "shipped/recipes/nccl_tests.py", "targets/box.yaml"):
        touch(package / file)
    monkeypatch.setattr(project, "PACKAGE", package)
    monkeypatch.setattr(project, "SHIPPED", package / "shipped")
    monkeypatch.setattr(project, "INSTALLED", True)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return package


def touch(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("images/a.yaml", "", True),
        ("recipes/a.py", "", True),
        ("facts/a.yaml", "schema: 1\n", True),
        ("facts/derived/a.yaml", "schema: 1\n", True),
        ("facts/notes.txt", "", False),
        ("site.yaml", "# mine\nschema: 1\n", True),
        ("site.yaml", "- hosts: all\n", False),  # an Ansible playbook has that name too
        ("images/photo.jpg", "", False),
        ("recipes/cake.txt", "", False),
    ],
)
def test_folders_that_are_projects(file: str, text: str, found: bool, tmp_path: Path) -> None:
    touch(tmp_path / "work" / file, text)
    below = tmp_path / "work" / "a" / "b"
    below.mkdir(parents=True)
    assert Project.find(below).root == (tmp_path / "work" if found else None)


def test_a_pipe_is_not_a_site_file(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    os.mkfifo(tmp_path / "work/site.yaml")
    assert Project.find(tmp_path / "work").root is None


def test_the_nearest_project_wins(tmp_path: Path) -> None:
    touch(tmp_path / "images" / "a.yaml")
    touch(tmp_path / "inner" / "images" / "a.yaml")
    assert Project.find(tmp_path / "inner" / "images").root == tmp_path / "inner"


def test_a_world_writable_parent_folder_is_not_a_project(tmp_path: Path) -> None:
    touch(tmp_path / "open" / "recipes" / "a.py")
    (tmp_path / "open" / "mine").mkdir()
    (tmp_path / "open").chmod(0o1777)
    assert Project.find(tmp_path / "open" / "mine").root is None
    with pytest.raises(SpecError, match="can be written by every user"):
        Project.find(tmp_path / "open")


def test_a_path_belongs_to_its_own_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = touch(tmp_path / "there" / "images" / "a.yaml")
    touch(tmp_path / "here" / "images" / "b.yaml")
    monkeypatch.chdir(tmp_path / "here")
    assert Project.of(str(spec)).root == tmp_path / "there"
    assert Project.of("../there/images/a.yaml").root == tmp_path / "there"
    assert Project.of("a").root == tmp_path / "here"


def test_a_project_s_own_win(installed: Path, tmp_path: Path) -> None:
    mine = Project(tmp_path / "mine")
    for file in (
        "images/demo.yaml",
        "images/extra.yaml",
        "recipes/nccl_tests.py",
        "recipes/ucx.py",
        "targets/box.yaml",
    ):
        touch(tmp_path / "mine" / file)
    touch(tmp_path / "mine" / "recipes" / "__init__.py")
    assert mine.images() == ("demo", "extra")
    assert mine.recipes() == ("nccl-tests", "ucx")
    assert mine.targets() == ("box",)
    assert mine.find_image("demo") == tmp_path / "mine" / "images" / "demo.yaml"
    assert mine.find_recipe("nccl-tests") == tmp_path / "mine" / "recipes" / "nccl_tests.py"
    assert mine.find_target("box") == tmp_path / "mine" / "targets" / "box.yaml"
    no_project = Project()
    assert no_project.find_image("demo") == installed / "shipped" / "images" / "demo.yaml"
    assert no_project.find_recipe("nccl-tests") == installed / "shipped" / "recipes" / "nccl_tests.py"
    assert no_project.find_target("box") == installed / "targets" / "box.yaml"


def test_a_recipe_has_one_name(installed: Path) -> None:
    with pytest.raises(SpecError) as caught:
        Project().find_recipe("nccl_tests")
    assert caught.value.hint == "did you mean 'nccl-tests'?"


def test_the_hint_for_an_unknown_name_lists_the_known_ones(installed: Path) -> None:
    with pytest.raises(SpecError) as caught:
        Project().find_recipe("efa")
    assert caught.value.hint == (
        "the recipes are: nccl-tests; to add one, write recipes/efa.py in a project, with one Recipe class"
    )


def test_locks_are_located_beside_their_specs(installed: Path, tmp_path: Path) -> None:
    spec = touch(tmp_path / "mine" / "images" / "a.yaml")
    for of in (Project(tmp_path / "mine"), Project()):
        assert of.lock_path(spec) == of.new_lock_path(spec) == tmp_path / "mine" / "images" / "a.lock"


def test_locks_of_shipped_specs(installed: Path, tmp_path: Path) -> None:
    """Shipped lock → the user's or the project's, once written; nothing is ever written into site-packages."""
    spec = installed / "shipped" / "images" / "demo.yaml"
    shipped = spec.with_suffix(".lock")
    no_project, mine = Project(), Project(tmp_path / "mine")
    assert no_project.lock_path(spec) == mine.lock_path(spec) == shipped
    assert no_project.new_lock_path(spec) == tmp_path / "data" / "envbuild" / "locks" / "demo.lock"
    assert mine.new_lock_path(spec) == tmp_path / "mine" / "images" / "demo.lock"
    touch(no_project.new_lock_path(spec))
    assert no_project.lock_path(spec) == mine.lock_path(spec) == no_project.new_lock_path(spec)
    touch(mine.new_lock_path(spec))
    assert mine.lock_path(spec) == mine.new_lock_path(spec)
    assert no_project.lock_path(spec) == no_project.new_lock_path(spec)


def test_in_a_checkout_locks_of_shipped_specs_are_written_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "INSTALLED", False)
    monkeypatch.setattr(project, "SHIPPED", tmp_path)
    spec = touch(tmp_path / "images" / "demo.yaml")
    assert Project().new_lock_path(spec) == tmp_path / "images" / "demo.lock"


def test_a_removed_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert Project.find() == Project()
