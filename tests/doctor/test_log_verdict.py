"""The last line of a report about a log alone: it states nothing about a machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.doctor.examination import Examination
from envbuild.doctor.job_log import read_log
from envbuild.doctor.log_results import log_results
from envbuild.doctor.model import Need
from envbuild.doctor.report_text import summary_line
from tests.support.node_files import Node

pytestmark = pytest.mark.unit

IB = Need(source="h100-ib", fabric="infiniband", nvidia=True)
NCCL = "n1:1:2 [0] NCCL INFO "
GOOD, MINOR = NCCL + "Using network IB", NCCL + "NVLS multicast support is not available on dev 0"


def verdict(examined: Examination, *lines: str) -> str:
    login = replace(examined, facts={**examined.facts, "place": "login node"}, need=IB)
    return summary_line(login.with_log(log_results(read_log(lines), IB)))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((GOOD,), "the log has no fault for h100-ib; this machine is not judged: 1 passed, 0 failed"),
        ((GOOD, MINOR), "the log has minor faults for h100-ib"),
        ((NCCL + "Using network Socket",), "the log has faults for h100-ib"),
        ((), "the log is not judged for h100-ib"),
        (("epoch 1 loss 2.0",), "the log is not judged for h100-ib"),
    ],
)
def test_a_log_alone_makes_no_node_ready(lines: tuple[str, ...], words: str, tmp_path: Path) -> None:
    assert verdict(Node(tmp_path).examine(IB), *lines).startswith(words)


def test_a_truncated_log_does_not_state_that_nccl_ended() -> None:
    result = log_results(read_log([NCCL + "Bootstrap : Using eth0", "n1:1:2 [0] NCCL INF"]), IB)[0]
    assert "ended" not in result.detail
