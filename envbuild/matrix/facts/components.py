"""The components and questions of fact files: what facts may name.

A component is defined once, with its `kind`; other files may give it more values, or define it in the same words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, get_type_hints

from envbuild.core.yaml_nodes import Node, Scalar, Sequence, Table, node_texts
from envbuild.core.yaml_reader import Reader, did_you_mean, short
from envbuild.matrix.facts import values, version
from envbuild.matrix.facts.model import COMPONENT_KINDS, Component, Constraint, Question
from envbuild.matrix.facts.value_match import fold_name
from envbuild.matrix.facts.values import InvalidValueError

PLACEHOLDER = r"\{([^{}]*)\}"
# The fields of the dataclass are the keys; these are not, or need more than their type.
OWN = ("name", "kind", "values", "aliases")
TYPES = {item.name: get_type_hints(Component)[item.name] for item in fields(Component) if item.name not in OWN}

Named = Iterable[tuple[Scalar, Table]]  # the node of the name, the table under it
Constraints = Callable[[Node, str], dict[str, Constraint]]


def require_keys(reader: Reader, where: str, what: str, nodes: Mapping[str, Node], keys: Iterable[str]) -> None:
    """Report which of `keys` are missing."""
    if missing := [key for key in keys if key not in nodes]:
        reader.wrong(where, f"{what} has no {', no '.join(missing)}")


def is_empty(node: Node) -> bool:
    """Return whether a node is empty."""
    if isinstance(node, Scalar):
        return node.kind == "null"
    return not (node.items if isinstance(node, Sequence) else node.entries)


def read_components(reader: Reader, given: Named) -> dict[str, Component]:
    """Return the components of all files. One without a kind adds values to a component that another file defines."""
    found: dict[str, Component] = {}
    definitions: dict[str, tuple[Scalar, Table]] = {}
    more: list[tuple[Scalar, Table]] = []
    for place, node in given:
        if "kind" not in node.entries and "values" in node.entries:
            more.append((place, node))
            continue
        name = place.value
        if not _is_first(reader, "component", place, node, definitions):
            continue
        found[name] = _read_component(reader, place, node)
    own = {name: len(component.values) for name, component in found.items()}
    for place, node in more:
        name = place.value
        if name not in found:
            reader.wrong(
                place.where, f"no file defines the component '{name}'", did_you_mean(name, found, "defined are")
            )
            continue
        nodes = reader.table(node, ("values",), name, f"more values of '{name}'")
        found[name] = _add_values(reader, found[name], nodes["values"])
    return {name: _sort_values(component, own[name]) for name, component in found.items()}


def _is_first(
    reader: Reader, what: str, place: Scalar, node: Table, definitions: dict[str, tuple[Scalar, Table]]
) -> bool:
    """Return whether a definition is the first one of its name, and record it. Another one is reported, unless it is
    the same: derived facts that a project collects again define what those of the release do."""
    first, known = definitions.setdefault(place.value, (place, node))
    if first is not place and node_texts(known) != node_texts(node):
        reader.wrong(
            place.where, f"{what} '{place.value}' is defined twice", f"the first is at {first.where}; keep one"
        )
    return first is place


def _read_component(reader: Reader, place: Scalar, node: Table) -> Component:
    name = place.value
    nodes = reader.table(node, ("kind", *TYPES, "values"), name, f"component '{name}'")
    require_keys(reader, place.where, f"component '{name}'", nodes, ("kind", "about"))
    kind = reader.choice(nodes["kind"], "kind", COMPONENT_KINDS) if "kind" in nodes else None
    given: dict[str, Any] = {key: reader.value(nodes[key], hint, key) for key, hint in TYPES.items() if key in nodes}
    given = {"about": "", **{key: value for key, value in given.items() if value is not None}}
    component = Component(name=name, kind=kind or "", **given)
    if set(re.findall(PLACEHOLDER, component.shown)) - {"name", "value"}:
        reader.wrong(nodes["shown"].where, "'shown' has a placeholder other than {name} and {value}")
    return _add_values(reader, component, nodes["values"]) if kind and "values" in nodes else component


def _add_values(reader: Reader, component: Component, node: Node) -> Component:
    """Return the component with more values: a list, or value → its other spellings."""
    if not component.kind:
        return component
    listed, aliases = dict.fromkeys(component.values), dict(component.aliases)
    owners = {fold_name(value): value for value in listed} | aliases
    for text, where, spellings in _list_values(reader, node):
        try:
            value = text if component.kind == "name" else values.normalize_value(component, text)
        except InvalidValueError as error:
            reader.wrong(where, error.message, error.hint)
            continue
        listed[value] = None
        for spelling, place in ((value, where), *spellings) if component.kind == "name" else spellings:
            folded = fold_name(spelling)
            if component.kind != "name":
                reader.wrong(place, "only names have other spellings", "write the values as a list")
            elif owners.setdefault(folded, value) != value:
                reader.wrong(place, f"'{short(spelling)}' is both '{owners[folded]}' and '{short(value)}'", "keep one")
            elif spelling != value:
                aliases[folded] = value
    return replace(component, values=tuple(listed), aliases=aliases)


def _list_values(reader: Reader, node: Node) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield (value, its position, its other spellings with their positions)."""
    if not isinstance(node, Table):
        for item in reader.items(node, "values"):
            if (text := reader.text(item, "values")) is not None:
                yield text, item.where, []
        return
    for name, (place, inner) in node.entries.items():
        texts = ((reader.text(item, name), item.where) for item in reader.items(inner, name))
        yield name, place.where, [(text, where) for text, where in texts if text is not None]


def _sort_values(component: Component, own: int) -> Component:
    """Sort versions newest first, each once; names as their definition has them, those of other files after them by
    name."""
    if component.kind == "name":
        given = component.values
        ordered_values = (*given[:own], *sorted(given[own:]))
    else:
        same = {version.key(value): value for value in sorted(component.values, key=lambda value: (len(value), value))}
        ordered_values = tuple(same[key] for key in sorted(same, reverse=True))
    return replace(component, values=ordered_values, aliases=dict(sorted(component.aliases.items())))


def read_questions(
    reader: Reader, given: Named, components: Mapping[str, Component], constraints: Constraints
) -> dict[str, Question]:
    """Return the questions of all files. `constraints` reads the node of ``when``."""
    found: dict[str, Question] = {}
    definitions: dict[str, tuple[Scalar, Table]] = {}
    for place, node in given:
        name = place.value
        if not _is_first(reader, "question", place, node, definitions):
            continue
        nodes = reader.table(node, ("of", "about", "when"), name, f"question '{name}'")
        require_keys(reader, place.where, f"question '{name}'", nodes, ("of", "about"))
        about = reader.text(nodes["about"], "about", folded=True) if "about" in nodes else None
        of = []
        for item in reader.items(nodes["of"], "of") if "of" in nodes else ():
            component = reader.text(item, "of")
            if component is not None and component not in components:
                hint = did_you_mean(component, components, "the components are")
                reader.wrong(item.where, f"question '{name}' is about an unknown component '{short(component)}'", hint)
            elif component is not None:
                of.append(component)
        if "of" in nodes and is_empty(nodes["of"]):
            reader.wrong(nodes["of"].where, f"question '{name}' is about no component")
        when = constraints(nodes["when"], "when") if "when" in nodes else {}
        found[name] = Question(name, tuple(dict.fromkeys(of)), about or "", when)
    return found
