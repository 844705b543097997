"""Mistakes in a target, beside their exact messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.core.yaml_nodes import relative_path
from envbuild.spec.target import read_target

pytestmark = pytest.mark.unit

BAD = Path(__file__).parent / "bad_targets"
CASES = sorted(path.stem for path in BAD.glob("err-*.yaml"))


def test_each_target_has_its_text() -> None:
    assert sorted(path.stem for path in BAD.glob("err-*.txt")) == CASES


@pytest.mark.parametrize("case", CASES)
def test_message(case: str, update_golden: bool) -> None:
    path = BAD / f"{case}.yaml"
    with pytest.raises(SpecError) as caught:
        read_target(path)
    text = str(caught.value).replace(relative_path(path), "{path}") + "\n"
    stored = path.with_suffix(".txt")
    if update_golden:
        stored.write_text(text)
    assert text == stored.read_text()
    assert caught.value.exit_code == 2
