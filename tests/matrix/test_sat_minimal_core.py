"""The smallest part that contradicts: of several orders, and where a part cannot be decided."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from envbuild.matrix.sat.minimal_core import Deadline, find_minimal_core
from envbuild.matrix.sat.solver import UndecidedError
from tests.support.torch_facts import small as small  # a fixture

pytestmark = pytest.mark.unit


def test_smallest_of_several_orders() -> None:
    """{0} … {2, 3, 4} contradict: deleting in one order alone may end at the larger part."""

    def contradict(members: Sequence[int]) -> list[int] | None:
        for part in ([0, 1], [2, 3, 4]):
            if set(part) <= set(members) and (members[0] in part or not {0, 1, 2, 3, 4} <= set(members)):
                return part
        return None if not {0, 1} <= set(members) else [0, 1]

    assert find_minimal_core(contradict, [2, 3, 4, 0, 1], Deadline(9), 1) == ({2, 3, 4}, True)
    assert find_minimal_core(contradict, [2, 3, 4, 0, 1], Deadline(9), 8) == ({0, 1}, True)
    assert find_minimal_core(lambda members: None, [1, 2], Deadline(9), 8) is None


def test_an_undecided_core_is_not_called_minimal() -> None:
    def contradict(members: Sequence[int]) -> Sequence[int]:
        if len(members) < 3:
            raise UndecidedError("no answer")
        return members

    assert find_minimal_core(contradict, [1, 2, 3], Deadline(9), 2) == ({1, 2, 3}, False)
    with pytest.raises(UndecidedError):
        find_minimal_core(contradict, [1, 2], Deadline(9), 2)


def test_a_part_of_what_is_possible_is_not_tested_again() -> None:
    """Each of eight orders ends at the same part; only the first tests each of its members."""
    tested: list[int] = []

    def contradict(members: Sequence[int]) -> list[int] | None:
        tested.append(len(members))
        return [1, 2, 3] if {1, 2, 3} <= set(members) else None

    assert find_minimal_core(contradict, [*range(20)], Deadline(9), 8) == ({1, 2, 3}, True)
    assert sorted(tested) == [2] * 3 + [20] * 8
    tested.clear()
    assert find_minimal_core(contradict, [1, 2, 3], Deadline(9), 8) == ({1, 2, 3}, True)
    assert len(tested) == 4  # all of them: no other order can end at another part
