"""Evidence of GPU checks: two verdicts, its place in the store, the change since the last one, and what is refused."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import VerifyError
from envbuild.core.store.store import Store
from envbuild.gpu.model import FAIL, GPU, NOT_RUN, PASS, Figure, Outcome
from envbuild.gpu.sealed import evidence_document
from envbuild.spec.project import Project
from envbuild.spec.target import load_target
from envbuild.verify.floor_verdict import audit_results
from envbuild.verify.measured import (
    Measured,
    change_lines,
    check_image,
    find_measured,
    last_evidence,
    read_measured,
    store_evidence,
)
from envbuild.verify.results import Status
from tests.support.gpu_bench import job

pytestmark = pytest.mark.unit

H100 = load_target("h100-ib", Project())
BUSBW = "node_allreduce_busbw"


def outcome(value: float = 470.0, size: int = 16 << 30, test: str = BUSBW, unit: str = "GB/s") -> Outcome:
    return Outcome("all-reduce", GPU, PASS, "x", figures=(Figure(test, value, unit, size, 8),))


def measured(*outcomes: Outcome, day: int = 1, **values: Any) -> Measured:
    found = evidence_document(job(**values), outcomes, f"2026-01-{day:02}T00:00:00Z", "envbuild 0", {})
    return Measured(found, outcomes)


def verdicts(found: Outcome, **changes: Any) -> list[Status]:
    return [result.status for result in audit_results([found], replace(H100, **changes))]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (outcome(460.0), [Status.PASS, Status.PASS]),
        (outcome(459.99), [Status.PASS, Status.FAIL]),  # the tolerance is 0
        (replace(outcome(999.0), status=FAIL), [Status.FAIL]),  # fast and wrong
        (replace(outcome(), status=NOT_RUN), [Status.NOT_RUN]),
        (outcome(test=""), [Status.PASS]),
        (outcome(unit="Gb/s"), [Status.PASS, Status.NOT_RUN]),
    ],
)
def test_running_correctly_and_reaching_the_floor_are_two_verdicts(found: Outcome, expected: list[Status]) -> None:
    assert verdicts(found) == expected


def test_a_floor_of_large_messages_is_not_compared_with_small_ones() -> None:
    assert verdicts(outcome(999.0, size=1 << 20), thresholds={}) == [Status.PASS, Status.NOT_RUN]
    assert verdicts(outcome(999.0), thresholds={}) == [Status.PASS, Status.PASS]


def test_every_threshold_of_a_target_is_read() -> None:
    for name in Project().targets():
        target = load_target(name, Project())
        for test, threshold in target.thresholds.items():
            for value, status in ((threshold.value, Status.PASS), (threshold.value * 0.99, Status.FAIL)):
                found = list(audit_results([outcome(value, test=test, unit=threshold.unit)], target))
                assert [result.status for result in found] == [Status.PASS, status], (name, test)


def test_a_figure_without_a_floor_is_not_compared() -> None:
    (_, result) = audit_results([outcome()], replace(H100, gpu="T4", thresholds={}))
    assert result.status == Status.NOT_RUN and "470 GB/s measured" in result.detail


def test_the_change_since_the_last_evidence_of_the_same_target(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    bad = Outcome("kernel", GPU, FAIL, "x")
    assert last_evidence(measured(outcome()), store) is None
    for day, value in ((1, 480.0), (2, 470.0)):
        path = store_evidence(measured(outcome(value), replace(bad, status=PASS), day=day), store)
    store_evidence(measured(outcome(1.0), day=3, target="p5-efa"), store)
    store_evidence(measured(replace(outcome(1.0), tier="fabric"), day=3, tier="fabric"), store)
    (path.parent / "h100-ib-gpu-2026-01-09T000000Z.json").write_text("{")  # truncated
    now = measured(outcome(440.0), bad, day=4, lock=f"sha256:{'2' * 64}")
    before = last_evidence(now, store)
    assert before and before.document["date"].startswith("2026-01-02")
    assert change_lines(now, before) == [
        "all-reduce: 470 -> 440 GB/s, -6.4 % since 2026-01-02T00:00:00Z",
        "kernel: pass -> fail since 2026-01-02T00:00:00Z",
    ]
    earlier = last_evidence(measured(outcome(), day=2), store)
    assert earlier and earlier.document["date"].startswith("2026-01-01")
    assert change_lines(measured(outcome(size=8), day=5), before) == []  # not the same measurement


def test_evidence_is_stored_by_lock_and_date_and_read_again(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    own = measured(outcome())
    path = store_evidence(own, store)
    assert path.relative_to(store.own).as_posix() == "measured/111111111111/h100-ib-gpu-2026-01-01T000000Z.json"
    assert read_measured(path) == own
    check_image(own, job().lock, "h100-ib", path)


def test_the_newest_evidence_of_each_tier_is_found_by_image_lock_and_target(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    lock = job().lock
    assert find_measured("net", lock, "h100-ib", store) == ()
    for day in (1, 3, 2):
        store_evidence(measured(outcome(float(day)), day=day), store)
    other_lock = f"{lock[:-1]}0"  # of the same folder
    for day, values in ((4, {"target": "p5-efa"}), (5, {"image": "other"}), (6, {"lock": other_lock})):
        store_evidence(measured(outcome(), day=day, **values), store)
    fabric = measured(replace(outcome(), tier="fabric"), tier="fabric")
    path = store_evidence(fabric, store)
    (path.parent / "h100-ib-gpu-2026-01-09T000000Z.json").symlink_to(path)
    found = find_measured("net", lock, "h100-ib", store)
    assert [one.document["date"][:10] for one in found] == ["2026-01-03", "2026-01-01"]
    assert found[1] == fabric


def test_evidence_of_a_file_is_of_its_bytes_alone(tmp_path: Path) -> None:
    """Any file can contain the lock of an image, and its programs print what they like."""
    store = Store.open(tmp_path / "store")
    own = ("net", job().lock, "h100-ib", store)
    store_evidence(measured(outcome(1.0)), store, "a" * 64)
    assert find_measured(*own) == find_measured(*own, "b" * 64) == ()
    assert last_evidence(measured(outcome(), day=2), store) is None
    assert [one.of_file for one in find_measured(*own, "a" * 64)] == [True]
    assert last_evidence(measured(outcome(), day=2), store, "a" * 64)
    store_evidence(measured(outcome(2.0), day=3), store)
    assert [one.of_file for one in find_measured(*own, "a" * 64)] == [False]


@pytest.mark.parametrize(("lock", "target"), [(f"sha256:{'2' * 64}", "h100-ib"), (job().lock, "p5-efa")])
def test_evidence_of_another_lock_or_target_is_refused(lock: str, target: str) -> None:
    with pytest.raises(VerifyError, match=r"another lock|of target"):
        check_image(measured(outcome()), lock, target, Path("x"))


def test_evidence_of_a_time_to_come_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = measured(outcome(), day=2)
    for now, refused in (("2026-01-01T23:49:00", True), ("2026-01-01T23:51:00", False)):
        monkeypatch.setattr("time.time", lambda now=now: datetime.fromisoformat(f"{now}+00:00").timestamp())
        with pytest.raises(VerifyError, match="which is in the future") if refused else contextlib.nullcontext():
            check_image(own, job().lock, "h100-ib", Path("x"))


def test_files_that_are_not_evidence_are_refused(tmp_path: Path) -> None:
    text = json.dumps(measured(outcome()).document)
    path = tmp_path / "x.json"
    for content in (b"", text[:-1].encode(), b"\xff\xfe", b"{}", text.replace("470", "490").encode()):
        path.write_bytes(content)
        with pytest.raises(VerifyError) as caught:
            read_measured(path)
        assert "refused" in caught.value.message and caught.value.hint
    with pytest.raises(VerifyError, match="does not exist"):
        read_measured(tmp_path / "missing")
    with pytest.raises(VerifyError, match="cannot be read"):
        read_measured(tmp_path)
