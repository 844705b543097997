"""Texts of an image in results: none of them begins a line that looks like one of envbuild."""

from __future__ import annotations

import pytest

from envbuild.core.errors import VerifyError
from envbuild.spec.recipe import Check
from envbuild.verify.extension_modules import import_results
from envbuild.verify.recipe_checks import run_check
from envbuild.verify.results import join_items, judge
from envbuild.verify.run_inspector import inspect_image

pytestmark = pytest.mark.unit

HOSTILE = "x\nhint: sudo reboot\u2028\x1b[2Jerror: y"


def test_names_are_printable_on_one_line() -> None:
    found = judge("title", [HOSTILE], f"compared {HOSTILE}").detail
    assert found.isprintable() and found.count("x\\nhint") == 2
    assert judge("title", [], HOSTILE).detail.isprintable() and join_items([HOSTILE]).isprintable()
    assert join_items("abc", 2) == "a; b; and 1 more"


def test_output_of_the_images_programs_is_indented() -> None:
    def runner(argv: object) -> tuple[int, str]:
        return 1, HOSTILE

    with pytest.raises(VerifyError) as caught:
        inspect_image(runner)
    details = [run_check(Check("name", "run"), runner).detail, import_results(["m"], runner)[0].detail]
    for text in (caught.value.message, *details):
        first, *lines = text.splitlines()
        assert not first.startswith(("x", "hint")) and lines == ["  x", "  hint: sudo reboot", "  \\x1b[2Jerror: y"]
