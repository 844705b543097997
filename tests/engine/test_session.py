"""A session: an image that is mounted once, and commands in it that share nothing else."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.build.engines.embedded import loop_device, mount_squashfs, session
from envbuild.build.engines.embedded.session import Session, open_session
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError, VerifyError
from envbuild.core.store.store import Store
from envbuild.verify.open_image import open_image
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.tasks import Task, run_tasks
from tests.support import tiny_root as kit
from tests.support.as_user import run_without
from tests.support.foreign_images import image, made, workspace
from tests.support.local_registry import Layout, file, folder, symlink, tar
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def path(scratch: Path) -> Path:
    """Return a squashfs file with a shell."""
    place = scratch / "of-a-session"
    layout, programs = Layout(place / "layout"), dict(kit.host_files())
    above = sorted({str(parent) for name in programs for parent in Path(name).parents} - {"."})
    layer = tar(
        *[folder(name) for name in dict.fromkeys([*above, "etc", "tmp", "var", "dev", "proc", "sys", "root", "run"])],
        *[file(name, path.read_bytes(), 0o755) for name, path in programs.items()],
        *[symlink("bin", "usr/bin"), file("one", b"one\n")],
    )
    layout.add(image(layout, [layer]))
    return made(f"oci:{layout.path}", workspace(place / "store"), place / "image.sqsh").artifact.path


def say(opened: Session, text: str, timeout: float | None = 60) -> tuple[int, str]:
    ran = opened.run(["/bin/sh", "-c", text], timeout)
    return ran.code, ran.output.decode()


def test_the_image_is_mounted_once_and_each_command_has_its_own_upper(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    with open_session(path, {"MINE": "1"}, store, notes=notes) as opened:
        for _ in range(3):
            assert say(opened, "cat /one; echo $MINE; echo two > /one; ls /tmp; echo > /tmp/x") == (0, "one\n1\n")
        assert say(opened, "exit 7")[0] == 7 and say(opened, "kill -15 $$")[0] == 143
    assert len([note for note in notes if path.name in note]) == 1
    assert list(store.tmp.iterdir()) == []
    assert str(path) not in Path("/proc/self/mounts").read_text()


def test_commands_run_at_the_same_time(store: Store, path: Path) -> None:
    """Each of two waits for a file that the caller makes when both have begun."""
    bound = store.tmp.parent / "bound"
    bound.mkdir(exist_ok=True)
    wait = "echo > /mnt/begun-$1; until [ -e /mnt/go ]; do :; done; echo done"
    with open_session(path, {}, store, binds=[(str(bound), "/mnt")]) as opened, ThreadPoolExecutor(2) as pool:
        found = [pool.submit(opened.run, ["/bin/sh", "-c", wait, "sh", str(number)], 120) for number in range(2)]
        with ends_within(100):
            while len(list(bound.glob("begun-*"))) < 2:
                threading.Event().wait(0.02)
        (bound / "go").touch()
        assert [item.result().output for item in found] == [b"done\n", b"done\n"]


def test_a_command_that_is_ended_ends_no_other(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LARGEST", 1 << 20)
    with open_session(path, {}, store) as opened:
        assert say(opened, "echo before; while :; do :; done", 2.0) == (124, "before\n")
        code, text = say(opened, "while :; do echo 0123456789012345678901234567890123456789; done")
        assert code == 125 and text.endswith("ended: more than 1 MiB of output")
        assert say(opened, "echo still") == (0, "still\n")
    assert list(store.tmp.iterdir()) == []


@pytest.mark.parametrize("full", ["/dev/shm", "/tmp", "/run"])
def test_a_command_that_fills_memory_ends_alone(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    monkeypatch.setattr(session, "TEMPORARY", 1 << 20)
    with open_session(path, {}, store) as opened:
        _, text = say(opened, f"cat /dev/zero > {full}/x; echo $(($(wc -c < {full}/x) >> 20))")
        assert "No space left on device" in text and text.endswith("1\n")
        assert say(opened, f"echo > {full}/x && wc -c < {full}/x") == (0, "1\n")


def test_a_session_whose_process_was_killed(store: Store, path: Path) -> None:
    with pytest.raises(EngineError), open_session(path, {}, store) as opened:
        assert say(opened, "true") == (0, "")
        opened.child.process.kill()
        opened.child.process.wait()
        with pytest.raises(EngineError):
            say(opened, "true")
    assert list(store.tmp.iterdir()) == []


def test_a_file_that_cannot_be_mounted(
    store: Store, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.sqsh").write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(VerifyError), open_session(tmp_path / "x.sqsh", {}, store):
        raise AssertionError("it was opened")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mount_squashfs, "FUSE", str(tmp_path / "none"))

    def refused() -> None:
        with pytest.raises(EngineError, match=r"mount: .*; squashfuse is not installed"), open_session(path, {}, store):
            raise AssertionError("it was opened")

    run_without([loop_device.CONTROL], refused)
    assert list(store.tmp.iterdir()) == []


def test_the_results_of_tasks_have_the_order_of_the_tasks(store: Store, path: Path) -> None:
    workspace: Any = SimpleNamespace(store=store, reporter=SilentReporter())
    with open_image(path, {}, workspace) as opened:

        def say_number(number: int) -> list[AuditResult]:
            return [AuditResult(opened(["/bin/sh", "-c", f"echo {number}"])[1], Status.PASS)]

        tasks = [Task(str(number), partial(say_number, number)) for number in range(6)]
        found, seconds = run_tasks(tasks, opened, SilentReporter())
    assert list(seconds) == [task.name for task in tasks] and all(value >= 0 for value in seconds.values())
    assert [result.name for result in found] == [f"{number}\n" for number in range(6)]
    assert opened.box["seccomp"] in (True, False)


def test_a_task_that_fails_ends_the_others(store: Store, path: Path) -> None:
    workspace: Any = SimpleNamespace(store=store, reporter=SilentReporter())

    def fail() -> list[AuditResult]:
        raise VerifyError("the image could not be inspected")

    with ends_within(60), open_image(path, {}, workspace) as opened:

        def wait() -> list[AuditResult]:
            return [AuditResult(str(opened(["/bin/sh", "-c", "while :; do :; done"])), Status.PASS)]

        endless = Task("endless", wait)
        with pytest.raises(VerifyError, match="inspected"):
            run_tasks([endless, Task("failing", fail), endless], opened, SilentReporter())
    assert list(store.tmp.iterdir()) == []
