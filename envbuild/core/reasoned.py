"""Variables with a reason, as targets and sites have them: ``NAME: {value: …, because: …}``."""

from __future__ import annotations

from typing import NamedTuple

from envbuild.core.yaml_nodes import Node, Scalar, Table
from envbuild.core.yaml_reader import Guard, Reader, no_guard


class Reasoned(NamedTuple):
    """A value and the reason for it."""

    value: str
    because: str


def lacks_key(node: Node, *keys: str) -> bool:
    """Return whether one of `keys` is missing or empty there. (A value of the wrong type is reported where it is
    read.)"""
    found = {key: value for key, (_, value) in node.entries.items()} if isinstance(node, Table) else dict.fromkeys(keys)
    empty = [
        key for key, value in found.items() if isinstance(value, Scalar) and value.kind == "text" and not value.value
    ]
    return any(key not in found or (key in empty and key != "value") for key in keys)


def read_reasoned(
    reader: Reader,
    node: Node,
    key: str,
    name_guard: Guard = no_guard,
    value_guard: Guard = no_guard,
    *,
    plain: bool = False,
) -> dict[str, Reasoned]:
    """Return the variables below `key`; report mistakes.

    name_guard, value_guard: return the fault of a name, of a value.
    plain: a text alone is a value without a reason.
    """
    values: dict[str, Reasoned] = {}
    for name, (place, entry) in reader.entries(node, key).items():
        if reason := name_guard(name):
            reader.wrong(place.where, reason)
        if plain and isinstance(entry, Scalar):
            if (text := reader.text(entry, name, value_guard)) is not None:
                values[name] = Reasoned(text, "")
            continue
        inner = reader.table(entry, ("value", "because"), name, f"variable '{name}'")
        value = reader.text(inner["value"], name, value_guard) if "value" in inner else None
        because = (reader.text(inner["because"], "because") or "") if "because" in inner else ""
        if lacks_key(entry, "value", "because"):
            hint = f'write {name}: {{value: "…", because: …}}'
            reader.wrong(place.where, f"variable '{name}' needs a value and a reason", hint)
        elif value is not None:
            values[name] = Reasoned(value, because)
    return values
