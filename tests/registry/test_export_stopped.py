"""A command that is stopped leaves nothing behind, in every state, and reports it by its exit code."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.file_locks import waits_for
from tests.support.stalled_layer import PATIENCE, Registry, listed, stalling, start, until

pytestmark = pytest.mark.registry

SIGNALS = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


def wait_for_end(process: subprocess.Popen[str], code: int) -> str:
    """Wait for the end of a stopped process; return its output."""
    _, output = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, output
    assert "Traceback" not in output and "Exception" not in output and "error" not in output
    assert output.count("the next run resumes here") == 1
    return output


def assert_nothing_left(store: Path, out: Path) -> None:
    assert [path for path in (store / "tmp").iterdir() if path.is_dir()] == []
    assert not [path.name for path in out.parent.iterdir() if out.name in path.name]
    assert not [path for path in (store / "exports").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("cache", ["--cache", "--no-cache"])
@pytest.mark.parametrize("name", SIGNALS)
def test_in_the_middle_of_a_layer(name: str, cache: str, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out/image.sqsh"
    with stalling(tmp_path / "layout", 1_000_000) as registry:
        process = start("export", registry.source, "--to", "squashfs", "-o", str(out), cache, store=store)
        until(registry.reached.is_set, process)
        until(lambda: listed(store)[0]["bytes"] > 500_000, process)
        if cache == "--cache":  # the other layers are packed beside it
            until(lambda: len(list(store.glob("packs/*"))) == 2, process)
        row = listed(store)[0]
        assert (row["state"], row["running"], row["pid"]) == ("reading layers", True, process.pid)
        assert row["total"] > 3_000_000 and row["output"] == str(out) and row["source"] == registry.source
        process.send_signal(signal.Signals[name])
        output = wait_for_end(process, SIGNALS[name])
        assert ("interrupted" if name == "SIGINT" else f"stopped by {name}") in output
        assert_nothing_left(store, out)
        row = listed(store)[0]
        assert (row["state"], row["running"], row["error"]) == ("interrupted", False, "")
        registry.stall = 0
        again = start("export", registry.source, "--to", "squashfs", "-o", str(out), cache, store=store)
        output, _ = again.communicate(timeout=PATIENCE)
        assert again.returncode == 0 and ("1 layer packed, 2 packed before" in output) == (cache == "--cache")


@pytest.mark.parametrize("cache", ["--cache", "--no-cache"])
def test_while_a_registry_does_not_answer(cache: str, tmp_path: Path) -> None:
    """Such a wait cannot be ended: what is left behind it is removed all the same."""
    store, out = tmp_path / "store", tmp_path / "out/image.sqsh"
    with stalling(tmp_path / "layout", -1) as registry:
        process = start("export", registry.source, "--to", "squashfs", "-o", str(out), cache, store=store)
        until(registry.reached.is_set, process)
        process.terminate()
        wait_for_end(process, 143)
    assert_nothing_left(store, out)
    assert [row["state"] for row in listed(store)] == ["interrupted"]


def test_a_stalled_source_and_a_second_ctrl_c(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out/image.sqsh"
    with stalling(tmp_path / "layout", 1_000_000) as registry:
        process = start("export", registry.source, "--to", "squashfs", "-o", str(out), store=store)
        until(registry.reached.is_set, process)
        until(lambda: len(list(store.glob("packs/*"))) == 2, process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        wait_for_end(process, 130)
    assert_nothing_left(store, out)
    assert [row["state"] for row in listed(store)] == ["interrupted"]


def test_several_signals_at_once(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out/image.sqsh"
    with stalling(tmp_path / "layout", 1_000_000) as registry:
        process = start("export", registry.source, "--to", "squashfs", "-o", str(out), store=store)
        until(registry.reached.is_set, process)
        for _ in range(3):
            process.terminate()
        wait_for_end(process, 143)
    assert_nothing_left(store, out)


def test_an_ignored_signal_remains_ignored(tmp_path: Path) -> None:
    """As under nohup."""
    store, out = tmp_path / "store", tmp_path / "out/image.sqsh"
    with stalling(tmp_path / "layout", 1_000_000) as registry:
        process = start(
            *("export", registry.source, "--to", "squashfs", "-o", str(out)),
            store=store,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
        until(registry.reached.is_set, process)
        process.send_signal(signal.SIGHUP)
        registry.go.set()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and out.is_file()


def kill_export(registry: Registry, store: Path) -> None:
    """Kill an export that waits for the rest of a layer."""
    process = start("export", registry.source, "--to", "squashfs", store=store)
    until(registry.reached.is_set, process)
    process.kill()
    process.communicate()


def test_a_killed_export_is_listed_as_interrupted(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with stalling(tmp_path / "layout", 1_000_000) as registry:
        kill_export(registry, store)
        assert [(row["state"], row["running"], row["eta"]) for row in listed(store)] == [("interrupted", False, None)]


def test_the_next_export_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with stalling(tmp_path / "layout", 1_000_000) as registry:
        kill_export(registry, store)
        assert list((store / "tmp").iterdir())
        registry.stall = 0
        again = start("export", registry.source, "--to", "squashfs", store=store)
        _, output = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, output
    assert list((store / "tmp").iterdir()) == []


def test_other_commands(tmp_path: Path) -> None:
    """One way for all: here one that waits for its lock."""
    import fcntl

    store = tmp_path / "store"
    start("store", "gc", store=store).communicate(timeout=PATIENCE)  # makes the store
    with (store / "locks/tmp").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = start("store", "gc", "--all", store=store)
        assert waits_for(process, store / "locks/tmp")
        process.terminate()
        wait_for_end(process, 143)
