"""`envbuild check`: whether the lock of an image is current decides between its versions and newer ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.cli.check_images import is_current
from envbuild.lock.lock_head import LockHead, read_head
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.target import load_target
from tests.support.command import ROOT, envbuild

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("driver", "code"), [("550.54.15", 3), ("595.45.04", 0)])
def test_the_driver_of_a_site_replaces_the_floor_of_the_target(driver: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "envbuild").mkdir()
    (tmp_path / "envbuild/site.yaml").write_text(f'schema: 1\ntargets: {{h100-ib: {{driver: "{driver}"}}}}\n')
    done = envbuild("check", "h100-nccl", XDG_CONFIG_HOME=str(tmp_path))
    assert done.returncode == code, done.stdout
    assert driver in done.stdout


@pytest.mark.parametrize("name", ["cpu-ucx", "h100-nccl"])
def test_a_lock_is_current_while_it_has_the_inputs_of_the_spec(name: str) -> None:
    project = Project.find(ROOT)
    spec = load_image_spec(name, project)
    target = load_target(spec.target, project)
    lock = read_head(project.lock_path(spec.path))
    assert is_current(lock, spec, target)
    assert not is_current(lock._replace(inputs="0" * 64), spec, target)
    assert not is_current(LockHead("", {}, {}), spec, target)
