"""Time limits: those that sbatch does not read are refused, with the form that it reads."""

from __future__ import annotations

import pytest

from envbuild.core.errors import SpecError
from tests.support.launching import make_plan, option_values

pytestmark = pytest.mark.unit

READ = ("90", "90:30", "04:00:00", "2-0", "2-12", "2-12:30", "2-12:30:00", "UNLIMITED", "infinite")
HINTS = {"4h": "04:00:00", "90m": "01:30:00", "1d12h": "1-12:00:00", "36 h": "1-12:00:00", "noon": "04:00:00"}


@pytest.mark.parametrize("text", READ)
def test_the_forms_of_slurm_are_passed_on(text: str) -> None:
    assert option_values(make_plan(time=text))["--time"] == text


@pytest.mark.parametrize("text", [*HINTS, "4:00:00:00", "1:", "-1", "4 hours", "1-2-3"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="is not a time limit of Slurm") as caught:
        make_plan(time=text)
    assert caught.value.hint.endswith(f"--time {HINTS.get(text, '04:00:00')}")
