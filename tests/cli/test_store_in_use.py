"""Every command that writes in a store holds it: while one that removes has it alone, the others wait."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from envbuild.cli.app import COMMANDS
from envbuild.core.late_import import import_object
from envbuild.core.store.store import Store
from envbuild.core.store.use import LOCK
from tests.support.command import ROOT
from tests.support.file_locks import waits_for
from tests.support.signals import reset_signals

pytestmark = pytest.mark.unit

IMAGE = "cpu-ucx"
WRITE = {
    "make": [IMAGE],
    "lock": [IMAGE],
    "fetch": [IMAGE],
    "compile": [IMAGE],
    "export": [IMAGE, "--to", "squashfs"],
    "publish": [IMAGE, "--to", "registry.example/team/images:demo"],
    "pull": ["registry.example/team/images:demo"],
    "importer get": ["docker://registry.example/team/images:demo"],
    "verify": [IMAGE],
    "run": [IMAGE, "--", "true"],
    "store check": [],
    "matrix refresh": ["torch", "--dry-run"],
}
ALONE = {"store gc": ["--dry-run"], "store check": ["--repair"]}
READ = {
    "list": [],
    "show": [IMAGE],
    "report": [IMAGE],
    "launch": [IMAGE, "--as", "docker", "--", "true"],
    "diff": [IMAGE, IMAGE],
    "store du": [],
    "export": ["--list"],
    "doctor": ["--image", IMAGE],
}
NO_STORE = {
    "importer release",
    "importer script",
    "key new",
    "store join",
    "check",
    "origins",
    "recipes",
    "matrix show",
    "matrix lint",
}


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """Yield a store that another command has alone."""
    store = Store.open(tmp_path / "store")
    with (store.root / "locks" / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield store.root


def start(store: Path, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "envbuild", *name.split(), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ENVBUILD_STORE": str(store)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=reset_signals,
    )


def test_every_command_is_known_to_write_or_to_read() -> None:
    names = set()
    for name, place in COMMANDS.items():
        command = import_object(place)
        if isinstance(command, typer.Typer):
            parts = [part.name or part.callback.__name__ for part in command.registered_commands if part.callback]
            names |= {f"{name} {part}" for part in parts}
        else:
            names.add(name)
    assert names == {*WRITE, *ALONE, *READ, *NO_STORE}


@pytest.mark.slow_unit
def test_commands_that_write_wait_while_one_has_the_store_alone(locked: Path) -> None:
    running = {name: start(locked, name, arguments) for name, arguments in WRITE.items()}
    try:
        found = {name: waits_for(process, locked / "locks" / LOCK) for name, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    assert found == dict.fromkeys(WRITE, True)


@pytest.mark.slow_unit
def test_commands_that_read_need_no_lock(locked: Path) -> None:
    running = {name: start(locked, name, arguments) for name, arguments in READ.items()}
    codes = {name: process.wait(timeout=120) for name, process in running.items()}
    assert codes.pop("doctor") in (0, 7)  # whether this machine is ready
    assert codes == dict.fromkeys(codes, 0)


@pytest.mark.slow_unit
def test_commands_that_remove_do_not_wait(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    with (store.root / "locks" / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        running = [start(store.root, name, arguments) for name, arguments in ALONE.items()]
        assert [process.wait(timeout=120) for process in running] == [5, 5]
