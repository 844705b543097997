"""Faults of facts that can be read, each in a small world that has no other fault."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from envbuild.matrix.facts.lint import find_old_facts, lint_facts
from envbuild.matrix.facts.load import load_facts
from envbuild.matrix.facts.model import Facts

pytestmark = pytest.mark.unit

WORLD = """
schema: 1
components:
  arch: {kind: name, about: CPU architecture, rank: 3, values: {amd64: [x86_64], arm64: [aarch64]}}
  torch: {kind: version, about: PyTorch, rank: 10, complete: true, values: ["2.9.0", "2.8.0", "2.0.1"]}
  gcc: {kind: version, about: GCC, rank: 60, precision: 1, values: ["14", "13", "12"]}
  driver: {kind: version, about: driver, rank: 90}
questions:
  torch-gcc: {of: [torch, gcc], about: which GCC builds against it}
  torch-driver: {of: [torch, driver], about: which driver it needs}
facts:
- id: torch.gcc
  question: torch-gcc
  kind: limits
  scope: build
  strength: hard
  because: "torch {torch} is not built with gcc {gcc}"
  source: {type: upstream-code, where: "pytorch/pytorch@v2.8.0 cpp_extension.py", seen: "2026-11-20", how: read}
  when: {torch: ">=2.8"}
  then: {gcc: "<14"}
- id: torch.driver
  question: torch-driver
  kind: limits
  scope: container-start
  strength: hard
  source: {type: upstream-docs, where: "CUDA Toolkit release notes, table 3", seen: "2026-11-20"}
  rows:
  - {when: {torch: "2.0"}, then: {driver: ">=450.80.02"}}
  - {when: {torch: ">=2.8", arch: amd64}, then: {driver: ">=525.60.13"}}
"""
FACT = """
- id: {id}
  {question}kind: limits
  scope: runtime
  strength: {strength}
  source: {{type: {type}, where: "{where}", seen: "2026-11-20", how: "{how}"}}
  because: "{because}"
  rows:
  - {{when: {{{when}}}, then: {{{then}}}}}
"""


def fact(id: str = "torch.more", *, question: str = "torch-gcc", **given: str) -> str:
    words = {
        "strength": "hard",
        "type": "upstream-code",
        "where": "NVIDIA/apex@25.09 setup.py",
        "how": "read",
        "because": "it says so",
        "when": 'torch: "2.8"',
        "then": 'gcc: "<14"',
    }
    return FACT.format(id=id, question=f"question: {question}\n  " if question else "", **(words | given))


def lint_messages(folder: Path, *more: str, world: str = WORLD) -> list[str]:
    """Return the messages; each has the place of a fact or row of the file, or none."""
    findings = lint_facts(loaded(folder, *more, world=world))
    lines = (folder / "a.yaml").read_text().splitlines()
    for finding in findings:
        if finding.where:
            path, line, column = finding.where.split(":")
            assert path == str(folder / "a.yaml")
            assert re.match(r"id:|when:|\{when:", lines[int(line) - 1][int(column) - 1 :])
    return [finding.message for finding in findings]


def loaded(folder: Path, *more: str, world: str = WORLD) -> Facts:
    (folder / "a.yaml").write_text(world + "".join(more))
    return load_facts([folder])


def test_nothing_is_wrong(tmp_path: Path) -> None:
    assert lint_messages(tmp_path) == []


def test_equal_answers_do_not_conflict(tmp_path: Path) -> None:
    assert lint_messages(tmp_path, fact(then='gcc: "<=13"')) == []


def test_conflicting_facts_of_equal_rank(tmp_path: Path) -> None:
    assert lint_messages(tmp_path, fact(then='gcc: "<13"')) == [
        "torch.gcc and torch.more answer 'torch-gcc' differently for gcc"
        " (torch >=2.8: limits gcc <14; torch 2.8: limits gcc <13), both upstream-code"
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"then": 'gcc: "<13"', "type": "measured"},  # a better source decides
        {"then": 'gcc: "<13"', "type": "issue", "where": "pytorch/pytorch#1"},  # so does a lesser one
        {"then": 'gcc: "<13"', "when": 'torch: "2.0"'},  # they never meet
        {"then": 'gcc: "<13"', "when": 'torch: "==2.7.0"', "question": ""},  # there is not one right answer
        {"then": 'gcc: "<13"', "strength": "warn"},  # a warning binds nothing
    ],
)
def test_conflicts_that_precedence_decides_are_accepted(given: dict[str, str], tmp_path: Path) -> None:
    text = WORLD.replace("complete: true, ", "")
    assert lint_messages(tmp_path, fact(**given), world=text) == []


def test_ranges_of_which_no_version_is_known_are_compared(tmp_path: Path) -> None:
    """No driver is listed in this world; the bounds themselves distinguish the ranges."""
    more = fact(question="torch-driver", type="upstream-docs", when='torch: "2.9", arch: "*"', then='driver: ">=580"')
    (finding,) = lint_messages(tmp_path, more)
    assert "answer 'torch-driver' differently for driver" in finding
    more = fact(question="torch-driver", type="upstream-docs", when='torch: "2.9", arch: arm64', then='driver: ">=580"')
    assert lint_messages(tmp_path, more) == []


def test_a_dispute_needs_its_other_side(tmp_path: Path) -> None:
    one = fact("gcc.one", strength="disputed", when='torch: "2.0"', then='gcc: "<13"')
    other = fact("gcc.other", strength="disputed", when='torch: "2.0"', then='gcc: "<14"')
    assert lint_messages(tmp_path, one, other) == []
    message = "is disputed, but no other disputed fact has a row with this 'when' and question"
    assert lint_messages(tmp_path, one) == [f"gcc.one {message}"]
    elsewhere = fact("gcc.other", strength="disputed", when='torch: "2.0.1", arch: "*"', then='gcc: "<14"')
    assert lint_messages(tmp_path, one, elsewhere) == [
        f"gcc.one {message}",
        f"gcc.other {message}",
    ]


def test_a_dispute_beside_a_bound(tmp_path: Path) -> None:
    """A bound with a source no better than those of a dispute does not resolve it."""
    sides = [fact(id, strength="disputed", when='torch: "2.8"', then=then) for id, then in SIDES.items()]
    findings = lint_messages(tmp_path, *sides)
    assert len(findings) == 2
    assert all("answer 'torch-gcc' differently for gcc" in finding for finding in findings)
    better = [
        text.replace("type: upstream-code", "type: issue").replace("25.09 setup.py", "25.09 #1") for text in sides
    ]
    assert lint_messages(tmp_path, *better) == []


SIDES = {"gcc.one": 'gcc: "<13"', "gcc.other": 'gcc: "12"'}


def test_rows_of_one_fact_that_leave_nothing(tmp_path: Path) -> None:
    rows = '\n  - {when: {torch: "==2.8.0"}, then: {gcc: ">=14"}}\n'
    more = fact(question="", then='gcc: "<14"').rstrip() + rows
    assert lint_messages(tmp_path, more) == [
        "torch.more: two rows hold together and leave gcc nothing"
        " (torch ==2.8.0: limits gcc >=14; torch 2.8: limits gcc <14)"
    ]


@pytest.mark.parametrize(
    "given, message",
    [
        ({"when": 'torch: ">=3"'}, "torch.more: torch '>=3' is met by no value that is known"),
        ({"then": 'gcc: "<12"'}, "torch.more: gcc '<12' is met by no value that is known"),
        ({"when": 'torch: ">=2.8,<2.1"'}, "torch.more: torch '>=2.8,<2.1' is met by no value at all"),
        ({"when": 'driver: ">=580,<570"'}, "torch.more: driver '>=580,<570' is met by no value at all"),
        ({"when": 'torch: "==2.8.7"'}, "torch.more: torch 2.8.7 does not exist"),
    ],
)
def test_constraints_that_nothing_meets(given: dict[str, str], message: str, tmp_path: Path) -> None:
    assert lint_messages(tmp_path, fact(question="", **given)) == [message]


@pytest.mark.parametrize("then", ['driver: ">=900"', 'driver: "-"', 'torch: "2.9"', 'torch: ">2.8"'])
def test_constraints_that_something_meets(then: str, tmp_path: Path) -> None:
    when = "gcc: '13'"
    assert lint_messages(tmp_path, fact(question="", when=when, then=then)) == []


def test_a_row_that_other_facts_rule_out(tmp_path: Path) -> None:
    assert lint_messages(tmp_path, fact(question="", when='torch: "2.9", gcc: "14"', then='driver: ">=580"')) == [
        "torch.more: torch.gcc rules out gcc 14, torch 2.9"
    ]


def test_a_default_conflicts_with_nothing_and_excludes_nothing(tmp_path: Path) -> None:
    """A default is valid until a request overrides it."""
    default = fact("torch.default", then='gcc: "13"').replace("kind:", "default: true\n  kind:")
    assert (
        lint_messages(tmp_path, default, fact(question="", when='torch: "2.8", gcc: "12"', then='driver: ">=580"'))
        == []
    )


def test_components_and_questions_without_facts(tmp_path: Path) -> None:
    text = WORLD.replace("questions:", "  apex: {kind: version, about: apex}\nquestions:").replace(
        "facts:",
        "  arch-gcc: {of: [arch, gcc], about: nothing}\n  torch-arch: {of: [torch, arch], about: half}\nfacts:",
    )
    assert lint_messages(tmp_path, fact(question="torch-arch"), world=text) == [
        "no fact is about the component 'apex'",
        "nothing answers the question 'arch-gcc': no fact",
        "nothing answers the question 'torch-arch': no row with all of torch, arch",
    ]


@pytest.mark.parametrize(
    "given, message",
    [
        ({"where": "README"}, "the source 'README' is too vague"),
        ({"where": "setup.py of apex"}, "the source 'setup.py of apex' lacks a version or commit"),
        ({"where": "an apex thread", "type": "issue"}, "the source 'an apex thread' lacks the number of the thread"),
        ({"where": "https://example.com/apex/25.09"}, "the source is an address"),
        ({"where": "apex 25.09 wheel", "type": "measured", "how": ""}, "measured, but not how"),
        ({"because": "it says so."}, "'because' ends with a full stop"),
        ({"where": "torch-2.8.0-cp313-win_amd64.whl"}, "'torch-2.8.0-cp313-win_amd64.whl' is about win_amd64"),
        ({"where": "CUDA 12.8 notes, macOS"}, "'CUDA 12.8 notes, macOS' is about macos"),
        ({"how": "opened apex-25.9-macosx_11_0.whl there"}, "'apex-25.9-macosx_11_0.whl' is about macosx"),
    ],
)
def test_sources(given: dict[str, str], message: str, tmp_path: Path) -> None:
    assert lint_messages(tmp_path, fact(**given)) == [f"torch.more: {message}"]


@pytest.mark.parametrize(
    "where", ["CUDA 12.8 notes, Linux and Windows", "apex@25.09 window.py", "upstream-docs of 2.8"]
)
def test_good_sources(where: str, tmp_path: Path) -> None:
    assert lint_messages(tmp_path, fact(where=where)) == []


@pytest.mark.parametrize(
    "arch, where, message",
    [
        ("arm64", "torch-2.8.0-cp313-manylinux_2_28_x86_64.whl", "a row for arm64 rests on '{where}', which is amd64"),
        ("amd64", "torch-2.8.0-cp313-manylinux_2_28_aarch64.whl", "a row for amd64 rests on '{where}', which is arm64"),
        ("amd64", "cmake 3.28 for linux-aarch64", "a row for amd64 rests on '{where}', which is arm64"),
        ("arm64", "docker/amd64/Dockerfile@25.09", "a row for arm64 rests on '{where}', which is amd64"),
        ("x86_64", "torch-2.8.0-cp313-manylinux_2_28_x86_64.whl", ""),
        ("'*'", "torch-2.8.0-cp313-manylinux_2_28_aarch64.whl", ""),
        (
            "'!=arm64'",
            "torch-2.8.0-cp313-manylinux_2_28_aarch64.whl",
            "a row for amd64 rests on '{where}', which is arm64",
        ),
        ("arm64", "wheels of torch 2.8.0, x86_64 and aarch64", ""),
    ],
)
def test_architectures(arch: str, where: str, message: str, tmp_path: Path) -> None:
    """A row for one architecture whose file is of another is the classic mistake of copied download tables."""
    found = lint_messages(tmp_path, fact(where=where, when=f'torch: "2.8", arch: {arch}'))
    assert found == ([f"torch.more: {message.format(where=where)}"] if message else [])


def test_a_file_name_in_the_text_counts_too(tmp_path: Path) -> None:
    (finding,) = lint_messages(tmp_path, fact(how="opened lib_x86_64.so there", when='torch: "2.8", arch: arm64'))
    assert finding.endswith("a row for arm64 rests on 'lib_x86_64.so', which is amd64")
    prose = "one script builds for x86_64 and aarch64"
    assert lint_messages(tmp_path, fact(how=prose, when='torch: "2.8", arch: arm64')) == []


def test_old_facts_are_listed(tmp_path: Path) -> None:
    facts = loaded(tmp_path)
    assert find_old_facts(facts, 12, date(2027, 11, 1)) == []
    old = find_old_facts(facts, 12, date(2027, 12, 20))
    assert [finding.message for finding in old] == [
        "torch.driver was seen 13 months ago, on 2026-11-20",
        "torch.gcc was seen 13 months ago, on 2026-11-20",
    ]
