"""Code of CUDA libraries, and the GPUs on which it runs."""

from __future__ import annotations

import pytest

from envbuild.verify.cuda import runs_on, runs_only_on

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("entry", "sm", "runs"),
    [
        ("sm_90", "90", True),
        ("sm_90", "9.0", True),
        ("sm_90a", "90", True),
        ("sm_80", "86", True),
        ("sm_86", "89", True),
        ("sm_89", "86", False),
        ("sm_80", "90", False),
        ("sm_75", "90", False),
        ("sm_100", "103", True),
        ("sm_100a", "103", False),
        ("sm_100f", "103", True),
        ("sm_100f", "120", False),
        ("sm_87", "89", False),
        ("sm_80", "87", False),
        ("compute_80", "90", True),
        ("compute_90", "80", False),
        ("compute_90a", "100", False),
        ("compute_90a", "90", True),
        ("compute_100f", "103", True),
        ("compute_100f", "120", False),
        ("lto_90", "90", False),
    ],
)
def test_which_code_runs_where(entry: str, sm: str, runs: bool) -> None:
    assert runs_on(entry, sm) is runs


def test_only_code_that_the_gpu_can_use() -> None:
    assert runs_only_on(["sm_90", "sm_90a", "compute_90"], "90")
    assert runs_only_on(["sm_80"], "86")  # FlashAttention compiles that for an A6000
    assert runs_only_on(["sm_90", "lto_90"], "90")
    assert not runs_only_on(["compute_90"], "90")  # PTX alone is compiled at every first start
    assert not runs_only_on(["sm_90", "sm_80"], "90")
    assert not runs_only_on(["sm_90", "compute_100"], "90")
    assert not runs_only_on([], "90")
