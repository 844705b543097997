"""CPU masks: computed from NUMA data, disjoint, complete, of the right width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import SpecError
from envbuild.launch.cpu_masks import check_masks, cpu_masks, mask_option
from envbuild.net.numa import Numa
from tests.support.launching import shipped_target

pytestmark = pytest.mark.unit

# The option of the NDv4 scripts (yosoyjay/cyclecloud-llm @ 62b991e, all-reduce-container.slurm).
NDV4 = (
    "--cpu-bind=mask_cpu:ffffff000000,ffffff000000,ffffff,ffffff,"
    "ffffff000000000000000000,ffffff000000000000000000,ffffff000000000000,ffffff000000000000"
)


@pytest.mark.parametrize("name", ["azure-ndv4", "a100-ib"])
def test_the_masks_of_ndv4_are_those_of_its_scripts(name: str) -> None:
    numa = shipped_target(name).numa
    assert numa
    assert mask_option(cpu_masks(numa, 8)) == NDV4


def test_the_masks_of_ndv5() -> None:
    numa = shipped_target("azure-ndv5").numa
    assert numa
    low, high = (1 << 48) - 1, ((1 << 48) - 1) << 48
    assert cpu_masks(numa, 8) == (low,) * 4 + (high,) * 4


@given(st.integers(1, 8), st.integers(1, 80), st.integers(1, 4), st.randoms())
def test_masks_are_disjoint_and_complete(nodes: int, cpus: int, each: int, random: object) -> None:
    gpus = [node for node in range(nodes) for _ in range(each)]
    random.shuffle(gpus)  # type: ignore[attr-defined]
    masks = cpu_masks(Numa(nodes, cpus, tuple(gpus)), len(gpus))
    assert [mask.bit_count() for mask in masks] == [cpus] * len(gpus)
    whole = 0
    for mask in set(masks):
        assert not whole & mask
        whole |= mask
    assert whole == (1 << (nodes * cpus)) - 1
    assert [(mask & -mask).bit_length() - 1 for mask in masks] == [node * cpus for node in gpus]


@pytest.mark.parametrize("tasks", [1, 2, 7, 9])
def test_no_masks_unless_each_gpu_has_a_task(tasks: int) -> None:
    assert cpu_masks(Numa(2, 48, (0, 0, 0, 0, 1, 1, 1, 1)), tasks) == ()


@pytest.mark.parametrize(
    ("masks", "numa", "why"),
    [
        ((0b111, 0b11000), Numa(2, 3, (0, 1)), "does not have 3 CPUs"),
        ((0b0111, 0b1110), Numa(2, 3, (0, 1)), "share CPUs"),
        ((0b111,), Numa(2, 3, (0,)), "no GPU is attached to NUMA node 1"),
    ],
)
def test_wrong_masks_are_refused(masks: tuple[int, ...], numa: Numa, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        check_masks(masks, numa)
