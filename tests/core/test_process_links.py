"""Links of processes in /proc: their text is not where they lead."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.judged_links import ForeignLinkError, check_links, open_judged

pytestmark = pytest.mark.unit
USERS = frozenset((0, os.geteuid()))


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        yield child.pid
        child.communicate()


@pytest.mark.parametrize("name", ["root", "cwd", "exe", "fd/0"])
def test_a_link_of_another_process_is_refused(name: str, process: int, tmp_path: Path) -> None:
    """In its mount namespace it leads to another folder than its text, and the process can change that."""
    for way in (Path(f"/proc/{process}/{name}"), tmp_path / "link"):
        if not way.is_symlink():
            way.symlink_to(f"/proc/{process}/{name}")
        with pytest.raises(ForeignLinkError, match="the link of a process"):
            check_links(way / "tmp" if name in ("root", "cwd") else way, USERS)


def test_links_of_this_process_lead_to_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with (tmp_path / "file").open() as file:
        for place in (
            f"/proc/self/fd/{file.fileno()}",
            f"/dev/fd/{file.fileno()}",
            f"/proc/{os.getpid()}/fd/{file.fileno()}",
        ):
            check_links(Path(place), USERS)
            with open_judged(Path(place), USERS) as found:
                assert found.read() == b"mine"
    check_links(Path("/proc/self/status"), USERS)  # a link with the number of this process
