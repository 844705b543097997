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
from envbuild.build.engines.build_context import write_context
from envbuild.build.engines.buildah import command
from envbuild.build.engines.buildah.engine import Buildah
from envbuild.build.plan.units import Input, Plan, Product
from envbuild.core.console import SilentReporter
from envbuild.core.errors import BuildError, PublishError
from envbuild.core.store.store import Store
from envbuild.core.userns.removal import remove_tree
from envbuild.oci.config import ImageConfig
from envbuild.oci.layers.layer import stored_members
from envbuild.oci.tar import member as m
from tests.support import tiny_root as kit
from tests.support.box_plan import box_units
from tests.support.programs import import_path

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="reading layers with their owners needs root"),
]


@pytest.fixture
def buildah_store(store: Store) -> Iterator[Store]:
    """Yield a store in which both engines work."""
    probe = Buildah().probe(store)
    if not probe.ok:
        pytest.skip(f"buildah does not work here: {probe.step}: {probe.reason}")
    yield store


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


def wide(store: Store) -> Plan:
    """Return a plan with every kind of unit: prefixes, a folder in two parts, wheels of two units, texts, a script."""
    texts = Input("texts", "text", texts=(("etc/made/by", "text\n"), ("opt/x", "x\n")))
    archive = kit.tar_bytes([(kit.entry("top/src/main", mode=0o755), b"int\n")], "w:gz")
    wheels = tuple(
        kit.unit(
            name,
            f"echo {name} > /run/envbuild/out/{name}-1-py3-none-any.whl; mkdir -p /opt/scratch; touch /opt/scratch/x",
            lowers=("base", "root", "one"),
            product=Product.WHEEL,
            in_image=False,
        )
        for name in ("apex", "flash")
    )
    return kit.plan(
        store,
        kit.unit("debs", "echo 1 > /var/packages; rm /etc/other; rm -r /data; mkdir /data; echo 2 > /data/three"),
        kit.unit("root", "echo gcc > /usr/bin/gcc; chmod 755 /usr/bin/gcc", in_image=False),
        kit.unit(
            "one",
            "test -x /usr/bin/gcc && mkdir -p /opt/one/bin && cp /run/envbuild/archive/src/main /opt/one/bin/",
            "env > /opt/one/env",
            "# the third\ncat > /opt/one/text <<'END'\nlines $HOME \"quoted\"\nEND\nln -s bin /opt/one/sbin; "
            "cp -p /opt/one/bin/main /opt/one/bin/hard; ln /opt/one/bin/hard /opt/one/bin/hard2; touch /etc/not-kept",
            lowers=("base", "root"),
            inputs=(Input("archive", "tree", (kit.add(store, "src.tar.gz", archive),)),),
            env={"QUOTED": 'a "b" $c \\d'},
            keep=("/opt/one",),
        ),
        *wheels,
        kit.unit("core", "mkdir /opt/venv; echo big > /opt/venv/torch; echo old > /opt/venv/old", keep=("/opt/venv",)),
        kit.unit(
            "venv",
            "rm /opt/venv/old; cat /run/envbuild/kernels/*.whl > /opt/venv/kernels; chown 7:8 /opt/venv/kernels",
            lowers=("base", "core"),
            inputs=(Input("kernels", "files", units=("apex", "flash")),),
            keep=("/opt/venv",),
        ),
        kit.unit(
            "devel",
            "mkdir -p /opt/tool/bin /opt/tool/include; echo same > /opt/tool/bin/same; echo h > /opt/tool/include/h",
            keep=("/opt/tool",),
            in_image=False,
        ),
        kit.unit(
            "tool",
            "cp -p /opt/tool/bin/same /tmp/same; cp -p /tmp/same /opt/tool/bin/same; ln -s same /opt/tool/bin/link",
            lowers=("base", "devel"),
            keep=("/opt/tool",),
            build_only=("devel",),
        ),
        kit.unit(
            "user",
            "mkdir /opt/user; cat /opt/tool/include/h /opt/tool/bin/link > /opt/user/seen",
            lowers=("base", "devel", "tool"),
            keep=("/opt/user",),
        ),
        kit.unit(
            "glue",
            "cp -r /run/envbuild/texts/. / && cat /opt/one/text /opt/venv/kernels /var/packages > /etc/all",
            lowers=("base", "debs", "one", "core", "venv", "tool", "user"),
            inputs=(texts,),
        ),
    )


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
    assert list(layers) == ["base", "debs", "one", "venv", "tool", "user", "glue"]
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


def test_changed_content_of_a_mount_is_built_again(buildah_store: Store) -> None:
    def content(text: str) -> str:
        item = Input("texts", "text", texts=(("file", text),))
        unit = kit.unit("copy", "cat /run/envbuild/texts/file > /copied", inputs=(item,))
        layers = buildah(kit.plan(buildah_store, unit), buildah_store).layers
        return (buildah_store.layer_tree(layers[-1].diff_id) / "copied").read_text()

    assert [content("one"), content("two"), content("one")] == ["one", "two", "one"]


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


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
