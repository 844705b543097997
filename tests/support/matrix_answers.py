"""A small table of facts, and answers to questions about it."""

from __future__ import annotations

from typing import Any

import pytest

from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.request import parse_request
from tests.support.facts import fact, matrix

COMPONENTS: dict[str, Any] = {
    "gpu": {"kind": "name", "values": ["H100", "A100", "V100"], "rank": 1, "cost": 9, "shown": "{value}"},
    "arch": {"kind": "name", "values": ["amd64", "arm64"], "rank": 2, "cost": 9, "shown": "{value}"},
    "torch": {"values": ["2.0.1", "2.1.0", "2.2.0"], "rank": 10, "cost": 3, "complete": True},
    "cuda": {"values": ["11.8", "12.1"], "rank": 15, "cost": 3, "precision": 2},
    "nccl": {"values": ["2.14.3", "2.18.1"], "rank": 23, "cost": 1},
    "ucx": {"values": ["1.14.0"], "rank": 35, "cost": 1},
    "driver": {"values": ["470.10", "525.10", "535.10"], "rank": 90, "cost": 6, "exact": True},
    "compat": {"values": ["12.1"], "rank": 91, "cost": 6},
}


QUESTIONS = {"torch-gpu": ["torch", "gpu"], "nccl-gpu": ["nccl", "gpu"]}


FACTS = [
    fact("torch.gpu", "limits", [({"torch": "<2.1"}, {"gpu": "!=H100"}), ({"torch": "2.1"}, {})], question="torch-gpu"),
    fact("torch.gpu-21", "limits", {"torch": "2.1", "gpu": "*"}, {}, question="torch-gpu", asserts="compatible"),
    fact("torch.gpu-22", "limits", {"torch": "2.2", "gpu": ["H100", "A100"]}, {}, question="torch-gpu"),
    fact("torch.nccl", "provides", [({"torch": "2.1"}, {"nccl": "==2.18.1"}), ({"torch": "2.0"}, {"nccl": "2.14.3"})]),
    fact("nccl.old", "limits", {"nccl": "*"}, {"gpu": ["A100", "V100"]}, question="nccl-gpu", strength="disputed"),
    fact("nccl.new", "limits", {"nccl": "*"}, {"gpu": ["A100", "H100"]}, question="nccl-gpu", strength="disputed"),
    fact("cuda.driver", "limits", {"cuda": "12", "compat": "-"}, {"driver": ">=525"}, scope="container-start"),
    fact("cuda.driver-11", "limits", {"cuda": "11"}, {"driver": ">=525"}),
    fact("cuda.native", "limits", {"cuda": "12.1"}, {"driver": ">=530"}, strength="conditional", condition="{driver}?"),
    fact("cuda.runs", "limits", {"cuda": "*"}, {"gpu": "*"}, asserts="compatible"),
    fact("cuda.slow", "limits", {"cuda": "11"}, {"gpu": "!=H100"}, strength="warn", because="{gpu} is slow there"),
    fact("arch.default", "provides", {"cuda": "*"}, {"arch": "amd64"}, default=True, because="amd64 is meant"),
    fact("arch.gpu", "limits", {"gpu": "V100"}, {"arch": "amd64"}),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> FactTable:
    return matrix(tmp_path_factory.mktemp("facts"), COMPONENTS, FACTS, QUESTIONS)


def ask(given: FactTable, words: str, *waived: str, satisfied: tuple[str, ...] = ()) -> Answer:
    return check(given, parse_request(words.split(), given), [Waiver(name, "tried it") for name in waived], satisfied)
