"""JSON documents of images. Each value knows its place, so that an error names it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from envbuild.core.json_text import DEEPEST, check_count, check_depth, check_writable

MAX_DOCUMENT = 16 << 20  # bytes of a manifest or configuration; real ones have some ten thousand
SURROGATE = b"\\ud"  # how an escape of one begins
MAX_VALUES = 100_000  # of a list; an index with an entry for every image of a large site has thousands
LENGTH = 60  # characters of a wrong value in a message
NAMES = {bool: "true or false", dict: "an object", list: "a list", str: "a text", int: "a whole number"}


class InvalidDocumentError(ValueError):
    """Document that violates its format."""


@dataclass(frozen=True, slots=True)
class Part:
    """Value of a document. `place`: where it is (``manifests[0].size``; empty: the document itself)."""

    value: Any
    place: str = ""

    def part(self, key: str) -> Part:
        """Return a value of this object; its `value` is None if it is missing. Raises InvalidDocumentError."""
        return Part(self.expect(dict).get(key), f"{self.place}.{key}" if self.place else key)

    def optional(self, key: str) -> Part:
        """Return a value of this object, also if the object itself is missing. Raises InvalidDocumentError."""
        return Part(None, f"{self.place}.{key}") if self.value is None else self.part(key)

    def parts(self, *, needed: bool = False) -> list[Part]:
        """Return the values of this list; none if it is missing and not `needed`. Raises InvalidDocumentError."""
        if self.value is None and not needed:
            return []
        if len(self.expect(list)) > MAX_VALUES:
            raise InvalidDocumentError(f"{self.place or 'it'} has more than {MAX_VALUES} values")
        return [Part(item, f"{self.place}[{number}]") for number, item in enumerate(self.value)]

    def pairs(self) -> list[tuple[str, Part]]:
        """Return the values of this object by name; none if it is missing. Raises InvalidDocumentError."""
        return [] if self.value is None else [(key, self.part(key)) for key in self.expect(dict)]

    def texts(self) -> list[str]:
        """Return the texts of this list, or the keys of this object; none if it is missing.

        Raises InvalidDocumentError.
        """
        return list(self.value) if isinstance(self.value, dict) else [item.text() for item in self.parts()]

    def text(self) -> str:
        """Return this text; empty if it is missing. Raises InvalidDocumentError."""
        return "" if self.value is None else self.expect(str)

    def expect(self, kind: type) -> Any:
        """Return this value, which must be of a type. Raises InvalidDocumentError."""
        if type(self.value) is not kind:
            raise self.error(f"not {NAMES[kind]}")
        return self.value

    def error(self, instead: str) -> InvalidDocumentError:
        """Return the error for this value. `instead`: what it is not."""
        if self.value is None and self.place:
            return InvalidDocumentError(f"{self.place} is missing")
        return InvalidDocumentError(f"{self.place or 'it'} is {describe(self.value)}, {instead}")


def describe(value: object) -> str:
    """Return a value in words, shortened."""
    if isinstance(value, str):
        return f"the text {value[:LENGTH]!a}{'…' if len(value) > LENGTH else ''}"
    if isinstance(value, dict | list):
        return NAMES[type(value)]
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return f"the number {value!r:.{LENGTH}}"


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises InvalidDocumentError for a key that it has twice: readers differ in which value counts
    (RFC 8259, section 4)."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise InvalidDocumentError(f"it has the key {describe(twice)} twice")
    return found


def check_names(value: object, names: Iterable[str]) -> None:
    """Raise InvalidDocumentError for a key of an object that is one of `names` in other letters (``Layers``): clients
    in Go read it as that name (encoding/json)."""
    folded = {name.casefold(): name for name in names}
    for key in value if isinstance(value, dict) else ():
        if folded.get(key.casefold(), key) != key:
            raise InvalidDocumentError(
                f"it has the key {describe(key)}, which other clients read as {folded[key.casefold()]}"
            )


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and infinity, which JSON does not have."""
    raise InvalidDocumentError(f"it contains {name}, which JSON does not have")


def parse_json(content: bytes) -> Part:
    """Return a document. Raises InvalidDocumentError."""
    if len(content) > MAX_DOCUMENT:
        raise InvalidDocumentError(f"it has more than {MAX_DOCUMENT >> 20} MiB")
    try:
        check_count(content)
    except ValueError as error:
        raise InvalidDocumentError(str(error)) from None
    try:
        value = json.loads(content.decode(), object_pairs_hook=unique_keys, parse_constant=refuse_constant)
        if SURROGATE in content.lower():  # alone, other programs read it as another sign
            check_writable(value)
    except InvalidDocumentError:
        raise
    except json.JSONDecodeError as error:
        raise InvalidDocumentError(f"it is not JSON (line {error.lineno}, column {error.colno})") from None
    except UnicodeError:
        raise InvalidDocumentError("it is not text in UTF-8") from None
    except RecursionError:
        raise InvalidDocumentError(f"it has lists and objects of more than {DEEPEST} levels") from None
    except ValueError:  # Python's limit of 4300 digits
        raise InvalidDocumentError("it contains a number with thousands of digits") from None
    try:
        check_depth(value)
    except ValueError as error:
        raise InvalidDocumentError(str(error)) from None
    return Part(value)
