"""The rule of "valid": evidence of rows, and pairs of components without a fact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import SpecError
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.verdict import Answer
from envbuild.matrix.facts import cache
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.request import parse_request
from tests.support.facts import fact, matrix

pytestmark = pytest.mark.unit

VERSIONS = {"a": ["1.0", "2.0", "3.0"], "b": ["1.0", "2.0", "3.0"], "c": ["1.0"]}
SEEN = {"type": "measured", "where": "a test", "seen": "2026-11-21", "how": "made up"}


def ask(given: FactTable, words: str) -> Answer:
    return check(given, parse_request(words.split(), given))


def verdict(folder: Path, row: tuple[dict[str, Any], dict[str, Any]], words: str = "a=3.0 b=3.0", **rest: Any) -> str:
    keys = {key: rest.pop(key) for key in ("known-to", "pairs") if key in rest}
    facts = [fact("a.b", "limits", [row], **rest)]
    return ask(matrix(folder, VERSIONS, facts, None, **keys), words).verdict


def test_a_star_is_evidence_only_where_the_source_asserts_it(tmp_path: Path) -> None:
    for row in (({"a": "3.0"}, {"b": "*"}), ({"a": "*", "b": "*"}, {}), ({"a": "3.0"}, {"b": "!=1.0"})):
        assert verdict(tmp_path, row) == "unknown"
        assert verdict(tmp_path, row, asserts="compatible") == "valid"


def test_a_row_that_holds_without_a_component_states_nothing_about_it(tmp_path: Path) -> None:
    assert verdict(tmp_path, ({"a": ["-", "3.0"]}, {"b": "3.0"})) == "unknown"


def test_a_forbidden_value_states_nothing_about_others(tmp_path: Path) -> None:
    facts = [fact("a.b", "forbids", {"a": "3.0"}, {"b": "1.0"})]
    assert ask(matrix(tmp_path, VERSIONS, facts), "a=3.0 b=3.0").verdict == "unknown"


def test_an_open_row_is_evidence_up_to_what_its_source_knew(tmp_path: Path) -> None:
    row = ({"a": ">=1.0"}, {"b": ">=1.0"})
    assert verdict(tmp_path, row) == "valid"
    assert verdict(tmp_path, row, **{"known-to": {"b": {"2026-11-21": "3.0"}}}) == "valid"
    assert verdict(tmp_path, row, **{"known-to": {"b": {"2026-11-21": "2.0"}}}) == "unknown"
    dates = {"2026-01-01": "1.0", "2026-11-20": "3.0", "2026-12-01": "2.0"}  # seen on 2026-11-21
    assert verdict(tmp_path, row, **{"known-to": {"b": dates}}) == "valid"
    assert verdict(tmp_path, row, words="a=3.0 b=2.0", **{"known-to": {"b": {"2027-01-01": "2.0"}}}) == "valid"
    assert verdict(tmp_path, row, **{"known-to": {"b": {"2027-01-01": "2.0"}}}) == "unknown"


def test_an_open_row_still_binds_what_it_is_no_evidence_of(tmp_path: Path) -> None:
    row = ({"a": ">=1.0"}, {"b": "<2.0"})
    assert verdict(tmp_path, row, **{"known-to": {"a": {"2026-11-21": "1.0"}}}) == "conflict"


def test_a_waived_row_relates_only_what_it_refuses(tmp_path: Path) -> None:
    """A waiver that overrides a refusal is an answer; without a fact that allows a pair nothing is known about it."""
    given = matrix(tmp_path, VERSIONS, [fact("a.b", "limits", {"a": "3.0"}, {"b": "2.0"})])
    for words, expected in (("a=3.0 b=1.0", "valid"), ("a=3.0 b=2.0", "unknown")):
        asks = parse_request(words.split(), given)
        assert check(given, asks, [Waiver("a.b", "tried it")]).verdict == expected


CHAIN = [
    fact("a.b", "limits", {"a": "3.0"}, {"b": "3.0"}),
    fact("b.c", "limits", {"b": "3.0"}, {"c": "1.0"}),
]
THROUGH = {"of": ["a", "c"], "through": "b", "because": "made up"}
INDEPENDENT = {"of": [["a"], "c"], "independent": "made up"}


def test_a_chain_of_facts_is_no_answer(tmp_path: Path) -> None:
    given = ask(matrix(tmp_path, VERSIONS, CHAIN), "a=3.0 b=3.0 c=1.0")
    assert given.verdict == "unknown"
    assert [(one.id, one.of) for one in given.unknown] == [("unrelated", ("c", "a"))]


@pytest.mark.parametrize("pair", [THROUGH, INDEPENDENT, {**INDEPENDENT, "of": ["*", "*"]}])
def test_a_pair_with_a_reason_needs_no_fact(tmp_path: Path, pair: dict[str, Any]) -> None:
    made = matrix(tmp_path, VERSIONS, CHAIN, pairs=[pair])
    cached = tmp_path / "entry.json"
    cache.write_entry(cached, made)
    for given in (made, cache.read_entry(cached)):
        assert given is not None
        assert ask(given, "a=3.0 b=3.0 c=1.0").verdict == "valid"


@pytest.mark.parametrize(
    ("where", "verdict"),
    [
        ({"where": {"b": "==3.0"}}, "unknown"),  # a fact about both is needed there
        ({"where": {"b": "==3.0"}, "through": "b"}, "valid"),
        ({"where": {"b": "==2.0"}}, "valid"),  # as any other pair
    ],
)
def test_a_pair_is_narrowed_beside_a_value(where: dict[str, Any], verdict: str, tmp_path: Path) -> None:
    narrowed = {"of": ["a", "c"], "because": "made up", **where}
    made = matrix(tmp_path, VERSIONS, CHAIN, pairs=[narrowed, INDEPENDENT])
    cached = tmp_path / "entry.json"
    cache.write_entry(cached, made)
    for given in (made, cache.read_entry(cached)):
        assert given is not None
        assert ask(given, "a=3.0 b=3.0 c=1.0").verdict == verdict


def test_both_are_related_to_what_they_matter_through(tmp_path: Path) -> None:
    """The third one must be there, and facts must relate it to both."""
    assert ask(matrix(tmp_path / "1", VERSIONS, CHAIN[:1], pairs=[THROUGH]), "a=3.0 b=3.0 c=1.0").verdict == "unknown"
    assert ask(matrix(tmp_path / "2", VERSIONS, CHAIN, pairs=[THROUGH]), "a=3.0 c=1.0").verdict == "unknown"


@pytest.mark.parametrize(
    "keys",
    [
        {"pairs": [{"of": ["a", "b"]}]},
        {"pairs": [{"of": ["a"], "independent": "x"}]},
        {"pairs": [{"of": ["a", "d"], "independent": "x"}]},
        {"pairs": [{"of": ["a", "b"], "through": "c"}]},
        {"pairs": [{"of": ["a", "b"], "through": "c", "independent": "x", "because": "y"}]},
        {"pairs": [{"of": ["a", "b"], "where": {"c": "1.0"}}]},
        {"pairs": [{"of": ["a", "b"], "where": {"d": "1.0"}, "because": "x"}]},
        {"pairs": [{"of": ["a", "b"], "where": {"c": "one"}, "because": "x"}]},
        {"pairs": [{"of": ["a", "b"], "where": {"c": "1.0"}, "independent": "x", "because": "y"}]},
        {"groups": {"a": ["b"]}},
        {"known-to": {"d": {"2026-11-21": "1.0"}}},
        {"known-to": {"a": {"2026-11-21": "one"}}},
    ],
)
def test_mistakes_in_the_rule_are_reported(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        matrix(tmp_path, VERSIONS, CHAIN, **keys)
    assert caught.value.exit_code == 2
