"""The OSU micro-benchmarks: which MPI they need, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.recipes import image, recipe, steps
from tests.support.sample_recipes import sample

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("options", "layers", "why"),
    [
        ({}, (), "add openmpi or hpcx to the layers"),
        ({"version": "8.0"}, ("openmpi",), "write its sha256:"),
        ({"cuda": True}, ("openmpi",), "add cuda to the layers"),
        ({"version": "7.4", "cuda": True}, ("openmpi", "cuda"), "7.4 does not compile with CUDA 13.2"),
    ],
)
def test_images_that_osu_refuses(options: dict[str, Any], layers: tuple[str, ...], why: str) -> None:
    made, env = sample("osu-micro-benchmarks", options, layers, "debian:13")
    (reason,) = map(str, made.refusals(env))
    assert why in reason


def test_osu_by_an_mpi_of_its_own() -> None:
    made = recipe("osu-micro-benchmarks", version="8.0", sha256="a" * 64)
    env = image(made, recipe("openmpi", provider="source", version="5.0.8"))
    assert made.refusals(env) == ()
    assert 'CC="/opt/openmpi/bin/mpicc"' in "".join(steps(made, env))
    assert made.verify(env)[0].command.startswith("/opt/openmpi/bin/mpirun ")
