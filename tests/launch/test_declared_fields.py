"""Declarations of targets and sites for launching are read: a change of each field changes the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import SpecError
from envbuild.core.reasoned import Reasoned
from envbuild.launch.expectations import LOOPBACK, PROGRAMS, threshold_name
from envbuild.net.numa import Numa
from envbuild.net.site_file import read_site
from envbuild.net.slurm_site import NODE_KEYS, SLURM_KEYS, NodeSettings, Slurm
from envbuild.spec.launch_profile import THRESHOLDS, Launch, Nics
from envbuild.spec.project import Project
from envbuild.spec.target import Target, load_target
from tests.support.launching import ENV, ROOT, answer_of, make_plan, shipped_target, site, torch_image

pytestmark = pytest.mark.unit

NDV4 = shipped_target("azure-ndv4")
NUMA = Numa(2, 48, (0, 0, 0, 0, 1, 1, 1, 1))
TEST = ("all_reduce_perf",)
NAMES = tuple(f"ib{number}" for number in range(8))
Case = tuple[Any, Mapping[str, Any]]  # another value, and options of the launch in which it counts

# Field → another value, and the launch in which the difference is seen.
OF_LAUNCH: dict[str, Case] = {
    "env": ({"A": Reasoned("1", "x")}, {}),
    "needs": ({"CACHE": "x"}, {}),
    "host_steps": ({"sysctl -w x=1": "y"}, {}),
    "tasks_per_node": (2, {}),
    "cpus_per_task": (7, {"without_numa": True}),
    "port": (2022, {}),
    "workers": (3, {"form": "torchrun"}),
    "compile": (("warm-up",), {"form": "sbatch", "compile": True}),
    "job": (("--exclusive", "--contiguous"), {}),
    "step": (("--unbuffered",), {}),
    "docker": (("--gpus=all", "--init"), {"form": "docker"}),
    "mounts": (("/opt/other",), {}),
}
OF_TARGET: dict[str, Case] = {
    "gpus": (4, {"without_numa": True}),
    "sm": ("", {}),
    "arch": ("arm64", {}),
    "fabric": ("ethernet", {}),
    "nics": (None, {}),
    "numa": (NUMA, {}),
    "efa": (4, {"form": "trainjob"}),
    "imex": (True, {}),
    "thresholds": ({}, {"command": TEST}),
    "launch": (Launch(), {}),
    "name": ("other", {}),
}
# of the image, not of the launch; driver: the matrix answers (test_image_sources.py)
OF_IMAGES = {"description", "gpu", "cpu", "env", "driver", "driver_because"}
OF_NICS: dict[str, Case] = {
    "count": (2, {"command": TEST, "nodes": 2, "without_thresholds": True}),
    "rate": (100, {"command": TEST, "nodes": 2, "without_thresholds": True}),
    "layer": ("Ethernet", {"form": "trainjob"}),
    "names": (NAMES, {}),
    "interface": ("bond0", {}),
}
OF_NUMA: dict[str, Case] = {
    "nodes": (2, {}),
    "cpus": (12, {}),
    "gpus": ((0, 0, 1, 1, 2, 2, 3, 3), {}),
}
OF_NODES: dict[str, Case] = {
    "partition": ("gpu", {}),
    "nics": (NAMES, {}),
    "interface": ("bond0", {}),
    "rdma": ("rdma/hca", {"form": "trainjob"}),
    "mounts": (("/data",), {}),
    "numa": (NUMA, {}),
    "env": ({"A": Reasoned("1", "")}, {}),
    "job": (("--segment=2",), {}),
    "step": (("--unbuffered",), {}),
}
OF_SLURM: dict[str, Case] = {
    "version": ("18.08.8", {}),
    "pyxis": ("0.11.1", {"image_env": {**ENV, "NCCL_NET": "Socket"}}),
    "enroot": ("3.4.0", {"by_digest": True}),
    "pmix": ((), {"command": TEST}),
    "account": ("me", {}),
    "qos": ("high", {}),
    "reservation": ("r1", {}),
    "pytorch_hook": (True, {"form": "sbatch", "nodes": 2}),
}


def answer(target: Target = NDV4, own: NodeSettings | None = None, slurm: Slurm | None = None, **options: Any) -> Any:
    """Return what the command prints, or its error."""
    form = options.pop("form", "srun")
    if options.pop("without_numa", False):
        target = replace(target, numa=None)
    if options.pop("without_thresholds", False):
        target = replace(target, thresholds={})
    image = torch_image(env=options.pop("image_env", ENV))
    if options.pop("by_digest", False):
        image = replace(image, squashfs="", reference=f"docker://registry.example/net@sha256:{'0' * 64}")
    command = options.pop("command", ("train.py",))
    at = site(**({"nodes": own} if own else {}), **({"slurm": slurm} if slurm else {}))
    try:
        return answer_of(make_plan(command, form=form, image=image, target=target, at=at, **options), form)
    except SpecError as error:
        return str(error)


def changed(make: Callable[[Any], dict[str, Any]], value: Any, options: Mapping[str, Any]) -> tuple[Any, Any]:
    return answer(**options), answer(**make(value), **options)


@pytest.mark.parametrize("name", OF_LAUNCH)
def test_a_field_of_launch(name: str) -> None:
    value, options = OF_LAUNCH[name]
    target = replace(NDV4, launch=replace(NDV4.launch, **{name: value}))
    before, after = changed(lambda new: {"target": new}, target, options)
    assert before != after


@pytest.mark.parametrize("name", OF_TARGET)
def test_a_field_of_a_target(name: str) -> None:
    value, options = OF_TARGET[name]
    before, after = changed(lambda new: {"target": replace(NDV4, **{name: new})}, value, options)
    assert before != after


@pytest.mark.parametrize("name", OF_NICS)
def test_a_field_of_nics(name: str) -> None:
    value, options = OF_NICS[name]
    assert NDV4.nics
    nics = NDV4.nics
    before, after = changed(lambda new: {"target": replace(NDV4, nics=replace(nics, **{name: new}))}, value, options)
    assert before != after


@pytest.mark.parametrize("name", OF_NUMA)
def test_a_field_of_numa(name: str) -> None:
    value, options = OF_NUMA[name]
    assert NDV4.numa
    numa = NDV4.numa
    before, after = changed(lambda new: {"target": replace(NDV4, numa=replace(numa, **{name: new}))}, value, options)
    assert before != after


@pytest.mark.parametrize("name", OF_NODES)
def test_a_field_of_the_nodes_of_a_site(name: str) -> None:
    value, options = OF_NODES[name]
    before, after = changed(lambda new: {"own": NodeSettings(**{name: new})}, value, options)
    assert before != after


@pytest.mark.parametrize("name", OF_SLURM)
def test_a_field_of_the_slurm_of_a_site(name: str) -> None:
    value, options = OF_SLURM[name]
    stated = Slurm(version="23.11.4", pyxis="0.20.0", enroot="4.0.1", pmix=("pmix",))
    before, after = answer(slurm=stated, **options), answer(slurm=replace(stated, **{name: value}), **options)
    assert before != after


@pytest.mark.parametrize(
    ("kind", "cases", "elsewhere"),
    [
        (Launch, OF_LAUNCH, set()),
        (Target, OF_TARGET, OF_IMAGES),
        (Nics, OF_NICS, set()),
        (Numa, OF_NUMA, set()),
        (NodeSettings, OF_NODES, {"driver"}),
        (Slurm, OF_SLURM, set()),
    ],
)
def test_no_field_is_left_out(kind: Any, cases: Mapping[str, Case], elsewhere: set[str]) -> None:
    assert {item.name for item in fields(kind)} == set(cases) | elsewhere


def test_the_example_of_the_page_is_valid_and_has_every_key(tmp_path: Path) -> None:
    page = (ROOT / "docs/launch.md").read_text()
    text = page.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "site.yaml").write_text(text)
    found = read_site(tmp_path / "site.yaml")
    missing = [key for key in NODE_KEYS if not getattr(found.nodes, key)]
    assert not missing
    assert found.nodes_of("azure-ndv4").partition == "a100"
    assert [key for key in SLURM_KEYS if key not in page] == []


def test_every_threshold_has_a_command() -> None:
    """A threshold of a shipped target is the expectation of some command."""
    known = set(PROGRAMS.values()) | {threshold_name(TEST, nodes, {}) for nodes in (1, 2)}
    known |= {threshold_name(TEST, 1, dict.fromkeys(LOOPBACK, "1"))}
    assert known == set(THRESHOLDS)
    for name in Project().targets():
        assert set(load_target(name, Project()).thresholds) <= known


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        ("all_reduce_perf", {}, "at least 228 GB/s (node_allreduce_busbw): check_nccl_allreduce over NVLink on NDv4"),
        ("all_reduce_perf", {"nodes": 2}, "at least 185 GB/s (two_node_allreduce_busbw): "),
        ("all_reduce_perf", {"env": dict.fromkeys(LOOPBACK, "1")}, "at least 18 GB/s (ib_loopback_allreduce_busbw): "),
        ("ib_write_bw", {}, "at least 185 Gb/s (ib_write_bandwidth_gdr): "),
        ("nvbandwidth", {}, "at least 23 GB/s (host_device_bandwidth): "),
        ("all_reduce_perf", {"nodes": 3}, ""),
        ("all_reduce_perf", {"gpus": 2}, ""),
        ("nvbandwidth", {"gpus": 2}, "at least 23 GB/s (host_device_bandwidth): "),
        ("train.py", {}, ""),
    ],
)
def test_what_a_healthy_node_reaches(command: str, options: dict[str, Any], expected: str) -> None:
    found = make_plan((command,), **options).expect
    assert [line[: len(expected)] for line in found] == ([expected] if expected else [])


def test_a_floor_that_follows_from_the_nics() -> None:
    (line,) = make_plan(TEST, image=torch_image(target="h100-ib"), nodes=2).expect
    assert line.startswith("at least 368 GB/s (two_node_allreduce_busbw): derived, 8 NICs of 400 Gb/s x 0.92")


def test_a_floor_of_another_command_names_it() -> None:
    image, ring = torch_image(target="h100-ib"), {"NCCL_ALGO": "RING"}
    command = "; not of this command, but of: -e NCCL_ALGO=RING -- all_reduce_perf -b 16M -e 16G -f 2 -g 1"
    for words, env in (("-e 16G", {}), ("-e 8G", ring), ("-b 8", ring)):
        (line,) = make_plan(("all_reduce_perf", *words.split()), image=image, nodes=2, env=env).expect
        assert line.endswith(command)
    for words in ("-e 16G", "--maxbytes 17179869184", "--maxbytes=16g"):
        (line,) = make_plan(("all_reduce_perf", *words.split()), image=image, nodes=2, env=ring).expect
        assert "not of this command" not in line
