"""Arguments of several commands: completion, and results that are printed one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from envbuild.cli import options
from envbuild.spec.project import Project

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def project(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the small project the one of the current folder."""
    monkeypatch.setattr(Project, "find", lambda *_, **__: small)


def test_names_are_completed() -> None:
    assert options.complete_image("") == ["child", "good"] and options.complete_image("g") == ["good"]
    assert options.complete_recipe("w") == ["widget"] and options.complete_recipe("none") == []
    assert options.one_of("squashfs", "oci", "oci-archive")("o") == ["oci", "oci-archive"]


def test_components_then_their_values_are_completed() -> None:
    assert "widget" in options.complete_component("wid")
    assert options.complete_word("widg") == ["widget="]
    values = options.complete_word("widget=")
    assert values and all(value.startswith("widget=") for value in values)
    assert options.complete_word(values[0]) == [value for value in values if value.startswith(values[0])]
    assert options.complete_word("none=1") == []


def results() -> Iterator[tuple[Any, str]]:
    yield {"image": "a"}, "text of a"
    yield {"image": "b"}, "text of b"


def test_texts_are_printed_at_once_and_json_as_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    options.show_each(results(), False)
    assert capsys.readouterr().out == "text of a\ntext of b\n"
    options.show_each(results(), True)
    assert json.loads(capsys.readouterr().out)["images"] == [{"image": "a"}, {"image": "b"}]
    options.show({"a": 1}, False, "text")
    assert capsys.readouterr().out == "text\n"
