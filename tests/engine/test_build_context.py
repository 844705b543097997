"""The printed Containerfile and its folder: buildah builds it as printed, and its bytes depend on the plan alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from envbuild.build.engines.build_context import write_context
from envbuild.build.plan.units import Plan
from envbuild.core.errors import PublishError
from envbuild.core.store.store import Store
from envbuild.oci.config import ImageConfig
from tests.support import tiny_root as kit
from tests.support.folder_content import content
from tests.support.wide_plan import wide

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="reading layers with their owners needs root"),
]


AWKWARD = {
    "SPACES": "a  b ",
    "QUOTES": "\"double\" 'single' `back`",
    "DOLLAR": "$HOME ${X:-y} $",
    "SLASH": "\\ \\\\n \\",
}


def test_the_printed_text_builds_as_printed(buildah_store: Store, tmp_path: Path) -> None:
    """Also: every awkward value of ENV and LABEL arrives."""
    plan = wide(buildah_store)
    config = ImageConfig(env={"PATH": "/usr/bin", **AWKWARD}, cmd=("/bin/sh", "-c", 'echo "$X"'), labels=AWKWARD)
    plan = Plan(plan.image, plan.units, config, plan.epoch)
    context = tmp_path / "context"
    path = write_context(plan, buildah_store, context)
    storage = ["--root", str(tmp_path / "root"), "--runroot", str(tmp_path / "run")]
    build = ["buildah", *storage, "build", "--isolation", "chroot", "-t", "printed", "-f", str(path), str(context)]
    done = subprocess.run(["unshare", "--net", "--mount", *build], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    inspect = ["buildah", *storage, "inspect", "--type", "image", "printed"]
    found = json.loads(subprocess.run(inspect, capture_output=True, text=True, check=True).stdout)["OCIv1"]["config"]
    assert dict(line.split("=", 1) for line in found["Env"]) == config.env
    assert {name: value for name, value in found["Labels"].items() if name != "io.buildah.version"} == AWKWARD
    assert found["Cmd"] == list(config.cmd)


def test_the_context_does_not_depend_on_the_umask(buildah_store: Store) -> None:
    """Modes of its folders and texts get into layers."""
    plan, found = wide(buildah_store), []
    for umask in (0o022, 0o077):
        folder = buildah_store.root / f"context-{umask:o}"
        before = os.umask(umask)
        try:
            write_context(plan, buildah_store, folder)
            assert os.umask(umask) == umask
        finally:
            os.umask(before)
        modes = {str(path.relative_to(folder)): path.stat().st_mode for path in folder.rglob("*")}
        found.append((modes, content(folder)))
    assert found[0] == found[1]


def test_the_context_is_linked_whole_and_replaced(buildah_store: Store, tmp_path: Path) -> None:
    plan = wide(buildah_store)
    folder = buildah_store.root / "context"
    write_context(plan, buildah_store, folder)
    first = content(folder)
    (folder / "base" / "old").write_text("")
    write_context(plan, buildah_store, folder)
    assert content(folder) == first
    assert {"base/seed.tar", "base/apt.conf", "base/debs/Packages", "one/step-3.sh", "glue/texts/etc/made/by"} <= set(
        first
    )
    assert (folder / "base/debs" / kit.DEB).stat().st_nlink > 1
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "Containerfile").write_text("FROM debian\n")
    with pytest.raises(PublishError, match="something else"):
        write_context(plan, buildah_store, foreign)
    assert (foreign / "Containerfile").read_text() == "FROM debian\n"
