"""Plans: which versions are picked, on small facts whose answers can be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envbuild.matrix.answer.check import check
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.solve.encoding import pick_newest
from envbuild.matrix.solve.request import parse_request
from tests.support.facts import fact, matrix, plan, requests
from tests.support.torch_facts import small as small  # a fixture

pytestmark = pytest.mark.unit


NAMED = ("torch=2.4.0a0+1a2b3c gpu=H100", "torch base=nvidia gpu=H100", "torch channel=ngc gpu=H100")


def test_unrequested_components_are_absent_unless_a_fact_provides_them(small: FactTable) -> None:
    assert plan(small, "torch") == {"torch": "2.3.0", "triton": "2.2"}
    assert plan(small, "gpu=A100") == {"gpu": "A100", "sm": "8.0"}
    assert plan(small, "apex") == {"apex": "23.08", "torch": "2.3.0", "triton": "2.2"}
    assert plan(small, "apex=22.03") == {"apex": "22.03"}


def test_the_newest_compatible_versions_are_picked(small: FactTable) -> None:
    assert plan(small, "torch", "cuda=11.8") == {"torch": "2.1.0", "triton": "2.2", "cuda": "11.8"}
    assert plan(small, "torch", "python=3.8", "gpu=A100") == {
        **{"gpu": "A100", "sm": "8.0", "torch": "2.0.1"},
        **{"python": "3.8", "triton": "2.2"},
    }


def test_a_component_of_lower_rank_is_newest_first(tmp_path: Path) -> None:
    limits = fact("a.b", "limits", {"a": "2"}, {"b": "1"})
    components: dict[str, Any] = {"a": {"values": ["1", "2"], "rank": 1}, "b": {"values": ["1", "2"], "rank": 2}}
    assert plan(matrix(tmp_path / "1", components, [limits]), "a", "b") == {"a": "2", "b": "1"}
    components["a"]["rank"] = 3
    assert plan(matrix(tmp_path / "2", components, [limits]), "a", "b") == {"a": "1", "b": "2"}


def test_no_requested_version_is_lowered_to_leave_a_component_out(tmp_path: Path) -> None:
    facts = [fact("torch.base", "requires", {"torch": "2"}, {"base": "*"})]
    components: dict[str, Any] = {"base": {"values": ["1"], "rank": 1}, "torch": {"values": ["1", "2"], "rank": 2}}
    assert plan(matrix(tmp_path, components, facts), "torch") == {"base": "1", "torch": "2"}


def test_builds_that_cannot_be_compared_are_picked_only_on_request(small: FactTable) -> None:
    assert plan(small, "torch=2.4.0a0+1a2b3c", "gpu=V100") == {"gpu": "V100", "sm": "7.0", "torch": "2.4.0a0+1a2b3c"}
    assert plan(small, "torch>=2.4") is None


def test_a_build_of_one_image_is_picked_only_where_the_request_names_it_or_an_image(tmp_path: Path) -> None:
    facts = [
        fact("torch.base", "requires", {"torch": "==2.4.0a0+1a2b3c"}, {"channel": "ngc", "base": "nvidia"}),
        fact("torch.gpu", "limits", {"torch": "2.3"}, {"gpu": "A100"}),
    ]
    components: dict[str, Any] = {
        **{
            "gpu": {"kind": "name", "values": ["A100", "H100"], "rank": 1},
            "base": {"kind": "name", "values": ["nvidia", "debian"]},
        },
        **{"torch": ["2.3.0", "2.4.0a0+1a2b3c"], "channel": {"kind": "name", "values": ["ngc"]}},
    }
    given = matrix(tmp_path, components, facts)
    found = {words: check(given, parse_request(words.split(), given)) for words in ("gpu=H100 torch", "torch", *NAMED)}
    assert found["gpu=H100 torch"].verdict == "conflict"
    assert found["torch"].chosen == {"torch": "2.3.0"}
    for words in NAMED:
        assert found[words].chosen["torch"] == "2.4.0a0+1a2b3c", words


def test_warnings_are_obeyed_where_possible(tmp_path: Path) -> None:
    facts = [
        fact("b.odd", "limits", {"a": "*"}, {"b": "!=3"}, strength="warn"),
        fact("b.even", "limits", {"a": "*"}, {"b": "!=2"}, strength="warn"),
        fact("a.extra", "requires", {"a": "*"}, {"extra": "*"}, strength="warn"),
        fact("b.never", "limits", {"a": "*"}, {"b": "<9"}),
    ]
    given = matrix(tmp_path, {"a": ["1"], "b": ["1", "2", "3"], "extra": ["1"]}, facts)
    assert plan(given, "a", "b") == {"a": "1", "b": "1"}, "a component that is only recommended is not added"
    found = pick_newest(given, requests(given, "a", "b>=2"))
    assert found is not None
    assert given.named(found.assignment) == {"a": "1", "b": "3"}
    assert [given.fact(row).id for row in found.unheeded] == ["b.odd"]
    found = pick_newest(given, requests(given, "a", "b=3"))
    assert found is not None
    assert [given.fact(row).id for row in found.unheeded] == ["b.odd"]
    assert plan(given, "a", "b>=2", waived=["b.odd"]) == {"a": "1", "b": "3"}
