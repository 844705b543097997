"""Requirements of a plan on the host that the question does not name: of each component the strictest fact of all
scopes, or the versions that are known to work, where the facts list these."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from envbuild.matrix.facts.atoms import ABSENT
from envbuild.matrix.facts.claims import row_claim
from envbuild.matrix.facts.fact_table import EvaluatedRow, FactTable
from envbuild.matrix.facts.value_order import ascending_bits
from envbuild.matrix.solve.phrasing import Reason, join_and, join_or, row_reason, value_phrase

NVIDIA_DRIVER = "driver"
NEURON_DRIVER = "neuron-driver"


def host_needs(
    matrix: FactTable,
    assignment: Sequence[int],
    applicable: Iterable[EvaluatedRow],
    chosen: Mapping[str, str],
    waived: Collection[str] = (),
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
    needs = []
    for numbers, rows in absent.items():
        if hosts.issuperset(numbers):
            needs += _listed_need(matrix, assignment, numbers, rows, chosen, waived) or [
                need_reason(matrix, row, chosen) for row in strictest_rows(matrix, numbers, rows)
            ]
    return needs


def _listed_need(
    matrix: FactTable,
    assignment: Sequence[int],
    numbers: tuple[int, ...],
    rows: Sequence[int],
    chosen: Mapping[str, str],
    waived: Collection[str],
) -> list[Reason]:
    """Return the one need of a component of which the facts list the versions that work beside the plan; nothing where
    `rows`, or bounds without a list, state it."""
    if len(numbers) > 1:
        return []
    mask, listing = listed_versions(matrix, assignment, numbers[0], waived)
    for row in rows:
        mask &= row_claim(matrix, row).allowed[numbers[0]]
    if not mask:
        return []
    name = matrix.components[numbers[0]].name
    bounds = [need_reason(matrix, row, chosen).text for row in strictest_rows(matrix, numbers, rows)]
    # the list has not every version below a bound: 580.159.03 is below 581, and the newest one listed is older
    below = next((text.removeprefix(name) for text in bounds if text.startswith(f"{name}<")), "")
    return [replace(row_reason(matrix, listing[0], chosen), text=versions_text(matrix, numbers[0], mask, below))]


def listed_versions(
    matrix: FactTable, assignment: Sequence[int], number: int, waived: Collection[str]
) -> tuple[int, list[int]]:
    """Return (the versions of an absent component that rows list as known to work beside the plan, those rows): of
    questions about it that no bound answers, since another version would be unknown there."""
    name, mask, listing = matrix.components[number].name, matrix.full[number] & ~ABSENT, []
    for question in matrix.questions.values():
        others = [matrix.number[other] for other in question.of if other != name]
        if name not in question.of or question.when or any(assignment[other] == ABSENT for other in others):
            continue
        if question.id in waived:
            continue
        answers = {at for at, fact in enumerate(matrix.facts) if fact.question == question.id and fact.id not in waived}
        asked = [row for row, line in enumerate(matrix.rows) if line.fact in answers]
        beside = [
            row
            for row in asked
            if all(number == at or not assignment[at] & ~sure for at, sure in row_claim(matrix, row).when.items())
        ]
        if any(number in row_claim(matrix, row).allowed for row in beside):
            continue  # a bound answers it
        rows = [row for row in beside if number in row_claim(matrix, row).when and not row_claim(matrix, row).allowed]
        if rows:
            mask &= reduce(or_, (row_claim(matrix, row).when[number] for row in rows))
            listing += rows
    return (mask, listing) if listing else (0, [])


def versions_text(matrix: FactTable, number: int, mask: int, below: str = "") -> str:
    """Return versions as a need: ``neuron-driver>=2.30.2.0``, ``neuron-driver>=2.27.4.0,<=2.28.0.0``,
    ``driver 535.161.07 to 535.288.01 or 570``. `below`: a bound
    that a fact states, such as ``<581``."""
    name, bits = matrix.components[number].name, ascending_bits(matrix, number)
    places = [at for at, bit in enumerate(bits) if bit & mask]
    low, high = (matrix.values_of(number, bits[places[end]])[0] for end in (0, -1))
    if len(places) <= places[-1] - places[0]:  # some between them are not known to work
        names = [[matrix.values_of(number, bits[at])[0] for at in run] for run in _runs(places)]
        return f"{name} {join_or([run[0] if len(run) == 1 else f'{run[0]} to {run[-1]}' for run in names])}"
    if low == high and places[-1] < len(bits) - 1:
        return f"{name}=={low}"
    return f"{name}>={low}" if places[-1] == len(bits) - 1 else f"{name}>={low},{below or f'<={high}'}"


def _runs(places: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the parts of ascending numbers that have no gap."""
    start = 0
    for end in range(1, len(places) + 1):
        if end == len(places) or places[end] != places[end - 1] + 1:
            yield places[start:end]
            start = end


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
