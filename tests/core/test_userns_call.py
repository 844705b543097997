"""A function called where owners read as root's own: directly, or in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import envbuild
from envbuild.core.errors import EngineError
from envbuild.core.paths import PACKAGE, import_path
from envbuild.core.userns import call as calling
from envbuild.core.userns import process, removal
from envbuild.core.userns.namespaces import SetupError

pytestmark = pytest.mark.unit
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="others need subordinate ids")


def who(*, given: str) -> list[object]:
    return [os.getpid(), str(Path.cwd()), given]


def fail(*, code: int) -> None:
    os._exit(code)


def speak(*, text: str, fails: bool) -> None:
    print(text, end="", flush=True)
    if fails:
        raise EngineError("it failed", "type this")


def test_root_calls_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert calling.call(who, given="x") == [os.getpid(), str(Path.cwd()), "x"]


@as_root
def test_a_process_inherits_nothing_from_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pid, folder, given = process.spawn(who, {"given": "ä"}).result()
    assert pid != os.getpid() and (folder, given) == ("/", "ä")


@as_root
def test_a_process_that_ends_without_an_answer() -> None:
    child = process.spawn(fail, {"code": 3}, what="the process of a test")
    with pytest.raises(EngineError, match=r"the process of a test was killed \(status 3\)"):
        child.result()


@as_root
@pytest.mark.slow_unit
def test_a_stream() -> None:
    assert b"".join(calling.stream(speak, text="much", fails=False)) == b"much"
    with pytest.raises(EngineError, match="it failed") as caught:
        list(calling.stream(speak, text="much", fails=True))
    assert caught.value.hint == "type this"


def test_no_namespace_is_an_error_with_a_fix() -> None:
    with (
        pytest.raises(EngineError, match="no user namespace with subordinate ids: newuidmap: it is missing") as caught,
        calling.namespace_needed(),
    ):
        raise SetupError("newuidmap", "it is missing")
    assert "apt-get install uidmap" in caught.value.hint


def test_folders_are_removed(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/file").touch()
    removal.remove_tree(one)
    removal.remove_tree(tmp_path / "none")
    removal.remove_trees([])
    assert [path.name for path in tmp_path.iterdir()] == ["two"]
    if os.geteuid() == 0:
        child = removal.start_removal([two])
        child.process.wait()
        child.kill()
        assert list(tmp_path.iterdir()) == []


def test_the_package_comes_first_on_the_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(envbuild.__file__).resolve().parent == PACKAGE
    monkeypatch.setattr(sys, "path", ["", "/other", str(PACKAGE.parent), "/last"])
    assert import_path() == [str(PACKAGE.parent), "/other", "/last"]
