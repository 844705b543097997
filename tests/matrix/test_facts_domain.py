"""The domain of the facts: versions that are unknown, versions between known ones, versions that never were."""

from __future__ import annotations

import pytest
from packaging.version import Version

from envbuild.core.errors import SpecError
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.report import answer_text
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts.domain import listed_versions, newest_packages
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.request import parse_request
from tests.support.shipped_facts import shipped_matrix

pytestmark = pytest.mark.unit


def ask(words: str, *waived: str) -> Answer:
    matrix = shipped_matrix()
    return check(matrix, parse_request(words.split(), matrix), [Waiver(name, "tried it") for name in waived])


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    "words",
    [
        "flash-attn=9.9",
        "deepspeed=99.1",
        "transformer-engine=99",
        "nccl=9.9",
        "vllm=99",
        "gcc=20",
        "gcc=3",
        "driver=0.0.1",
        "driver<400",
        "deepspeed>=99",
        "deepspeed>99",
        "deepspeed=0.14.9",
        "torch=2.16.0",
        "torch=1.2",
        "cuda=14.0",
        "setuptools=99.1",
        "protobuf=2.6",
        "cuda-compat=99.9",
        "sm=9.1",
    ],
)
def test_a_version_outside_of_the_domain_is_unknown(words: str) -> None:
    given = ask(words)
    assert (given.verdict, given.exit_code) == ("unknown", 9)
    assert given.unknown[0].id == "unheard"


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    "words",
    ["driver=550.54.15", "driver>=570.1,<570.2", "setuptools=70.1.5", "protobuf=4.21.5", "libfabric=1.18.1amzn9.0"],
)
def test_a_version_between_known_ones_of_an_ordered_component_is_known(words: str) -> None:
    assert ask(words).unknown == ()


def test_a_newer_driver_is_known_and_noted() -> None:
    given = ask("gpu=H100 driver=700.10")
    assert given.exit_code == 0
    assert [note.startswith("driver 700.10 is newer than the facts") for note in given.notes] == [True]
    assert "NVIDIA states" in answer_text(given, shipped_matrix(), "")


@pytest.mark.parametrize("words", ["nccl=2.19.3-1+cuda12.2 cuda=12.2", "neuron-runtime=2.30.51.0-faafe26f0"])
def test_a_package_of_a_known_version_is_that_version(words: str) -> None:
    assert "unheard" not in [one.id for one in ask(words).unknown]


@pytest.mark.parametrize("words", ["torch=2.4.1+cu126", "torch=2.8.0+cu118", "torch=1.13.1+cu113", "torch=2.8.5"])
def test_a_version_missing_in_a_complete_list_does_not_exist(words: str) -> None:
    with pytest.raises(SpecError) as caught:
        ask(words)
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_a_build_of_which_no_list_is_complete_is_unknown() -> None:
    """The facts name PyTorch's builds for CUDA and for the CPU, not those for AMD."""
    assert ask("torch=2.8.0+rocm6.4").verdict == "unknown"


def test_the_waiver_of_an_unheard_version() -> None:
    assert "unheard" not in [one.id for one in ask("nccl=9.9", "unheard").unknown]


VERSIONS = [component.name for component in shipped_matrix().components if component.kind == "version"]


@pytest.mark.slow_unit
@pytest.mark.parametrize("name", VERSIONS)
def test_leaving_the_domain_never_improves_the_verdict(name: str) -> None:
    """Beyond both ends of what is known of a component, nothing is valid but a newer driver."""
    matrix = shipped_matrix()
    component = matrix.components[matrix.number[name]]
    assert listed_versions(matrix, matrix.number[name])
    for version, backed in (("0.0.0.0.1", False), ("99999.9", bool(component.newer))):
        try:
            given = ask(f"{name}={version}")
        except SpecError:
            continue
        assert (given.exit_code == 0) is backed, (version, given.verdict)


def test_the_newest_known_release_of_a_package_is_one_that_a_lock_can_take() -> None:
    found = newest_packages(shipped_matrix())
    matrix = shipped_matrix()
    assert found["transformers"] == listed_versions(matrix, matrix.number["transformers"])[-1]
    assert found["nvidia-nccl-cu13"] == found["nvidia-nccl-cu12"] == listed_versions(matrix, matrix.number["nccl"])[-1]
    assert all(not Version(version).is_prerelease and not Version(version).local for version in found.values())
    assert "driver" not in found and "libfabric" not in found  # newer ones are known; no version of an index
