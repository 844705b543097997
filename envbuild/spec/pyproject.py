"""Rules for the metadata of Python projects, as `pyproject.toml` and setup.cfg state it.

It is read without running code of the project."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from envbuild.core.errors import SpecError
from envbuild.core.text import printable

BUILD = "add NAME @ git+https://HOST/REPOSITORY@COMMIT to python-packages, which builds it"  # a hint
CFG, LINE = 64 << 10, 1000  # characters of setup.cfg, and of a line of it
DOTS, ALL_DOTS = 1000, 50_000  # of a line, and of a file
MAX_REQUIRES = 500  # characters of requires-python, as of a package index
MAX_REQUIREMENT, MAX_NUMBER = 1000, 5000  # characters of a requirement, which `packaging` reads slowly; of them
PARTS, KEY_PARTS = 50, 200  # of the name of a table, which each key below it costs; of a key, which may be in a text


def check_lines(name: str, text: str) -> None:
    """Raise ValueError for a text that its reader would need hours for: `configparser` reads a line in the square of
    its length, `tomllib` a key in the square of its parts."""
    lines = text.split("\n")  # other line ends are blanks for configparser
    if name == "setup.cfg" and (len(text) > CFG or max(map(len, lines)) > LINE):
        raise ValueError(f"{name} is longer than {CFG >> 10} KiB, or has a line of more than {LINE} characters")
    dots = [line.count(".") for line in lines]
    names = [line.partition("=")[0] for line in lines if line.count(".") > PARTS]
    if any(name.count(".") > (PARTS if name.lstrip().startswith("[") else KEY_PARTS) for name in names):
        raise ValueError(f"{name} has a name of too many parts")
    if max(dots, default=0) > DOTS or sum(dots) > ALL_DOTS:
        raise ValueError(f"{name} has too many dots")


def load_toml(name: str, text: str) -> dict[str, Any]:
    """Return the values of a file in TOML. Raises ValueError, RecursionError.

    A number of more than 64 bits is none (TOML 1.0, "Integer"). tomllib reads a hexadecimal one of any length, and
    Python prints none of more than 4,300 digits."""
    check_lines(name, text)
    found = tomllib.loads(text)
    pending: list[object] = [found]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, int) and value.bit_length() > 64:
            raise ValueError(f"{name} has a number of more than 64 bits")
    return found


def check_python(what: str, requires: str, python: str) -> None:
    """Raise SpecError if a package does not run on `python`."""
    from packaging.specifiers import SpecifierSet  # here and below: most specs have no project

    if len(requires) > MAX_REQUIRES:
        raise SpecError(f"{what} states requires-python with more than {MAX_REQUIRES} characters")
    try:
        fits = SpecifierSet(requires).contains(python, prereleases=True)
    except ValueError:  # no specifier, or a number that Python does not read
        return
    if not fits:
        raise SpecError(f"{what} requires Python {printable(requires)}, and the image has {python}")


def plain_requirements(what: str, texts: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Return the requirements without those of extras. Raises SpecError for one that names an address, or that is not
    one line of text."""
    from packaging.requirements import Requirement

    if len(texts) > MAX_NUMBER:
        raise SpecError(f"{what} has {len(texts)} requirements, more than {MAX_NUMBER}")
    found = []
    for text in texts:
        if len(text) > MAX_REQUIREMENT:
            raise SpecError(
                f"{what} requires '{printable(text[:60])}…', which has more than {MAX_REQUIREMENT} characters"
            )
        try:
            parsed = Requirement(text)
        except (ValueError, RecursionError) as error:  # parentheses of a marker in each other
            raise SpecError(f"{what} requires '{printable(text)}', which is not a requirement: {error}") from None
        if parsed.url:
            hint = f"add {parsed.name} @ git+https://… to python-packages, and require it by name there"
            raise SpecError(f"{what} requires '{printable(text)}', which names an address", hint)
        if not (plain := str(parsed)).isprintable():  # an escape in a marker: in a list of requirements another line
            raise SpecError(f"{what} requires '{printable(plain)}', which has a control character")
        if not (parsed.marker and "extra" in str(parsed.marker)):
            found.append(plain)
    return tuple(found)


def table(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the table `name` of another one; empty if it has none."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list; nothing of another value."""
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
