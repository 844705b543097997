"""docs/images.md is what the specs and the record of builds give; each image has its state."""

from __future__ import annotations

import pytest

from tests.support.images_page import PAGE, images_page, read_record, specs

pytestmark = pytest.mark.docs


def test_the_page_of_images_is_that_of_the_specs(update_golden: bool) -> None:
    text = images_page()
    if update_golden:
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "a spec or the record changed: run pytest with --update-golden"


def test_every_image_is_either_built_or_has_the_reason_why_not() -> None:
    """A state that is not recorded would be read as working."""
    record = read_record()
    assert sorted(record) == [spec.name for spec in specs()]
    for name, entry in record.items():
        assert ("built" in entry) != ("not_run" in entry), name
        if "built" in entry:
            assert {"date", "squashfs_mb", "passed"} <= set(entry["built"]), name
        else:
            assert len(entry["not_run"]) > 20, name
