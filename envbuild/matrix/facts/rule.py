"""The parts of the rule of "valid" that are data (docs/matrix.md, "What valid means"): the pairs of components that
need no fact, because they are independent or matter only through a third, and the ends of what sources knew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from envbuild.core import yaml_nodes
from envbuild.core.yaml_nodes import Node, Table
from envbuild.core.yaml_reader import Reader, did_you_mean, short
from envbuild.matrix.facts.components import require_keys
from envbuild.matrix.facts.model import Component, Constraint
from envbuild.matrix.facts.values import InvalidValueError, normalize_value, parse_constraint

KEYS = ("groups", "pairs", "known-to")
EVERY = "*"  # of a pair: every component

Pair = tuple[str, str]  # names in their order
Members = Mapping[str, tuple[str, ...]]  # component or group → components


@dataclass(slots=True)
class Rule:
    """`independent`: pair → why no fact about it is needed. `through`: pair → the components through which one matters
    to the other: one that both are related to is enough. `narrowed`: pair → (component, what it has to be, those
    through which the pair is related then, and no others: none if a fact about both is needed). `known_to`: component →
    date → the newest version of that day: open rows of a source of that day are evidence up to it."""

    independent: dict[Pair, str] = field(default_factory=dict)
    through: dict[Pair, tuple[str, ...]] = field(default_factory=dict)
    narrowed: dict[Pair, tuple[str, Constraint, tuple[str, ...]]] = field(default_factory=dict)
    known_to: dict[str, Mapping[str, str]] = field(default_factory=dict)


def read_rule(reader: Reader, components: Mapping[str, Component], nodes: Sequence[tuple[str, Node]]) -> Rule:
    """Return the rule that the entries of all files make: (one of KEYS, the node under it)."""
    groups: dict[str, tuple[str, ...]] = {EVERY: tuple(components), **{name: (name,) for name in components}}
    given: dict[str, Node] = {}
    for node in (node for key, node in nodes if key == "groups"):
        for name, (place, inner) in reader.entries(node, "groups").items():
            if name in groups or name in given:
                reader.wrong(place.where, f"'{short(name)}' is the name of a component or of another group")
            else:
                given[name] = inner
    while given:  # a group may name others, of any place; those of a circle name unknown ones
        ready = [name for name, inner in given.items() if not _names(inner) & given.keys()] or [next(iter(given))]
        for name in ready:
            groups[name] = _members(reader, given.pop(name), "groups", groups)
    rule = Rule()
    for key, node in nodes:
        if key == "pairs":
            for item in reader.items(node, key):
                _add_pairs(reader, item, groups, components, rule)
        elif key == "known-to":
            for name, inner in _by_component(reader, node, components):
                rule.known_to[name] = dict(_ends(reader, inner, components[name]))
    return rule


def _by_component(reader: Reader, node: Node, components: Mapping[str, Component]) -> Iterator[tuple[str, Node]]:
    for name, (place, inner) in reader.entries(node, "known-to").items():
        if name in components:
            yield name, inner
        else:
            hint = did_you_mean(name, components, "the components are")
            reader.wrong(place.where, f"unknown component '{short(name)}'", hint)


def _names(node: Node) -> set[str]:
    items = node.items if isinstance(node, yaml_nodes.Sequence) else (node,)
    return {item.value for item in items if isinstance(item, yaml_nodes.Scalar)}


def _members(reader: Reader, node: Node, key: str, groups: Members) -> tuple[str, ...]:
    """Return the components that a name, or a list of names of components and groups, means."""
    found: dict[str, None] = {}
    for item in node.items if isinstance(node, yaml_nodes.Sequence) else (node,):
        name = reader.text(item, key)
        if name is not None and name not in groups:
            hint = did_you_mean(name, groups, "the components and groups are")
            reader.wrong(item.where, f"unknown component '{short(name)}'", hint)
        found |= dict.fromkeys(groups.get(name or "", ()))
    return tuple(found)


def _add_pairs(reader: Reader, item: Node, groups: Members, components: Mapping[str, Component], rule: Rule) -> None:
    nodes = reader.table(item, ("of", "independent", "where", "through", "because"), "pairs", "a pair")
    if not isinstance(item, Table):
        return
    require_keys(reader, item.where, "a pair", nodes, ("of",))
    sides = nodes["of"].items if "of" in nodes and isinstance(nodes["of"], yaml_nodes.Sequence) else ()
    texts = {key: reader.text(nodes[key], key, folded=True) for key in ("independent", "because") if key in nodes}
    reason = texts.get("independent") or (texts.get("because") if {"through", "where"} & nodes.keys() else "")
    if len(sides) != 2 or not reason or ("independent" in nodes) == bool({"through", "where"} & nodes.keys()):
        hint = (
            'write {of: [torch, hydra-core], independent: "the reason"}, or through: COMPONENT, because: "the reason"'
        )
        reader.wrong(item.where, "a pair needs two sides, and a reason why no fact about it is needed", hint)
        return
    one, other = (_members(reader, side, "of", groups) for side in sides)
    others = _members(reader, nodes["through"], "through", groups) if "through" in nodes else ()
    where = _condition(reader, nodes["where"], components) if "where" in nodes else None
    for first, second in product(one, other):
        pair = min(first, second), max(first, second)
        if where:
            rule.narrowed[pair] = (*where, others)
        elif others:
            rule.through[pair] = tuple(dict.fromkeys((*rule.through.get(pair, ()), *others)))
        elif first != second:
            rule.independent[pair] = reason


def _condition(reader: Reader, node: Node, components: Mapping[str, Component]) -> tuple[str, Constraint] | None:
    """Return the component that a narrowed pair depends on, and what it has to be."""
    found = None
    for name, (place, inner) in reader.entries(node, "where").items():
        text = reader.text(inner, "where")
        try:
            if name not in components or found:
                reader.wrong(place.where, f"'{short(name)}' is not the one component of a pair's 'where'")
            elif text is not None:
                found = name, parse_constraint(components[name], text)
        except InvalidValueError as error:
            reader.wrong(inner.where, error.message, error.hint)
    return found


def _ends(reader: Reader, node: Node, component: Component) -> Iterator[tuple[str, str]]:
    for day, (_, inner) in sorted(reader.entries(node, "known-to").items()):
        text = reader.text(inner, "known-to")
        try:
            if text is not None:
                yield day, normalize_value(component, text)
        except InvalidValueError as error:
            reader.wrong(inner.where, error.message, error.hint)
