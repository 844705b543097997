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
    ],
)
def test_a_link_to_what_a_program_can_write_is_refused(top: Path, place: str, target: str, through: str) -> None:
    (top / place).parent.mkdir(parents=True, exist_ok=True)
    (top / place).symlink_to(target.format(top=top))
    with pytest.raises(SpecError, match=f"{top}/{place} leads through {top}/{through}, which a program") as caught:
        mounts(top)
    assert "without --writable-dev" in caught.value.hint


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
