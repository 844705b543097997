"""The cells of `envbuild matrix show` state what the answers state."""

from __future__ import annotations

from functools import cache

import pytest

from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.table import NONE, component_rows
from envbuild.matrix.solve.request import parse_request
from tests.support.shipped_facts import shipped_matrix

pytestmark = pytest.mark.unit


@cache
def gpu_rows() -> dict[str, dict[str, str]]:
    return {row["gpu"]: row for row in component_rows(shipped_matrix(), "gpu", ())}


def verdict(*words: str) -> str:
    return check(shipped_matrix(), parse_request(words, shipped_matrix())).verdict


def test_an_excluded_component_is_none_and_one_without_facts_has_no_cell() -> None:
    assert (gpu_rows()["P100"]["vllm"], gpu_rows()["Trainium1"]["cudnn"]) == (NONE, NONE)
    assert "vllm" not in gpu_rows()["H100"]


@pytest.mark.parametrize(("gpu", "component"), [("P100", "vllm"), ("K80", "vllm"), ("Trainium2", "cudnn")])
def test_each_version_beside_none_is_a_conflict(gpu: str, component: str) -> None:
    matrix = shipped_matrix()
    assert gpu_rows()[gpu][component] == NONE
    versions = matrix.values[matrix.number[component]]
    ends = {versions[0], versions[len(versions) // 2], versions[-1]}
    assert {verdict(f"gpu={gpu}", f"{component}=={version}") for version in ends} == {"conflict"}
