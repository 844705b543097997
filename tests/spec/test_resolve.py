"""Resolve: order, what the image needs, and what has to be locked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import ConflictError, SpecError
from envbuild.core.toposort import sort_topologically
from envbuild.lock.request import UnitRequest, lock_request
from envbuild.lock.resolve import resolve_in
from envbuild.spec import image_spec
from envbuild.spec.project import Project
from envbuild.spec.recipe import Archive
from envbuild.spec.resolve import Resolution, resolve
from envbuild.spec.target import load_target as load_target

pytestmark = pytest.mark.unit


def resolved(folder: Path, project: Project, layers: str, target: str = "node", more: str = "") -> Resolution:
    path = folder / "x.yaml"
    path.write_text(f"schema: 1\ntarget: {target}\nbase: debian:13\nlayers: {layers}\n{more}")
    return resolve_in(image_spec.load_image_spec(str(path), project), project)


def test_good(small: Project) -> None:
    resolution = resolve_in(image_spec.load_image_spec("good", small), small)
    assert resolution.order == ("gadget", "python-things", "toolkit", "widget")
    assert resolution.compiled == ("gadget", "widget")
    assert resolution.env.has("widget")
    assert resolution.runtime.env == {
        "GREETING": "hello world",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "PATH": "/opt/toolkit/bin:/opt/widget/bin",
        "WIDGET_HOME": "/opt/widget",
    }
    assert resolution.runtime.libraries == ("/opt/widget/lib",)
    assert resolution.runtime.files == {"/etc/widget.conf": "small"}
    request = lock_request(resolution)
    assert (request.image, request.base, request.arch, request.python) == ("good", "debian:13", "amd64", "3.13")
    assert list(request.units.items()) == [
        ("base", UnitRequest(debian=("ca-certificates", "python3"))),
        ("debian", UnitRequest(debian=("libc6", "libwidget1"))),
        ("venv", UnitRequest(python=("numpy", "toolkit==13.2", "torch>=2; python_version < '4'"))),
        ("venv-core", UnitRequest(python=("toolkit==13.2",))),
        ("build-gadget", UnitRequest(python=("ninja", "setuptools"), sdists=("gadget==2.0",))),
        (
            "build-widget",
            UnitRequest(
                debian=("g++", "make"), archives=(Archive("widget", "github:acme/widget@v1", "widget-1.tar.gz"),)
            ),
        ),
    ]


def test_the_digest_depends_on_everything_that_changes_an_input(small: Project, tmp_path: Path) -> None:
    """The order in the file does not count, nor do its description and its variables; options, target and waivers
    do."""
    same = {
        lock_request(resolved(tmp_path, small, layers, more=more)).digest()
        for layers, more in [
            ('{toolkit: "1", widget: {}}', ""),
            ('{widget: {}, toolkit: {version: "1"}}', "description: other words\n"),
            ('{toolkit: "1", widget: {}}', 'env: {A: "1"}\n'),
        ]
    }
    assert len(same) == 1
    different = [
        resolved(tmp_path, small, '{toolkit: "2", widget: {}}'),
        resolved(tmp_path, small, '{toolkit: "1", widget: {mode: small}}'),
        resolved(tmp_path, small, '{toolkit: "1", widget: {}}', target="box"),
        resolved(
            tmp_path, small, '{toolkit: "1", widget: {}}', more="waivers: [{fact: widget.toolkit-minor, reason: b}]\n"
        ),
    ]
    assert len(same | {lock_request(item).digest() for item in different}) == 5


def test_a_lock_of_an_older_envbuild_is_current_until_a_variable_changes(small: Project, tmp_path: Path) -> None:
    """Its digest has the variables in it."""
    layers = '{toolkit: "1", widget: {}}'
    request = lock_request(resolved(tmp_path, small, layers, more='env: {A: "1"}\n'))
    other = lock_request(resolved(tmp_path, small, layers, more='env: {A: "2"}\n'))
    assert request.digest() == other.digest() and request.is_answered_by(other.digest())
    values = dataclasses.asdict(dataclasses.replace(request, where={}, askers={}, prefixes=(), folder=""))
    text = json.dumps(filled(values), sort_keys=True, separators=(",", ":"))
    older = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    assert request.is_answered_by(older) and not other.is_answered_by(older)


def filled(value: object) -> object:
    """Return a value without what is empty in it, as all digests have it."""
    if isinstance(value, dict):
        return {key: inner for key, item in value.items() if (inner := filled(item)) not in ({}, [], "", None)}
    return [filled(item) for item in value] if isinstance(value, (list, tuple)) else value


def test_a_gpu_recipe_needs_a_gpu(small: Project, tmp_path: Path) -> None:
    with pytest.raises(ConflictError) as caught:
        resolved(tmp_path, small, "{toolkit: {}, gadget: {}}", target="box")
    assert caught.value.exit_code == 3
    assert str(caught.value) == (
        f"{tmp_path}/x.yaml:4:23: layer 'gadget' cannot be built for target 'box', "
        "because it compiles for a GPU architecture and this target has no GPU\n"
        "hint: take a target with a GPU, or remove 'gadget'"
    )


def test_two_recipes_with_different_values_conflict(small: Project, tmp_path: Path) -> None:
    with pytest.raises(ConflictError) as caught:
        resolved(tmp_path, small, "{widget: {}, meddler: {}}")
    assert [finding.message for finding in caught.value.findings] == [
        f"layers 'meddler' and 'widget' are incompatible: they define {what} differently"
        for what in ("variable WIDGET_HOME", "file /etc/widget.conf")
    ]


def test_a_variable_of_the_spec_resolves_the_conflict(small: Project, tmp_path: Path) -> None:
    with pytest.raises(ConflictError) as caught:
        resolved(tmp_path, small, "{widget: {}, meddler: {}}", more="env: {WIDGET_HOME: /mine}\n")
    assert [finding.message.split("define ")[1] for finding in caught.value.findings] == [
        "file /etc/widget.conf differently"
    ]


def test_a_failing_recipe_is_reported_with_its_line(small: Project, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        resolved(tmp_path, small, "{faulty: {}}")
    assert caught.value.where.endswith("recipes/faulty.py:11:1")
    assert caught.value.message == "the recipe fails: KeyError: 'missing'"


def test_a_cycle_in_memory_is_refused(small: Project) -> None:
    good = image_spec.load_image_spec("good", small)
    loops = (
        image_spec.load_recipe(small.find_recipe("loop-one"))(),
        image_spec.load_recipe(small.find_recipe("loop-two"))(),
    )
    with pytest.raises(SpecError, match="dependency cycle"):
        resolve(
            dataclasses.replace(good, recipes={"loop-one": loops[0], "loop-two": loops[1]}), load_target("node", small)
        )


NAMES = st.sampled_from("abcdefgh")


@given(st.dictionaries(NAMES, st.sets(NAMES)))
def test_order(after: dict[str, set[str]]) -> None:
    """Every layer follows those that it names; layers left out depend on the reported cycle."""
    order, cycle = sort_topologically(after)
    assert set(order) <= set(after)
    for index, name in enumerate(order):
        assert (after[name] & set(after)) <= set(order[:index])
    if len(order) == len(after):
        assert cycle == ()
        assert sort_topologically(dict(reversed(after.items()))) == (order, ())
    else:
        assert cycle[0] == cycle[-1]
        assert all(later in after[name] for name, later in pairwise(cycle))


def test_the_request_is_computed_once(small: Project) -> None:
    resolution = resolve_in(image_spec.load_image_spec("good", small), small)
    assert lock_request(resolution) is lock_request(resolution)
    again = lock_request(dataclasses.replace(resolution))
    assert again is not lock_request(resolution) and again.digest() == lock_request(resolution).digest()


@pytest.mark.slow_unit
def test_light() -> None:
    """Load, resolve and the lock's digest import nothing heavy: they run in every `make` that has nothing to do."""
    program = f"""
import pathlib, sys
from envbuild.spec import image_spec, project
from envbuild.lock import request, resolve
here = project.Project(pathlib.Path({str(Path(__file__).parents[1] / "support" / "project")!r}))
request.lock_request(resolve.resolve_in(image_spec.load_image_spec("good", here), here)).digest()
print(*sorted({{"hpccm", "requests", "docker", "zstandard", "rich", "packaging", "typer"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
