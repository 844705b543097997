"""Files of several users that a command reads, in a project or not: their owner and mode."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from envbuild.cli.options import complete_component
from envbuild.core.errors import SpecError
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.target import load_target
from envbuild.spec.workspace import load_site
from tests.support.command import envbuild
from tests.support.foreign_projects import (
    ANNE,
    ANNES,
    BOB,
    TEAM,
    as_user,
    make_project,
    refusals,
)

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")]

FILES = ("images/mine.yaml", "images/base.yaml", "images/mine.lock", "targets/own.yaml", "facts/own.yaml")


def make_plain_project(folder: Path, mode: int = 0o755) -> Path:
    """Make a project without recipes, whose image extends another one, has a lock, and a target of the project."""
    root = make_project(folder, mode=mode)
    shutil.rmtree(root / "recipes")
    texts = {
        "images/mine.yaml": "schema: 1\ndescription: x\nextends: base\ntarget: own\n",
        "images/base.yaml": "schema: 1\ndescription: x\ntarget: cpu\nbase: debian:13\nlayers: {}\n",
        "images/mine.lock": "no lock\n",
        "targets/own.yaml": "schema: 1\ndescription: x\n",
        "facts/own.yaml": "schema: 1\nfacts: []\n",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def read_all(root: Path) -> list[tuple[str, str]]:
    """Read everything that decides the image; return the paths, relative to the project, and messages of refusals."""
    project, found = Project.find(root), []
    image = str(root / "images/mine.yaml")
    for read in (
        lambda: load_image_spec(image, project),
        lambda: project.lock_path(Path(image)),
        lambda: load_target("own", project),
        project.facts,
    ):
        try:
            read()
        except SpecError as error:
            assert error.exit_code == 2 and "--trust" in error.findings[-1].hint
            found += [(os.path.relpath(item.where, root), item.message) for item in error.findings]
    return found


@pytest.mark.parametrize("change", ["owner", "others", "group", "link"])
@pytest.mark.parametrize("name", FILES)
def test_each_file_that_is_read_is_judged(name: str, change: str, folder: Path) -> None:
    root = make_plain_project(folder)
    assert read_all(root) == []
    path, where = root / name, name
    if change == "owner":
        os.chown(path, ANNE, ANNES)
    elif change == "link":
        (folder / "annes").mkdir()
        path.rename(folder / "annes" / path.name)
        os.chown(folder / "annes", ANNE, ANNES)
        path.symlink_to(folder / "annes" / path.name)
        where = "../annes"
    else:
        path.chmod(0o646 if change == "others" else 0o664)
    ((found, message),) = read_all(root)
    reason = {"others": "can be written by every user", "group": "can be written by the group"}
    assert found == where and reason.get(change, "belongs to the user 61001") in message


def test_a_member_of_a_group_reads_files_of_the_group_and_not_those_of_another_member(folder: Path) -> None:
    root = make_plain_project(folder)
    for path in (root, *root.rglob("*")):
        os.chown(path, ANNE, TEAM)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    assert as_user("anne", lambda: read_all(root)) == []
    os.chown(root / "targets/own.yaml", BOB, TEAM)
    assert [name for name, _ in as_user("anne", lambda: read_all(root))] == ["targets/own.yaml"]


@pytest.mark.parametrize("trusted", [True, False])
def test_a_spec_outside_of_a_project_is_judged_with_its_folder(
    trusted: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = folder / "shared/some.yaml"
    spec.parent.mkdir()
    spec.write_text("schema: 1\ndescription: x\ntarget: cpu\nbase: debian:13\nlayers: {}\n")
    spec.parent.chmod(0o1777)  # another user may put a lock there
    if trusted:
        monkeypatch.setenv("ENVBUILD_TRUST", str(folder))
        assert load_image_spec(str(spec), Project()).name == "some"
    else:
        with pytest.raises(SpecError, match="every user") as caught:
            load_image_spec(str(spec), Project())
        assert [item.where for item in caught.value.findings] == [str(spec.parent)]


@pytest.mark.parametrize("change", ["data", "data/a.patch"])
def test_files_that_recipes_read_are_judged(change: str, folder: Path) -> None:
    root = make_project(folder)
    (root / "recipes/data").mkdir()
    (root / "recipes/data/a.patch").touch()
    assert refusals(root) == []
    os.chown(root / "recipes" / change, ANNE, ANNES)
    assert [path for path, _ in refusals(root)] == [f"recipes/{change}"]


def test_the_user_s_site_file_of_another_user_is_refused_and_trusts_nothing(folder: Path) -> None:
    root = make_project(folder, ANNE, ANNES)
    site = folder / "config/envbuild/site.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(f"schema: 1\ntrust: [{root}]\n")
    assert refusals(root) == []
    assert load_site().trust == (root,)
    os.chown(site, ANNE, ANNES)
    assert len(refusals(root)) == 5
    with pytest.raises(SpecError, match="belongs to the user 61001"):
        load_site()


@pytest.mark.slow_unit
def test_list_names_the_file_and_the_others_refuse_it(folder: Path) -> None:
    root = make_plain_project(folder)
    (root / "images/mine.lock").unlink()
    os.chown(root / "images/base.yaml", ANNE, ANNES)
    listed = envbuild("list", cwd=root)
    assert listed.returncode == 0 and "belongs to the user 61001" in listed.stdout and "cpu-ucx" in listed.stdout
    for command in ("check mine", "make mine", "lock mine"):
        done = envbuild(*command.split(), cwd=root)
        assert done.returncode == 2 and f"error: {root}/images/base.yaml: not trusted" in done.stderr
        assert f"envbuild --trust {root}/images COMMAND" in done.stderr


def test_completion_of_facts_works_where_a_fact_file_is_not_trusted(folder: Path) -> None:
    root = make_plain_project(folder)
    os.chown(root / "facts/own.yaml", ANNE, ANNES)
    with contextlib.chdir(root):
        assert "torch" in complete_component("torc")
