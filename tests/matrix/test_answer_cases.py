"""Answers of the shipped facts: the cases of cases/, and properties of every answer."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from envbuild.core.errors import SpecError
from envbuild.matrix import FACTS, fact_files
from envbuild.matrix.answer import conflict_core
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.report import answer_data, answer_text
from envbuild.matrix.answer.verdict import VERDICTS, Answer, judge_plan
from envbuild.matrix.facts.compile import compile_facts
from envbuild.matrix.facts.fact_table import HARD, FactTable
from envbuild.matrix.facts.lint import lint_facts
from envbuild.matrix.facts.load import load_facts
from envbuild.matrix.facts.model import SOURCES
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.encoding import Core, Problem, Request
from envbuild.matrix.solve.phrasing import Reason, row_reason
from envbuild.matrix.solve.query import Query
from envbuild.matrix.solve.request import Ask, parse_request
from tests.support.shipped_facts import shipped_facts, shipped_matrix

HERE = Path(__file__).parent / "cases"
REFUSED = "refused"


@dataclass(frozen=True, eq=False)
class Example:
    """One entry of a case file. `ask`: the words of a command line. `verdict`: of the answer, or ``refused`` for a
    request that is none. `cites`: facts that the answer must name (of a conflict: in its reasons), `never`: facts that
    must not block or need attention. `hint`: part of a fix. `chosen`: component → value, None for absent.
    `text`: part of the text. `trap`: why this case exists. `source`: where the truth is stated. `slow`: its answer
    takes long (`make test`)."""

    ask: str
    verdict: str
    trap: str
    cites: list[str] = field(default_factory=list)
    never: list[str] = field(default_factory=list)
    hint: str = ""
    chosen: dict[str, str | None] = field(default_factory=dict)
    text: str = ""
    source: str = ""
    slow: bool = False
    file: str = ""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.ask)

    @property
    def name(self) -> str:
        return f"{self.file}: {self.ask}"


def examples() -> list[Example]:
    return [
        Example(**entry, file=path.stem)
        for path in sorted(HERE.glob("*.yaml"))
        for entry in yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    ]


ALL = examples()
FEW = 4
ANSWERED = [example for example in ALL if example.verdict != REFUSED]
CONFLICTS = [example for example in ALL if example.verdict == "conflict"]


def each(chosen: Sequence[Example]) -> pytest.MarkDecorator:
    """Return the cases; `make check` runs one of FEW.

    The tests of one case run one after the other, in one process, which finds its answer once.
    """
    cases = [
        pytest.param(example, id=example.name, marks=[pytest.mark.slow_unit] if example.slow or number % FEW else [])
        for number, example in enumerate(chosen)
    ]
    return pytest.mark.parametrize("example", cases, scope="module")


@cache
def asked(ask: str) -> tuple[Ask, ...]:
    return parse_request(shlex.split(ask), shipped_matrix())


@cache
def answer(ask: str) -> Answer:
    return check(shipped_matrix(), asked(ask))


def all_reasons(given: Answer) -> Iterator[Reason]:
    """Yield every reason that an answer holds."""
    yield from blocking_reasons(given)
    yield from given.reasons
    yield from given.superseded


def blocking_reasons(given: Answer) -> Iterator[Reason]:
    """Yield the reasons that block a request or need attention."""
    groups = [conflict.reasons for conflict in given.conflicts]
    groups += [given.conditions, given.disputes, given.warnings, given.needs]
    return (one for group in groups for one in group)


# --- the cases themselves


@pytest.mark.unit
def test_the_cases_are_many_and_each_is_listed_once() -> None:
    asks = [example.ask for example in ALL]
    assert sorted({ask for ask in asks if asks.count(ask) > 1}) == []
    assert {example.verdict for example in ALL} == {*VERDICTS, REFUSED}
    assert len(ALL) > 400


@pytest.mark.unit
@each(ANSWERED)
def test_the_answer(example: Example) -> None:
    given = answer(example.ask)
    text = answer_text(given, shipped_matrix(), example.ask)
    assert given.verdict == example.verdict, text
    assert given.exit_code == VERDICTS[example.verdict]
    cited = {one.fact for conflict in given.conflicts for one in conflict.reasons} or set(given.facts)
    assert sorted(set(example.cites) - cited) == [], text
    assert sorted(set(example.never) & {one.fact for one in blocking_reasons(given)}) == [], text
    fixes = [fix for conflict in given.conflicts for fix in conflict.fixes]
    assert not example.hint or any(example.hint in fix for fix in fixes), text
    assert {name: given.chosen.get(name) for name in example.chosen} == example.chosen, text
    assert example.text in text
    assert not re.search(r"(?i)\b([a-z][a-z-]*) \1[<>=!]", text)  # "CUDA cuda>=12"


@pytest.mark.unit
@each([example for example in ALL if example.verdict == REFUSED])
def test_the_refusal(example: Example) -> None:
    with pytest.raises(SpecError) as caught:
        parse_request(example.words, shipped_matrix())
    assert caught.value.exit_code == 2
    assert example.text in str(caught.value)
    assert all(finding.message and finding.hint for finding in caught.value.findings)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", str(caught.value))


# --- what an answer rests on


@pytest.mark.matrix
@each([example for example in ANSWERED if example.cites])
def test_without_a_cited_fact_the_answer_changes(example: Example) -> None:
    """Without any one of the facts that a case names, the answer is another one."""
    before = stance(example)
    for fact in example.cites:
        assert stance(example, [Waiver(fact, "to see what becomes of the answer")]) != before, fact


def stance(example: Example, waivers: Sequence[Waiver] = ()) -> tuple[Any, ...]:
    """Return the substance of an answer: its verdict, what blocks or needs attention, and what is picked. Facts
    that are only mentioned do not count; fixes, which take long to find, are not searched."""
    case = Query.of(shipped_matrix(), asked(example.ask), waivers)
    if case.plan is None:
        cores = conflict_core.find_cores(case.matrix, case.wanted, case.waived)
        return "conflict", [sorted({case.matrix.fact(row).id for row in core.rows}) for core in cores]
    given = judge_plan(case.matrix, case.plan.assignment, case.asks, case.waived, tuple(waivers))
    groups = [given.conditions, given.disputes, given.warnings, given.needs]
    ids = [sorted({one.fact for one in group}) for group in groups]
    return given.verdict, ids, [unknown.id for unknown in given.unknown], dict(given.chosen)


@pytest.mark.matrix
@each(CONFLICTS)
def test_nothing_can_be_left_out_of_a_conflict(example: Example) -> None:
    """The requests and facts of the first conflict contradict each other; without any one of them they do not."""
    case = Query.of(shipped_matrix(), asked(example.ask), ())
    assert case.plan is None
    core = conflict_core.find_cores(case.matrix, case.wanted, case.waived)[0]
    assert core.minimal
    assert not solvable(case, core, core.requests)
    for request in core.requests:
        assert solvable(case, core, [other for other in core.requests if other is not request]), request.component
    facts = {fact.id: fact for fact in map(case.matrix.fact, core.rows)}
    for fact in facts.values():  # what refuses something is a dispute as a whole
        disputed = {other.id for other in facts.values() if fact.strength == other.strength == "disputed"}
        assert solvable(case, core, core.requests, disputed | {fact.id}), fact.id


def solvable(case: Query, core: Core, requests: Sequence[Request], waived: Collection[str] = ()) -> bool:
    """Return whether these requests are satisfiable with the rows of `core` only, less those of facts `waived`."""
    rest = frozenset(range(len(case.matrix.rows))) - set(core.rows)
    problem = Problem.of(case.matrix, requests, case.waived.union(waived), HARD, rest)
    return problem.search().first() is not None


@pytest.mark.matrix
@each([example for example in ANSWERED if example.verdict in ("conflict", "unknown")])
def test_every_proposed_change_typed_back_has_an_answer(example: Example) -> None:
    given = answer(example.ask)
    assert not example.hint or given.conflicts[0].fixes or len(given.conflicts) > 1
    for fix in (*(fix for conflict in given.conflicts for fix in conflict.fixes), *given.nearest):
        words = example.words
        for change in re.split(" with |, also needs ", fix):
            left_out = change.startswith("leave ")
            name = component(change.removeprefix("leave ").removesuffix(" out"))
            words = [word for word in words if component(word) != name] + ([] if left_out else [change])
        assert check(shipped_matrix(), parse_request(words, shipped_matrix())).verdict not in ("conflict", "unknown"), (
            fix
        )
        assert "+cpu" not in fix or "+cpu" in example.ask


def component(word: str) -> str:
    return re.split(r"[<>=!]", word, maxsplit=1)[0]


# --- the order of files and rows does not matter


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> FactTable:
    """Return the matrix of the shipped facts with other file names, and all lists of facts and rows reversed."""
    folder = tmp_path_factory.mktemp("turned")
    (folder / "derived").mkdir()
    for number, path in enumerate(reversed(fact_files(FACTS))):
        content = yaml.safe_load(path.read_text())
        for fact in content.get("facts", ()):
            if "rows" in fact:
                fact["rows"] = [backward_row(row) for row in reversed(fact["rows"])]
        turned = {key: backward(content[key]) for key in reversed(content)}
        place = folder / "derived" if path.parent.name == "derived" else folder
        (place / f"{number:03}.yaml").write_text(json.dumps(turned))
    return compile_facts(load_facts([folder]))


def backward(given: Any) -> Any:
    if isinstance(given, dict):
        return {key: given[key] for key in reversed(given)}
    return given[::-1] if isinstance(given, list) else given


def backward_row(row: dict[str, Any]) -> dict[str, Any]:
    return {key: backward(row[key]) if key in ("when", "then") else row[key] for key in reversed(row)}


@pytest.mark.matrix
@each(ANSWERED)
def test_the_order_of_files_and_rows_does_not_matter(example: Example, turned: FactTable) -> None:
    again = check(turned, parse_request(example.words, turned))
    assert answer_data(again) == answer_data(answer(example.ask))


# --- sources, JSON, lint


@pytest.mark.matrix
@each(ANSWERED)
def test_every_reason_has_its_source(example: Example) -> None:
    for one in all_reasons(answer(example.ask)):
        assert one.source == shipped_facts().facts[one.fact].source
        assert one.source.type in SOURCES
        assert len(one.source.where) > 8
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", one.source.seen)
        assert one.text
        assert "{" not in one.cited + one.condition + one.hint


@pytest.mark.matrix
@each(ANSWERED)
def test_the_answer_as_json(example: Example) -> None:
    given = answer(example.ask)
    data = answer_data(given)
    assert json.loads(json.dumps(data)) == data
    assert (data["verdict"], data["exit_code"]) == (example.verdict, VERDICTS[example.verdict])
    assert [one["text"] for one in data["request"]] == [ask.text for ask in given.asks]
    for conflict in data["conflicts"]:
        assert all(isinstance(fix, str) and fix for fix in conflict["nearest"])
        for one in conflict["reasons"]:
            cited = f"[{one['fact']}]" in " ".join([conflict["text"], *conflict["also"]])
            assert cited or one["default"] or (one["example"] and one["kind"] == "provides")
            assert {"type", "where", "seen", "how"} <= one["source"].keys()
    assert set(data["facts"]["used"]) == {one.fact for one in all_reasons(given)} - only_superseded(given)


def only_superseded(given: Answer) -> set[str]:
    return {one.fact for one in given.superseded} - set(given.facts)


@pytest.mark.unit
def test_the_reason_of_a_provided_version_comes_from_its_row() -> None:
    """A sentence about a provided version must not contain the version that the request names instead."""
    seen = 0
    for number in range(len(shipped_matrix().rows)):
        fact, brought = (
            shipped_matrix().fact(number),
            shipped_matrix().then(number).keys() - shipped_matrix().when(number).keys(),
        )
        if fact.kind == "provides" and brought & set(re.findall(r"{([a-z0-9-]+)}", fact.because)):
            seen += 1
            assert "9.9.9" not in row_reason(shipped_matrix(), number, dict.fromkeys(brought, "9.9.9")).text, fact.id
    assert seen


@pytest.mark.unit
@pytest.mark.slow_unit
def test_the_shipped_facts_lint_clean() -> None:
    assert [str(finding) for finding in lint_facts(shipped_facts())] == []


def test_what_allows_a_combination_is_stated_as_it_is() -> None:
    """The message of a conflict is not true of what is valid: "numpy 2.5.5 has no wheel for amd64"."""
    reasons = {reason.fact: reason.text for reason in answer("numpy=2.5.5 arch=amd64 os=debian13").reasons}
    assert reasons["numpy.machine"] == "numpy==2.5.5 works with arch amd64 or arm64 only"
    assert not [text for text in reasons.values() if "has no wheel" in text or "everything" in text]
