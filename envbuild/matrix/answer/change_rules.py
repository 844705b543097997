"""Rules of what may be proposed in place of a request: on the command line anything but hardware first, in an image
what its spec has lines for."""

from __future__ import annotations

from envbuild.core.distributions import DISTRIBUTIONS
from envbuild.matrix.answer.fix_trial import FREE, Rules
from envbuild.matrix.facts.fact_table import PURPOSE, FactTable
from envbuild.matrix.solve.query import Query


def rule_stages(case: Query, *, known: bool = False) -> list[Rules]:
    """Return what may be proposed: first anything but other hardware and what is compiled for it; then, for a request
    of the command line, that as well; last, that it does without what nothing replaces, such as an option. `known`: of
    what can lead to a plan that is known; nothing if two pairs of components are related in none."""
    pairs = case.unrelatable() if known else []
    asked = {request.component for request in case.wanted if request.id}
    left_out = frozenset.intersection(*pairs) if pairs else asked
    return [rules.fixing(asked - left_out) for rules in _rule_stages(case)] if left_out or not pairs else []


def _rule_stages(case: Query) -> list[Rules]:
    rules = spec_rules(case) if case.image else FREE
    wanted = frozenset(component.name for component in case.matrix.components if component.wanted)
    hardware = [component.name for component in case.matrix.components if component.cost >= PURPOSE]
    others = frozenset(component.name for component in case.matrix.components) - wanted
    rules = rules.fixing(wanted)
    same_hardware = rules.fixing(hardware)
    return [same_hardware] if case.image else [same_hardware, rules, Rules(others, leaving=wanted)]


def spec_rules(case: Query) -> Rules:
    """Return what a user can change in the spec of an image: its layers, and its base if that is a distribution, which
    has one Python. The target is fixed, and so is the content of a third-party image."""
    matrix = case.matrix
    by_recipe: dict[str, set[str]] = {}
    for ask in case.asks:
        if ask.by.startswith("recipe "):
            by_recipe.setdefault(ask.by, set()).add(ask.component)
    ties = {name: frozenset(names - {name}) for names in by_recipe.values() for name in names}
    fixed = {ask.component for ask in case.asks if ask.by and not ask.by.startswith("recipe ")}
    fixed |= {component.name for component in matrix.components if component.hidden}
    base = next((request.mask for request in case.wanted if request.id and request.component == "base"), 0)
    if not base or not set(matrix.values_of(matrix.number["base"], base)) & DISTRIBUTIONS.keys():
        return Rules(frozenset(fixed | {"base"}), ties)
    sets = [
        {"base": matrix.bit("base", item.name), "python": matrix.bit("python", item.python)}
        for item in DISTRIBUTIONS.values()
        if has_value(matrix, "base", item.name) and has_value(matrix, "python", item.python)
    ]
    return Rules(frozenset(fixed), ties, {"base": [one for one in sets if not one["base"] & base]})


def has_value(matrix: FactTable, name: str, value: str) -> bool:
    return name in matrix.number and value in matrix.values[matrix.number[name]]
