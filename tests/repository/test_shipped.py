"""Shipped files: locks that answer their specs, and a package that contains them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.command import ROOT, process

pytestmark = pytest.mark.unit


def test_shipped_locks_hold_no_host_and_answer_their_specs() -> None:
    from envbuild.lock.lockfile import read_lock
    from envbuild.lock.request import lock_request
    from envbuild.lock.resolve import resolve_in
    from envbuild.spec.image_spec import load_image_spec
    from envbuild.spec.project import Project

    project = Project.find(ROOT)
    locked = sorted((ROOT / "images").glob("*.lock"))
    assert len(locked) >= 3
    for path in locked:
        name = path.stem
        assert "://" not in path.read_text()
        assert read_lock(path).inputs == lock_request(resolve_in(load_image_spec(name, project), project)).digest()
        # no more and no fewer units than it would have when locked now, so that `lock --refresh` changes nothing
        assert {*read_lock(path).units} == {
            *lock_request(resolve_in(load_image_spec(name, project), project)).units,
            "tools",
        }


@pytest.mark.slow_unit
def test_the_package_contains_images_and_recipes(tmp_path: Path) -> None:
    """A wheel holds the shipped specs, locks and recipes; from any folder they are found."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    wheel = next(tmp_path.glob("*.whl"))
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "envbuild/shipped/images/cpu-ucx.yaml",
        "envbuild/shipped/images/cpu-ucx.lock",
        "envbuild/shipped/recipes/ucx.py",
    } <= names
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    done = process(
        "list", "--json", cwd=tmp_path, ENVBUILD_STORE=str(tmp_path / "store"), PYTHONPATH=str(tmp_path / "site")
    )
    assert done.returncode == 0, done.stderr
    assert '"name": "cpu-ucx"' in done.stdout
