"""The base of a spec, with the Python and the distribution in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from envbuild.core.distributions import DISTRIBUTIONS, find_distribution, is_image, is_local_image, is_own_image
from envbuild.core.errors import SpecError
from envbuild.core.yaml_nodes import Node
from envbuild.core.yaml_reader import Reader, short
from envbuild.net.urls import redact_reference

IMAGE = r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?"
NEWEST_BASE, EXAMPLE = "debian:13", "base: nvcr.io/nvidia/pytorch:25.10-py3"
PYTHON = r"3\.[0-9]{1,2}"

Nodes = Mapping[str, tuple[str, Node]]  # top-level key → its place and its value


class SpecBase(NamedTuple):
    """`name`: the base as the spec has it. `python`: 3.13. `distribution`: debian:13. Empty texts for a mistake."""

    name: str
    python: str
    distribution: str


def read_base(
    reader: Reader, top: Nodes, where: str, images: Collection[str], base_of: Callable[[str], SpecBase]
) -> SpecBase:
    """Return the base of a spec; report mistakes.

    `images`: names of the project's images; `base_of` returns the base of one of them, whose Python and distribution
    the spec need not repeat. Raises what `base_of` raises, at the place of the base.
    """
    if "base" not in top:
        reader.wrong(where, "the spec has no base", f"write base: {NEWEST_BASE}")
        return SpecBase("", "", "")
    node = top["base"][1]
    base = reader.text(node, "base") or ""
    python, distribution = (_text(reader, top, key) for key in ("python", "distribution"))
    if is_own_image(base) and base in images:
        try:
            below = base_of(base)
        except SpecError as error:
            raise error.at(node.where) from None
        python, distribution = python or below.python, distribution or below.distribution
    elif is_image(base) and not is_own_image(base):
        _check_image(reader, node, base, {"python": python, "distribution": distribution})
    else:
        return _distribution_base(reader, top, node, base, {"python": python, "distribution": distribution})
    if python and not re.fullmatch(PYTHON, python):
        reader.wrong(top["python"][0], f"'{short(python)}' is not a Python version", 'write python: "3.12"')
    return SpecBase(base, python, _distribution(reader, top, distribution))


def _check_image(reader: Reader, node: Node, base: str, text: Mapping[str, str]) -> None:
    printed = short(redact_reference(base))
    if not (is_local_image(base) or re.fullmatch(IMAGE, base)):
        reader.wrong(node.where, f"base '{printed}' is not the reference of an image", f"write {EXAMPLE}")
    for key, example in (("python", '"3.12"'), ("distribution", "ubuntu:24.04")):
        if not text[key]:
            because = f"the contents of {printed} are read only when it is locked"
            reader.wrong(node.where, f"'{key}' is missing: {because}", f"write {key}: {example}")


def _distribution_base(reader: Reader, top: Nodes, node: Node, base: str, text: Mapping[str, str]) -> SpecBase:
    """Return a base that is a distribution."""
    printed = short(redact_reference(base))
    try:
        found = find_distribution(base) if base else None
    except SpecError:
        known = f"use one of {', '.join(DISTRIBUTIONS)}, an image of the project, or another, for example {EXAMPLE}"
        reader.wrong(node.where, f"base '{printed}' is not supported", known)
        found = None
    named = (("python", "python3", "Python"), ("distribution", "the distribution", "distribution"))
    for key, what, word in named if found else ():
        has = getattr(found, "python" if key == "python" else "name")
        if text[key] not in ("", has):
            because = f"{what} of {base} is {has}, and images use the {word} of their base"
            reader.wrong(
                top[key][1].where,
                f"{key} '{short(text[key])}' is not available: {because}",
                f'write {key}: "{has}", or leave it out',
            )
    return SpecBase(found.name, found.python, found.name) if found else SpecBase(base, "", "")


def _text(reader: Reader, top: Nodes, key: str) -> str:
    return (reader.text(top[key][1], key) or "") if key in top else ""


def _distribution(reader: Reader, top: Nodes, name: str) -> str:
    try:
        return find_distribution(name).name if name else ""
    except SpecError as error:
        reader.wrong(top["distribution"][0], error.message, error.hint)
        return ""
