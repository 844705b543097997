"""Versions of recipes: releases that are known, a commit of the spec's own, and those that cannot be right."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from packaging.version import Version

from envbuild.core.errors import SpecError
from envbuild.spec import released_recipe
from envbuild.spec.recipe import Git
from tests.support.recipes import image, recipe, table
from tests.support.sample_recipes import whole

pytestmark = pytest.mark.unit
TABLES = ("gdrcopy", "nccl", "nccl-tests", "openmpi", "ucc", "ucx")


@pytest.mark.parametrize("name", TABLES)
def test_releases_are_whole_hashes_newest_first(name: str) -> None:
    found: Mapping[str, str] = table(name).RELEASES
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for commit in found.values())
    assert len(set(found.values())) == len(found)
    assert all(Version(first) > Version(second) for first, second in itertools.pairwise(found))


class Example(released_recipe.Released):
    name = "x"
    repository = "github:o/x"
    releases: ClassVar = {"1.20.1": "a" * 40, "1.20.0": "b" * 40, "1.2.0": "c" * 40}


def test_a_release_is_not_taken_for_the_beginning_of_another() -> None:
    assert released_recipe.newest("2.5", {"2.5.2": "a", "2.5": "b", "2.4": "c"}) == "2.5"


@pytest.mark.parametrize("asked,whole", [("1.20", "1.20.1"), ("1.2", "1.2.0"), ("", "1.20.1"), ("1.21", "")])
def test_a_version_names_its_newest_release(asked: str, whole: str) -> None:
    assert Example(version=asked).whole == whole


def test_the_commit_of_a_release() -> None:
    assert Example(version="1.20").source() == Git("x", "github:o/x", "a" * 40, "v1.20.1")
    # upstream's tag does not apply to a commit of the spec's own
    own = Example(version="1.20", commit="d" * 40)
    assert own.source() == Git("x", "github:o/x", "d" * 40) and own.whole == "1.20"


@pytest.mark.parametrize("name", TABLES)
def test_an_unknown_version_needs_its_commit(name: str) -> None:
    own = {"provider": "source"} if name in ("nccl", "ucx", "openmpi") else {}
    mine, env = whole(name, {"version": "77.1", **own})
    (reason,) = [text for text in map(str, mine.refusals(env)) if "77.1" in text]
    assert "commit" in reason
    mine, env = whole(name, {"version": "77.1", "commit": "a" * 40, **own})
    assert not [refusal for refusal in mine.refusals(env) if "77.1" in str(refusal)]
    assert mine.sources(env).git[0].commit == "a" * 40
    with pytest.raises(SpecError, match="write version"):
        recipe(name, commit="a" * 40, **own)


@pytest.mark.parametrize(
    ("name", "component", "base", "newest"),
    [
        ("efa", "efa-installer", "debian:13", "<=1.47.0"),
        ("aws-ofi-nccl", "aws-ofi-nccl", "debian:13", "<=1.21.1"),
        ("hpcx", "hpcx", "ubuntu:24.04", "<=2.25.1"),
        ("hpcx", "hpcx", "ubuntu:20.04", "<=2.21.2"),  # the last with an archive for it
        ("hpcx", "hpcx", "debian:13", "*"),  # none: the recipe refuses, not the matrix
    ],
)
def test_the_default_version_is_an_available_one(name: str, component: str, base: str, newest: str) -> None:
    assert recipe(name).matrix(image(base=base)) == {component: newest}
    assert recipe(name, version="1.40.0").matrix(image(base=base)) == {component: "1.40.0"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("megatron-lm", {"version": "0.99"}, "'0.99' is not a known release\nhint: "),
        (
            "megatron-lm",
            {"version": "0.16.2"},
            "hint: did you mean '0.18.2'? there are: 0.19.0, 0.18.2, 0.17.1, 0.16.1",
        ),
        ("megatron-lm", {"commit": "0" * 40}, "'commit' and 'gives' require each other"),
        ("fairscale", {"version": "main"}, "'main' is not a known revision"),
        ("fairscale", {"commit": "0" * 40}, "'commit' and 'release' require each other"),
        ("gpt-neox", {"version": "3.0"}, "'3.0' is not a known revision"),
        (
            "gpt-neox",
            {"version": "ea7aefe"},
            "did you mean 'ea7aefd'? there are: ea7aefd, 66fe501, 1.0; for another revision write ",
        ),
        ("gpt-neox", {"commit": "0" * 40}, "'commit' and 'pins' require each other\nhint: write both: 'pins' "),
        ("deeperspeed", {"commit": "0" * 40}, "'commit' and 'release' require each other"),
        ("neox-kernels", {"version": "3.0"}, "for another revision write origin:, commit: and rope:"),
        (
            "deeperspeed",
            {"ops": ["fused_adam", "fused_moe"]},
            "'fused_moe' is not an op that this recipe compiles\nhint: ",
        ),
        (
            "deeperspeed",
            {"version": "2.0"},
            "there are: 3.0, eb7f5cff; for another revision write commit: and release:",
        ),
        (
            "neuron",
            {"sdk": "2.31.1"},
            "'2.31.1' is not a known release\nhint: did you mean '2.30.0'? there are: 2.30.0",
        ),
    ],
)
def test_invalid_options(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        recipe(name, **options)
