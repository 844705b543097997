"""The compiled matrix: order of values, masks, what rows bind, rivals and disputes, and the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from smallfacts import fact, matrix, read, requests, write

from envbuild.errors import SpecError
from envbuild.matrix import cache as cached
from envbuild.matrix import load, rivals
from envbuild.matrix.compiled import Matrix, compile_facts, load_matrix, pick_order
from envbuild.matrix.explain import picks
from envbuild.matrix.model import Component
from envbuild.matrix.solver import solve
from envbuild.matrix.values import constraint

pytestmark = pytest.mark.unit

VERSIONS = ["1.0", "2.0", "3.0"]


def plan(given: Matrix, *words: str, waived: Sequence[str] = ()) -> dict[str, str] | None:
    """What is picked, or None."""
    found = picks(given, requests(given, *words), waived)
    return None if found is None else given.named(found.assignment)


# --- values


def test_values_stand_in_the_order_in_which_they_are_picked() -> None:
    torch = Component("torch", "version", "x")
    given = ["2.8.0+cu126", "2.10.0a0+b4e4ee81d3", "2.9.0rc1", "2.8.0", "2.8.0+cu128", "2.10.0", "2.7"]
    assert pick_order(torch, given) == (
        *("2.10.0", "2.8.0", "2.7"),
        *("2.8.0+cu128", "2.8.0+cu126", "2.9.0rc1", "2.10.0a0+b4e4ee81d3"),
    )
    assert pick_order(Component("python", "version", "x"), ["3.13t", "3.12", "3.13"]) == ("3.13", "3.12", "3.13t")
    assert pick_order(Component("sm", "sm", "x"), ["9.0", "12.0", "8.6"]) == ("12.0", "9.0", "8.6")
    assert pick_order(Component("gpu", "name", "x"), ["T4", "A100", "T4"]) == ("T4", "A100")


def test_values_are_those_listed_named_exactly_or_provided(tmp_path: Path) -> None:
    facts = [
        fact("a.one", "limits", {"a": "==1.5"}, {"b": ">=2"}),
        fact("a.two", "provides", {"a": "==1.0"}, {"b": "7.1"}),
        fact("a.three", "provides", {"a": "==2.0"}, {"b": "3"}),
        fact("a.four", "limits", {"a": "*"}, {"b": "!=3.0"}),
        fact("b.five", "limits", {"b": "==3.1.0"}, {"a": "*"}),
    ]
    given = matrix(tmp_path, {"a": ["1.0", "2.0"], "b": ["3.1"]}, facts)
    assert given.values[given.number["a"]] == ("2.0", "1.5", "1.0")
    assert given.values[given.number["b"]] == ("7.1", "3.1"), "3 is met by 3.1, and 3.1.0 is 3.1"


def test_numbers_follow_ranks(tmp_path: Path) -> None:
    components = {"z": {"rank": 1, "values": ["1"]}, "a": {"rank": 9, "values": ["1"]}, "m": {"rank": 9}}
    given = matrix(tmp_path, components, [fact("a.m", "limits", {"a": "*"}, {"m": "*"})])
    assert [component.name for component in given.components] == ["z", "a", "m"]


def test_masks_and_values(tmp_path: Path) -> None:
    given = matrix(tmp_path, {"a": VERSIONS}, [fact("a.x", "limits", {}, {"a": ">1"})])
    component = given.components[0]
    assert given.mask("a", constraint(component, ">=2")) == 0b0110
    assert given.mask("a", constraint(component, "-")) == 1
    assert given.full == (0b1111,)
    assert given.values_of(0, 0b1101) == ["2.0", "1.0"]
    assert (given.value(0, 0b1010), given.value(0, 1)) == ("3.0", None)
    assert given.assignment({"a": "2.0"}) == [0b0100]
    assert given.named([0b0100]) == {"a": "2.0"}
    assert given.named([1]) == {}
    assert given.component("a") is component
    assert given.component("b") is None
    with pytest.raises(KeyError):
        given.bit("a", "4.0")


def test_builds_with_a_label_are_meant_only_where_one_is_named_or_there_are_no_others(tmp_path: Path) -> None:
    values = ["2.8.0", "2.8.0+cu126", "2.8.1", "2.9.0+cpu"]
    given = matrix(tmp_path, {"a": values}, [fact("a.x", "limits", {}, {"a": ">1"})])

    def asked(text: str) -> list[str]:
        return given.values_of(0, given.asked("a", constraint(given.components[0], text)))

    assert asked("2.8.0") == ["2.8.0"]
    assert asked("2.8") == ["2.8.1", "2.8.0"]
    assert asked("==2.8.0+cu126") == ["2.8.0+cu126"]
    assert asked("2.9") == ["2.9.0+cpu"]
    assert asked("*") == ["2.8.1", "2.8.0", "2.9.0+cpu", "2.8.0+cu126"]


def test_values_that_nobody_knew_can_be_added(tmp_path: Path) -> None:
    facts = [
        fact("a.b", "limits", {"a": ">=2"}, {"b": "<3"}),
        fact("a.c", "limits", {"a": "==1.0"}, {"b": "<2"}, question="q"),
        fact("a.d", "limits", {"a": "<=1.5"}, {"b": "<3"}, question="q", source="issue"),
    ]
    given = matrix(tmp_path, {"a": ["1.0", "2.0"], "b": ["2.0"]}, facts, {"q": ["a", "b"]})
    component = given.components[0]
    assert given.unheard("a", constraint(component, "9.9")) == ("9.9",)
    assert given.unheard("a", constraint(component, "2.0")) == ()
    assert given.unheard("a", constraint(component, ">=9.9")) == ()
    more = given.extended({"a": ["9.9", "1.5", "2.0"], "b": ["4.0"]})
    assert more.values == (("2.0", "1.0", "9.9", "1.5"), ("2.0", "4.0"))
    assert given.values == (("2.0", "1.0"), ("2.0",)), "the matrix itself stays as it is"
    assert plan(more, "a=9.9", "b=4.0") is None
    assert plan(more, "a=1.5", "b=2.0") == {"a": "1.5", "b": "2.0"}
    assert plan(more, "a=1.5", "b=4.0") is None
    assert plan(more, "a=1.0", "b=2.0") is None
    assert given.extended({"a": ["2.0"]}) is given
    again = compile_facts(read(tmp_path, {"a": ["1.0", "2.0", "9.9", "1.5"], "b": ["2.0", "4.0"]}, facts, {"q": ["a"]}))
    assert {row: claim_texts(more, row) for row in range(3)} == {row: claim_texts(again, row) for row in range(3)}


def claim_texts(given: Matrix, row: int) -> list[dict[str, set[str]]]:
    claim = given.claim(row)
    return [
        {given.components[at].name: set(given.values_of(at, mask)) for at, mask in part.items()}
        for part in (claim.when, claim.allowed)
    ]


def test_whether_one_value_can_meet_several_constraints(tmp_path: Path) -> None:
    components: dict[str, Any] = {"a": VERSIONS, "gpu": {"kind": "name", "values": ["H100", "A100"]}}
    given = matrix(tmp_path, components, [fact("a.x", "limits", {"gpu": "H100"}, {"a": ">1"})])

    def together(name: str, *texts: str) -> bool:
        component = given.component(name)
        assert component is not None
        return given.together(name, [constraint(component, text) for text in texts])

    assert together("a", ">=1.5", "<2.5")
    assert not together("a", "1.0", "2.0")
    assert together("a", "9.9", ">=3"), "a version that nobody knows is still one"
    assert not together("a", "9.9", "<3")
    assert together("gpu", "H100", "*")
    assert not together("gpu", "H100", "A100")


# --- what rows bind


@pytest.mark.parametrize(
    ("kind", "then", "expected"),
    [
        ("requires", ">=2", {"-": False, "1.0": False, "2.0": True, "3.0": True}),
        ("provides", "2", {"-": False, "1.0": False, "2.0": True, "3.0": False}),
        ("limits", ">=2", {"-": True, "1.0": False, "2.0": True, "3.0": True}),
        ("forbids", ">=2", {"-": True, "1.0": True, "2.0": False, "3.0": False}),
        ("forbids", "*", {"-": True, "1.0": False, "2.0": False, "3.0": False}),
        ("limits", "-", {"-": True, "1.0": False, "2.0": False, "3.0": False}),
        ("requires", ">9", {"-": True, "1.0": False, "2.0": False, "3.0": False}),
    ],
)
def test_kinds_of_facts(tmp_path: Path, kind: str, then: str, expected: dict[str, bool]) -> None:
    given = matrix(tmp_path, {"a": ["1.0"], "b": VERSIONS}, [fact("a.b", kind, {"a": "1.0"}, {"b": then})])
    program = given.program()
    for value, allowed in expected.items():
        mask = given.bit("b", None if value == "-" else value)
        found = solve([given.bit("a", "1.0"), mask], program.clauses, ())
        assert (found is not None) is allowed, value
        assert solve([1, mask], program.clauses, ()) is not None, "without a, the row says nothing"


def test_what_order_says_nothing_about_is_let_pass_but_noticed(tmp_path: Path) -> None:
    ngc = "2.10.0a0+b4e4ee81d3"
    facts = [
        fact("a.limit", "limits", {"a": "*"}, {"torch": ">=2.11"}),
        fact("a.requirement", "requires", {"a": "*"}, {"torch": ">=2.11"}),
        fact("torch.old", "forbids", {"torch": "<2.12"}, {"a": "*"}),
    ]
    given = matrix(tmp_path, {"a": ["1.0"], "torch": ["2.9.0", "2.11.0", ngc]}, facts)
    found = given.assignment({"a": "1.0", "torch": ngc})
    assert solve(found, given.program().clauses, ()) == found
    held = {given.fact(held.row).id: held for held in given.holding(found)}
    assert {name: (entry.fails, entry.unsure) for name, entry in held.items()} == {
        "a.limit": ((), ("torch",)),
        "a.requirement": ((), ("torch",)),
    }


def test_absence_can_be_a_condition(tmp_path: Path) -> None:
    facts = [fact("a.alone", "limits", {"a": "*", "compat": ["-", "<2"]}, {"b": ">=2"})]
    given = matrix(tmp_path, {"a": ["1.0"], "b": ["1.0", "2.0"], "compat": ["1.0", "2.0"]}, facts)
    assert plan(given, "a", "b=1.0") == {"a": "1.0", "b": "1.0", "compat": "2.0"}
    assert plan(given, "a", "b=1.0", "compat=1.0") is None
    assert plan(given, "a", "b=2.0") == {"a": "1.0", "b": "2.0"}


def test_only_hard_rows_bind(tmp_path: Path) -> None:
    facts = [
        fact(f"a.{strength}", "limits", {"a": "1.0"}, {"b": "<2"}, strength=strength)
        for strength in ("warn", "conditional", "disputed")
    ]
    given = matrix(tmp_path, {"a": ["1.0"], "b": VERSIONS}, facts)
    assert plan(given, "a", "b=3.0") == {"a": "1.0", "b": "3.0"}
    held = given.holding(given.assignment({"a": "1.0", "b": "3.0"}))
    assert [(given.fact(entry.row).id, entry.fails) for entry in held] == [
        ("a.conditional", ("b",)),
        ("a.disputed", ("b",)),
        ("a.warn", ("b",)),
    ]
    assert [entry.row for entry in given.holding(given.assignment({"b": "3.0"}))] == []


# --- rivals


def rivalry(tmp_path: Path, *facts: dict[str, Any]) -> Matrix:
    components: dict[str, Any] = {"a": VERSIONS, "b": VERSIONS, "arch": {"kind": "name", "values": ["amd64", "arm64"]}}
    return matrix(tmp_path, components, facts, {"q": ["a", "b"]})


def allowed(given: Matrix, *words: str, waived: Sequence[str] = ()) -> str:
    """The values of b that are possible beside `words`, by their first digit."""
    return "".join(value[0] for value in VERSIONS if plan(given, *words, f"b={value}", waived=waived) is not None)


def test_the_better_source_binds_where_it_speaks(tmp_path: Path) -> None:
    given = rivalry(
        tmp_path,
        fact("a.documented", "limits", {"a": ">=2"}, {"b": ">=3"}, question="q", source="upstream-docs"),
        fact("a.seen", "limits", {"a": "3.0", "arch": "amd64"}, {"b": ">=2"}, question="q"),
        fact("a.other", "limits", {"a": "3.0", "arch": "amd64"}, {"b": "<3"}),
    )
    assert allowed(given, "a=3.0", "arch=amd64") == "2"
    assert allowed(given, "a=3.0", "arch=arm64") == "3"
    assert allowed(given, "a=2.0", "arch=amd64") == "3"
    assert allowed(given, "a=3.0", "arch=amd64", waived=["a.other"]) == "23"
    # The better source waived, the other one counts again.
    assert allowed(given, "a=3.0", "arch=amd64", waived=["a.seen", "a.other"]) == "3"
    assert allowed(given, "a=3.0", "arch=amd64", waived=["a.seen"]) == ""
    held = given.holding(given.assignment({"a": "3.0", "arch": "amd64", "b": "2.0"}))
    shown = {given.fact(entry.row).id: (entry.fails, dict(entry.yields)) for entry in held}
    winner = next(entry.row for entry in held if given.fact(entry.row).id == "a.seen")
    assert shown == {"a.documented": ((), {"b": winner}), "a.other": ((), {}), "a.seen": ((), {})}
    alone = given.holding(given.assignment({"a": "3.0", "arch": "amd64", "b": "2.0"}), waived=["a.seen"])
    assert ("b",) in [entry.fails for entry in alone]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"question": ""}, id="other-question"),
        pytest.param({"source": "upstream-docs"}, id="source-no-better"),
        pytest.param({"strength": "warn"}, id="only-a-warning"),
    ],
)
def test_who_is_no_rival(tmp_path: Path, change: dict[str, str]) -> None:
    seen = {"question": "q", **change}
    if not seen["question"]:
        del seen["question"]
    given = rivalry(
        tmp_path,
        fact("a.documented", "limits", {"a": "3.0"}, {"b": ">=3"}, question="q", source="upstream-docs"),
        fact("a.seen", "limits", {"a": "3.0"}, {"b": ">=2"}, **seen),
    )
    assert allowed(given, "a=3.0") == "3"


def test_many_rows_of_a_better_source(tmp_path: Path) -> None:
    many = [f"{major}.{minor}" for major in range(1, 5) for minor in range(10)]
    rows = [({"a": f"=={value}", "arch": "amd64"}, {"b": ">=2"}) for value in many[:-1]]
    components: dict[str, Any] = {"a": many, "b": VERSIONS, "arch": {"kind": "name", "values": ["amd64", "arm64"]}}
    facts = [
        fact("a.seen", "limits", rows, question="q"),
        fact("a.documented", "limits", {"a": "*"}, {"b": ">=3"}, question="q", source="issue"),
    ]
    given = matrix(tmp_path, components, facts, {"q": ["a", "b"]})
    assert allowed(given, "a=1.0", "arch=amd64") == "23"
    assert allowed(given, "a=1.0", "arch=arm64") == "3"
    assert allowed(given, "a=4.9", "arch=amd64") == "3"
    assert sum(len(boxes) for boxes in given.narrowed.values()) == 2, "the boxes are put together again"


def test_boxes_less_boxes() -> None:
    full = (0b111, 0b111, 0b111)
    left = rivals.without({0: 0b011}, [{0: 0b001, 1: 0b110}, {1: 0b010, 2: 0b100}], full)
    for at in range(27):
        point = (1 << at % 3, 1 << at // 3 % 3, 1 << at // 9)
        inside = bool(point[0] & 0b011)
        taken = (point[0] & 0b001 and point[1] & 0b110) or (point[1] & 0b010 and point[2] & 0b100)
        covering = [box for box in left if all(point[component] & mask for component, mask in box.items())]
        assert len(covering) == (inside and not taken), point
    assert rivals.without({0: 0b011}, [{0: 0b111}], full) == []


def test_what_is_disputed_binds_as_far_as_all_agree(tmp_path: Path) -> None:
    given = rivalry(
        tmp_path,
        fact("a.one", "limits", {"a": "3.0"}, {"b": "1"}, question="q", strength="disputed"),
        fact("a.two", "limits", {"a": "3.0"}, {"b": "<=2"}, question="q", strength="disputed", source="issue"),
    )
    assert allowed(given, "a=3.0") == "12"
    assert allowed(given, "a=2.0") == "123"
    assert allowed(given, "a=3.0", waived=["a.one"]) == "12", "the other one still has a say"
    assert allowed(given, "a=3.0", waived=["a.one", "a.two"]) == "123"
    held = given.holding(given.assignment({"a": "3.0", "b": "2.0"}))
    assert [(given.fact(entry.row).id, entry.fails, dict(entry.yields)) for entry in held] == [
        ("a.one", ("b",), {}),
        ("a.two", (), {}),
    ]
    assert set(given.program().owners) == {(0, 1)}


def test_a_better_source_settles_a_dispute(tmp_path: Path) -> None:
    given = rivalry(
        tmp_path,
        fact("a.one", "limits", {"a": ">=2"}, {"b": "1"}, question="q", strength="disputed", source="issue"),
        fact("a.two", "limits", {"a": ">=2"}, {"b": "<=2"}, question="q", strength="disputed", source="issue"),
        fact("a.seen", "limits", {"a": "3.0"}, {"b": "3"}, question="q"),
    )
    assert allowed(given, "a=3.0") == "3"
    assert allowed(given, "a=2.0") == "12"
    held = given.holding(given.assignment({"a": "3.0", "b": "3.0"}))
    assert [(given.fact(entry.row).id, entry.fails) for entry in held] == [("a.one", ()), ("a.seen", ()), ("a.two", ())]


# --- the cache

COMPONENTS: dict[str, Any] = {
    "a": ["1.0", "2.0"],
    "torch": {"values": ["2.9.0", "2.10.0a0+b4e4ee81d3"], "rank": 3, "packages": ["torch", "torch-cpu"]},
    "gpu": {"kind": "name", "values": {"H100": ["H100 SXM"], "A100": []}, "shown": "{value}"},
    "sm": {"kind": "sm", "values": ["9.0"]},
}
FACTS = [
    fact("a.torch", "limits", {"a": "1.0"}, {"torch": ">=2.8"}, question="q", because="“so” it is {a}", hint="no"),
    fact("a.issue", "limits", {"a": "*"}, {"torch": "<2"}, question="q", source="issue"),
    fact("a.gpu", "limits", {"gpu": "!=H100", "a": "*"}, {"sm": {"cubins": ["90a"], "ptx": ["80"]}}, strength="warn"),
    fact("a.one", "limits", {"a": "1.0"}, {"sm": "9.0"}, question="s", strength="disputed"),
    fact("a.two", "limits", {"a": "1.0"}, {"sm": "8.0"}, question="s", strength="disputed"),
]
QUESTIONS = {"q": ["a", "torch"], "s": ["a", "sm"]}


def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "facts", COMPONENTS, FACTS, QUESTIONS)


def entries(cache: Path) -> list[Path]:
    return sorted(cache.iterdir()) if cache.exists() else []


def test_a_matrix_from_the_cache_is_the_same(tmp_path: Path) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    first = load_matrix([facts], cache)
    assert len(entries(cache)) == 1
    again = cached.read(entries(cache)[0])
    assert again is not None
    assert again == first == load_matrix([facts], cache)
    assert again.program() == first.program()
    assert again.narrowed
    assert again.groups
    assert again.extended({"a": ["7"], "sm": ["8.6"]}) == first.extended({"a": ["7"], "sm": ["8.6"]})
    assert first.digest == load.digest([facts])


def test_a_cached_matrix_answers_without_yaml_and_without_reading_constraints(tmp_path: Path) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    load_matrix([facts], cache)
    text = f"""
import sys
from pathlib import Path
from envbuild.matrix.compiled import load_matrix
from envbuild.matrix.problem import Request, picks
matrix = load_matrix([Path({str(facts)!r})], Path({str(cache)!r}))
found = picks(matrix, [Request("", "a", matrix.bit("a", "1.0")), Request("", "gpu", matrix.bit("gpu", "H100"))])
print(matrix.named(found.assignment))
print(sorted(name for name in sys.modules if name in ("yaml", "envbuild.matrix.values", "envbuild.matrix.load")))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["{'a': '1.0', 'gpu': 'H100'}", "[]"]


def test_the_key_follows_every_byte_name_and_folder(tmp_path: Path) -> None:
    facts = folder(tmp_path)
    keys = [cached.key([facts])]
    (facts / "derived").mkdir()
    (facts / "derived" / "more.yaml").write_text("schema: 1\n")
    keys.append(cached.key([facts]))
    (facts / "derived" / "more.yaml").write_text("schema: 1 \n")
    keys.append(cached.key([facts]))
    (facts / "derived" / "more.yaml").rename(facts / "derived" / "other.yaml")
    keys.append(cached.key([facts]))
    facts.rename(tmp_path / "elsewhere")
    keys.append(cached.key([tmp_path / "elsewhere"]))
    assert len(set(keys)) == len(keys)
    assert "" not in keys
    assert cached.key([tmp_path / "elsewhere"]) == keys[-1]


def test_the_key_covers_the_files_that_are_read(tmp_path: Path) -> None:
    facts = folder(tmp_path)
    (facts / "derived").mkdir()
    for name in ("b.yaml", "a.yaml", "derived/z.yaml", "notes.txt", "derived/c.yml"):
        (facts / name).write_text("")
    assert cached.files(facts) == load.files(facts)
    assert len(cached.files(facts)) == 4


def test_the_key_covers_every_module_that_makes_the_matrix() -> None:
    package = Path(cached.__file__).parent
    for name in cached.CODE:
        assert (package / f"{name}.py").exists()
    text = "import sys, envbuild.matrix.compiled, envbuild.matrix.load; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    used = {
        name.removeprefix("envbuild.matrix.") for name in done.stdout.split() if name.startswith("envbuild.matrix.")
    }
    assert used - {"solver", "holding"} == set(cached.CODE)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut-short"),
        pytest.param(lambda data: data.replace(b"H100", b"H200"), id="changed"),
        pytest.param(lambda data: b"\xff" + data, id="no-text"),
        pytest.param(lambda data: whole(b"[]"), id="other-shape"),
        pytest.param(lambda data: whole(b'{"atoms": [[], []], "rows": [[]], "questions": []}'), id="lists-too-short"),
        pytest.param(lambda data: whole(data.partition(b"\n")[2].replace(b"kind", b"mind")), id="other-keys"),
    ],
)
def test_a_damaged_entry_is_made_again(tmp_path: Path, damage: Any) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    first = load_matrix([facts], cache)
    (entry,) = entries(cache)
    good = entry.read_bytes()
    entry.write_bytes(damage(good))
    assert cached.read(entry) is None
    assert load_matrix([facts], cache) == first
    assert entry.read_bytes() == good


def whole(body: bytes) -> bytes:
    """An entry whose checksum is right."""
    return cached.checksum(body) + b"\n" + body


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    facts = folder(tmp_path)
    (tmp_path / "file").write_text("")
    assert load_matrix([facts], tmp_path / "file" / "cache").values
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at-all")
    assert load_matrix([facts], tmp_path / "dangling").values
    assert not (tmp_path / "nowhere").exists()


def test_the_cache_is_where_the_user_has_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = folder(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load_matrix([facts])
    assert [path.suffix for path in entries(tmp_path / "xdg" / "envbuild" / "matrix")] == [".json"]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    load_matrix([facts])
    assert len(entries(tmp_path / "home" / ".cache" / "envbuild" / "matrix")) == 1


def test_old_entries_go(tmp_path: Path) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    cache.mkdir()
    for number in range(cached.KEPT + 3):
        (cache / f"old{number}.json").write_text("")
        os.utime(cache / f"old{number}.json", (number, number))
    load_matrix([facts], cache)
    names = {path.stem for path in entries(cache)}
    assert len(names) == cached.KEPT
    assert cached.key([facts]) in names
    assert "old0" not in names


def test_wrong_facts_are_told_and_not_kept(tmp_path: Path) -> None:
    facts = write(tmp_path / "facts", {"a": ["1.0"]}, [fact("a.x", "limits", {"a": "banana"}, {"a": "1"})])
    with pytest.raises(SpecError):
        load_matrix([facts], tmp_path / "cache")
    assert entries(tmp_path / "cache") == []


def test_the_body_of_an_entry_is_json(tmp_path: Path) -> None:
    facts, cache = folder(tmp_path), tmp_path / "cache"
    load_matrix([facts], cache)
    head, _, body = entries(cache)[0].read_bytes().partition(b"\n")
    assert head.startswith(b"envbuild matrix")
    assert [given["name"] for given in json.loads(body)["components"]] == ["torch", "a", "gpu", "sm"]
