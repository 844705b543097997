"""The choice of an engine: the first that can run here, or the one that is named."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.build.engines import select
from envbuild.build.engines.base import Probe
from envbuild.build.engines.select import choose_engine, load_engine
from envbuild.core.console import RecordingReporter, SilentReporter
from envbuild.core.engines import ENGINES
from envbuild.core.errors import EngineError, SpecError
from envbuild.core.store.store import Store

pytestmark = pytest.mark.unit


def engines(monkeypatch: pytest.MonkeyPatch, **able: bool) -> None:
    """Replace the engines by some that can run here or cannot."""

    def load(name: str) -> Any:
        caution = f"caution of {name}"
        probe = Probe(name, able[name], "step", f"{name} is broken", f"repair {name}", f"{name} is fine", 0, caution)
        return SimpleNamespace(name=name, probe=lambda store: probe)

    monkeypatch.setattr(select, "ENGINES", dict.fromkeys(able, ""))
    monkeypatch.setattr(select, "load_engine", load)


def test_every_engine_has_the_name_that_it_is_chosen_by() -> None:
    assert [load_engine(name).name for name in ENGINES] == list(ENGINES)


def test_the_first_that_can_run_is_chosen_and_the_reason_reported(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines(monkeypatch, one=False, two=True, three=True)
    reporter = RecordingReporter(SilentReporter())
    assert choose_engine("auto", store, reporter).name == "two"
    (line, _) = reporter.reporter.lines
    assert "two is fine" in line and "one is broken" in line and "three" not in line
    assert reporter.take_warnings() == ["caution of two"]
    assert choose_engine("three", store, reporter).name == "three"
    assert not reporter.take_warnings(), "its user named it"


def test_the_first_engine_is_used_without_a_warning(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    engines(monkeypatch, one=True, two=True)
    reporter = RecordingReporter(SilentReporter())
    assert choose_engine("auto", store, reporter).name == "one"
    assert not reporter.take_warnings()


def test_every_engine_that_cannot_run_is_a_finding_with_its_fix(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    engines(monkeypatch, one=False, two=False)
    for name, fixes in (("auto", ["repair one", "repair two"]), ("two", ["repair two"])):
        with pytest.raises(EngineError) as caught:
            choose_engine(name, store, SilentReporter())
        assert [finding.hint for finding in caught.value.findings] == fixes


def test_a_hint_names_an_engine_only_if_it_works_here(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    engines(monkeypatch, one=False, two=False, three=True)
    for name, hint in (("one", "repair one, or: --engine three"), ("two", "repair two, or: --engine three")):
        with pytest.raises(EngineError) as caught:
            choose_engine(name, store, SilentReporter())
        assert [finding.hint for finding in caught.value.findings] == [hint]


def test_an_unknown_engine(store: Store) -> None:
    with pytest.raises(SpecError) as caught:
        choose_engine("podman", store, SilentReporter())
    assert "auto, embedded" in caught.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="the warning is for root")
@pytest.mark.parametrize(
    ("owner", "mode", "warned"), [(0, 0o755, 0), (0, 0o2775, 1), (0, 0o1777, 1), (12345, 0o755, 1)]
)
def test_root_is_warned_of_a_store_that_others_may_write(
    store: Store, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, warned: int
) -> None:
    engines(monkeypatch, one=True)
    monkeypatch.delenv("SUDO_UID", raising=False)
    os.chown(store.root, owner, 12345)
    store.root.chmod(mode)
    reporter = RecordingReporter(SilentReporter())
    assert choose_engine("auto", store, reporter).name == "one"
    assert len(reporter.take_warnings()) == warned
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setenv("SUDO_GID", "12345")
    choose_engine("auto", store, reporter)
    assert len(reporter.take_warnings()) == (mode in (0o1777, 0o2775))  # the group may have other members
