"""Memory that a build will need, known before it begins."""

from __future__ import annotations

import pytest

from envbuild.build.engines.resources import check_memory
from envbuild.build.plan.units import Unit
from envbuild.build.steps import Step
from envbuild.core.errors import EngineError

pytestmark = pytest.mark.unit
GB = 1_000_000_000


def unit(name: str, memory_gb: float) -> Unit:
    return Unit(name, name, (Step("true"),), memory_gb=memory_gb)


def test_a_compile_job_that_needs_more_memory_is_refused_before_any_build() -> None:
    with pytest.raises(EngineError) as caught:
        check_memory([unit("apex", 2.8), unit("ucx", 0.4), unit("flash-attn", 5.0)], 2.5 * GB)
    assert [finding.message.split(" cannot")[0] for finding in caught.value.findings] == ["apex", "flash-attn"]
    assert "takes 2.8 GB and this machine, or its cgroup, has 2.5 GB" in caught.value.findings[0].message
    assert caught.value.exit_code == 5


def test_enough_memory_has_no_finding() -> None:
    check_memory([unit("apex", 2.8)], 2.8 * GB)
