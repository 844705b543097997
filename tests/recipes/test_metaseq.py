"""metaseq: with and without apex."""

from __future__ import annotations

import pytest

from tests.support.recipes import commands, line, matches, recipe, stack

pytestmark = pytest.mark.unit


def test_metaseq_with_apex_beside_it() -> None:
    own = recipe("metaseq")
    env, with_apex = stack(own), stack(own, recipe("apex", version="265b451"))
    assert not own.refusals(env)
    (refusal,) = map(str, own.refusals(with_apex))
    assert "both contain amp_C, apex_C, fused_dense_cuda, fused_layer_norm_cuda; write apex: false" in refusal
    other = recipe("metaseq", apex=False)
    assert not other.refusals(with_apex)
    assert "--no_apex" in commands(other, env) and "--no_apex" not in commands(own, env)
    assert set(own.extensions()) - set(other.extensions()) == {
        "amp_C",
        "apex_C",
        "fused_adam_cuda",
        "fused_dense_cuda",
        "fused_layer_norm_cuda",
    }


def test_metaseq_has_git_and_no_slurm_client() -> None:
    """opt-baselines runs git. A task takes MASTER_ADDR only where there is no scontrol: one that finds no slurm.conf
    ends it."""
    made = recipe("metaseq")
    env = stack(made)
    assert made.runtime(env).debian == ("git",)
    check = line(made, env, "first node from MASTER_ADDR")
    assert matches(check, "barrierlesstcpr://n1:1\n")
    assert not matches(check, "scontrol: fatal: Could not establish a configuration source\n")


def test_metaseq_is_built_with_a_setuptools_that_takes_its_option() -> None:
    """59.5.0, which the image has for TensorBoard, ends with a TypeError at --global-option."""
    made = recipe("metaseq", apex=False)
    assert "--config-setting=--global-option=--no_apex" in commands(made, stack(made))
    assert "setuptools>=64,<82" in made.sources(stack(made)).python
