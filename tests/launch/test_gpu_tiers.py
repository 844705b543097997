"""Answers of jobs of the tiers gpu and fabric: a program of the image printed them, and can print anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.gpu.model import FABRIC, GPU, NOT_RUN, PASS, Outcome
from envbuild.gpu.sealed import evidence_document
from envbuild.launch import gpu_tiers
from envbuild.launch.gpu_tiers import TierRequest, rank_place, run_node
from envbuild.launch.trial import Ended
from tests.support.gpu_bench import job

pytestmark = pytest.mark.unit
DATE = "2026-11-25T00:00:00Z"
DEVICES = {"gpus": [{"name": "H100"}], "driver": "580.65.06", "cuda": "13.0"}


def answer(monkeypatch: pytest.MonkeyPatch, document: Any) -> Any:
    """Return what one node's job is taken for when it prints a document."""
    monkeypatch.setattr(gpu_tiers, "job_form", lambda _: "docker")
    monkeypatch.setattr(gpu_tiers, "trial_of", lambda *_: None)
    monkeypatch.setattr(gpu_tiers, "run_trial", lambda *_: Ended({0: document}, ""))
    dummy: Any = SimpleNamespace(reporter=SilentReporter())
    return run_node(job(), None, TierRequest(GPU), dummy)  # type: ignore[arg-type]


def document(**changes: str) -> dict[str, Any]:
    outcomes = [Outcome("a check", changes.get("tier", GPU), PASS, "fine")]
    made = evidence_document(job(**changes), outcomes, DATE, "envbuild", {"gpus": ["H100"]})  # type: ignore[arg-type]
    return dict(made)


def test_the_evidence_of_the_job_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [outcome.status for outcome in answer(monkeypatch, document()).outcomes] == [PASS]


@pytest.mark.parametrize(
    "changes",
    [{"image": "victim"}, {"lock": f"sha256:{'ab' * 32}"}, {"target": "h100-dgx"}, {"tier": FABRIC}],
    ids=lambda changes: next(iter(changes)),
)
def test_an_image_states_nothing_about_another_one(changes: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = answer(monkeypatch, document(**changes))
    assert {outcome.status for outcome in found.outcomes} == {NOT_RUN}
    assert "the answer of the job is refused: it is of another image" in found.outcomes[0].detail
    assert [found.document[key] for key in ("image", "lock", "target", "tier")] == [
        job().image,
        job().lock,
        job().target,
        GPU,
    ]


WRONG = [None, {}, {**DEVICES, "gpus": {"a": 1}}, {**DEVICES, "gpus": [{"name": 5}]}]


@pytest.mark.parametrize("devices", WRONG, ids=str)
def test_the_facts_of_a_rank_have_their_form(devices: Any) -> None:
    first = {"devices": DEVICES, "environment": {}}
    assert rank_place(Ended({0: first}, ""))["gpus"] == ["H100"]
    with pytest.raises((LookupError, TypeError, ValueError, AttributeError)):
        rank_place(Ended({0: {**first, "devices": devices}}, ""))
