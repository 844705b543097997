"""Projects of several users: the owner and mode of the folders that decide what a project does."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from envbuild.cli.app import create_app
from envbuild.core.errors import SpecError
from envbuild.core.unmapped_root import is_folder_of_root
from envbuild.spec import project as projects
from envbuild.spec import trust
from envbuild.spec.project import Project
from envbuild.spec.project_intrusions import MOST_JUDGED
from tests.support.command import envbuild
from tests.support.foreign_projects import (
    ANNE,
    ANNES,
    BOB,
    BOBS,
    ROOT,
    TEAM,
    USERS,
    as_user,
    make_project,
    refusals,
)

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")]


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


def test_a_member_of_a_group_ends_no_command_below_the_folder_of_the_group(folder: Path) -> None:
    """A project of that member there is none for others who work further below; the group's own one remains one."""
    root = make_project(folder, BOB, TEAM, 0o2755)
    (root / "deep").mkdir()
    for path, owner, mode in ((root, ROOT, 0o1770), (root / "deep", ANNE, 0o755)):
        os.chown(path, owner, TEAM)
        path.chmod(mode)

    def find() -> list[tuple[str, str]]:
        return [(str(Project.find(root / "deep").root), "")]

    assert as_user("anne", find) == [("None", "")]
    assert as_user("anne", lambda: refusals(root)) != []  # there she gets the reasons
    root.chmod(0o750)  # no member made it
    with pytest.raises(AssertionError, match="the project is not trusted"):
        as_user("anne", find)
    for path in (root, *root.rglob("*")):
        os.chown(path, ROOT, TEAM)
    root.chmod(0o2770)
    assert as_user("anne", find) == [(str(root), "")]


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


def test_what_is_in_a_folder_that_a_link_below_recipes_leads_to_decides_too(folder: Path) -> None:
    root = make_project(folder, ROOT, 0, 0o755)
    (folder / "lib/deep").mkdir(parents=True)
    (folder / "lib/deep/helper.py").touch()
    (root / "recipes/lib").symlink_to(folder / "lib")
    (folder / "lib/round").symlink_to(root / "recipes")
    assert refusals(root) == []
    (folder / "lib/deep/helper.py").chmod(0o666)
    assert [path for path, _ in refusals(root)] == ["recipes/lib/deep/helper.py"]


def test_of_very_many_paths_of_others_some_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_project(folder)
    for name in ("granted", "other"):
        (root / "recipes" / name).mkdir()
        for number in range(3 * MOST_JUDGED):
            (root / "recipes" / name / f"{number:03}.py").touch(0o666)
            (root / "recipes" / name / f"{number:03}.py").chmod(0o666)
    named = [path for path, _ in refusals(root)]
    assert MOST_JUDGED <= len(named) <= MOST_JUDGED + 1
    (first,) = {path.rpartition("/")[0] for path in named}
    monkeypatch.setenv("ENVBUILD_TRUST", str(root / first))  # those in it do not hide the others
    (second,) = {path.rpartition("/")[0] for path, _ in refusals(root)}
    assert {first, second} == {"recipes/granted", "recipes/other"}
    monkeypatch.setenv("ENVBUILD_TRUST", f"{root / first}:{root / second}")
    assert refusals(root) == []


def test_no_hint_changes_a_device_or_a_shared_folder(folder: Path) -> None:
    """`chmod go-w /dev/null`, typed by root, would break the machine for all users."""
    root = make_project(folder, ROOT, 0, 0o755)
    (root / "recipes/null.py").symlink_to("/dev/null")
    with pytest.raises(SpecError) as caught:
        Project.find(root)
    (found,) = caught.value.findings
    assert found.where == "/dev/null" and "chmod" not in found.hint and "--trust" not in found.hint
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "a.py").touch()
    (root / "recipes/null.py").unlink()
    (root / "recipes/a.py").symlink_to(shared / "a.py")
    with pytest.raises(SpecError) as caught:
        Project.find(root)
    assert not any("chmod" in item.hint for item in caught.value.findings)


def test_under_sudo_the_user_s_projects_are_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_project(folder, ANNE, ANNES, 0o775)
    members: list[str] = []
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd(("anne", "x", uid, ANNES, "", "/", "")))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("anne", "x", gid, members)))
    for user, group, used in (("61001", "61001", True), ("61002", "61002", False), ("x", "", False), ("0", "0", False)):
        monkeypatch.setenv("SUDO_UID", user)
        monkeypatch.setenv("SUDO_GID", group)
        assert (refusals(root) == []) == used
    monkeypatch.setenv("SUDO_UID", str(ANNE))
    monkeypatch.setenv("SUDO_GID", str(ANNES))
    assert refusals(root) == []
    members.append("bob")
    assert refusals(root) != [], "root would run what bob writes"
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
    monkeypatch.setattr("envbuild.core.user_numbers.UID_MAP", tmp_path / "map")
    assert refusals(root) == []
    os.chown(folder, 65534, 65534)  # another user of the machine, or its root: none has a number there
    assert [path for path, _ in refusals(root)] == [".."]
    for user, home, used in ((1000, root, True), (1000, folder, False), (0, root, False)):
        entry = SimpleNamespace(pw_name="anne", pw_dir=str(home))
        monkeypatch.setattr(pwd, "getpwuid", {user: entry}.__getitem__)
        assert (refusals(root) == []) == used, "only root owns what is above the home of a user"
    monkeypatch.setattr(pwd, "getpwuid", lambda number: SimpleNamespace(pw_name="anne", pw_dir=str(root)))
    folder.chmod(0o757)
    assert [path for path, _ in refusals(root)] == [".."]


@pytest.mark.parametrize(("path", "used"), [("/", True), ("/usr", True), ("/usr/share", False), ("/var/tmp", False)])
def test_in_a_user_namespace_folders_in_the_root_folder_are_those_of_root(path: str, used: bool) -> None:
    """All other users have one number there: who owns a folder further below is not known."""
    assert is_folder_of_root(os.fsencode(path), Path(path).stat()) == used
    folder = os.open(path, os.O_PATH)
    try:
        assert is_folder_of_root(b"/proc/self/fd/%d" % folder, os.fstat(folder)) == used
    finally:
        os.close(folder)


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
