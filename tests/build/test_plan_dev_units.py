"""Project folders in a plan: an edit changes one unit and the glue, and the venv has a working installation."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.build.plan import dev_units
from envbuild.build.plan.containerfile import containerfile
from envbuild.build.plan.planner import make_plan
from envbuild.build.plan.units import Plan
from envbuild.inspector.packages import list_dists
from envbuild.lock.dev_content import read_content
from envbuild.lock.lockfile import read_lock
from envbuild.lock.request import lock_request
from envbuild.lock.resolve import resolve_in
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.resolve import Resolution

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
PYPROJECT = """[project]
name = "My.Trainer"
version = "0.10"
dependencies = ["iniconfig>=2"]
[project.scripts]
train = "mine.cli:App.main"
[project.entry-points."mine.plugins"]
first = "mine"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a project whose image extends a shipped one."""
    folder = tmp_path / "mine"
    (folder / "src/mine").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "src/mine/__init__.py").write_text("VALUE = 7\n")
    (folder / "src/mine/cli.py").write_text("class App:\n    main = staticmethod(lambda: print('started'))\n")
    (tmp_path / "images").mkdir()
    (tmp_path / "images/own.yaml").write_text("schema: 1\nextends: cpu-ucx\ndev: ../mine\n")
    return folder


def resolution(project: Path) -> Resolution:
    at = Project.find(project.parent)
    return resolve_in(load_image_spec("own", at), at)


def plan_of(found: Resolution) -> Plan:
    return make_plan(found, replace(read_lock(ROOT / "images/cpu-ucx.lock"), image="own"))


def changed(one: Plan, other: Plan) -> set[str]:
    keys, more = one.keys(), other.keys()
    return {name for name in {**keys, **more} if keys.get(name) != more.get(name)}


def test_an_edit_changes_its_unit_and_the_glue_and_not_the_request_of_the_lock(project: Path) -> None:
    before = resolution(project)
    (project / "src/mine/__init__.py").write_text("VALUE = 8\n")
    after = resolution(project)
    assert changed(plan_of(before), plan_of(after)) == {"dev-my-trainer", "glue"}
    assert lock_request(before).digest() == lock_request(after).digest()
    assert not changed(plan_of(before.mounted()), plan_of(after.mounted()))
    assert "iniconfig>=2" in lock_request(after).units["venv"].python


def test_an_image_with_a_project_shares_all_other_units(project: Path) -> None:
    own = plan_of(resolution(project))
    at = Project.find(ROOT)
    plain = make_plan(resolve_in(load_image_spec("cpu-ucx", at), at), read_lock(ROOT / "images/cpu-ucx.lock"))
    assert changed(own, plain) == {"dev-my-trainer", "glue"}


def test_the_digest_is_in_the_evidence_of_the_image(project: Path) -> None:
    found = resolution(project)
    (content,) = found.contents
    texts = dict(plan_of(found).unit("glue").inputs[0].texts)
    assert content.sha256 in texts["etc/envbuild/resolution.json"]
    assert content.sha256 in texts["etc/envbuild/sbom.cdx.json"]
    assert content.sha256 not in texts["etc/envbuild/lock.yaml"]


def test_the_containerfile_copies_the_folder_of_the_unit(project: Path) -> None:
    text = containerfile(plan_of(resolution(project)))
    assert "FROM base AS dev-my-trainer" in text
    assert "COPY --from=dev-my-trainer /opt/dev/my-trainer /opt/dev/my-trainer" in text
    assert "type=bind,source=dev-my-trainer/project,target=/run/envbuild/project,ro" in text


def test_the_installation_works(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are written as the glue copies them, into a folder in the place of /opt."""
    (item,) = load_image_spec("own", Project.find(project.parent)).dev
    site = tmp_path / "opt/venv/lib/python3/site-packages"
    monkeypatch.setattr(dev_units, "VENV", str(tmp_path / "opt/venv"))
    monkeypatch.setattr("envbuild.spec.dev_project.PLACE", str(tmp_path / "opt/dev"))
    for path, text in dev_units.venv_files([item], str(site)).items():
        (Path("/") / path).parent.mkdir(parents=True, exist_ok=True)
        (Path("/") / path).write_text(text)
    Path(item.place).parent.mkdir(parents=True)
    Path(item.place).symlink_to(project)
    program = (
        f"import site; site.addsitedir({str(site)!r}); import runpy, importlib.metadata as m, mine;"
        "print(mine.VALUE, m.version('my-trainer'), m.requires('my-trainer'));"
        "print([point.load().__name__ for point in m.entry_points(group='mine.plugins')]);"
        f"runpy.run_path({str(tmp_path / 'opt/venv/bin/train')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "7 0.10 ['iniconfig>=2']\n['mine']\nstarted\n", done.stderr
    ((dist,), owners) = list_dists([str(site)])
    assert (dist["name"], dist["version"], dist["missing"]) == ("My.Trainer", "0.10", [])
    assert str(tmp_path / "opt/venv/bin/train") in owners


def test_the_unit_has_the_content_as_its_input(project: Path) -> None:
    content = read_content(load_image_spec("own", Project.find(project.parent)).dev[0])
    unit = plan_of(resolution(project)).unit("dev-my-trainer")
    assert [blob.sha256 for item in unit.inputs for blob in item.blobs] == [content.sha256]
    assert unit.lowers == ("base",) and unit.keep == ("/opt/dev/my-trainer",)


def test_a_program_of_another_package_is_not_replaced(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_units, "VENV", str(tmp_path / "opt/venv"))
    items = load_image_spec("own", Project.find(project.parent)).dev
    command = dev_units.install_command(items) + "echo copied"
    assert subprocess.run(["/bin/sh", "-ec", command], capture_output=True, text=True, check=True).stdout == "copied\n"
    (tmp_path / "opt/venv/bin").mkdir(parents=True)
    (tmp_path / "opt/venv/bin/train").symlink_to("/nowhere")
    done = subprocess.run(["/bin/sh", "-ec", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.endswith("bin/train of a project of dev belongs to another package, too: rename it\n")
