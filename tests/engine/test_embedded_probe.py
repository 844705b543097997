"""The probe of the embedded engine, where the machine can do what it tries. Other tests skip where the machine lacks
a capability."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from envbuild.build.engines.base import Probe
from envbuild.build.engines.embedded.engine import Embedded
from envbuild.core.store.store import Store
from tests.support.engine_fixtures import missing_capability, open_working_store

pytestmark = pytest.mark.engine


@pytest.mark.skipif(os.geteuid() != 0, reason="others need a user namespace")
def test_the_probe_passes_where_overlays_can_be_mounted(scratch: Path) -> None:
    folder = scratch / "overlay"
    for name in ("lower", "upper", "work", "merged"):
        (folder / name).mkdir(parents=True)
    options = "lowerdir=lower,upperdir=upper,workdir=work,userxattr"
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "overlay", "-o", options]
    done = subprocess.run([*command, "none", "merged"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"unshare and mount of util-linux cannot mount an overlay here: {done.stderr.strip()}")
    store = Store.open(scratch / "probed")
    probe = Embedded().probe(store)
    assert (probe.ok, probe.step, probe.reason) == (True, "", "")
    assert list((store.tmp).iterdir()) == []


@pytest.mark.parametrize(
    ("probe", "lacks"),
    [
        (Probe("embedded", True), False),
        (Probe("embedded", False, "newuidmap", "it is not installed"), True),
        (Probe("embedded", False, "unshare", "Operation not permitted", code=errno.EPERM), True),
        (Probe("embedded", False, "mount overlay", "Invalid argument", code=errno.EINVAL), True),
        (Probe("embedded", False, "mount overlay", "Bad address", code=errno.EFAULT), False),
        (Probe("embedded", False, "init", "ImportError('x')"), False),
        (Probe("embedded", False, "init", "it was killed"), False),
        (Probe("embedded", False, "start", "Traceback …"), False),
    ],
)
def test_tests_of_the_engine_are_skipped_for_a_named_capability_alone(probe: Probe, lacks: bool) -> None:
    assert bool(missing_capability(probe)) == lacks


def test_a_broken_probe_fails_the_tests_of_the_engine(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Probe("embedded", False, "init", "ValueError('x')")
    monkeypatch.setattr(Embedded, "probe", lambda engine, store: broken)
    with pytest.raises(pytest.fail.Exception, match="init: ValueError"):
        open_working_store(scratch / "broken")
