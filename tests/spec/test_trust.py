"""Projects of several users: the owner and mode of the files that decide what a project does."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import create_app
from envbuild.cli.options import complete_component
from envbuild.core.errors import SpecError
from envbuild.spec import project as projects
from envbuild.spec import trust
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.target import load_target
from envbuild.spec.workspace import load_site
from tests.support.as_user import open_folder, run_as
from tests.support.command import envbuild

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")]

ROOT, ANNE, BOB = 0, 61001, 61002
ANNES, BOBS, TEAM = 61001, 61002, 61003  # groups
USERS = {"root": (ROOT, 0, ()), "anne": (ANNE, ANNES, (TEAM,))}
RECIPE = '''"""A thing."""
from dataclasses import dataclass
from pathlib import Path

from envbuild.sdk import Recipe

Path({marker!r}).touch()


@dataclass(frozen=True, kw_only=True)
class Thing(Recipe):
    """A thing."""
'''


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder that every user can enter, in an environment that trusts nothing."""
    for name in ("ENVBUILD_TRUST", "SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(trust, "_granted", [])
    with open_folder() as made:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(made / "config"))
        yield made


def make_project(folder: Path, owner: int = ROOT, group: int = 0, mode: int = 0o755) -> Path:
    """Make a project of one recipe, an image and a site file; `mode` is the one of folders."""
    root = folder / "project"
    files = {
        "recipes/thing.py": RECIPE.format(marker=str(folder / "ran")),
        "images/mine.yaml": "schema: 1\ndescription: x\ntarget: cpu\nbase: debian:13\nlayers: {thing: {}}\n",
        "site.yaml": f"schema: 1\nstore: {folder}/store\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for path in (root, *root.rglob("*")):
        os.chown(path, owner, group)
        path.chmod(mode if path.is_dir() else mode & ~0o111)
    return root


def refusals(root: Path) -> list[tuple[str, str]]:
    """Return the paths, relative to the project, and messages of a refusal; none if the project is used."""
    try:
        assert Project.find(root).root == root
    except SpecError as error:
        assert error.exit_code == 2
        return [(os.path.relpath(item.where, root), item.message) for item in error.findings]
    return []


def as_user(name: str, function: Callable[[], list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return run_as(*USERS[name], function)


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("caller", "owner", "group", "mode", "used"),
    [
        ("root", ROOT, 0, 0o755, True),
        ("root", ROOT, 0, 0o775, False),
        ("root", ROOT, TEAM, 0o775, False),
        ("root", ROOT, 0, 0o777, False),
        ("root", ROOT, 0, 0o1777, False),
        ("root", ANNE, ANNES, 0o755, False),
        ("root", ANNE, ANNES, 0o700, False),
        ("anne", ANNE, ANNES, 0o755, True),
        ("anne", ANNE, ANNES, 0o700, True),
        ("anne", ROOT, 0, 0o755, True),
        ("anne", ANNE, ANNES, 0o775, True),
        ("anne", ANNE, TEAM, 0o2775, True),
        ("anne", ROOT, TEAM, 0o775, True),
        ("anne", ANNE, BOBS, 0o775, False),
        ("anne", ROOT, 0, 0o775, False),
        ("anne", ANNE, ANNES, 0o777, False),
        ("anne", BOB, BOBS, 0o755, False),
        ("anne", BOB, TEAM, 0o775, False),
    ],
)
def test_owners_and_modes(caller: str, owner: int, group: int, mode: int, used: bool, folder: Path) -> None:
    root = make_project(folder, owner, group, mode)
    found = as_user(caller, lambda: refusals(root))
    everything = [".", "images", "recipes", "site.yaml", "recipes/thing.py"]
    assert [path for path, _ in found] == ([] if used else everything)
    for path, message in found:
        written = mode if (root / path).is_dir() else mode & ~0o111
        assert f"mode {written:04o})" in message


@pytest.mark.parametrize("change", ["owner", "mode"])
@pytest.mark.parametrize("part", ["facts", "facts/derived"])
def test_a_project_of_facts_alone_is_judged(part: str, change: str, folder: Path) -> None:
    root = folder / "project"
    (root / "facts/derived").mkdir(parents=True)
    (root / "facts/derived/a.yaml").touch()
    if change == "owner":
        os.chown(root / part, ANNE, ANNES)
    else:
        (root / part).chmod(0o757)
    ((found, _),) = refusals(root)
    assert found == part


@pytest.mark.parametrize(
    "name",
    ["images", "recipes", "recipes/__pycache__", "recipes/__pycache__/thing.pyc", "recipes/thing.py", "site.yaml"],
)
@pytest.mark.parametrize("change", ["owner", "mode"])
def test_each_part_of_a_project_is_judged(name: str, change: str, folder: Path) -> None:
    root = make_project(folder)
    (root / "recipes/__pycache__").mkdir()
    (root / "recipes/__pycache__/thing.pyc").touch()
    path = root / name
    if change == "owner":
        os.chown(path, ANNE, ANNES)
    else:
        path.chmod(path.stat().st_mode | 0o002)
    ((found, message),) = refusals(root)
    assert found == name
    assert ("belongs to the user 61001" if change == "owner" else "can be written by every user") in message


def test_a_folder_above_where_every_user_can_rename_the_project(folder: Path) -> None:
    root = make_project(folder)
    folder.chmod(0o1777)
    assert refusals(root) == []
    folder.chmod(0o777)
    assert [path for path, _ in refusals(root)] == [".."]


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("caller", "owner", "group", "mode", "used"),
    [
        ("root", ANNE, ANNES, 0o755, False),
        ("root", ANNE, ANNES, 0o1777, False),
        ("root", ROOT, TEAM, 0o775, False),
        ("root", ROOT, TEAM, 0o3775, True),
        ("root", ROOT, 0, 0o1777, True),
        ("anne", ANNE, ANNES, 0o755, True),
        ("anne", ROOT, TEAM, 0o2775, True),
        ("anne", ROOT, BOBS, 0o2775, False),
        ("anne", ROOT, BOBS, 0o3775, True),
        ("anne", BOB, BOBS, 0o755, False),
        ("anne", BOB, TEAM, 0o1777, False),
    ],
)
def test_owners_and_modes_of_a_folder_above(
    caller: str, owner: int, group: int, mode: int, used: bool, folder: Path
) -> None:
    """Who can rename in it puts another project in its place, between the check and the use."""
    user, own_group, _ = USERS[caller]
    root = make_project(folder / "a/b", user, own_group)
    os.chown(folder / "a", owner, group)
    (folder / "a").chmod(mode)
    assert [path for path, _ in as_user(caller, lambda: refusals(root))] == ([] if used else ["../.."])
    spec = folder / "a/b/project/images/mine.yaml"
    assert as_user(caller, lambda: [(str(item.path), "") for item in trust.find_file_intrusions(spec)]) == (
        [] if used else [(str(folder / "a"), "")]
    )


def test_the_folders_on_the_way_of_a_link_count(folder: Path) -> None:
    root = make_project(folder)
    for name in ("one", "two", "media"):
        (folder / name).mkdir()
    (root / "site.yaml").rename(folder / "media/site.yaml")
    (root / "site.yaml").symlink_to("../one/to-two")
    (folder / "one/to-two").symlink_to(folder / "two/to-media/site.yaml")
    (folder / "two/to-media").symlink_to("../media")
    assert refusals(root) == []
    os.lchown(folder / "two/to-media", ANNE, ANNES)
    for name in ("one", "two"):
        (folder / name).chmod(0o775)
        os.chown(folder / name, ROOT, TEAM)
        assert [path for path, _ in refusals(root)] == [f"../{name}"]
        os.chown(folder / name, ANNE, ANNES)
        (folder / name).chmod(0o755)
        assert [path for path, _ in refusals(root)] == [f"../{name}"]
        os.chown(folder / name, ROOT, 0)
    (folder / "two").chmod(0o1777)  # there the owner of a link can replace it
    assert [path for path, _ in refusals(root)] == ["../two/to-media"]


def test_a_link_to_a_project_counts(folder: Path) -> None:
    root = make_project(folder)
    (folder / "other").mkdir()
    (folder / "other/link").symlink_to(root)
    assert list(trust.find_intrusions(folder / "other/link")) == []
    os.chown(folder / "other", ANNE, ANNES)
    assert [item.path for item in trust.find_intrusions(folder / "other/link")] == [folder / "other"]


def test_a_link_counts_as_the_file_that_it_points_at(folder: Path) -> None:
    root = make_project(folder)
    (folder / "media").mkdir()
    (root / "site.yaml").rename(folder / "media/site.yaml")
    (root / "site.yaml").symlink_to(folder / "media/site.yaml")
    assert refusals(root) == []
    os.lchown(root / "site.yaml", ANNE, ANNES)  # who owns a link does not matter
    assert refusals(root) == []
    os.chown(folder / "media/site.yaml", ANNE, ANNES)
    assert [path for path, _ in refusals(root)] == ["../media/site.yaml"]
    os.chown(folder / "media/site.yaml", ROOT, 0)
    (folder / "media").chmod(0o1777)
    assert [path for path, _ in refusals(root)] == ["../media"]


def test_under_sudo_the_user_s_projects_are_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_project(folder, ANNE, ANNES, 0o775)
    for user, group, used in (("61001", "61001", True), ("61002", "61002", False), ("x", "", False), ("0", "0", False)):
        monkeypatch.setenv("SUDO_UID", user)
        monkeypatch.setenv("SUDO_GID", group)
        assert (refusals(root) == []) == used
    monkeypatch.setenv("SUDO_UID", str(BOB))
    bobs = make_project(folder / "other", BOB, BOBS)
    assert refusals(bobs) == []
    assert as_user("anne", lambda: refusals(bobs)) != []  # sudo's variables count for root alone


def test_in_a_user_namespace_the_group_of_its_root_is_the_user_s(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in ``buildah unshare``: the user's own files belong to root there."""
    root = make_project(folder, mode=0o775)
    assert refusals(root) != []
    (tmp_path / "map").write_text("         0       1000          1\n         1     100000      65536\n")
    monkeypatch.setattr("envbuild.core.ownership.UID_MAP", tmp_path / "map")
    assert refusals(root) == []
    os.chown(folder, 65534, 65534)  # root of the machine has no number there
    assert refusals(root) == []
    folder.chmod(0o757)
    assert [path for path, _ in refusals(root)] == [".."]


def test_the_folder_of_envbuild_is_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_project(folder, ANNE, ANNES)
    monkeypatch.setattr(projects, "SHIPPED", root)
    assert refusals(root) == []


@pytest.mark.parametrize("trusted", ["project", "above", "list", "other", "relative", "option", "user", "user-other"])
def test_a_folder_is_trusted_on_request(trusted: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_project(folder, ANNE, ANNES)
    config = folder / "config/envbuild"
    config.mkdir(parents=True)
    texts = {
        "project": str(root),
        "above": str(folder),
        "list": f"/nonexistent:{root}",
        "other": f"{root}x:{root}/recipes",
    }
    if trusted in texts:
        monkeypatch.setenv("ENVBUILD_TRUST", texts[trusted])
    elif trusted == "relative":
        monkeypatch.setenv("ENVBUILD_TRUST", ".")
        with pytest.raises(SpecError, match="not an absolute path"):
            Project.find(root)
        return
    elif trusted == "option":
        trust.trust_folder(root)
    else:
        (config / "site.yaml").write_text(f"schema: 1\ntrust: [{root if trusted == 'user' else config}]\n")
    found = [path for path, _ in refusals(root)]
    assert found == ([".", "images", "site.yaml"] if trusted == "other" else found[:5] if "-" in trusted else [])
    assert len(found) == (5 if trusted == "user-other" else len(found))


def test_a_project_cannot_trust_itself(folder: Path) -> None:
    from envbuild.net.site_file import read_site

    root = make_project(folder, ANNE, ANNES)
    (root / "site.yaml").write_text(f"schema: 1\ntrust: [{root}, /]\n")
    assert refusals(root) != []
    with pytest.raises(SpecError, match="a project cannot state that it is trusted"):
        read_site(root / "site.yaml")


COMMANDS = (
    "list", "recipes", "recipes thing", "check --all", "check mine", "check torch=2.8", "show mine", "compile mine",
    "lock mine", "make mine", "fetch mine", "export mine --to squashfs", "diff mine mine", "store du", "store gc",
    "matrix show",
)  # fmt: skip


@pytest.mark.slow_unit
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_a_recipe_of_a_foreign_folder(command: str, folder: Path) -> None:
    root = make_project(folder, ANNE, ANNES)
    done = envbuild(*command.split(), cwd=root)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for name in (root, root / "recipes/thing.py", root / "site.yaml"):
        assert f"error: {name}: the project is not trusted" in done.stderr
    for way in (f"envbuild --trust {root} ", f"ENVBUILD_TRUST={root}", f"trust: [{root}]"):
        assert way in done.stderr
    assert not (folder / "ran").exists() and not (folder / "store").exists()


def test_a_spec_s_path_does_not_avoid_the_check(folder: Path, tmp_path: Path) -> None:
    root = make_project(folder, ANNE, ANNES)
    done = envbuild("check", str(root / "images/mine.yaml"), cwd=tmp_path)
    assert done.returncode == 2 and "not trusted" in done.stderr and not (folder / "ran").exists()


@pytest.mark.slow_unit
def test_help_and_completion_work_in_a_foreign_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_project(folder, ANNE, ANNES)
    monkeypatch.chdir(root)
    for arguments in (["--help"], ["make", "--help"], ["--version"], ["--trust", str(root), "list", "--help"]):
        assert envbuild(*arguments, cwd=root).returncode == 0
    for words, offered in (
        ("make ", "cpu-ucx"),
        ("check cpu-", "cpu-ucx"),
        ("recipes tor", "torch"),
        ("check gp", "gpu="),
    ):
        asked = {"_ENVBUILD_COMPLETE": "complete_bash", "COMP_WORDS": f"envbuild {words}"}
        asked["COMP_CWORD"] = str(len(f"envbuild {words}|".split()) - 1)
        done = CliRunner().invoke(create_app(), prog_name="envbuild", env=asked)
        assert offered in done.stdout.split() and "mine" not in done.stdout.split(), done.output
    assert not (folder / "ran").exists()


def test_the_option_trusts_for_one_command(folder: Path) -> None:
    root = make_project(folder, ANNE, ANNES)
    for options in (["--trust", str(root)], [f"--trust={folder}"], ["--trust", "."]):
        done = envbuild(*options, "recipes", "thing", cwd=root)
        assert done.returncode == 0, done.stderr
        assert (folder / "ran").exists()
        (folder / "ran").unlink()
    assert envbuild("recipes", "thing", cwd=root, ENVBUILD_TRUST=str(root)).returncode == 0
    assert envbuild("recipes", "thing", cwd=root).returncode == 2
    missing = envbuild("--trust", "/nonexistent", "recipes", "thing", cwd=root)
    assert missing.returncode == 2 and "no such folder" in missing.stderr


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
