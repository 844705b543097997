"""Links from specs and recipes of the caller into a project folder that a program of the image may write."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.cli.writable_dev import writable_mounts
from envbuild.core.errors import SpecError
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from tests.support.dev_folder import fill

pytestmark = pytest.mark.unit

SPEC = b"schema: 1\ntarget: cpu\nbase: debian:13\ndev: ..\n"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return the folder of a project, in which its code is, too."""
    files = {
        "images/w.yaml": SPEC,
        "recipes/mine.py": b"",
        "lib/r.py": b"",
        "lib/sub/x.py": b"",
        "mine/__init__.py": b"",
    }
    files |= {"pyproject.toml": b"[project]\nname = 'mine'\nversion = '1'\n"}
    return fill(tmp_path / "p", files)


def mounts(top: Path, name: str = "w") -> list[str]:
    """Return what is read-only in the folder."""
    project = Project(top)
    spec = load_image_spec(name, project)
    found, _ = writable_mounts([(top, "/p")], project, spec.files, top / ".store")
    return [target.removeprefix("/p/") for _, target, read_only in found if read_only]


@pytest.mark.parametrize(
    ("place", "target", "through"),
    [
        ("recipes/r.py", "../lib/r.py", "lib"),
        ("recipes/sub", "../lib/sub", "lib"),
        ("recipes/deep/r.py", "../../lib/r.py", "lib"),
        ("recipes/new.py", "../later.py", "later.py"),
        ("recipes/out.py", "../lib/../../out.py", "lib"),
        ("images/other.yaml", "../lib/other.yaml", "lib"),
        ("facts/derived/f.yaml", "{top}/lib/f.yaml", "lib"),
        ("targets/t.yaml", "../recipes/../lib/t.yaml", "lib"),
        ("recipes/lib", "..", ""),
        ("recipes/lib", "../..", ""),
        ("recipes/lib", "/", ""),
        ("recipes/lib", "../lib", "lib"),
    ],
)
def test_a_link_to_what_a_program_can_write_is_refused(top: Path, place: str, target: str, through: str) -> None:
    (top / place).parent.mkdir(parents=True, exist_ok=True)
    (top / place).symlink_to(target.format(top=top))
    with pytest.raises(SpecError, match=f"{place} leads through {top / through}, which a program") as caught:
        mounts(top)
    assert "without --writable-dev" in caught.value.hint


def test_a_folder_on_the_way_to_a_spec_is_writable_but_for_the_spec(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(top / "specs", {"m.yaml": SPEC, "r.py": b""})
    monkeypatch.chdir(top)
    (top / "recipes/a").symlink_to("../specs/m.yaml")
    assert "specs/m.yaml" in mounts(top, "specs/m.yaml")
    (top / "recipes/a").unlink()
    (top / "recipes/a").symlink_to("../specs")
    with pytest.raises(SpecError, match=f"recipes/a leads through {top}/specs, which a program"):
        mounts(top, "specs/m.yaml")


def test_a_link_in_a_folder_that_a_link_leads_to(top: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (top / "recipes/out").symlink_to("../../out")
    assert mounts(top) == ["images", "recipes"]
    (tmp_path / "out/r.py").symlink_to("../p/lib/r.py")
    with pytest.raises(SpecError, match=f"recipes/out/r.py leads through {top}/lib, which a program"):
        mounts(top)


def test_a_project_folder_below_recipes(top: Path) -> None:
    """What recipes read there is writable."""
    code = {"code/__init__.py": b"", "pyproject.toml": (top / "pyproject.toml").read_bytes()}
    fill(top / "recipes/code", code)
    (top / "images/w.yaml").write_bytes(SPEC.replace(b"dev: ..", b"dev: ../recipes/code"))
    spec = load_image_spec("w", Project(top))
    with pytest.raises(SpecError, match=f"recipes leads through {top}/recipes/code, which a program"):
        writable_mounts([(top / "recipes/code", "/p")], Project(top), spec.files, top / ".store")


def test_a_file_that_has_a_name_in_what_a_program_can_write(top: Path, tmp_path: Path) -> None:
    """A hard link: both names are one file."""
    (top / "recipes/other.py").hardlink_to(top / "recipes/mine.py")
    (tmp_path / "copy.py").hardlink_to(top / "recipes/mine.py")
    assert mounts(top) == ["images", "recipes"]
    (top / "lib/r.py").unlink()
    (top / "lib/r.py").hardlink_to(top / "images/w.yaml")
    with pytest.raises(SpecError, match=rf"images/w\.yaml is the same file as {top}/lib/r.py, which a program"):
        mounts(top)


def test_links_to_what_no_program_of_the_image_can_write(top: Path, tmp_path: Path) -> None:
    (tmp_path / "out.py").touch()
    for place, target in {
        "recipes/a.py": "mine.py", "recipes/b.py": "../images/w.yaml", "recipes/c.py": "../../out.py",
        "recipes/circle": "circle", "images/v.yaml": "w.yaml",
    }.items():  # fmt: skip
        (top / place).symlink_to(target)
    assert mounts(top) == ["images", "recipes"]


def test_a_spec_in_another_folder_and_those_that_it_extends(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(top / "specs", {"m.yaml": SPEC.replace(b"base", b"extends: below\nbase"), "below.yaml": b"schema: 1\n"})
    (top / "link.yaml").symlink_to("specs/m.yaml")
    monkeypatch.chdir(top)
    assert mounts(top, "specs/m.yaml") == ["images", "recipes", "specs/below.yaml", "specs/m.yaml"]
    (top / "specs/m.yaml").write_bytes(SPEC)
    with pytest.raises(SpecError, match=r"link\.yaml leads through .*/link\.yaml, which a program"):
        mounts(top, "link.yaml")
