"""Small facts about torch, CUDA and GPUs, for the tests of plans, conflicts and fixes."""

from __future__ import annotations

from typing import Any

import pytest

from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.encoding import Core
from tests.support.facts import fact, matrix

TORCH = ["1.13.1", "2.0.1", "2.1.0", "2.2.0", "2.3.0"]
COMPONENTS: dict[str, Any] = {
    "gpu": {"kind": "name", "values": ["H100", "A100", "V100", "L4"], "rank": 1, "cost": 9, "shown": "{value}"},
    "sm": {"kind": "sm", "values": ["9.0", "8.9", "8.0", "7.0"], "rank": 2, "hidden": True},
    "torch": {"values": [*TORCH, "2.2.0+cu118", "2.4.0a0+1a2b3c"], "rank": 10, "cost": 3},
    "cuda": {"values": ["11.7", "11.8", "12.1"], "rank": 15, "cost": 3, "precision": 2},
    "python": {"values": ["3.8", "3.9", "3.10", "3.11", "3.12"], "rank": 18, "cost": 4, "precision": 2},
    "triton": {"values": ["2.0", "2.1", "2.2"], "rank": 21, "cost": 1},
    "apex": {"values": ["22.03", "23.08"], "rank": 30, "cost": 1},
    "driver": {"values": ["470.10", "520.10", "525.10", "535.10"], "rank": 90, "cost": 6},
}
SM = {"H100": "9.0", "A100": "8.0", "V100": "7.0", "L4": "8.9"}
FACTS = [
    fact("gpu.sm", "provides", [({"gpu": gpu}, {"sm": sm}) for gpu, sm in SM.items()]),
    fact("torch.sm", "limits", [({"torch": "<2.1"}, {"sm": "<9.0"}), ({"torch": ">=2.3"}, {"sm": ">=8.0"})]),
    fact("torch.python", "limits", [({"torch": "<2"}, {"python": "<3.11"}), ({"torch": ">=2.1"}, {"python": ">=3.9"})]),
    fact("torch.cuda", "limits", [({"torch": "<2.1"}, {"cuda": "<12"}), ({"torch": ">=2.2"}, {"cuda": ">=12"})]),
    fact("torch.triton", "provides", [({"torch": f">={at}"}, {"triton": f">={at}"}) for at in ("2.0", "2.1", "2.2")]),
    fact("cuda.driver", "limits", [({"cuda": ">=12"}, {"driver": ">=525"}), ({"cuda": "11.8"}, {"driver": ">=520"})]),
    fact("apex.torch", "requires", {"apex": "23.08"}, {"torch": ">=2"}),
    fact("apex.old", "limits", {"apex": "22.03"}, {"torch": "<2"}),
]
PAIRS = [
    {"of": ["gpu", "*"], "through": "sm", "because": "made up"},
    {"of": [["python", "cuda", "triton", "apex", "driver"], "*"], "independent": "made up"},
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> FactTable:
    return matrix(tmp_path_factory.mktemp("facts"), COMPONENTS, FACTS, pairs=PAIRS)


def core_ids(given: FactTable, conflict: Core) -> tuple[set[str], list[str]]:
    """(the requests, the ids of the facts in order)."""
    return {request.id for request in conflict.requests}, [given.fact(row).id for row in conflict.rows]
