"""PMIx: the commits of its releases."""

from __future__ import annotations

import pytest

from tests.support.recipes import image, matches, recipe, steps

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("version", "commit"),
    [("5.0", "3795947f"), ("4.2", "eebd966a"), ("4.2.2", "29bacec6"), ("3.1.6", "ae99c6de")],
)
def test_the_commit_of_a_pmix(version: str, commit: str) -> None:
    (git,) = recipe("pmix", version=version).sources(image()).git
    assert git.commit.startswith(commit) and git.submodules == ("*",)  # 4.2.3 and newer have config/oac


@pytest.mark.parametrize(
    ("version", "right", "wrong"),
    [
        ("6.1.0", "OpenPMIx 6.1.0, repo rev: gitclone", "OpenPMIx 6.1.01"),
        ("4.2.2", "OpenPMIx 4.2.2, repo rev: gitclone", "OpenPMIx 4.2.20"),
        ("3.2.5", "3.2.5", "13.2.5"),  # PMIX_VERSION, without a name
    ],
)
def test_the_version_that_a_pmix_reports(version: str, right: str, wrong: str) -> None:
    made = recipe("pmix", version=version)
    (check,) = made.verify(image(made))
    assert matches(check, right) and not matches(check, wrong)


@pytest.mark.parametrize(("version", "removed"), [("4.2.8", True), ("5.0.1", True), ("5.0.7", False), ("6.1.0", False)])
def test_the_bootstrap_of_a_pmix_runs_no_git(version: str, removed: bool) -> None:
    """Before 5.0.2 its autogen.pl runs `git submodule status` if there is a .gitmodules; units have no git."""
    made = recipe("pmix", version=version)
    before = steps(made, image(made))[-1].partition("./autogen.pl")[0]
    assert ("rm -f .gitmodules" in before) is removed
