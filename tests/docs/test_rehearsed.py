"""docs/rehearsed.md is what the records of rehearsals give."""

from __future__ import annotations

import pytest

from tests.rehearsal.records import PAGE, page, read_records

pytestmark = pytest.mark.docs


def test_the_page_of_rehearsals_is_that_of_the_records() -> None:
    records = read_records()
    assert records and PAGE.read_text() == page(records), "run: make rehearsal"
