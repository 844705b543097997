"""Commands on images whose lock is missing, damaged or outdated, and the command that makes locks."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.spec.workspace import open_workspace
from tests.support.command import envbuild, refused

pytestmark = pytest.mark.unit


def test_a_changed_spec_makes_the_lock_outdated(project: Path, tmp_path: Path) -> None:
    spec = project / "images" / "cpu-ucx.yaml"
    spec.write_text(spec.read_text().replace("[numpy]", "[numpy, six]"))
    done = envbuild("make", "cpu-ucx", cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    refused(done, 4, "outdated", "hint: envbuild lock cpu-ucx")


def test_a_damaged_lock(project: Path, tmp_path: Path) -> None:
    lock = project / "images" / "cpu-ucx.lock"
    lock.write_text(lock.read_text()[: lock.stat().st_size // 2])
    refused(envbuild("make", "cpu-ucx", cwd=project, ENVBUILD_STORE=str(tmp_path / "store")), 4, "cpu-ucx.lock")


@pytest.mark.parametrize("is_current", [True, False])
def test_run_without_a_current_file_builds_the_layers_and_makes_no_lock(
    is_current: bool, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from envbuild.cli import run_image
    from envbuild.make import LockRule

    seen: list[Any] = []
    built = SimpleNamespace(plan="plan", layers=[SimpleNamespace(diff_id="d")])
    monkeypatch.setattr(run_image, "read_image_record", lambda *_, **__: object() if is_current else None)
    monkeypatch.setattr(run_image, "load_built_image", lambda *_, **__: built)
    monkeypatch.setattr("envbuild.make.make_layers", lambda *given, **_: seen.append(given[-1].lock) or ("plan", built))
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    reporter = SilentReporter()
    with open_workspace(reporter, project) as workspace:
        assert run_image.current_layers("cpu-ucx", workspace) == ("plan", ["d"])
    assert seen == ([] if is_current else [LockRule.REQUIRE])
    reported = [line for line in reporter.lines if "running in its layers (envbuild make cpu-ucx writes it)" in line]
    assert bool(reported) is not is_current


def test_an_image_without_a_lock_can_be_read(project: Path, tmp_path: Path) -> None:
    (project / "images" / "cpu-ucx.lock").unlink()
    done = envbuild("compile", "cpu-ucx", cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    assert done.returncode == 0
    assert "not locked" in done.stdout.splitlines()[0]
    assert "cpu-ucx has no lock; next: envbuild lock cpu-ucx" in done.stderr
    arguments = ("compile", "cpu-ucx", "--context", str(tmp_path / "context"))
    done = envbuild(*arguments, cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    refused(done, 4, "cpu-ucx has no lock", "hint: envbuild lock cpu-ucx")


@pytest.mark.slow_unit
@pytest.mark.parametrize("command", ["run", "verify"])
def test_only_make_and_lock_write_a_lock(command: str, project: Path, tmp_path: Path) -> None:
    (project / "images" / "cpu-ucx.lock").unlink()
    done = envbuild(command, "cpu-ucx", cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    refused(done, 4, "cpu-ucx has no lock", "hint: envbuild lock cpu-ucx")
    assert not (project / "images" / "cpu-ucx.lock").exists()


@pytest.mark.slow_unit
def test_show_of_an_image_without_a_lock(project: Path, tmp_path: Path) -> None:
    (project / "images" / "mine.yaml").write_text(
        "schema: 1\ndescription: ours\nextends: h100-ucc\n"
        'layers: {cuda: {flavor: runtime}, python-packages: ["datasets>=4"], ucx: {provider: source}}\n'
    )
    store = str(tmp_path / "store")
    done = envbuild("show", "mine", cwd=project, ENVBUILD_STORE=store)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["mine: ours", "  target h100-ib, base debian:13, python 3.13; no lock yet"]
    (cuda,) = [line.split() for line in lines if line.startswith("cuda ")]
    assert cuda[2:] == ["(picked)", "flavor:", "runtime"]
    assert any(line.endswith('packages: ["datasets>=4"]') for line in lines)
    assert "  debian:trixie/main" in lines and lines[-1] == "next: envbuild lock mine"
    data = json.loads(envbuild("show", "mine", "--json", cwd=project, ENVBUILD_STORE=store).stdout)
    layers = {row["layer"]: row for row in data["layers"]}
    assert list(layers).index("cuda") < list(layers).index("ucx")  # in build order
    assert (layers["cuda"]["version"], layers["cuda"]["version_by"]) == (cuda[1], "matrix")
    assert layers["torch"]["version_by"] == "spec" and layers["cuda"]["options"] == {"flavor": "runtime"}
    assert (data["lock"], data["made"], data["next"]) == ("", None, "envbuild lock mine")
    listed = json.loads(envbuild("list", "--json", cwd=project, ENVBUILD_STORE=store).stdout)
    (row,) = [row for row in listed["images"] if row["name"] == "mine"]
    assert (data["needs"], data["needs_mirror"]) == (row["needs"], row["needs_mirror"])
    assert [origin for origin, by in data["sources"].items() if by == "network"] == row["needs"] != []
    assert not (project / "images" / "mine.lock").exists()


def test_one_damaged_lock_does_not_hide_the_other_images(project: Path, tmp_path: Path) -> None:
    (project / "images" / "cpu-ucx.lock").write_text("<<<<<<< ours\n")
    done = envbuild("list", "--json", cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    states = {row["name"]: row["lock"] for row in json.loads(done.stdout)["images"]}
    assert states["cpu-ucx"] == "damaged"
    assert states["a100-nccl"] == states["h100-nccl"] == "current"


def test_options_of_lock_that_contradict_each_other(project: Path, tmp_path: Path) -> None:
    done = envbuild("lock", "cpu-ucx", "--fresh", "--refresh", cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    refused(done, 2, "--fresh takes the newest version of everything")


@pytest.mark.slow_unit
def test_one_image_that_cannot_be_locked_does_not_stop_the_others(project: Path, tmp_path: Path) -> None:
    spec = project / "images" / "twice.yaml"
    spec.write_text("schema: 1\ntarget: h100-ib\nbase: debian:13\nlayers:\n  hpcx: {}\n")
    store = str(tmp_path / "store")
    done = envbuild("lock", "twice", "nosuch", "cpu-ucx", "nosuch", "--json", cwd=project, ENVBUILD_STORE=store)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    answer = json.loads(done.stdout)
    assert [row["image"] for row in answer["images"]] == ["cpu-ucx"]
    assert (answer["schema"], answer["error"]["code"], answer["error"]["exit_code"]) == (1, "conflict", 3)
    assert [finding["where"] for finding in answer["error"]["findings"]][:1] == ["images/twice.yaml:5:3"]
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert errors[0].startswith("error: images/twice.yaml:5:3: layer 'hpcx' is incompatible")
    assert errors[-1] == "error: nosuch: no image is called 'nosuch'" and len(errors) == len(set(errors))
    alone = envbuild("lock", "nosuch", cwd=project, ENVBUILD_STORE=store)
    refused(alone, 2, "error: no image is called 'nosuch'")
