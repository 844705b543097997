"""docs/tables.md is what the facts give."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.matrix import FACTS
from envbuild.matrix.answer.table import tables_page
from envbuild.matrix.facts.compile import load_fact_table

pytestmark = pytest.mark.docs

TABLES = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_tables_in_docs_are_those_of_the_facts(update_golden: bool) -> None:
    text = tables_page(load_fact_table([FACTS])) + "\n"
    if update_golden:
        TABLES.write_text(text)
    assert TABLES.read_text() == text, "the facts changed: make tables"
