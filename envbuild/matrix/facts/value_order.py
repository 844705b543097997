"""The known values of a component: which of them are interchangeable, and how they follow each other."""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.matrix.facts.atoms import ABSENT, pick_penalty
from envbuild.matrix.facts.fact_table import FactTable


def interchangeable_values(matrix: FactTable, number: int) -> Mapping[int, int]:
    """Return each bit of a component → the mask of all values that the rows do not distinguish."""
    known = matrix.caches.interchangeable
    if number not in known:
        classes = [matrix.full[number] & ~ABSENT]
        alone: list[int] = []
        for mask in {mask for atom in matrix.atoms if atom.component == number for mask in (atom.sure, atom.maybe)}:
            parts = [part for whole in classes for part in (whole & mask, whole & ~mask) if part]
            classes = [part for part in parts if part & part - 1]
            alone += [part for part in parts if not part & part - 1]
        bits = [2 << at for at in range(len(matrix.values[number]))]
        several = {bit: whole for whole in classes for bit in bits if whole & bit}
        known[number] = {bit: bit for bit in alone} | several
    return known[number]


def ascending_bits(matrix: FactTable, number: int, also: int = 0) -> list[int]:
    """Return the bits of a component's values from the oldest to the newest: of versions the plain releases, without
    labels and flavours, and those of the mask `also`. Names have no order: the last one first."""
    component, values, bits = matrix.components[number], matrix.values[number], matrix.bits[number]
    if component.kind == "name":
        return list(reversed(bits.values()))
    if component.kind == "sm":
        return [bits[value] for value in sorted(values, key=lambda value: [int(part) for part in value.split(".")])]
    from envbuild.matrix.facts import version

    plain = [value for value, bit in bits.items() if bit & also or not pick_penalty(value)]
    return [bits[value] for value in sorted(plain, key=version.key)]
