"""Megatron-LM: its wheel, a fork's, and the Python that it needs."""

from __future__ import annotations

import pytest

from tests.support.recipes import matches, recipe, stack, steps

pytestmark = pytest.mark.unit


def test_a_fork_of_megatron_is_a_commit_and_the_wheel_that_it_makes() -> None:
    fork = recipe("megatron-lm", origin="github:example/Megatron-LM", commit="0" * 40, gives="megatron-lm==2.2")
    sources = fork.sources(stack(fork))
    assert sources.gives == ("megatron-lm==2.2",)
    assert sources.git[0].origin == "github:example/Megatron-LM"
    assert sources.git[0].tag == ""
    assert not fork.extensions()


def test_megatron_lm_is_for_the_python_of_the_base() -> None:
    new = recipe("megatron-lm", version="0.19.0")
    assert new.sources(stack(new)).gives == ("megatron-core==0.19.1",)  # what that tag calls itself
    assert not new.refusals(stack(new))
    (refusal,) = map(str, new.refusals(stack(new, base="ubuntu:22.04")))
    assert "requires Python 3.12 or later, and the base has 3.10" in refusal
    assert recipe("megatron-lm").extensions() == ("megatron.core.datasets.helpers_cpp",)


def test_a_release_with_numpy_1_is_for_pythons_that_have_wheels_of_it() -> None:
    old = recipe("megatron-lm", version="0.15.3")
    (refusal,) = map(str, old.refusals(stack(old)))
    assert "requires NumPy 1, which has no wheels for Python 3.13" in refusal
    assert not old.refusals(stack(old, base="ubuntu:22.04"))


@pytest.mark.parametrize("version", ["0.10.0", "0.18.2"])
def test_jobs_run_make_where_there_is_nothing_to_compile(version: str) -> None:
    """megatron.training runs make in the folder of the data sets, and ends the job if that fails."""
    made = recipe("megatron-lm", version=version)
    env = stack(made)
    (command,) = [
        line for line in "\n".join(steps(made, env)).splitlines() if "datasets/Makefile" in line and "printf" in line
    ]
    assert "default: ;" in command
    assert "include megatron/core/datasets/Makefile" in "\n".join(steps(made, env))
    runtime = made.runtime(env)
    assert "make" in runtime.debian and "pybind11" in runtime.python  # for the makefile of a checkout
    assert any("make -C " in check.command for check in made.verify(env))


def test_the_compiled_part_is_there_if_the_check_prints_true() -> None:
    made = recipe("megatron-lm", version="0.18.2")
    (check,) = [check for check in made.verify(stack(made)) if "C++ part" in check.name]
    assert [matches(check, printed) for printed in ("True\n", "False\n")] == [True, False]


@pytest.mark.parametrize("version", ["0.10.0", "0.16.1", "0.18.2"])
def test_a_checkpoint_is_written_with_psutil_which_no_release_declares(version: str) -> None:
    made = recipe("megatron-lm", version=version)
    assert "psutil" in made.runtime(stack(made)).python
    (check,) = [check for check in made.verify(stack(made)) if "filesystem_async._process_memory" in check.command]
    assert [matches(check, printed) for printed in ("True\n", "False\n")] == [True, False]


def test_a_fork_of_megatron_keeps_its_makefiles() -> None:
    fork = recipe("megatron-lm", commit="0" * 40, gives="megatron-lm==2.2")
    assert "Makefile" not in "\n".join(steps(fork, stack(fork)))
    assert "make" in fork.runtime(stack(fork)).debian
