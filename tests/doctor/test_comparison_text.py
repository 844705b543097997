"""Several nodes compared, as text: alike parts on one line, the lines of a node together, missing nodes."""

from __future__ import annotations

from typing import Any

import pytest

from envbuild.doctor.comparison_text import comparison_text
from envbuild.doctor.model import SCHEMA
from envbuild.doctor.outliers import compare_nodes

pytestmark = pytest.mark.unit

BUSES = [f"0000:{number:02x}:00.0" for number in range(8)]


def answers(count: int = 4) -> dict[str, Any]:
    found = {}
    for number in range(1, count + 1):
        gpus = [{"bus": bus, "clock": "1980 MHz", "power": "700 W"} for bus in BUSES]
        facts = {"host": f"n{number}.cluster", "slurm_node": f"gpu-{number}", "kernel": "6.8", "nvidia": {"gpus": gpus}}
        found[f"n{number}.json"] = {"schema": SCHEMA, "facts": facts, "results": []}
    return found


def test_eight_gpus_alike_are_one_line_of_their_node() -> None:
    documents = answers()
    for gpu in documents["n2.json"]["facts"]["nvidia"]["gpus"]:
        gpu |= {"clock": "1755 MHz"}
    documents["n2.json"]["facts"]["kernel"] = "5.15"
    documents["n1.json"]["facts"]["nvidia"]["gpus"][3]["power"] = "500 W"
    assert comparison_text(compare_nodes(documents, {})).splitlines() == [
        "n1.cluster: nvidia.gpus[0000:03:00.0].power is 500 W (700 W on 3 of 4 nodes)",
        "n2.cluster: kernel is 5.15 (6.8 on 3 of 4 nodes)",
        "n2.cluster: nvidia.gpus[8 alike: 0000:00:00.0 … 0000:07:00.0].clock is 1755 MHz (1980 MHz on 3 of 4 nodes)",
        "4 nodes compared: not all equal",
    ]


def test_a_gpu_that_a_node_does_not_have_is_missing() -> None:
    documents = answers()
    del documents["n4.json"]["facts"]["nvidia"]["gpus"][7]
    text = comparison_text(compare_nodes(documents, {}))
    assert "n4.cluster: nvidia.gpus[0000:07:00.0] is missing (3 of 4 nodes have it)" in text
    assert "nothing" not in text


def test_a_minor_failure_is_printed_and_makes_no_difference() -> None:
    documents = answers()
    row = {"check": "xid", "status": "fail", "severity": "minor"}
    documents["n3.json"]["results"] = [row]
    found = compare_nodes(documents, {})
    assert comparison_text(found).splitlines() == ["n3.cluster: minor: xid", "4 nodes compared: all equal"]


def test_an_expected_node_without_an_answer_is_missed() -> None:
    """By the name of its host, with or without the domain, or that of Slurm."""
    expected = ("n1", "n2.cluster", "gpu-3", "gpu-4", "gpu-5")
    found = compare_nodes(answers(), {}, expected)
    assert found.missing == ("gpu-5",)
    assert not found.equal
    assert comparison_text(found).splitlines() == [
        "gpu-5: no answer",
        "4 nodes compared, 1 without an answer: not all equal",
    ]
