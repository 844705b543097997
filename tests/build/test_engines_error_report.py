"""Errors of a unit that no command of it reported."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from envbuild.build.engines.error_report import system_error
from envbuild.build.plan.units import Unit

pytestmark = pytest.mark.unit


def test_a_long_path_of_a_step_is_a_short_message(tmp_path: Path) -> None:
    unit = Unit("base", "the base", ())
    deep = OSError(errno.ENAMETOOLONG, "File name too long", "/".join(["deep"] * 2000))
    message = system_error(unit, deep, tmp_path / "log", tmp_path).message
    assert message.startswith("unit base failed: File name too long: deep/") and len(message) < 400
    odd = OSError(errno.EIO, "broken", b"/a\x1b[2J\xff")
    assert system_error(unit, odd, tmp_path / "log", tmp_path).message == r"unit base failed: broken: /a\x1b[2J\udcff"
