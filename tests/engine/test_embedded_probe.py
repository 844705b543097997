"""The probe of the embedded engine, where the machine can do what it tries. Other tests skip where it fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from envbuild.build.engines.embedded.engine import Embedded
from envbuild.core.store.store import Store

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
