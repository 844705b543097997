"""The typed reader of YAML: values by their type, and every mistake of a file with its place."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from envbuild.core.errors import Finding, SpecError
from envbuild.core.yaml_nodes import Table
from envbuild.core.yaml_parser import parse
from envbuild.core.yaml_reader import (
    MAX_FINDINGS,
    Reader,
    closest,
    did_you_mean,
    nearest,
    one_of,
    short,
    typing_distance,
)

pytestmark = pytest.mark.unit


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def table(text: str) -> Table:
    return parse(text, "x.yaml", [])


def read(text: str, use: Callable[[Reader, Any], Any]) -> tuple[Any, list[Finding]]:
    """Return the result of `use` for the value of `key`, and the mistakes."""
    reader = Reader()
    return use(reader, table(f"key: {text}\n").entries["key"][1]), reader.findings


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("abc", str, "abc"),
        ('"3.10"', str, "3.10"),
        ("true", bool, True),
        ("false", bool, False),
        ("-12", int, -12),
        ("1.5", float, 1.5),
        ("2", float, 2.0),
        ("b", Literal["a", "b"], "b"),
        ("blue", Color, Color.BLUE),
        ("[a, b]", tuple[str, ...], ("a", "b")),
        ("", tuple[str, ...], ()),
        ("{a: b}", Mapping[str, str], {"a": "b"}),
        ("{a: b}", dict[str, str], {"a": "b"}),
        ("", Mapping[str, str], {}),
        ("7", int | None, 7),
        ("7", None | int, 7),
    ],
)
def test_values_by_type(text: str, annotation: Any, value: object) -> None:
    found, findings = read(text, lambda reader, node: reader.value(node, annotation, "key"))
    assert (found, type(found), findings) == (value, type(value), [])


@pytest.mark.parametrize(
    ("text", "annotation", "hint"),
    [
        ("3.10", str, 'write key: "3.10" with quotes'),
        ("[a]", str, ""),
        ('"a\\nb"', str, "keep it to one line of plain text"),
        ('"1"', int, "write it without quotes"),
        ("one", int, ""),
        ("1.5", int, ""),
        ("0x1F", int, ""),
        ("[1]", int, ""),
        ("yes", bool, ""),
        ("1e3", float, ""),
        ("bleu", Color, "did you mean 'blue'? it is one of: red, blue"),
        ("x", tuple[str, ...], "write key: [x]"),
        ("5", tuple[str, ...], ""),
        ("{a: b}", tuple[str, ...], ""),
        ("[a]", Mapping[str, str], ""),
    ],
)
def test_a_value_of_another_type_is_a_finding_at_its_place(text: str, annotation: Any, hint: str) -> None:
    found, (finding,) = read(text, lambda reader, node: reader.value(node, annotation, "key"))
    assert not found
    assert (finding.where, finding.hint) == ("x.yaml:1:6", hint)


def test_a_type_that_yaml_does_not_have_is_a_mistake_of_the_recipe() -> None:
    for annotation in (bytes, tuple[int, ...], int | str):
        with pytest.raises(TypeError, match="'key'"):
            read("1", lambda reader, node, annotation=annotation: reader.value(node, annotation, "key"))


def test_a_missing_value_is_not_text() -> None:
    found, (finding,) = read("", lambda reader, node: reader.text(node, "key"))
    assert found is None and finding.where == "x.yaml:1:5"


def test_a_guard_refuses_a_text_wherever_it_is() -> None:
    def guard(text: str) -> str:
        return "is bad" if text == "bad" else ""

    for text, annotation, value in (
        ("bad", str, None),
        ("[good, bad]", tuple[str, ...], ("good",)),
        ("{a: bad, b: good}", Mapping[str, str], {"b": "good"}),
        ("bad", str | None, None),
    ):
        found, findings = read(
            text, lambda reader, node, annotation=annotation: reader.value(node, annotation, "key", guard)
        )
        assert (found, len(findings)) == (value, 1)


def test_folded_text_is_one_line() -> None:
    text = '"one\\n  two"'
    assert read(text, lambda reader, node: reader.text(node, "key", folded=True)) == ("one two", [])
    found, (finding,) = read(text, lambda reader, node: reader.text(node, "key"))
    assert found is None and "line end" in finding.message


def test_unknown_keys_are_findings_at_the_key_and_are_left_out() -> None:
    reader = Reader()
    top = table("name: a\nnmae: b\nother: c\n")
    assert list(reader.table(top, ["name", "base"], "top", "the image")) == ["name"]
    assert [(finding.where, finding.hint) for finding in reader.findings] == [
        ("x.yaml:2:1", "did you mean 'name'?"),
        ("x.yaml:3:1", "its keys are: base, name"),
    ]


def test_layers_written_as_a_list_get_the_line_to_type() -> None:
    for key, hint in (("layers", "write 'ucx: {}' for '- ucx', each on a line of its own"), ("env", "")):
        found, (finding,) = read("[ucx, nccl]", lambda reader, node, key=key: reader.entries(node, key))
        assert (found, finding.where, finding.hint) == ({}, "x.yaml:1:6", hint)


@pytest.mark.parametrize(
    ("text", "where", "hint"),
    [("name: x", "x.yaml:1:1", "begin with schema: 2"), ("schema: two", "x.yaml:1:9", "write schema: 2")],
)
def test_a_file_states_its_format_version(text: str, where: str, hint: str) -> None:
    reader = Reader()
    reader.schema(table(text), "image", 2)
    assert [(finding.where, finding.hint) for finding in reader.findings] == [(where, hint)]


@pytest.mark.parametrize(("version", "newer"), [("1", False), ("3", True), ("02", False), ("2.5", False)])
def test_another_format_version_ends_the_reading(version: str, newer: bool) -> None:
    with pytest.raises(SpecError) as caught:
        Reader().schema(table(f"schema: {version}"), "image", 2)
    assert caught.value.where == "x.yaml:1:9"
    assert ("pip install --upgrade" in caught.value.hint) is newer
    reader = Reader()
    reader.schema(table("schema: 2"), "image", 2)
    assert reader.findings == []


def test_findings_are_raised_once_each_by_their_place() -> None:
    reader = Reader()
    reader.finish()
    for where in ("x.yaml:10:1", "x.yaml:9:12", "x.yaml:9:2", "x.yaml:9:2", "x.yaml"):
        reader.wrong(where, "wrong")
    with pytest.raises(SpecError) as caught:
        reader.finish()
    assert [finding.where for finding in caught.value.findings] == [
        "x.yaml",
        "x.yaml:9:2",
        "x.yaml:9:12",
        "x.yaml:10:1",
    ]


def test_a_file_of_another_kind_is_not_read_to_its_end() -> None:
    reader = Reader()
    with pytest.raises(SpecError) as caught:
        for line in range(1, MAX_FINDINGS + 50):
            reader.wrong(f"x.yaml:{line}:1", "wrong")
    assert len(reader.findings) == MAX_FINDINGS + 1
    assert [finding.where for finding in caught.value.findings] == [
        f"x.yaml:{line}:1" for line in range(1, MAX_FINDINGS + 2)
    ]
    assert caught.value.findings[-1].message != "wrong"


def test_mistakes_of_the_yaml_itself_are_findings_too(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: 1\na: 2\n")
    reader = Reader()
    assert list(reader.load(tmp_path / "x.yaml").entries) == ["a"]
    (finding,) = reader.findings
    assert finding.where.endswith("x.yaml:2:1")


def test_the_nearest_name_takes_the_fewest_typing_mistakes() -> None:
    pairs = [("torch", "torch"), ("torhc", "torch"), ("trch", "torch"), ("torchh", "torch"), ("tprch", "torch")]
    assert [typing_distance(*pair) for pair in pairs] == [0, 1, 1, 1, 1]
    assert typing_distance("", "abc") == typing_distance("abc", "") == 3
    assert nearest("cuad", ["cu-a-d", "cuda"]) == nearest("cuad", ["cuda", "cu-a-d"]) == "cuda"  # two swapped
    assert nearest("trch", ["arch", "torch"]) == "torch"  # one mistake each: the more similar


def test_hints_for_misspelt_words() -> None:
    assert nearest("DeepSpede", ["deepspeed", "nccl"]) == "deepspeed"
    assert nearest("x", ["deepspeed"]) == closest("x", ["deepspeed"]) == ""
    assert nearest("abcdefgh", ["abcd"], 0.7) == "" != nearest("abcdefgh", ["abcd"])
    assert did_you_mean("b", ["bb", "a"], "keys") == "did you mean 'bb'?"
    assert did_you_mean("x", ["bb", "a"], "keys") == "keys: a, bb"
    assert did_you_mean("x", [], "keys") == ""
    assert did_you_mean("x", (f"k{number:02}" for number in range(32)), "keys").endswith("k29 and 2 more")
    assert one_of("x", ["b", ""], "one of") == "one of: b, ''"


def test_a_value_in_a_message_is_one_short_line() -> None:
    assert short("a\nb\x1b[0m") == r"a b\x1b[0m"
    assert short("a @ git+https://bob:hush@host/" + "x" * 40) == "a @ git+https://host/" + "x" * 36 + "…"
    assert (short("x" * 60), short("x" * 61)) == ("x" * 60, "x" * 57 + "…")
