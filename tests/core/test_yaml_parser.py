"""The YAML reader: what its scalars are, and that no file can exhaust it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import Finding, SpecError
from envbuild.core.regular_file import MAX_TEXT
from envbuild.core.yaml_nodes import Node, Scalar, Sequence, Table
from envbuild.core.yaml_parser import load, parse

pytestmark = pytest.mark.unit


def read(text: str) -> Table:
    findings: list[Finding] = []
    top = parse(text, "x.yaml", findings)
    assert not findings
    return top


def value(text: str) -> Scalar:
    node = read(f"key: {text}\n").entries["key"][1]
    assert isinstance(node, Scalar)
    return node


KINDS = {  # separated by blanks
    "number": "1 -1 +1 0 007 0x1F 0o17 0b11 1_000 1.5 1. .5 1e3 1.5e-3 1:30 .inf -.inf .nan",
    "truth": "true False yes NO on Off",
    "null": "~ null NULL",
    "text": '1.2.3 580.65.06 3.13t 2026-11-20 v1 1a 1e debian:13 + . .. +x "1" \'true\' "" y',
}


@pytest.mark.parametrize(
    ("text", "kind"),
    [(text, kind) for kind, texts in KINDS.items() for text in texts.split(" ")],
)
def test_kinds(text: str, kind: str) -> None:
    assert value(text).kind == kind


def test_zeros_of_a_number_are_preserved() -> None:
    assert value("3.10").value == "3.10"


@given(st.floats() | st.integers() | st.booleans() | st.none())
def test_values_that_pyyaml_does_not_read_as_text_are_not_text(thing: object) -> None:
    """Everything that PyYAML writes without quotes for a value that is not text."""
    text = yaml.safe_dump({"key": thing})
    node = read(text).entries["key"][1]
    assert isinstance(node, Scalar)
    assert node.kind != "text"


@given(st.text(max_size=20))
def test_texts_that_pyyaml_writes_are_read_alike(thing: str) -> None:
    """Everything that PyYAML writes for a text is read as PyYAML's own parser reads it."""
    text = yaml.safe_dump({"key": thing}, allow_unicode=True)
    node = read(text).entries["key"][1]
    assert isinstance(node, Scalar)
    assert node.value == yaml.safe_load(text)["key"]


def test_places_count_from_one() -> None:
    top = read("a: 1\nlist:\n  - {ä: x, b: y}\n")
    assert (top.where, top.entries["a"][0].where, top.entries["a"][1].where) == (
        "x.yaml:1:1",
        "x.yaml:1:1",
        "x.yaml:1:4",
    )
    sequence = top.entries["list"][1]
    assert isinstance(sequence, Sequence)
    table = sequence.items[0]
    assert isinstance(table, Table)
    assert (table.where, table.entries["b"][0].where) == ("x.yaml:3:5", "x.yaml:3:12")


def test_fifty_levels() -> None:
    def depth(node: Node) -> int:
        return 1 + max((depth(item) for item in node.items), default=0) if isinstance(node, Sequence) else 0

    node = read("key: " + "[" * 49 + "]" * 49).entries["key"][1]
    assert depth(node) == 49
    with pytest.raises(SpecError, match="nested more than 50"):
        read("key: " + "[" * 50 + "]" * 50)


@pytest.mark.parametrize(
    "text",
    [
        "[" * MAX_TEXT,
        "{" * MAX_TEXT,
        "- " * (MAX_TEXT // 2),
        "? " * (MAX_TEXT // 2),
        "a: &a [x]\n" + "b: *a\n" * (MAX_TEXT // 7),
        "k: " + "'" * (MAX_TEXT - 4),
    ],
    ids=["lists", "tables", "dashes", "questions", "aliases", "quotes"],
)
def test_hostile_input_is_read_in_bounded_time(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(SpecError):
        parse(text, "x.yaml", [])
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "x.yaml"),
        ("# nothing\n", "x.yaml"),
        ("- a\n", "x.yaml:1:1"),
        ("text\n", "x.yaml:1:1"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2:1"),
        ("a: 1\nb: &x 1\n", "x.yaml:2:4"),
        ("a: *x\n", "x.yaml:1:4"),
        ("a: !!python/none x\n", "x.yaml:1:4"),
        ("a:\n  b: 1\n\tc: 2\n", "x.yaml:3:1"),
        ("a:\n  b: 1\n \tc: 2\n", "x.yaml:3:2"),
        ("a: 'b\nc: d\n", "x.yaml:1:4"),
        ("a: b: c\n", "x.yaml:1:5"),
        ("a: [b\nc: d\n", "x.yaml:2:2"),
    ],
)
def test_unreadable_yaml_has_a_place(text: str, where: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text, "x.yaml", [])
    assert caught.value.where == where


def test_a_key_is_text_and_unique() -> None:
    findings: list[Finding] = []
    top = parse("a: 1\nb: 2\n\na: 3\n[c]: 4\n", "x.yaml", findings)
    assert {key: value.value for key, (_, value) in top.entries.items() if isinstance(value, Scalar)} == {
        "a": "1",
        "b": "2",
    }
    assert [finding.where for finding in findings] == ["x.yaml:4:1", "x.yaml:5:1"]
    assert "line 1" in findings[0].hint


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"a: 1\nbc: \xff\n", ":2:5"),
        ("a: ü\nb: ü\x00\n".encode(), ":2:5"),
        (b"a: \x1b[31m\n", ":1:4"),
        (b"a: b\rc: \x07\n", ":1:9"),
        (b"x" * (MAX_TEXT + 1), ""),
    ],
)
def test_a_file_that_is_not_plain_text(data: bytes, place: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    with pytest.raises(SpecError) as caught:
        load(path, [])
    assert caught.value.where == f"{path}{place}"


def test_files_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "name").symlink_to("name")
    for path, where in (
        (tmp_path / "none.yaml", "none.yaml"),
        (tmp_path, "."),
        (tmp_path / "name", "name"),
        (Path("/none"), "/none"),
    ):
        with pytest.raises(SpecError) as caught:
            load(path, [])
        assert caught.value.where == where
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\nb:\t2\r\n")
    top = load(tmp_path / "x.yaml", [])
    assert list(top.entries) == ["a", "b"] and top.where == "x.yaml:1:1"
