"""PMIx: the commits of its releases."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, recipe

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("version", "commit"),
    [("5.0", "3795947f"), ("4.2", "eebd966a"), ("4.2.2", "29bacec6"), ("3.1.6", "ae99c6de")],
)
def test_the_commit_of_a_pmix(version: str, commit: str) -> None:
    (git,) = recipe("pmix", version=version).sources(image()).git
    assert git.commit.startswith(commit) and git.submodules == ("*",)  # 4.2.3 and newer have config/oac
