"""The process of a unit and of a command in an image, without a box: its job, and what remains."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.engines.embedded import unit_process
from envbuild.build.engines.embedded.sandbox import Outcome, Protection
from envbuild.build.engines.embedded.unit_root import RootSpec
from envbuild.build.plan.units import Product
from envbuild.core.store.store import Store

pytestmark = pytest.mark.unit


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RootSpec, list[list[str]], dict[str, Any]]]:
    """Record boxes instead of entering them; a step `fail` fails."""
    seen: list[tuple[RootSpec, list[list[str]], dict[str, Any]]] = []

    def run(box: RootSpec, commands: list[list[str]], env: dict[str, str], **more: Any) -> Outcome:
        seen.append((box, commands, {"env": env, **more}))
        (box.work / "out").mkdir(exist_ok=True)
        (box.work / "out" / "x-1-py3-none-any.whl").write_text("wheel")
        (box.work / "out" / "log.txt").write_text("log")
        failed = [number for number, command in enumerate(commands) if command[-1] == "fail"]
        return (
            Outcome(failed[0], 3)
            if failed
            else Outcome(notes=("a note",), protection=Protection(True, True, False, True))
        )

    monkeypatch.setattr(unit_process, "run_in_sandbox", run)
    return seen


def job(store: Store, **changes: Any) -> dict[str, Any]:
    """Return the job of a unit that makes a wheel."""
    value = {
        "store": str(store.root), "work": str(store.root / "tmp/work"), "inputs": [], "checked": [], "seed": [],
        "layers": [], "steps": ["true"], "env": {"A": "b"}, "lowers": ["/lower"], "lower_layers": [],
        "build_only": [],
        "product": Product.WHEEL,
        "keep_failed": False, "epoch": 1, "keep": [], "unit": "x", "packs": [], "cache": None,
    }  # fmt: skip
    return {**value, **changes}


def command(work: Path, **changes: Any) -> dict[str, Any]:
    """Return the job of a command in an image."""
    value = {
        "work": str(work), "lowers": ["/one", "/two"], "input_names": [], "apt": False, "network": True,
        "image": "/app.sqsh",
        "binds": [["/data", "/mnt", True]], "argv": ["true"], "env": {"A": "b"},
    }  # fmt: skip
    return {**value, **changes}


def test_wheels_of_a_unit_become_blobs(store: Store, boxes: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    answer = unit_process.build_unit(job(store))
    ((name, sha256),) = answer["wheels"]
    assert name == "x-1-py3-none-any.whl" and store.blob(sha256).read_text() == "wheel"
    ((box, commands, more),) = boxes
    assert (box.lowers, box.inputs, box.apt) == (("/lower",), (), False)
    assert commands == [["/bin/sh", "-c", "true"]] and more == {"env": {"A": "b"}}
    assert capsys.readouterr().out == "envbuild: a note\n"
    assert not (store.root / "tmp/work").exists() and answer["seconds"] >= 0


def test_a_failed_step_is_named_and_its_folder_preserved_on_demand(store: Store, boxes: list[Any]) -> None:
    for keep in (False, True):
        answer = unit_process.build_unit(job(store, steps=["true", "fail"], keep_failed=keep))
        assert answer["failed"] == [1, 3] and answer["free"] > 0
        assert (store.root / "tmp/work").exists() is keep


def test_a_full_disk_leaves_no_folder(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(unit_process, "run_in_sandbox", fail)
    with pytest.raises(OSError):
        unit_process.build_unit(job(store))
    assert not (store.root / "tmp/work").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="others need a user namespace")
def test_a_unit_without_steps_has_no_box_and_may_have_a_layer(store: Store, boxes: list[Any]) -> None:
    answer = unit_process.build_unit(job(store, steps=[], lowers=[], product=Product.LAYER))
    assert boxes == []
    assert store.layer(answer["layer"]["diff_id"]).files == answer["layer"]["files"] == 0


def test_debian_packages_of_a_unit_are_an_archive_of_apt(store: Store) -> None:
    for inputs, apt in (
        ([{"name": "debs", "kind": "debian"}], True),
        ([{"name": "debs", "kind": "files"}], False),
        ([{"name": "other", "kind": "debian"}], False),
    ):
        assert unit_process.make_root_spec(job(store, inputs=inputs)).apt is apt


def test_a_command_in_an_image(tmp_path: Path, boxes: list[Any]) -> None:
    assert unit_process.run_job(command(tmp_path / "work")) == {
        "code": 0,
        "notes": ["a note"],
        "protection": {"seccomp": True, "keyring": True, "cgroup": False, "users": True},
    }
    ((box, commands, more),) = boxes
    assert (box.lowers, box.image, box.network, box.build, box.sys) == (
        ("/one", "/two"),
        "/app.sqsh",
        True,
        False,
        True,
    )
    assert box.binds == (("/data", "/mnt", True),)
    assert (commands, more) == ([["true"]], {"env": {"A": "b"}, "interactive": True})
    assert not (tmp_path / "work").exists()


def test_a_shell_in_a_failed_step_has_the_inputs_of_the_unit(tmp_path: Path, boxes: list[Any]) -> None:
    (tmp_path / "failed/inputs").mkdir(parents=True)
    shell = command(tmp_path / "work", evidence=str(tmp_path / "failed"), image="", input_names=["debs"], apt=True)
    assert unit_process.run_job(shell)["code"] == 0
    ((box, _, more),) = boxes
    assert (box.image, box.build, box.sys, box.apt, box.inputs) == ("", True, False, True, ("debs",))
    assert more["interactive"] and (tmp_path / "failed/inputs").is_dir()
