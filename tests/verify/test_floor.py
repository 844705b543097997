"""Floors of measurements: their order, their sources, and files that are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.spec.launch_profile import Nics
from envbuild.spec.project import Project
from envbuild.spec.target import Target, load_target
from envbuild.verify.floor import FOLDER, TESTS, find_floor, published_floors, read_floors

pytestmark = pytest.mark.unit


def shipped(name: str, *, thresholds: bool = True) -> Target:
    target = load_target(name, Project())
    return target if thresholds else replace(target, thresholds={})


NDV4 = shipped("azure-ndv4", thresholds=False)


def test_the_threshold_of_a_target_comes_first() -> None:
    floor = find_floor(shipped("azure-ndv4"), "host_device_bandwidth")
    assert floor and floor.at_least == 23.0
    floor = find_floor(shipped("azure-ndv4", thresholds=False), "host_device_bandwidth")
    assert floor and floor.at_least == 21.0 and "azurehpc-health-checks @ 0e0a1ac, 2026-05" in floor.because


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, True),
        ({"gpu": "A100 40GB"}, True),
        ({"gpu": "A800"}, False),
        ({"gpus": 4}, False),
        ({"fabric": "efa"}, False),
        ({"nics": Nics(8, 400, "InfiniBand")}, False),
    ],
)
def test_a_published_floor_is_for_the_same_gpu_number_fabric_and_nics(change: dict[str, object], found: bool) -> None:
    target = replace(shipped("azure-ndv4", thresholds=False), **change)  # type: ignore[arg-type]
    floor = find_floor(target, "ib_write_bandwidth_gdr")
    assert (floor is not None) == found


def test_a_floor_of_one_node_is_not_one_of_two() -> None:
    target = shipped("h100-ib", thresholds=False)
    assert find_floor(target, "node_allreduce_busbw", 1)
    assert find_floor(target, "node_allreduce_busbw", 2) is None


def test_a_floor_of_an_algorithm_is_for_that_alone() -> None:
    target = replace(shipped("gb200-nvl", thresholds=False), gpus=4, fabric="infiniband")
    assert find_floor(target, "node_allreduce_busbw", 1) is None
    floor = find_floor(target, "node_allreduce_busbw", 1, "NVLS")
    assert floor and floor.at_least == 500


def test_a_derived_floor_is_marked() -> None:
    floor = find_floor(shipped("h100-ib"), "two_node_allreduce_busbw", 2)
    assert floor and (floor.at_least, floor.derived, floor.algorithm) == (368.0, True, "RING")
    assert find_floor(shipped("h100-ib"), "two_node_allreduce_busbw", 2, "TREE") is None
    assert find_floor(shipped("h100-ib"), "two_node_allreduce_busbw", 3) is None
    assert find_floor(shipped("cpu"), "two_node_allreduce_busbw", 2) is None


def test_the_newest_of_several_published_floors_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    (known,) = [item for item in published_floors() if item.fits(NDV4, 1, "") and item.floor.test == "peer_bandwidth"]
    newer = replace(known, date="2027-01", floor=replace(known.floor, at_least=1.0))
    monkeypatch.setattr("envbuild.verify.floor.published_floors", lambda: (newer, known))
    floor = find_floor(NDV4, "peer_bandwidth")
    assert floor and floor.at_least == 1.0


def test_every_file_has_a_source_a_date_and_known_tests() -> None:
    floors = published_floors()
    assert {item.file for item in floors} == {path.name for path in FOLDER.glob("*.yaml")}
    assert {item.floor.test for item in floors} == set(TESTS)
    for item in floors:
        assert len(item.date) >= len("2026-05") and item.date in item.floor.because and not item.floor.derived


HEAD = "schema: 1\nsource: x\nkind: file\ndate: '2026-05'\nfloors:\n"
ROW = "  - {test: peer_bandwidth, gpu: A100, gpus: 8, fabric: none, at_least: 1, unit: GB/s, because: x}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("schema: 1", "schema: 2"),
        ("kind: file", "kind: rumour"),
        ("source: x\n", ""),
        ("peer_bandwidth", "speed"),
        ("at_least: 1", "at_least: 0"),
        ("GB/s", "GiB/s"),
        ("gpus: 8, ", ""),
        ("because: x", "because: x, tolerance: 0.9"),
    ],
)
def test_what_is_not_a_floor_is_refused(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(HEAD + ROW)
    assert len(read_floors(path)) == 1
    path.write_text((HEAD + ROW).replace(before, after))
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_floors(path)
