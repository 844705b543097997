"""The buildah engine: the same files as the embedded engine's, failures reported alike, nothing left behind."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.engines.base import BuildOptions, BuildResult
from envbuild.build.engines.buildah import command
from envbuild.build.engines.buildah.engine import Buildah
from envbuild.build.plan.units import Input, Plan
from envbuild.core.console import SilentReporter
from envbuild.core.errors import BuildError
from envbuild.core.store.store import Store
from envbuild.core.userns.removal import remove_tree
from envbuild.oci.layers.layer import stored_members
from envbuild.oci.tar import member as m
from tests.support import tiny_root as kit
from tests.support.box_plan import box_units
from tests.support.programs import import_path
from tests.support.wide_plan import wide

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="reading layers with their owners needs root"),
]


def buildah(plan: Plan, store: Store, **options: Any) -> BuildResult:
    return Buildah().build(plan, store, SilentReporter(), BuildOptions(**options))


def merged(store: Store, built: BuildResult) -> dict[bytes, tuple[Any, ...]]:
    """Return the files of all layers together: path → everything but the time."""
    tree: dict[bytes, tuple[Any, ...]] = {}
    for layer in built.layers:
        new: dict[bytes, tuple[Any, ...]] = {}
        hidden: list[bytes] = []
        for entry, source in stored_members(store, layer.diff_id):
            parent, slash, name = entry.path.rpartition(b"/")
            if name == m.OPAQUE:
                hidden += [path for path in tree if path.startswith(parent + b"/")]
            elif name.startswith(m.WHITEOUT):
                gone = parent + slash + name[len(m.WHITEOUT) :]
                hidden += [path for path in tree if path == gone or path.startswith(gone + b"/")]
            else:
                content = hashlib.sha256(source.read_bytes()).hexdigest() if source else ""
                facts = (entry.kind, oct(entry.mode), entry.uid, entry.gid, entry.link, dict(entry.xattrs), content)
                new[entry.path] = facts
        for path in hidden:
            tree.pop(path, None)
        tree |= new
    return tree


@pytest.mark.parametrize(("name", "driver"), [("everything", ""), ("wide", ""), ("wide", "vfs")])
def test_both_engines_make_the_same_files(
    name: str, driver: str, buildah_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vfs is the driver where no overlay can be mounted: each step sees new copies of all files."""
    if driver:
        monkeypatch.setattr(command, "DRIVERS", (driver,))
    plan = wide(buildah_store) if name == "wide" else kit.plans("everything", buildah_store)
    one = merged(buildah_store, buildah(plan, buildah_store, jobs=2))
    two = merged(
        buildah_store, kit.Embedded(packs=()).build(plan, buildah_store, SilentReporter(), BuildOptions(jobs=2))
    )
    # what a program sees of its environment differs by the words that buildah needs
    for tree in (one, two):
        tree.pop(b"opt/one/env", None)
    assert one == two
    assert len(one) > 50
    if name == "wide":
        assert {b"opt/tool/bin/same", b"opt/tool/bin/link", b"opt/user/seen"} < set(one)
        assert b"opt/tool/include" not in one, "what only builds see"


def test_a_step_sees_the_environment_of_its_unit(buildah_store: Store) -> None:
    plan = wide(buildah_store)
    layers = {layer.unit: layer for layer in buildah(plan, buildah_store, jobs=3).layers}
    assert list(layers) == [unit.name for unit in plan.units if unit.in_image and unit.name != "core"]
    text = (buildah_store.layer_tree(layers["one"].diff_id) / "opt/one/env").read_text()
    env = dict(line.split("=", 1) for line in text.splitlines())
    assert env["QUOTED"] == 'a "b" $c \\d'
    assert (env["HOSTNAME"], env["TMPDIR"], env["ENVBUILD_JOBS"]) == ("envbuild", "/run/envbuild/work", "3")
    assert set(env) <= {
        "QUOTED", "HOSTNAME", "TMPDIR", "ENVBUILD_JOBS", "ENVBUILD_UNIT", "PATH", "HOME", "LC_ALL", "TZ", "PWD", "_",
        "SHLVL", "OLDPWD", "SOURCE_DATE_EPOCH", "DEBIAN_FRONTEND", "PYTHONDONTWRITEBYTECODE", "NVCC_APPEND_FLAGS",
    }  # fmt: skip


def test_a_second_build_uses_the_store_and_a_rebuild_is_equal(buildah_store: Store) -> None:
    plan = kit.plans("everything", buildah_store)
    first = buildah(plan, buildah_store)
    again = buildah(plan, buildah_store)
    rebuilt = buildah(plan, buildah_store, rebuild=True)
    assert (first.built, first.reused) == (("base", "everything", "upon"), ())
    assert (again.built, again.reused) == ((), ("base", "everything", "upon"))
    assert rebuilt.built == first.built
    assert first.layers == again.layers == rebuilt.layers


def test_another_mode_of_a_folder_and_another_removed_file_are_built_again(buildah_store: Store) -> None:
    def files(mode: str, removed: str) -> dict[bytes, Any]:
        kept = ("/usr/local/of",)
        plan = kit.plan(
            buildah_store,
            kit.unit("debs", "mkdir -p /usr/local/of; cd /usr/local/of; touch a b"),
            kit.unit("one", f"cd /usr/local/of; rm {removed}; chmod {mode} .", lowers=("base", "debs"), keep=kept),
            kit.unit("glue", "touch /glued", lowers=("base", "debs", "one")),
        )
        return merged(buildah_store, buildah(plan, buildah_store))

    for mode, removed, rest in (("755", "a b", ""), ("1777", "a b", ""), ("755", "a", "b"), ("755", "b", "a")):
        found = files(mode, removed)
        assert found[b"usr/local/of"][1] == oct(int(mode, 8))
        assert {path for path in found if path.startswith(b"usr/local/of/")} == {
            b"usr/local/of/" + name.encode() for name in rest.split()
        }


def test_changed_content_of_a_mount_is_built_again(buildah_store: Store) -> None:
    def content(text: str) -> str:
        item = Input("texts", "text", texts=(("file", text),))
        unit = kit.unit("copy", "cat /run/envbuild/texts/file > /copied", inputs=(item,))
        layers = buildah(kit.plan(buildah_store, unit), buildah_store).layers
        return (buildah_store.layer_tree(layers[-1].diff_id) / "copied").read_text()

    assert [content("one"), content("two"), content("one")] == ["one", "two", "one"]


def test_a_rebuild_is_not_recorded(buildah_store: Store) -> None:
    """Neither in the store, nor in the cache of buildah."""
    plan = kit.plan(buildah_store, kit.unit("one", "mkdir -p /opt; cat /proc/sys/kernel/random/uuid > /opt/one"))
    first, second, third = (buildah(plan, buildah_store, rebuild=again).layers for again in (False, True, False))
    assert first == third and first[-1].diff_id != second[-1].diff_id
    for record in (buildah_store.root / "units").iterdir():
        record.unlink()
    assert buildah(plan, buildah_store).layers == first
    (storage,) = [path for path in buildah_store.own_folder("buildah").iterdir() if path.name.endswith("-rebuild")]
    assert not [path for path in storage.glob("*-images/*") if path.is_dir()]


def mounts(store: Store) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(store.root) in line]


def test_a_failing_step_is_named_and_leaves_no_processes(buildah_store: Store) -> None:
    mark = f"{os.getpid()}.31337"  # seconds that no other process of this machine sleeps
    quiet = f"trap '' TERM; setsid sh -c \"trap '' TERM; sleep {mark}\" & "
    unit = kit.unit("bad", "echo fine", f"{quiet} echo some words; exit 3", "echo never")
    with pytest.raises(BuildError) as caught:
        buildah(kit.plan(buildah_store, unit), buildah_store)
    message = caught.value.message
    assert "unit bad failed in step 2 of 3" in message
    assert "exit code: 3" in message
    assert "some words" in message
    assert "--engine embedded --shell-on-fail" in caught.value.hint
    assert Path(caught.value.where).is_file()
    assert mounts(buildah_store) == []
    end = time.monotonic() + 60  # what was killed goes a moment later
    while mark.encode() in b"".join(command_lines()):
        assert time.monotonic() < end, "a process remains"
        time.sleep(0.1)
    assert list((buildah_store.tmp).iterdir()) == []


def command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            yield path.read_bytes()


def test_of_two_equal_commands_the_failing_one_is_named(buildah_store: Store) -> None:
    plan = kit.plan(
        buildah_store,
        kit.unit("one", "test ! -e /marked"),
        kit.unit("two", "touch /marked", lowers=("base", "one")),
        kit.unit("three", "test ! -e /marked", lowers=("base", "one", "two")),
    )
    with pytest.raises(BuildError, match="unit three failed in step 1 of 1"):
        buildah(plan, buildah_store)


INTRUDER = """setsid /bin/sh -c '
i=0; while test $i -lt 100; do i=$((i + 1))
  for root in /proc/[0-9]*/root; do test -e $root/opt/second && echo evil > $root/opt/second/evil; done; sleep 0.1
done' > /dev/null 2>&1 &"""


def test_a_process_that_a_step_leaves_reaches_no_other_unit(buildah_store: Store) -> None:
    """Through /proc/PID/root, which processes with the same ids and capabilities may enter."""
    first = kit.unit("first", "mkdir -p /opt/first", INTRUDER + " sleep 0.5")
    second = kit.unit(
        "second", "mkdir -p /opt/second", "sleep 3", "ls /opt/second > /opt/second/list", lowers=("base", "first")
    )
    built = buildah(kit.plan(buildah_store, first, second), buildah_store)
    tree = buildah_store.layer_tree(built.layers[-1].diff_id) / "opt/second"
    assert [path.name for path in tree.iterdir()] == ["list"]
    assert (tree / "list").read_text() == "list\n"


def test_a_step_has_no_network(buildah_store: Store) -> None:
    built = buildah(kit.plan(buildah_store, kit.unit("net", "cat /proc/net/dev > /dev-list")), buildah_store)
    text = (buildah_store.layer_tree(built.layers[-1].diff_id) / "dev-list").read_text()
    assert [line.split(":")[0].strip() for line in text.splitlines()[2:]] == ["lo"]


ESCAPE = """
import os
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "CapBnd"))])
try:
    os.mknod("/opt/disk", 0o60600, 0x700)
except OSError as error:
    print("mknod:", error.strerror)
top = os.open("/", os.O_RDONLY)
try:
    os.mkdir("/opt/inner")
    os.chroot("/opt/inner")
    os.fchdir(top)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    open("CANARY", "w").close()
except OSError as error:
    print("chroot:", error.strerror)
"""


def test_a_step_cannot_leave_its_root_by_a_second_chroot(buildah_store: Store, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    text = Input("texts", "text", texts=(("escape.py", ESCAPE.replace("CANARY", str(canary))),))
    python, _ = box_units(buildah_store)
    start = "LD_LIBRARY_PATH=/opt/python/lib PYTHONHOME=/opt/python /opt/python/bin/python3 -S"
    step = f"{start} /run/envbuild/texts/escape.py > /report"
    unit = kit.unit("escape", step, lowers=("base", "python"), inputs=(text,))
    built = buildah(kit.plan(buildah_store, python, unit), buildah_store)
    report = (buildah_store.layer_tree(built.layers[-1].diff_id) / "report").read_text().splitlines()
    assert not canary.exists()
    refused = [f"{name}: {os.strerror(errno.EPERM)}" for name in ("mknod", "chroot")]
    assert report[1:] == refused
    for capabilities in report[0].split():
        assert not int(capabilities, 16) & (1 << 18 | 1 << 27), "CAP_SYS_CHROOT or CAP_MKNOD"


def test_probe_names_the_missing_program(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    probe = Buildah().probe(store)
    assert (probe.ok, probe.step) == (False, "find the program")
    assert "buildah" in probe.reason
    assert probe.fix


def test_probe_refuses_an_old_buildah(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "buildah").write_text("#!/bin/sh\necho buildah version 1.19.6 '(image-spec 1.0.1)'\n")
    (tmp_path / "buildah").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    probe = Buildah().probe(store)
    assert (probe.ok, probe.step) == (False, "version")
    assert "1.19.6" in probe.reason


DRIVER = """
import json, sys
from pathlib import Path
from tests.support import tiny_root as kit
from envbuild.build.engines.buildah.engine import Buildah
store = kit.Store.open(Path(sys.argv[1]))
probe = Buildah().probe(store)
layers = []
if probe.ok:
    built = Buildah().build(kit.plans("everything", store), store, kit.SilentReporter(), kit.BuildOptions(jobs=2))
    layers = built.layers
print(json.dumps([probe.detail or probe.reason, [layer.diff_id for layer in layers]]))
"""


def test_another_user_makes_the_same_layers(
    buildah_store: Store, scratch: Path, other_user: tuple[str, str], tmp_path: Path
) -> None:
    name, python = other_user
    own = scratch / "of-another-user"
    own.mkdir()
    shutil.chown(own, name, name)
    path = import_path(*(item for item in sys.path if "site-packages" in item))
    environment = ["env", f"HOME=/home/{name}", f"PYTHONPATH={path}"]
    command = ["runuser", "-u", name, "--", *environment, python, "-c", DRIVER, str(own)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=f"/home/{name}")
        assert done.returncode == 0, done.stderr
        detail, layers = json.loads(done.stdout)
        assert detail.endswith("inside buildah unshare")
        built = buildah(kit.plans("everything", buildah_store), buildah_store, jobs=2)
        assert layers == [layer.diff_id for layer in built.layers]
    finally:
        remove_tree(own)
