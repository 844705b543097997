"""Composition: the last owner wins, and different values need a reason."""

from __future__ import annotations

from itertools import combinations

import pytest

from envbuild.core.errors import SpecError
from envbuild.core.reasoned import Reasoned
from envbuild.launch.compose import compose
from envbuild.launch.model import OWNERS, Setting
from envbuild.net.slurm_site import NodeSettings
from tests.support.launching import make_plan, site, torch_image, variables

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("first", "second"), list(combinations(OWNERS, 2)))
def test_a_later_owner_wins_with_a_reason(first: str, second: str) -> None:
    claims = [Setting("A", "2", second, "faster"), Setting("A", "1", first, "usual")]
    (found,) = compose(claims)
    assert found == Setting("A", "2", second, "faster", ((first, "1"),))


@pytest.mark.parametrize(("first", "second"), list(combinations(OWNERS, 2)))
def test_a_different_value_without_a_reason_is_refused(first: str, second: str) -> None:
    with pytest.raises(SpecError, match=f"A: the {second} sets '2', and the {first} '1'"):
        compose([Setting("A", "1", first, "usual"), Setting("A", "2", second, "")])


def test_the_same_value_needs_no_reason() -> None:
    (found,) = compose([Setting("A", "1", "target", "usual"), Setting("A", "1", "site", "")])
    assert found == Setting("A", "1", "site", "usual")


def test_variables_of_the_image_alone_are_not_exported() -> None:
    assert compose([Setting("A", "1", "image", "")]) == ()


def test_all_conflicts_are_reported_together() -> None:
    claims = [Setting(name, "1", "target", "usual") for name in "AB"]
    with pytest.raises(SpecError) as caught:
        compose([*claims, *(Setting(name, "2", "command line", "") for name in "AB")])
    assert [finding.hint for finding in caught.value.findings] == [
        "give the reason: -e A=2 --because TEXT",
        "give the reason: -e B=2 --because TEXT",
    ]


def test_three_owners_of_one_variable() -> None:
    image = torch_image(env={"NCCL_DEBUG": "VERSION"})
    nodes = NodeSettings(env={"NCCL_DEBUG": Reasoned("WARN", "quiet logs")})
    plan = make_plan(image=image, at=site(nodes=nodes), env={"NCCL_DEBUG": "INFO"}, because="a slow run")
    (found,) = (item for item in plan.env if item.name == "NCCL_DEBUG")
    assert (found.value, found.owner, found.because) == ("INFO", "command line", "a slow run")
    assert found.replaces == (("image", "VERSION"), ("site", "WARN"))
    assert plan.beats_image == ("NCCL_DEBUG",)


def test_the_command_line_needs_a_reason_against_the_target() -> None:
    with pytest.raises(SpecError, match="NCCL_NET: the command line sets 'Socket'"):
        make_plan(env={"NCCL_NET": "Socket"})
    assert variables(make_plan(env={"NCCL_NET": "Socket"}, because="no fabric today"))["NCCL_NET"] == "Socket"
