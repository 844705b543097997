"""Characters in a lock that a terminal does not show: a name with one reads as another name.

The rule which characters these are is `envbuild.core.text.HIDDEN`; specs and sites are checked as they are read
(`envbuild.core.yaml_nodes`)."""

from __future__ import annotations

from envbuild.core.text import describe_hidden, first_hidden


def find_hidden(value: object) -> str:
    """Return which text of a lock contains a character that is not shown (a name would read as another one), or "".

    Variables of a base image are left out: a spec may replace them, and the export checks those that remain.
    """
    pending: list[tuple[str, object]] = [("", value)]
    for place, item in pending:
        if isinstance(item, dict):
            pending += [(place, str(key)) for key in item]
            pending += [(f"{place}.{key}" if place else str(key), inner) for key, inner in item.items()]
        elif isinstance(item, list):
            pending += [(place, inner) for inner in item]
        elif isinstance(item, str) and not place.startswith("base_image.env") and (bad := first_hidden(item)):
            return f"{place} holds {describe_hidden(bad)}"
    return ""
