"""Versions as users and upstream projects write them, in one total order.

`packaging` reads PEP 440 only; most versions of a cluster are something else: ``2.19.3-1+cuda12.2`` (NCCL),
``24.01-0.3.3.1`` (MLNX_OFED), ``2.12.2tp1`` (HPC-X), ``3.13t`` (free-threaded Python), ``525.60.13`` (driver),
``14.09.x`` (Neuron), ``1.22.0amzn1.0`` (libfabric of the EFA installer).

A version is numbers, perhaps a flavour (``t``), perhaps steps before (a, b, tp, rc, dev) or after (post, ``-1``),
perhaps a local label (``+cu128``). Trailing zeros do not count."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

MAX_LENGTH = 60

# Steps of a release: below 0 they come before it, above 0 after it.
STEPS = {
    "dev": -5,
    "a": -4,
    "alpha": -4,
    "b": -3,
    "beta": -3,
    "tp": -2,  # NVIDIA's technology previews
    "c": -1,
    "rc": -1,
    "pre": -1,
    "preview": -1,
    "post": 2,
    "r": 2,
    "rev": 2,
    "p": 2,
    "patch": 2,
    "u": 2,  # "Update" of a CUDA toolkit
    "update": 2,
}
BUILDS = {"amzn", "aws", "nv", "ubuntu", "el"}  # builders' words directly after the number, without a dash
STEP = re.compile(r"([._~-]?)([a-z]*)(?:(?<=[a-z])\.(?=[0-9]))?((?:[0-9]+(?:\.[0-9]+)*)?)")
BEFORE, SAME, BUILD, AFTER = -6, 0, 1, 2

Segment = tuple[int, str, tuple[int, ...]]  # (step, word, numbers)
Key = tuple[tuple[int, ...], tuple[Segment, ...], str, tuple[tuple[int, int, str], ...]]


class Version(NamedTuple):
    """The parts of a version: `text` of the release (``2.8.0``), its `numbers`, `flavour` ("" or "t"), the `steps`
    after the release, the `local` label without its ``+``."""

    text: str
    numbers: tuple[int, ...]
    flavour: str
    steps: tuple[Segment, ...]
    local: str


@lru_cache(maxsize=1 << 14)
def parse(text: str) -> Version:
    """Return the parts of `text`. Raise ValueError when it is not a version."""
    lower = text.lower() if text.isascii() and len(text) <= MAX_LENGTH else ""
    match = re.fullmatch(r"v?([0-9]+(?:\.[0-9]+)*)([^+]*)(?:\+([0-9a-z]+(?:[._-][0-9a-z]+)*))?", lower)
    if match is None:
        raise ValueError("is not a version")
    release, rest, local = match.groups()
    flavour, steps = _steps(rest)
    return Version(release, tuple(int(number) for number in release.split(".")), flavour, steps, local or "")


def _steps(rest: str) -> tuple[str, tuple[Segment, ...]]:
    """Return the flavour and the steps after the release. Words that are not a known step need a dash before them
    (``-1ubuntu2``), so that a misspelt version is refused."""
    flavour, steps, at, dashed = "", [], 0, False
    while at < len(rest):
        match = STEP.match(rest, at)
        assert match is not None  # it also matches nothing
        mark, word, digits = match.groups()
        dashed = dashed or mark == "-"
        numbers = tuple(int(number) for number in digits.split(".")) if digits else ()
        if word == "t" and not mark and not digits and at == 0:
            flavour = "t"
        elif mark == "~" and word not in STEPS and (word or digits):
            steps.append((BEFORE, word, numbers))
        elif word in STEPS:
            steps.append((STEPS[word], "", numbers))
        elif (word and dashed) or word in BUILDS or (word == "x" and mark == "." and not digits):
            steps.append((BUILD, word, numbers))
        elif digits and dashed:
            steps.append((AFTER, "", numbers))
        else:
            raise ValueError("is not a version")
        at = match.end()
    return flavour, tuple(steps)


@lru_cache(maxsize=1 << 14)
def key(text: str) -> Key:
    """Return a key that sorts versions from oldest to newest, equal for the same version. Raise ValueError."""
    version = parse(text)
    numbers = ((1, int(part), "") if part.isdigit() else (0, 0, part) for part in _tokens(version.local))
    return (*public_key(text), version.flavour, tuple(numbers))


@lru_cache(maxsize=1 << 14)
def public_key(text: str) -> tuple[tuple[int, ...], tuple[Segment, ...]]:
    """Return the key without flavour and local label, which order comparisons use. Raise ValueError."""
    version = parse(text)
    steps = tuple((step, word, _trimmed(numbers)) for step, word, numbers in version.steps)
    return _trimmed(version.numbers), (*steps, (SAME, "", ()))


def is_prerelease(text: str) -> bool:
    """Return whether a version is before the release that it names (``2.0.0rc1``)."""
    return any(step < SAME for step, _, _ in parse(text).steps)


@lru_cache(maxsize=1 << 14)
def is_comparable(text: str) -> bool:
    """Return whether a version can be ordered. A pre-release with a local label (``2.10.0a0+b4e4ee81d3``, NGC's builds)
    is cut from a branch at some commit: it may have what a later release has, and may lack what an earlier one has."""
    return not (parse(text).local and is_prerelease(text))


def is_same(value: str, operand: str) -> bool:
    """Return ``==``: the same version, with the same local label or none. Raise ValueError."""
    return key(value) == key(operand)


def begins_with(value: str, operand: str) -> bool | None:
    """Return ``in``: `value` begins with `operand`, number by number (2.8.1 with 2.8, not 2.80), and has the same
    flavour; its local label does not count. None: not comparable. Raise ValueError."""
    if not (is_comparable(value) and is_comparable(operand)):
        return None
    return parse(value).flavour == parse(operand).flavour and _within(value, operand)


def compare(value: str, op: str, operand: str) -> bool | None:
    """Return ``>=``, ``>``, ``<=``, ``<`` by release and steps; `op` is one of these.

    Everything that begins with the operand counts as equal to it for ``<=`` and ``>``: 12.8 is <=12 and not >12. None:
    not comparable. Raise ValueError."""
    if not (is_comparable(value) and is_comparable(operand)):
        return None
    if op in (">=", "<"):
        return (public_key(value) >= public_key(operand)) is (op == ">=")
    return (public_key(value) <= public_key(operand) or _within(value, operand)) is (op == "<=")


def truncate(text: str, precision: int) -> str:
    """Return the version with its first `precision` numbers and its flavour only; 0: all. Raise ValueError."""
    version = parse(text)
    if not precision:
        return text
    return ".".join(version.text.split(".")[:precision]) + version.flavour


def _within(value: str, operand: str) -> bool:
    given, wanted = parse(value), parse(operand)
    if not wanted.steps:
        return _starts(given.numbers, wanted.numbers)
    last = len(wanted.steps) - 1
    if _trimmed(given.numbers) != _trimmed(wanted.numbers) or len(given.steps) <= last:
        return False
    if public_key(value)[1][:last] != public_key(operand)[1][:last]:
        return False
    return given.steps[last][:2] == wanted.steps[last][:2] and _starts(given.steps[last][2], wanted.steps[last][2])


def _starts(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    padded = given + (0,) * (len(wanted) - len(given))
    return padded[: len(wanted)] == wanted


def _trimmed(numbers: tuple[int, ...]) -> tuple[int, ...]:
    end = len(numbers)
    while end and not numbers[end - 1]:
        end -= 1
    return numbers[:end]


def _tokens(text: str) -> list[str]:
    return re.findall(r"[0-9]+|[a-z]+", text)


def newest_first(values: Iterable[str]) -> list[str]:
    """Return different versions in their order; two spellings of one version (69.3 and 69.3.0) by their text."""
    return sorted(set(values), key=lambda value: (key(value), value), reverse=True)


def oldest_first(values: Iterable[str]) -> list[str]:
    """Return different versions in their order, the other way round."""
    return newest_first(values)[::-1]
