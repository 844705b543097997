"""Requirements of a plan on the host that the question does not name: of each component the strictest fact of all
scopes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.fact_table import EvaluatedRow, FactTable
from envbuild.matrix.solve.phrasing import Reason, join_and, row_reason, value_phrase

NVIDIA_DRIVER = "driver"
NEURON_DRIVER = "neuron-driver"


def host_needs(
    matrix: FactTable, assignment: Sequence[int], applicable: Iterable[EvaluatedRow], chosen: Mapping[str, str]
) -> list[Reason]:
    """Return what the rows require of absent components that the host decides (scope ``container-start``). A row of
    another scope about such a component counts, too: a GPU may need a newer driver than the toolkit. Of several rows
    about one component the strictest are returned."""
    absent: dict[tuple[int, ...], list[int]] = {}
    hosts: set[int] = set()
    for one in applicable:
        fact, allowed = matrix.fact(one.row), row_claim(matrix, one.row).allowed
        numbers = tuple(number for number in allowed if assignment[number] == ABSENT)
        if numbers and fact.strength == "hard" and not (one.yields or one.fails):
            absent.setdefault(numbers, []).append(one.row)
            hosts |= {*numbers} if fact.scope == "container-start" else set()
    hosts -= foreign_hosts(matrix, hosts, chosen)
    return [
        need_reason(matrix, row, chosen)
        for numbers, rows in absent.items()
        if hosts.issuperset(numbers)
        for row in strictest_rows(matrix, numbers, rows)
    ]


def foreign_hosts(matrix: FactTable, hosts: set[int], chosen: Mapping[str, str]) -> set[int]:
    """Return the driver of NVIDIA where the nodes have no GPU of NVIDIA: AWS Neuron devices, or another accelerator
    without compute capability. A node has accelerators of one vendor."""
    neuron = NEURON_DRIVER in chosen or matrix.number.get(NEURON_DRIVER) in hosts
    known = NVIDIA_DRIVER in matrix.number and "sm" in matrix.number
    elsewhere = known and "sm" not in chosen and ("gpu" in chosen or neuron)
    return {matrix.number[NVIDIA_DRIVER]} if elsewhere else set()


def strictest_rows(matrix: FactTable, numbers: tuple[int, ...], rows: Sequence[int]) -> Iterator[int]:
    """Yield the rows that no other row about the same components implies."""
    masks = {row: [row_claim(matrix, row).allowed[number] & ~ABSENT for number in numbers] for row in rows}
    for row, own in masks.items():
        implied = (
            all(not theirs & ~mine for mine, theirs in zip(own, other, strict=True)) and other != own
            for other in masks.values()
        )
        if not any(implied):
            yield row


def need_reason(matrix: FactTable, row: int, chosen: Mapping[str, str]) -> Reason:
    """Return a row as a reason with the text of what it needs."""
    need = row_reason(matrix, row, chosen)
    texts = [value_phrase(matrix, name, wanted, {}) for name, wanted in need.then.items() if name not in chosen]
    return replace(need, text=join_and(texts))
