"""``envbuild lock`` as a user runs it, when a mirror goes back to an old state that is rightly signed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.lock.lockfile import read_lock
from tests.support.debian_archive import RELEASED, Signer, stanza
from tests.support.lock_project import LockProject
from tests.support.lock_site import MARKS

pytestmark = [*MARKS, pytest.mark.slow_unit]

ARCHIVE = "debian:trixie/main"


@pytest.fixture
def project(tmp_path: Path, key: Signer) -> LockProject:
    """Return a project whose lock is of the newer one of two states of the archive."""
    project = LockProject(tmp_path, key, {"debian-packages": ["pkone"]})
    project.index()
    project.publish([stanza("pkone", "2.0")], RELEASED + 86400)
    done = project.lock()
    assert done.returncode == 0, done.stderr
    return project


@pytest.mark.parametrize("options", [(), ("--refresh",), ("--fresh",), ("--upgrade", "pkone")])
def test_the_command_reports_an_archive_that_went_back(project: LockProject, options: tuple[str, ...]) -> None:
    project.publish([stanza("pkone", "1.0"), stanza("pktwo")], RELEASED)
    if not options:  # the lock of an unchanged spec is preserved
        project.layers = {"debian-packages": ["pkone", "pktwo"]}
    # another store: apt itself refuses a Release file that is older than the one in its own
    done = project.lock(*options, store="other")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if ARCHIVE in line and "warning:" in line]
    for word in ("pkone 2.0 → 1.0", "2026-09-22", "2026-09-21"):
        assert word in line
    assert read_lock(project.folder / "project/images/k.lock").releases[ARCHIVE] == "2026-09-21T14:13:20Z"


def test_the_json_answer_has_the_warning(project: LockProject) -> None:
    project.publish([stanza("pkone", "1.0")], RELEASED)
    (image,) = json.loads(project.lock("--refresh", "--json", store="other").stdout)["images"]
    assert image["debian"] > 0
    (warning,) = [text for text in image["warnings"] if ARCHIVE in text]
    assert "pkone 2.0 → 1.0" in warning


def test_an_older_date_alone_is_reported_and_a_newer_one_is_not(project: LockProject) -> None:
    project.publish([stanza("pkone", "2.0")], RELEASED)
    (image,) = json.loads(project.lock("--refresh", "--json", store="other").stdout)["images"]
    assert len([text for text in image["warnings"] if ARCHIVE in text]) == 1
    project.publish([stanza("pkone", "2.1")], RELEASED + 2 * 86400)
    (image,) = json.loads(project.lock("--fresh", "--json", store="third").stdout)["images"]
    assert [text for text in image["warnings"] if ARCHIVE in text] == []


def test_the_date_of_every_archive_is_in_the_lock(project: LockProject) -> None:
    """Also of one that the image has no package of: it may be an old state without the newest ones."""
    found = read_lock(project.folder / "project/images/k.lock").releases
    assert set(found) == {ARCHIVE, "debian:trixie-updates/main"}
