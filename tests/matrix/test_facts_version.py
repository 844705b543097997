"""Versions: one total order over everything that users and upstreams write, and what the comparisons mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version as Pep440

from envbuild.matrix.facts import version

pytestmark = pytest.mark.unit

ASCENDING = [
    *("0.0.22.post7", "0.0.23", "0.9.8dev", "0.9.8", "1.22.0", "1.22.0amzn1.0", "1.22.1", "1.23.0~rc1", "1.23.0"),
    *("2.0.0.dev20260101", "2.0.0a0", "2.0.0b1", "2.0.0rc1", "2.0.0", "2.0.0+cu118", "2.0.1", "2.0.1+cu92"),
    *("2.0.1+cu118", "2.0.1.post1", "2.0.1-2", "2.8.0", "2.9.0.2.12.22436", "2.10.0a0+b4e4ee81d3", "2.10.0"),
    *("2.12.2tp1", "2.12.2", "2.19.3", "2.19.3-1", "2.19.3-1+cuda12.2", "2.19.3-1+cuda12.10", "2.19.3-2", "3.13"),
    *("3.13t", "3.13.1", "3.14", "13.2", "13.2u1", "13.2u2", "14.09", "14.09.x", "14.10", "24.01-0.3.3.1"),
    *("24.01-0.10.0.0", "525.60.13", "525.105.17"),
]
NO_VERSIONS = [
    *("banana", "", "na", "1..2", "1.", ".1", "1.2\n", "1.2 ", " 1.2", "1\x002", "2.8o", "2.banana", "1-", "1+"),
    *("1+.a", "1.2++a", "-1", "+1", "1:2", "1,2", "6424da3b", "main", "١.٢", "1.2K", "v", "9" * 61, "2.8.*", ">=2"),
]
NUMBERS = st.lists(st.integers(0, 99), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
STEPS = st.sampled_from(
    ["", "a0", "b2", "rc1", ".dev3", ".post1", "-1", "-0.3.3.1", "t", "tp1", ".x", "~rc2", "amzn1.0"]
)
LOCALS = st.sampled_from(["", "+cu118", "+cu128", "+cuda12.2", "+b4e4ee81d3"])
VERSIONS = st.builds("".join, st.tuples(NUMBERS, STEPS, LOCALS))
PLAIN = st.builds("".join, st.tuples(NUMBERS, STEPS))
ORDER = ("<", "<=", ">", ">=")


def test_order() -> None:
    keys = [version.key(text) for text in ASCENDING]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("text", NO_VERSIONS)
def test_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        version.key(text)


@pytest.mark.parametrize(
    "one, other",
    [
        *(("2.8", "2.8.0"), ("v2.8.0", "2.8"), ("1.0RC1", "1.0rc1"), ("1.0-rc.1", "1.0c1"), ("2.0.0.0", "2")),
        *(("1.0.post1", "1.0-1"), ("525.60.013", "525.60.13"), ("2.8.0+CU128", "2.8+cu128"), ("1.0alpha0", "1.0a")),
    ],
)
def test_the_same_version(one: str, other: str) -> None:
    assert version.is_same(one, other)
    assert version.key(one) == version.key(other)


@pytest.mark.parametrize(
    "value, operand, answer",
    [
        *(("2.8", "2.8", True), ("2.8.0", "2.8", True), ("2.8.1", "2.8", True), ("2.8.0+cu128", "2.8", True)),
        *(("2.80", "2.8", False), ("2.9", "2.8", False), ("2.8", "2.8.0", True), ("2.8.1", "2.8.0", False)),
        *(("12.8", "12", True), ("2.8.0rc1", "2.8", True), ("3.13t", "3.13", False), ("3.13", "3.13t", False)),
        *(("3.13t", "3.13t", True), ("24.01-0.3.3.1", "24.01", True), ("24.01-0.3.3.1", "24.01-0.3", True)),
        *(("24.01-0.30", "24.01-0.3", False), ("24.01", "24.01-0.3", False), ("2.19.3-1+cuda12.2", "2.19.3-1", True)),
        *(("2.19.3-10", "2.19.3-1", False), ("2.0.0rc1", "2.0.0rc1", True), ("2.0.0rc10", "2.0.0rc1", False)),
        *(("2.10.0a0+b4e4ee81d3", "2.10", None), ("14.09.x", "14.09", True), ("1.22.0amzn1.0", "1.22.0", True)),
    ],
)
def test_begins(value: str, operand: str, answer: bool | None) -> None:
    assert version.begins_with(value, operand) is answer


@pytest.mark.parametrize(
    "value, meets, misses",
    [
        ("12.8", ["<=12", ">=12", "<=12.8", ">=12.8", "<13", ">11", ">12.7"], [">12", "<12", "<=12.7", ">12.8"]),
        ("2.8.0+cu128", [">=2.8", "<=2.8.0", ">=2.8.0"], [">2.8", "<2.8", ">2.8.0"]),
        ("2.0.0rc1", ["<2.0.0", ">=2.0.0b3", "<=2"], [">=2.0.0", ">2", ">2.0.0rc1"]),
        ("3.13t", [">=3.13", "<=3.13", ">3.12"], [">3.13", "<3.13"]),
        ("2.19.3-1", [">=2.19.3", "<=2.19.3", "<2.19.4"], [">2.19.3", "<2.19.3"]),
        ("24.01-0.3.3.1", [">=24.01-0.3", "<=24.01-0.3", "<24.01-0.4"], ["<24.01-0.3", ">24.01"]),
        ("525.60.13", [">=525.60.13", "<525.105"], [">=525.105", ">525.60.13"]),
    ],
)
def test_ordered(value: str, meets: list[str], misses: list[str]) -> None:
    for wanted, answer in [*((text, True) for text in meets), *((text, False) for text in misses)]:
        op = wanted.rstrip("0123456789abcdefghijklmnopqrstuvwxyz.-")
        assert version.compare(value, op, wanted.removeprefix(op)) is answer, wanted


@pytest.mark.parametrize("op", ORDER)
def test_ngc_builds_have_no_order(op: str) -> None:
    """2.10.0a0+b4e4ee81d3 is cut from a branch somewhere between 2.9 and 2.10: neither side of any bound is known."""
    assert version.compare("2.10.0a0+b4e4ee81d3", op, "2.9") is None
    assert version.compare("2.10", op, "2.10.0a0+b4e4ee81d3") is None
    assert version.compare("2.10.0a0", op, "2.9") is not None
    assert version.is_same("2.10.0a0+b4e4ee81d3", "2.10.0a0+b4e4ee81d3")
    assert not version.is_same("2.10.0a0+b4e4ee81d3", "2.10.0a0")


@pytest.mark.parametrize(
    "text, precision, cut",
    [
        *(("3.11.9", 2, "3.11"), ("3.13t", 2, "3.13t"), ("3.13.1t", 2, "3.13t"), ("13.2", 1, "13")),
        *(("13.2.0-23ubuntu4", 1, "13"), ("3.15.0rc1", 2, "3.15"), ("12", 2, "12"), ("12.8.90", 0, "12.8.90")),
    ],
)
def test_truncate(text: str, precision: int, cut: str) -> None:
    assert version.truncate(text, precision) == cut


@given(text=st.text(max_size=70) | st.text(alphabet="0123456789.-+_~abcprtx ", max_size=20))
def test_any_text_is_a_version_or_a_value_error(text: str) -> None:
    try:
        assert version.key(text) == version.key(text)
    except ValueError as error:
        assert str(error) == "is not a version"
        return
    for precision in range(4):
        version.key(version.truncate(text, precision))
    assert version.is_same(text, text)
    assert version.begins_with(text, text) in (True, None)


@given(one=VERSIONS, two=VERSIONS, three=VERSIONS)
def test_total_order(one: str, two: str, three: str) -> None:
    a, b, c = version.key(one), version.key(two), version.key(three)
    assert (a < b) + (a == b) + (a > b) == 1
    assert (a < b) == (b > a)
    if a <= b <= c:
        assert a <= c


@given(text=VERSIONS, zeros=st.integers(1, 3))
def test_trailing_zeros_do_not_count(text: str, zeros: int) -> None:
    release = version.parse(text).text
    longer = release + ".0" * zeros + text[len(release) :]
    assert version.is_same(text, longer)
    assert version.key(longer) == version.key(text)


@given(text=PLAIN, more=st.integers(0, 99), other=VERSIONS)
def test_prefixes(text: str, more: int, other: str) -> None:
    """What begins with a longer version begins with each of its beginnings; a local label changes nothing."""
    release = version.parse(text).text
    longer = f"{release}.{more}"
    assert version.begins_with(longer, release)
    if version.begins_with(other, longer):
        assert version.begins_with(other, release)
    if version.begins_with(other, text):
        assert version.begins_with(f"{other.split('+')[0]}", text)
    if version.is_comparable(f"{text}+cu118"):
        assert version.begins_with(f"{text}+cu118", text)


@given(one=VERSIONS, two=VERSIONS)
def test_comparisons_are_consistent(one: str, two: str) -> None:
    """< is not >=, > is not <=; both, or neither, are known; what begins with the operand is never above it."""
    less, at_most, more, at_least = (version.compare(one, op, two) for op in ORDER)
    if None in (less, at_most, more, at_least):
        assert less is at_most is more is at_least is None
        assert not (version.is_comparable(one) and version.is_comparable(two))
        return
    assert (less, more) == (not at_least, not at_most)
    assert not (less and more)
    if version.begins_with(one, two):
        assert at_most
    if version.is_same(one, two):
        assert at_most and at_least


PEP440 = st.builds(
    "{}{}{}{}".format,
    NUMBERS,
    st.sampled_from(["", "a1", "b0", "rc2"]),
    st.sampled_from(["", ".post1", ".post3"]),
    st.sampled_from(["", "+cu118", "+abc"]),
)


@given(one=PEP440, two=PEP440)
def test_python_versions_are_sorted_as_in_pep_440(one: str, two: str) -> None:
    """Natural order within labels is ours (cu92 before cu118), so that only versions with the same one are compared."""
    assert (version.public_key(one) < version.public_key(two)) == (
        Pep440(Pep440(one).public) < Pep440(Pep440(two).public)
    )
    assert version.is_same(one, two) == (Pep440(one) == Pep440(two))
