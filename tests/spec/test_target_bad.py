"""Mistakes in a target, beside their exact messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.spec.target import read_target
from tests.support.wrong_files import check_message

pytestmark = pytest.mark.unit

BAD = Path(__file__).parent / "bad_targets"
CASES = sorted(path.stem for path in BAD.glob("err-*.yaml"))


def test_each_target_has_its_text() -> None:
    assert sorted(path.stem for path in BAD.glob("err-*.txt")) == CASES


@pytest.mark.parametrize("case", CASES)
def test_message(case: str, update_golden: bool) -> None:
    check_message(BAD / f"{case}.yaml", read_target, update=update_golden)
