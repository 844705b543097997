"""The hint of an image whose versions do not fit its target: the versions, and the hardware, that would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from envbuild.matrix.answer.conflict_core import find_cores
from envbuild.matrix.answer.fix_trial import FREE
from envbuild.matrix.answer.hardware_limits import hardware_hint
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.phrasing import conclusion
from envbuild.matrix.solve.query import Query
from envbuild.matrix.solve.request import Ask, parse_request
from tests.support.torch_facts import small as small  # a fixture

pytestmark = pytest.mark.unit


def image(given: FactTable, target: str, *words: str) -> Sequence[Ask]:
    """Return the requests of an image: its target's hardware, then `words`."""
    asks = parse_request([*target.split(), *words], given)
    count = len(target.split())
    return [replace(ask, by="target node") if number < count else ask for number, ask in enumerate(asks)]


def hint(given: FactTable, target: str, *words: str) -> str:
    case = Query.of(given, image(given, target, *words), ())
    return hardware_hint(case, find_cores(case.matrix, case.wanted, case.waived), FREE)


def test_the_version_and_the_hardware_that_would_do(small: FactTable) -> None:
    text = hint(small, "gpu=H100", "torch=2.0.1")
    head, _, take = text.partition("; take ")
    assert head.endswith("torch==2.0.1 is incompatible with H100")
    # 2.1 and 2.2 are not proposed: no fact relates them to the GPU
    assert take == "torch=2.3.0 and versions of the others that go with it, or a target of A100"


def test_a_conflict_that_no_target_is_part_of_has_no_such_hint(small: FactTable) -> None:
    assert hint(small, "gpu=A100", "torch=2.3.0", "cuda=11.8") == ""


def test_an_older_version_may_do(small: FactTable) -> None:
    assert "; take torch<=2.0.1 and" in hint(small, "gpu=V100", "torch=2.3.0", "apex=22.03")


def test_what_cannot_run_on_which_hardware(small: FactTable) -> None:
    asks = image(small, "gpu=H100", "torch=2.0.1", "cuda=11.8")
    assert conclusion(asks, small, "runtime") == "torch==2.0.1 and cuda==11.8 cannot run on H100"
    assert conclusion(asks[1:], small, "install") == "torch==2.0.1 and cuda==11.8 cannot be installed together"
    assert conclusion(asks[1:2], small, "build") == "torch==2.0.1 cannot be built"
    assert conclusion(asks[:1], small, "runtime") == "H100 cannot run"
    assert conclusion([], small, "runtime") == "nothing is possible"
    by = replace(asks[1], by="recipe apex")
    assert conclusion([asks[0], by], small, "runtime") == "torch==2.0.1 (recipe apex) cannot run on H100"
