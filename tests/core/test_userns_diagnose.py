"""A step of setting up that failed: the command that fixes it, by the settings of this machine."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from envbuild.core.errors import FREE_SOME
from envbuild.core.userns import diagnose, id_maps
from envbuild.core.userns.diagnose import LOCAL_DISK, UNMASK, fix_for

pytestmark = pytest.mark.unit

LIMIT = "/proc/sys/user/max_user_namespaces"
CLONE = "/proc/sys/kernel/unprivileged_userns_clone"
APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


@pytest.mark.parametrize(
    ("step", "settings", "code", "uid", "fix"),
    [
        ("newuidmap", {}, 0, 1000, "apt-get install uidmap"),
        ("unshare", {LIMIT: 0}, 0, 1000, "user.max_user_namespaces=65536"),
        ("unshare", {LIMIT: 100}, errno.ENOSPC, 0, "user.max_user_namespaces=65536"),
        ("unshare", {LIMIT: 100, CLONE: 0}, 1, 1000, "unprivileged_userns_clone=1"),
        ("map ids", {CLONE: 1, APPARMOR: 1}, 1, 1000, "apparmor_restrict_unprivileged_userns=0"),
        ("bind", {CLONE: 1, APPARMOR: 0}, 1, 1000, UNMASK),
        ("mount proc", {CLONE: 0, APPARMOR: 1}, 1, 0, UNMASK),
        ("unshare", {CLONE: 0, APPARMOR: 1}, 1, 0, "CAP_SYS_ADMIN"),
        ("mount tmpfs", {}, 1, 1000, "use root"),
        ("mount overlay", {LIMIT: 0}, 1, 1000, LOCAL_DISK),
        ("chown", {}, 1, 1000, LOCAL_DISK),
        ("chown", {}, errno.EDQUOT, 1000, FREE_SOME),
        ("whiteout", {}, errno.ENOSPC, 0, FREE_SOME),
        ("mount overlay", {}, errno.ENOSPC, 0, FREE_SOME),
        ("fork", {}, errno.ENOSPC, 0, FREE_SOME),
        ("bind", {LIMIT: 100}, errno.ENOSPC, 0, "fs.mount-max"),
        ("mount tmpfs", {LIMIT: 100}, errno.ENOSPC, 1000, "fs.mount-max"),
        ("mount squashfs", {}, 1, 1000, "install squashfs-tools squashfuse"),
    ],
)
def test_each_failed_step_has_its_fix(
    step: str, settings: dict[str, int], code: int, uid: int, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(diagnose, "_number", settings.get)
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "apt-get" else None)
    assert fix in fix_for(step, code)


def test_programs_that_are_installed_are_no_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: name if name in ("apt-get", "unsquashfs") else None)
    assert fix_for("mount squashfs") == "sudo apt-get install squashfuse"
    monkeypatch.setattr(shutil, "which", lambda name: name)
    assert fix_for("mount squashfs") == ""


@pytest.mark.parametrize("step", ["newuidmap", "subordinate ids", "unshare", "pivot_root", "another", "fork"])
def test_no_fix_names_an_engine(step: str) -> None:
    """Whether another one works is known only to those who tried it."""
    assert "--engine" not in fix_for(step)


@pytest.mark.parametrize(
    ("subuid", "subgid", "accounts", "free"),
    [
        ("", "", [], "2001000000-2001065535"),
        ("ann:100000:65536\n", "ann:100000:65536\n", [], "2001000000-2001065535"),
        ("ann:2001000000:65536\n", "ann:2001000000:65536\n", [], "2001065536-2001131071"),
        ("ann:2001000000:65536\n", "eve:2001065536:65536\n", [], "2001131072-2001196607"),
        ("ann:2001065536:65536\n", "", [], "2001000000-2001065535"),
        ("ann:2001020000:10\neve:2001030000:10\n", "", [], "2001030010-2001095545"),
        ("ann:2000999990:11\nbad\nx:y:z\n", "ann:1:2010000000\n", [], "2010000001-2010065536"),
        ("ann:2001000000:65536\n", "", [2_001_070_000, 2_005_000_000, 1000], "2001070001-2001135536"),
    ],
)
def test_the_ids_of_a_hint_are_free(
    subuid: str, subgid: str, accounts: list[int], free: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those in either file, not those of accounts, and none from the ranges of directories (sssd-ad(5))."""
    files = [tmp_path / "subuid", tmp_path / "subgid"]
    for file, text in zip(files, (subuid, subgid), strict=True):
        if text:
            file.write_text(text)
    monkeypatch.setattr(id_maps, "SUBORDINATE", tuple(map(str, files)))
    monkeypatch.setattr(diagnose.pwd, "getpwall", lambda: [SimpleNamespace(pw_uid=number) for number in accounts])
    monkeypatch.setattr(diagnose.grp, "getgrall", list)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert (
        fix_for("subordinate ids") == f"sudo usermod --add-subuids {free} --add-subgids {free} 54321  {diagnose.UNLESS}"
    )


def test_settings_that_this_kernel_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("12\n")
    (tmp_path / "text").write_text("many\n")
    assert [diagnose._number(str(tmp_path / name)) for name in ("number", "text", "none")] == [12, None, None]


def test_the_largest_range_of_ids_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_maps.shutil, "which", lambda _: None)
    file = tmp_path / "subuid"
    assert id_maps.subordinate(str(file), 1000, "ann") == (0, 0)
    file.write_text("ann:100:10\nbob:5:99999\n1000:2000:30\nann:300:20\nann:x:99\nann:1:y\nann:1\nann:1:2:3\n")
    assert id_maps.subordinate(str(file), 1000, "ann") == (2000, 30)
    assert id_maps.subordinate(str(file), 7, "bob") == (5, 99999)
    assert id_maps.subordinate(str(file), 8, "eve") == (0, 0)


def test_a_directory_service_may_have_the_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "getsubids"
    program.write_text('#!/bin/sh\necho "0: $* 100 200" | sed "s/-g //"\n[ "$1" != -g ] || echo "1: $2 300 400"\n')
    program.chmod(0o755)
    monkeypatch.setattr(id_maps.shutil, "which", lambda _: str(program))
    (tmp_path / "subuid").write_text("bob:5:6\n")
    assert id_maps.subordinate(str(tmp_path / "subuid"), 1000, "ann") == (100, 200)
    assert id_maps.subordinate(str(tmp_path / "subgid"), 1000, "ann") == (300, 400)
    assert id_maps.subordinate(str(tmp_path / "subuid"), 1000, "") == (100, 200)
    assert id_maps.subordinate(str(tmp_path / "subuid"), 7, "bob") == (5, 6)


def test_how_units_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert id_maps.describe().startswith("root")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    monkeypatch.setattr(id_maps, "subordinate", lambda path, uid, name: (uid, len(name)))
    assert id_maps.describe() == "subordinate ids 54321:0"
