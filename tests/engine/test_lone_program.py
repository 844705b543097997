"""A program of a stranger, run for its output in a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.build.engines.embedded.lone_program import run_alone
from envbuild.core.store.store import Store

pytestmark = pytest.mark.engine

SHELL = Path("/bin/sh")


def run(store: Store, script: str) -> tuple[int, str]:
    ran = run_alone(SHELL.read_bytes(), ["-c", script], store)
    return ran.code, ran.output.decode()


def test_it_has_the_c_library_and_nothing_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the caller")
    code, text = run(Store.open(tmp_path / "store"), "echo /* /home/* /root/*; set")
    assert code == 0
    assert text.splitlines()[0] == "/dev /etc /lib64 /proc /program /run /sys /tmp /home/* /root/*"
    assert "SECRET" not in text and str(tmp_path) not in text


def test_its_exit_code_and_a_file_that_is_no_program(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    assert run(store, "echo no; exit 3") == (3, "no\n")
    ran = run_alone(b"\x7fELF of another machine", [], store)
    assert (ran.code, ran.output) == (126, b"envbuild: /program: Exec format error\n")


def test_it_leaves_nothing(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    canary = tmp_path / "canary"
    canary.mkdir()
    run(store, f"echo x > /tmp/x; echo x > {canary}/x")
    assert not list(canary.iterdir()) and not list((tmp_path / "store/tmp").iterdir())
