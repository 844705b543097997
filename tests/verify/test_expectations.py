"""Expected contents of an image, from locks and recipes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from envbuild.lock.lockfile import read_lock
from envbuild.lock.model import BaseImage, Lock, SourceFile, UnitLock
from envbuild.lock.resolve import resolve_in
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project
from envbuild.spec.recipe import GitProject, Sources
from envbuild.spec.resolve import Resolution
from envbuild.verify.expectations import expected_contents, locked_contents, locked_own_content, own_content
from envbuild.verify.run_inspector import OwnContent

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
NAME = "h100-nccl"


@pytest.fixture(scope="module")
def lock() -> Lock:
    return read_lock(ROOT / "images" / f"{NAME}.lock")


@pytest.fixture(scope="module")
def resolution() -> Resolution:
    project = Project.find(ROOT)
    return resolve_in(load_image_spec(NAME, project), project)


def with_units(lock: Lock, **units: UnitLock) -> Lock:
    """`lock` with more units (``build_ucx`` is build-ucx), and the sources that they name."""
    more = {name.replace("_", "-"): unit for name, unit in units.items()}
    sources = {file: SourceFile(file, "github:o/r@v1", "0" * 64) for unit in more.values() for file in unit.sources}
    return dataclasses.replace(lock, units={**lock.units, **more}, sources={**lock.sources, **sources})


def test_expectations_come_from_target_recipes_and_lock(lock: Lock, resolution: Resolution) -> None:
    expected = expected_contents(resolution, lock)
    assert (expected.sm, expected.cpu) == ("90", "x86-64-v3")
    assert expected.modules == ("deepspeed.ops.adam.fused_adam_op",)
    assert expected.python["torch"] == lock.versions["torch"]
    assert expected.python["deepspeed"] == lock.versions["deepspeed"]
    assert expected.debian["openmpi-bin"] == lock.versions["openmpi"]
    assert (expected.complete, expected.python_also, expected.python_more) == (True, (), False)


def test_a_wheel_from_an_sdist_is_compiled_here(lock: Lock, resolution: Resolution) -> None:
    assert locked_own_content(lock).dists == ("deepspeed",)
    found = own_content(resolution, lock)
    assert "/opt/cuda" in (found.prefixes or ())
    assert found == OwnContent(prefixes=found.prefixes, folders=(), dists=("deepspeed",))


def test_a_prefix_is_compiled_here_when_it_has_sources_and_a_compiler(lock: Lock) -> None:
    changed = with_units(
        lock,
        build_ucx=UnitLock(requested=("autoconf", "g++", "gcc"), sources=("ucx-0123456789ab.tar",)),
        build_hpcx=UnitLock(requested=("bzip2",), sources=("hpcx-v2.25.1.tbz",)),
        build_cuda=UnitLock(requested=("gcc",)),
    )
    assert locked_own_content(changed).folders == ("/opt/ucx",)


def test_wheels_from_commits_are_known_by_their_recipes_alone(lock: Lock, resolution: Resolution) -> None:
    changed = with_units(lock, build_apex=UnitLock(requested=("g++",), sources=("apex-0123456789ab.tar",)))
    assert locked_contents(changed).python_more
    sources = {**resolution.sources, "apex": Sources(gives=("apex==0.1", "apex-more==2"))}
    more = dataclasses.replace(resolution, sources=sources)
    expected = expected_contents(more, changed)
    assert (expected.python_also, expected.python_more) == (("apex", "apex-more"), False)
    assert own_content(more, changed).dists == ("deepspeed", "apex", "apex-more")
    projects = {**resolution.sources, "own": Sources(projects=(GitProject("acme", "github:demo/acme", "v1"),))}
    assert expected_contents(dataclasses.replace(resolution, sources=projects), changed).python_also == ("acme",)


def test_with_a_base_image_the_lock_is_incomplete(lock: Lock) -> None:
    base = BaseImage("nvcr.io/nvidia/pytorch:25.10-py3", "sha256:0", "sha256:1", (), "ubuntu:24.04")
    assert not locked_contents(dataclasses.replace(lock, base_image=base)).complete
