"""Texts of a spec are literal: which are refused, for which reader, by one rule."""

from __future__ import annotations

import pytest

from envbuild.spec.enroot_rules import EXPANDED, env_value_fault, expansion_fault
from envbuild.spec.recipe_options import command_fault, version_fault

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "readers"),
    [
        ("plain", set()),
        ("$HOME/x", set()),
        ("a {b}", set()),
        ("$(id)", {"command"}),  # enroot writes it as it is, and no program sources /etc/environment
        ("`id`", {"command"}),
        ("${HOME}", {"environment", "command"}),
        ("$${HOME}", {"environment", "command"}),  # enroot has no escape
    ],
)
def test_values_that_a_reader_would_expand(text: str, readers: set[str]) -> None:
    assert {reader for reader in EXPANDED if expansion_fault(text, reader)} == readers
    assert bool(env_value_fault(text)) == ("environment" in readers)
    assert bool(command_fault(text)) == ("command" in readers)
    assert not expansion_fault(text, "file")


def test_a_reason_names_the_reader_and_the_pattern() -> None:
    assert (
        env_value_fault("a${B}") == "contains ${: enroot would replace it with a variable of the job, or with nothing"
    )
    assert command_fault("a$(b)").startswith("contains $(: a shell would expand it")
    assert version_fault("`1`") == command_fault("`1`")
