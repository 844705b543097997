"""Nsight Systems: the folders of its archive."""

from __future__ import annotations

import pytest

from tests.support.recipes import KEY, image, recipe

pytestmark = pytest.mark.unit


def test_nsight_systems_where_its_archive_has_it() -> None:
    made = recipe("nsight-systems", version="2025.3.2")
    (repository,) = made.sources(image(made, base="ubuntu:22.04")).repositories
    assert repository.origin == "apt:nvidia-devtools/ubuntu2204/amd64"
    assert made.runtime(image(made)).debian == ("nsight-systems-cli-2025.3.2",)
    assert "has no folder for debian:13" in str(made.refusals(image(made))[0])
    other = recipe("nsight-systems", key=KEY)
    assert other.sources(image(other, base="ubuntu:22.04")).repositories[0].key == KEY.upper()
