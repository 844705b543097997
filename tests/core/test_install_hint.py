"""Hints that install a program: of the package manager that this machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.install_hint import install_hint
from envbuild.core.userns.diagnose import fix_for

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("managers", "line"),
    [
        (["apt-get"], "sudo apt-get install uidmap"),
        (["dnf"], "sudo dnf install /usr/bin/newuidmap"),
        (["zypper"], "sudo zypper install /usr/bin/newuidmap"),
        (["apk"], "sudo apk add cmd:newuidmap"),
        (["dnf", "apt-get"], "sudo apt-get install uidmap"),
        ([], "install newuidmap"),
    ],
)
def test_the_hint_is_of_the_machines_package_manager(
    managers: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for manager in managers:
        (tmp_path / manager).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fix_for("newuidmap") == line


def test_several_programs_are_installed_by_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apt-get").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_hint("unsquashfs", "squashfuse") == "sudo apt-get install squashfs-tools squashfuse"
