"""Projects in the folder of a group: what other members put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import SpecError
from envbuild.spec import project as projects
from envbuild.spec.project import Project
from envbuild.spec.trust import find_distrusted
from envbuild.spec.workspace import load_site
from tests.support.foreign_projects import ANNE, BOB, BOBS, ROOT, TEAM, as_user, make_project

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")]


@pytest.fixture
def shared(folder: Path) -> Path:
    """Return root's folder of a group with the sticky bit; a folder in it is anne's."""
    root = folder / "shared"
    make(root / "anne", ANNE)
    os.chown(root, ROOT, TEAM)
    root.chmod(0o3775)
    return root


def make(path: Path, owner: int, text: str | None = None) -> Path:
    """Make a folder, or a file with `text`, of a user; and the folder that it is in."""
    if not path.parent.exists():
        make(path.parent, owner)
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    os.chown(path, owner, TEAM)
    return path


def find(start: Path, user: str = "anne") -> tuple[str, str]:
    """Return what a command of a user finds at `start` (the project, and a folder whose site file alone is used, or the
    word "refused"), and the lines that it prints."""

    def look() -> list[tuple[str, str]]:
        reporter = SilentReporter()
        projects._left_out.clear()
        try:
            found = [Project.find(start, reporter) for _ in range(2)][-1]
        except SpecError as error:
            return [("refused", str(error))]
        where = f"project {found.root}" if found.root else f"site {found.site_alone}" if found.site_alone else ""
        return [(where, "\n".join(reporter.lines))]

    ((where, lines),) = as_user(user, look)
    return where, lines


@pytest.mark.parametrize(
    "name", ["recipes/z.py", "images/z.yaml", "facts/z.yaml", "facts/derived/z.yaml", "targets/z.yaml"]
)
def test_a_site_file_of_root_remains_in_force(name: str, shared: Path) -> None:
    """A member adds what is not trusted; the site file is one that no member can replace."""
    make(shared / "site.yaml", ROOT, "schema: 1\nsignatures: {keys: [team.pub]}\n")
    assert find(shared / "anne") == (f"project {shared}", "")
    make(shared / name, BOB, "")
    where, lines = find(shared / "anne")
    assert where == f"site {shared}"
    assert lines.startswith(f"only site.yaml of the project {shared} is used: {shared / name.split('/')[0]}: ")
    assert "\n" not in lines and "belongs to the user 61002" in lines
    assert f"envbuild --trust {shared} COMMAND" in lines
    assert find(shared)[0] == "refused"


def test_the_policy_of_that_site_file_is_the_site_s(shared: Path) -> None:
    make(shared / "site.yaml", ROOT, "schema: 1\nsignatures: {keys: [team.pub]}\n")
    make(shared / "recipes/z.py", BOB, "")

    load_site(shared)  # loads modules that the user may not be able to read

    def policy() -> list[tuple[str, str]]:
        found = Project.find(shared / "anne", SilentReporter())
        site = load_site(found.site_folder)
        assert found.root is None and "z" not in found.recipes()
        return [(str(site.where), str(site.signatures and site.signatures.require))]

    assert as_user("anne", policy) == [(str(shared / "site.yaml"), "True")]


def test_what_a_member_alone_put_there_is_left_out_and_reported(shared: Path) -> None:
    make(shared / "images/h100-nccl.yaml", BOB, "")
    make(shared / "site.yaml", BOB, "schema: 1\n")
    where, lines = find(shared / "anne")
    assert where == "" and lines.startswith(f"the project {shared} is left out: ") and "\n" not in lines
    assert find(shared / "anne", "root")[0] == "refused"  # whose folder it is


@pytest.mark.parametrize("name", ["recipes/own.py", "images/own.yaml", "facts/own.yaml"])
@pytest.mark.parametrize("owner", [ROOT, ANNE])
def test_a_project_of_root_or_the_caller_is_never_left_out(owner: int, name: str, shared: Path) -> None:
    make(shared / name, owner, "")
    assert find(shared / "anne") == (f"project {shared}", "")
    make(shared / "targets/z.yaml", BOB, "")
    assert find(shared / "anne")[0] == "refused"


def test_a_project_of_the_folder_s_owner_is_refused_as_in_that_folder(folder: Path) -> None:
    """A colleague's project, in whose images/ this user types a command."""
    root = make_project(folder, BOB, TEAM, 0o2775)
    for place in (root, root / "images"):
        where, lines = find(place)
        assert where == "refused" and "the project is not trusted" in lines


@pytest.mark.parametrize(
    ("place", "owner", "group", "mode", "found"),
    [
        ("shared/site.yaml", BOB, BOBS, 0o644, ""),
        ("shared/site.yaml", ROOT, 0, 0o666, "refused"),
        ("shared", ROOT, BOBS, 0o2775, "refused"),
        (".", BOB, BOBS, 0o755, "refused"),
        ("shared", ROOT, BOBS, 0o3775, "site"),
    ],
)
def test_a_site_file_that_others_can_replace_is_not_used(
    place: str, owner: int, group: int, mode: int, found: str, shared: Path
) -> None:
    make(shared / "site.yaml", ROOT, "schema: 1\n")
    make(shared / "recipes/z.py", BOB, "")
    os.chown(shared.parent / place, owner, group)
    (shared.parent / place).chmod(mode)
    assert find(shared / "anne")[0].partition(" ")[0] == found


@pytest.mark.parametrize("site", [True, False])
@pytest.mark.parametrize("target", ["/", "/proc", "/proc/1/cwd", "/proc/1/cwd/x", "{folder}/closed/inner", "missing"])
@pytest.mark.parametrize("name", ["recipes", "targets", "facts"])
def test_a_link_of_a_member_to_anywhere_ends_no_command(
    name: str, target: str, site: bool, shared: Path, folder: Path
) -> None:
    """It may lead to a closed folder, or to all files of the machine, some of which end in the next moment."""
    make(folder / "closed/inner", BOB)
    (folder / "closed").chmod(0o700)
    make(shared / "images/a.yaml", BOB, "")
    if site:
        make(shared / "site.yaml", ROOT, "schema: 1\n")
    (shared / name).symlink_to(target.format(folder=folder))
    os.lchown(shared / name, BOB, TEAM)
    where, lines = find(shared / "anne")
    assert where == (f"site {shared}" if site else "")
    assert str(shared / "images") in lines and "\n" not in lines


def test_a_link_of_a_member_in_place_of_recipes_is_not_followed(shared: Path, folder: Path) -> None:
    for number in range(3):
        make(folder / f"many/{number}/r.py", BOB, "")
    make(shared / "site.yaml", ROOT, "schema: 1\n")
    (shared / "recipes").symlink_to(folder / "many")
    os.lchown(shared / "recipes", BOB, TEAM)

    def judged() -> list[tuple[str, str]]:
        return [(str(item.path), "") for item in find_distrusted(shared)]

    found = [path for path, _ in as_user("anne", judged)]
    assert found == [str(shared / "recipes"), str(folder / "many")]


def test_a_link_of_a_member_makes_nothing_another_user_s(shared: Path, folder: Path) -> None:
    """Links to files of root neither end the command nor decide anything."""
    make(folder / "roots/images/x.yaml", ROOT, "")
    make(folder / "roots/site.yaml", ROOT, "schema: 1\n")
    for name in ("images", "site.yaml"):
        (shared / name).symlink_to(folder / "roots" / name)
        os.lchown(shared / name, BOB, BOBS)
        assert find(shared / "anne")[0] == ""


def test_a_site_file_further_above_is_reached(shared: Path) -> None:
    make(shared / "site.yaml", ROOT, "schema: 1\n")
    inner = make(shared / "inner", ROOT)
    inner.chmod(0o3775)
    make(inner / "recipes/z.py", BOB, "")
    make(inner / "anne", ANNE)
    where, lines = find(inner / "anne")
    assert where == f"project {shared}" and f"the project {inner} is left out" in lines


def test_a_mistake_in_what_the_caller_trusts_is_an_error(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(shared / "recipes/z.py", BOB, "")
    monkeypatch.setenv("ENVBUILD_TRUST", "relative")
    where, lines = find(shared / "anne")
    assert where == "refused" and "not an absolute path" in lines


def test_a_folder_below_one_that_the_user_cannot_enter_is_no_project(folder: Path) -> None:
    """As after `sudo -u anne` in a folder of root."""
    place = make(folder / "closed/a/b", ROOT)
    (folder / "closed").chmod(0o700)
    assert find(place) == ("", "")


@pytest.mark.parametrize("site", ["file", "link"])
def test_a_site_file_that_the_user_cannot_read_is_an_error(site: str, folder: Path) -> None:
    """It may have a policy of signatures, without which an image of a stranger is taken."""
    place = make(folder / "team/anne", ROOT)
    hidden = make(folder / "closed/site.yaml" if site == "link" else place.parent / "site.yaml", ROOT, "schema: 1\n")
    (hidden if site == "file" else hidden.parent).chmod(0o700)
    if site == "link":
        (place.parent / "site.yaml").symlink_to(hidden)
    assert find(place) == (f"project {place.parent}", "")

    def load() -> list[tuple[str, str]]:
        try:
            return [("read", str(load_site(Project.find(place).site_folder)))]
        except SpecError as error:
            return [("refused", str(error))]

    ((what, message),) = as_user("anne", load)
    assert what == "refused" and "Permission denied" in message


@pytest.mark.parametrize("site", ["file", "link"])
def test_a_site_file_of_a_member_that_no_other_can_read_is_left_out(site: str, shared: Path, folder: Path) -> None:
    hidden = make(folder / "closed/site.yaml" if site == "link" else shared / "site.yaml", BOB, "schema: 1\n")
    (hidden if site == "file" else hidden.parent).chmod(0o700)
    if site == "link":
        (shared / "site.yaml").symlink_to(hidden)
        os.lchown(shared / "site.yaml", BOB, TEAM)
    where, lines = find(shared / "anne")
    assert where == "" and f"the project {shared} is left out" in lines
