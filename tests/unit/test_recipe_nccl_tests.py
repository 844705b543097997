"""nccl-tests: which GPU code its verify line wants."""

from __future__ import annotations

import pytest
from recipekit import image, line, matches, recipe

pytestmark = pytest.mark.unit


def test_a_cubin_line_wants_code_in_every_file_and_for_one_gpu() -> None:
    tests = recipe("nccl-tests")
    check = line(tests, image(tests, recipe("cuda", version="13.2")), "code for sm_90")
    one = "/opt/nccl-tests/bin/{}_perf\nELF file    1: {}.1.sm_90.cubin\nELF file    2: {}.2.sm_90.cubin\n"
    assert matches(check, one.format(*"aaa") + one.format(*"bbb"))
    assert not matches(check, one.format(*"aaa") + "/opt/nccl-tests/bin/b_perf\n")
    assert not matches(check, one.format(*"aaa").replace("2.sm_90", "2.sm_80"))
    assert not matches(check, one.format(*"aaa") + "PTX file    1: a.1.sm_90.ptx\n")
