"""A store in use: commands share it, one that removes has it alone, and each removes what killed ones left."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError
from envbuild.core.store.leases import discard_old
from envbuild.core.store.store import Store
from envbuild.core.store.use import in_use

pytestmark = pytest.mark.unit


def abandoned(store: Store, name: str = "1-0000dead") -> Path:
    folder = store.tmp / name
    (folder / "deep").mkdir(parents=True)
    (folder / "alive").touch()
    return folder


def test_nothing_is_removed_behind_a_link_out_of_the_store(store: Store, tmp_path: Path) -> None:
    """As a store in a downloaded project may have them: names in that place mean nothing to the store."""
    place = tmp_path / "place"
    for name in ("removed-bills", "2024-deadbeef"):
        (place / name).mkdir(parents=True)
        (place / name / "file").touch()
    for folder in (store.tmp, store.own / "leases"):
        if folder.exists():
            folder.rmdir()
        folder.symlink_to(place)
    with in_use(store, SilentReporter()):
        pass
    discard_old(store, time.time() + 60)
    assert len(list(place.rglob("file"))) == 2


def test_a_command_that_removes_is_refused_while_another_process_uses_the_store(store: Store) -> None:
    code = (
        "import sys; from pathlib import Path; from envbuild.core.console import SilentReporter\n"
        "from envbuild.core.store.store import Store; from envbuild.core.store.use import in_use\n"
        "with in_use(Store(Path(sys.argv[1])), SilentReporter()): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(store.root)]
    worker = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert worker.stdout is not None and worker.stdout.readline() == "held\n"
    with in_use(store, SilentReporter()):
        pass  # commands do not stop each other
    with (
        pytest.raises(EngineError, match="another envbuild works in this store"),
        in_use(store, SilentReporter(), alone=True),
    ):
        pass
    worker.communicate("")
    with in_use(store, SilentReporter(), alone=True):
        pass


def test_other_commands_wait_for_the_one_that_removes_and_report_it(store: Store) -> None:
    reporter, reported, done = SilentReporter(), threading.Event(), threading.Event()
    reporter.info = lambda text: reported.set()  # type: ignore[method-assign]

    def use() -> None:
        with in_use(store, reporter):
            done.set()

    with in_use(store, SilentReporter(), alone=True):
        thread = threading.Thread(target=use)
        thread.start()
        assert reported.wait(60) and not done.is_set()
    thread.join(60)
    assert done.is_set()


@pytest.mark.slow_unit
@pytest.mark.parametrize("alone", [False, True])
def test_folders_of_killed_commands_are_removed_beside_the_work(store: Store, alone: bool) -> None:
    dead = abandoned(store)
    with store.workdir() as work:
        with in_use(store, SilentReporter(), alone=alone):
            assert work.exists()
        assert list((store.tmp).iterdir()) == [work] and not dead.exists()


def test_replaced_layers_are_removed_by_a_command_that_is_alone_at_its_start(store: Store) -> None:
    """Another command may work with one."""
    with in_use(store, SilentReporter()):
        (store.tmp / "removed-x/tree").mkdir(parents=True)
        with in_use(store, SilentReporter()):
            pass
    assert (store.tmp / "removed-x").exists()
    (store.tmp / "damaged-x").mkdir()
    with in_use(store, SilentReporter(), alone=True, clean=False):
        pass
    assert (store.tmp / "removed-x").exists()
    with in_use(store, SilentReporter()):
        pass
    assert [path.name for path in store.tmp.iterdir()] == ["damaged-x"]


def test_a_command_that_counts_what_it_removes_finds_it(store: Store) -> None:
    dead = abandoned(store)
    with in_use(store, SilentReporter(), alone=True, clean=False):
        assert dead.exists()
    assert dead.exists()


def test_what_is_not_abandoned_remains(store: Store) -> None:
    with store.workdir() as work, in_use(store, SilentReporter()):
        assert list(store.abandoned()) == [] and work.exists()
