"""Recipes with options, each in an image made for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from envbuild.spec.recipe import Recipe, RecipeEnv
from tests.support.recipes import KEY, NGC, image, recipe

# Recipes of which each is checked beside all the others.
PROVIDERS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "cuda": (
        {"version": "13.2"},
        {"version": "13.2", "flavor": "runtime"},
        {"version": "12.4", "provider": "apt"},
        {"version": "13.0", "provider": "base"},
    ),
    "cudnn": ({}, {"provider": "apt", "cuda": "12", "version": "9.1.0.70"}, {"provider": "base"}),
    "nccl": ({}, {"provider": "source", "version": "2.30.7"}, {"provider": "base"}),
    "gdrcopy": ({},),
    "ucx": ({}, {"version": "1.20"}, {"provider": "source"}),
    "ucc": ({"version": "1.8.0"}, {"version": "1.8.0", "mpi_test": True}),
    "nccl-tests": ({},),
    "openmpi": ({}, {"provider": "source", "version": "5.0.10"}, {"provider": "source", "version": "4.1.5"}),
    "mpi4py": ({},),
}
EVERY = [(name, options) for name, choices in PROVIDERS.items() for options in choices]
# Each recipe with options, layers beside it and a base that it accepts, in every way in which it does something.
SAMPLES: tuple[tuple[str, dict[str, Any], tuple[str, ...], str], ...] = (
    ("rdma-core", {}, (), "debian:13"),
    ("rdma-core", {"version": "62.1"}, (), "ubuntu:22.04"),
    ("ofed", {"version": "3.2.1", "key": KEY}, (), "ubuntu:22.04"),
    ("ofed", {"version": "23.07-0.5.1.2", "provider": "mlnx-ofed", "key": KEY}, (), "ubuntu:20.04"),
    ("hpcx", {"version": "2.25.1"}, ("rdma-core", "cuda"), "ubuntu:24.04"),
    ("hpcx", {"version": "2.18.0", "plugin": False}, ("rdma-core",), "ubuntu:22.04"),
    ("pmix", {}, (), "debian:12"),
    ("pmix", {"version": "4.2"}, (), "debian:13"),
    ("libfabric", {}, (), "debian:13"),
    ("libfabric", {"version": "2.4.0"}, ("cuda",), "debian:13"),
    ("efa", {"version": "1.47.0", "plugin": True, "mpi": "4"}, (), "ubuntu:24.04"),
    ("aws-ofi-nccl", {"version": "1.21.1"}, ("libfabric", "cuda"), "debian:13"),
    ("nccl-rdma-sharp", {}, ("rdma-core", "cuda"), "debian:13"),
    ("nccl-rdma-sharp", {"version": "2.4"}, ("rdma-core", "cuda"), "debian:13"),
    ("nvshmem", {"version": "3.7"}, ("torch",), "debian:13"),
    ("perftest", {}, (), "debian:13"),
    ("perftest", {"provider": "source"}, ("rdma-core", "cuda"), "debian:13"),
    ("osu-micro-benchmarks", {}, ("openmpi",), "debian:13"),
    ("osu-micro-benchmarks", {"version": "5.3"}, ("openmpi",), "debian:13"),
    ("osu-micro-benchmarks", {"version": "7.5.2", "cuda": True}, ("openmpi", "cuda"), "debian:13"),
    ("msccl", {"algorithms": "ndv5"}, ("cuda",), "ubuntu:22.04"),
    ("nsight-systems", {"version": "2025.3.2"}, (), "ubuntu:24.04"),
    ("pdsh", {}, (), "debian:13"),
    ("files", {"known": ["azure-ndv4-topo", "hostfile"], "text": {"/etc/motd.d/x": "it's\\nhere"}}, (), "debian:13"),
)
IDS = [f"{name}-{number}" for number, (name, *_) in enumerate(SAMPLES)]


def whole(name: str, options: Mapping[str, Any]) -> tuple[Any, RecipeEnv]:
    """Return a recipe in an image that has everything that it can use."""
    mine = recipe(name, **options)
    others = [recipe(other, **choices[0]) for other, choices in PROVIDERS.items() if other != name]
    if name in ("ucc", "nccl-tests", "openmpi"):
        others = [recipe("ucx", version="1.20") if other.name == "ucx" else other for other in others]
    return mine, image(mine, *others, base=NGC if options.get("provider") == "base" else "debian:13")


def sample(name: str, options: dict[str, Any], layers: tuple[str, ...], base: str) -> tuple[Recipe, RecipeEnv]:
    """Return a recipe of SAMPLES in its image."""
    old = {"provider": "apt", "version": "12.6"}
    needed = {"cuda": old if name == "msccl" else {"version": "13.2"}, "libfabric": {"version": "2.4.0"}}
    made = recipe(name, **options)
    return made, image(made, *(recipe(layer, **needed.get(layer, {})) for layer in layers), base=base)


CASES = [
    *(pytest.param(whole, case, id=f"{case[0]}-{number}") for number, case in enumerate(EVERY)),
    *(pytest.param(sample, case, id=name) for case, name in zip(SAMPLES, IDS, strict=True)),
]
