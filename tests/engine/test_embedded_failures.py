"""Failures are reported, and leave nothing that stops the next run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.build.plan.units import Input
from envbuild.core import free_space
from envbuild.core.errors import BuildError, EngineError, InputError
from envbuild.core.store.store import Store
from envbuild.core.userns import diagnose, file_calls
from envbuild.squashfs.pack.format import PackFormat
from tests.support import tiny_root as kit
from tests.support.engine_fixtures import open_working_store
from tests.support.programs import importing
from tests.support.signals import reset_signals
from tests.support.tools import require_tools

pytestmark = pytest.mark.engine


def driver(plan: str, store: Path, *options: str, **popen: object) -> subprocess.Popen[str]:
    command = [sys.executable, kit.__file__, plan, str(store), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=importing(), **popen)  # type: ignore[call-overload,no-any-return]


def answer(process: subprocess.Popen[str]) -> dict[str, object]:
    return json.loads(process.communicate(timeout=120)[0])  # type: ignore[no-any-return]


def test_a_failing_step_reports_command_exit_code_output_and_log(store: Store) -> None:
    unit = kit.unit("bad", "echo fine", "for i in 1 2 3 4 5; do echo line $i; done; exit 7")
    with pytest.raises(BuildError) as caught:
        kit.build(store, unit)
    text = str(caught.value)
    assert "unit bad failed in step 2 of 2" in text and "exit code: 7" in text and "line 1\nline 2\n" in text
    assert "command: for i in 1 2 3" in text and "--shell-on-fail" in caught.value.hint and caught.value.exit_code == 6
    log = Path(caught.value.where)
    assert log.parent == store.root / "logs" and str(log) in text and "line 5" in log.read_text()
    assert store.unit(kit.plan(store, unit).keys()["bad"]) is None
    assert list((store.tmp).iterdir()) == []


def test_signals_and_missing_programs(store: Store) -> None:
    with pytest.raises(BuildError, match=r"exit code: 137 \(signal 9\)"):
        kit.build(store, kit.unit("killed", "kill -9 $$"))
    with pytest.raises(BuildError, match="exit code: 127"):
        kit.build(store, kit.unit("missing", "no-such-program"))


def test_others_finish_when_one_fails(store: Store) -> None:
    good = kit.unit("good", "sleep 1; echo x > /opt/good")
    with pytest.raises(BuildError, match="unit bad failed"):
        kit.build(store, good, kit.unit("bad", "exit 1"), workers=2)
    assert store.unit(kit.plan(store, good).keys()["good"]) is not None


def test_damaged_input(store: Store) -> None:
    blob = kit.add(store, "x", b"content")
    store.blob(blob.sha256).write_bytes(b"CONTENT")
    with pytest.raises(InputError) as caught:
        kit.build(store, kit.unit("a", "true", inputs=(Input("in", blobs=(blob,)),)))
    assert caught.value.exit_code == 10 and blob.sha256 in str(caught.value) and not store.has_blob(blob.sha256)


def test_missing_input_and_bad_archive(store: Store) -> None:
    blob = kit.add(store, "x.tar.gz", b"no archive at all")
    with pytest.raises(InputError, match="cannot be unpacked"):
        kit.build(store, kit.unit("a", "true", inputs=(Input("in", "tree", (blob,)),)))
    store.blob(blob.sha256).unlink()
    with pytest.raises(InputError, match="lacks"):
        kit.build(store, kit.unit("a", "true", inputs=(Input("in", blobs=(blob,)),)))


def test_an_archive_cannot_leave_its_folder(store: Store) -> None:
    entries = [(kit.entry("../../evil", mode=0o644), b"evil")]
    blob = kit.add(store, "x.tar", kit.tar_bytes(entries, "w"))
    with pytest.raises(InputError, match="cannot be unpacked"):
        kit.build(store, kit.unit("a", "true", inputs=(Input("in", "tree", (blob,)),)))
    assert not list(store.root.rglob("evil"))


@pytest.fixture
def small(scratch: Path) -> Iterator[Path]:
    """Yield a file system of 160 MB in memory."""
    require_tools("mount")
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    path = scratch / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(path)], check=True)
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)
    path.rmdir()


def test_full_disk(small: Path) -> None:
    store = open_working_store(small)  # an overlay on tmpfs needs its user attributes
    kit.build(store)
    with pytest.raises(EngineError) as caught:  # reported although the unit's files are removed by then
        kit.build(store, kit.unit("big", "dd if=/dev/zero of=/opt/big bs=1M count=400"))
    assert "No space left on device" in str(caught.value) and f"the store {small} is full" in str(caught.value)
    assert caught.value.exit_code == 5 and "store gc" in caught.value.hint
    end = time.monotonic() + 10
    while (
        shutil.disk_usage(small).free <= free_space.FULL_BELOW
    ):  # the unit's mount goes a little later, and the file with it
        assert time.monotonic() < end
        time.sleep(0.05)
    packing = kit.plan(
        store, kit.unit("packing", "dd if=/dev/urandom of=/opt/y bs=1M count=2")
    )  # puts the base's .deb again
    (small / "filler").write_bytes(b"x" * (shutil.disk_usage(small).free - 3_500_000))
    with pytest.raises(EngineError, match="packing failed: No space left on device: the store"):
        kit.Embedded(packs=[PackFormat()]).build(packing, store, kit.SilentReporter(), kit.BuildOptions())
    with (small / "filler").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    with pytest.raises(EngineError, match="No space left on device"):
        kit.Embedded(packs=()).build(packing, store, kit.SilentReporter(), kit.BuildOptions())
    (small / "filler").unlink()
    assert kit.build(store, kit.unit("small", "echo x > /opt/x")).built == ("small",)
    assert [path for path in (small / "tmp").iterdir() if path.is_dir()] == []


def test_full_memory_is_not_the_stores_disk(store: Store) -> None:
    if shutil.disk_usage(store.root).free < 2 * free_space.FULL_BELOW:
        pytest.skip("the disk is nearly full")
    with pytest.raises(BuildError, match="a file system was full, but not the store's"):
        kit.build(store, kit.unit("a", "echo 'No space left on device'; exit 1"))


def test_syncing_the_store(store: Store, scratch: Path) -> None:
    """Syncing works on the file system of a store, and reports when it fails; a power cut itself is not tested."""
    file_calls.sync(store.root)
    with pytest.raises(NotADirectoryError):
        file_calls.sync(scratch / "tiny.deb")


def test_read_only_store(small: Path) -> None:
    Store.open(small)
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with pytest.raises(EngineError, match="cannot be written: Read-only file system") as caught:
        Store.open(small)
    assert "ENVBUILD_STORE" in caught.value.hint and caught.value.exit_code == 5


def test_two_builds_share_a_store(store: Store) -> None:
    both = [driver("slow", store.root) for _ in range(2)]
    first, second = (answer(process) for process in both)
    assert first["layers"] == second["layers"]
    assert sorted([*first["built"], *second["built"]]) == ["base", "one", "three", "two"]  # type: ignore[misc]


def start_time(pid: int) -> str:
    """Return when a process began, "" when there is none: with the pid it names a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def descendants(pid: int) -> dict[int, str]:
    """Return all processes below `pid`, in any namespace or session."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(path.name))
    found: dict[int, str] = {}
    todo = [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found[child] = start_time(child)
            todo.append(child)
    return found


def wait_for_steps(pid: int) -> None:
    """Until a step of a unit runs below the engine `pid`: the steps of these plans sleep."""
    end = time.monotonic() + 60
    while not any("sleep" in name for name in names(descendants(pid))):
        assert time.monotonic() < end, "no step of a unit ran within a minute"
        time.sleep(0.01)


def test_killed_at_any_moment(store: Store) -> None:
    """kill -9 of the engine: no process and no mount remains, and the next run builds the same layers."""
    kit.build(store)  # the base, so that the random moments fall into the units that run in parallel
    reference = store.root / "reference"
    reference.mkdir()
    expected = answer(driver("slow", reference))["layers"]
    for number in range(20):
        process = driver("slow", store.root, "rebuild")
        if number % 2:  # at any moment; else surely while a unit runs, however slow this machine is
            time.sleep(random.uniform(0.05, 2.0))
        else:
            wait_for_steps(process.pid)
            time.sleep(random.uniform(0, 0.5))
        below = descendants(process.pid)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        assert left_of(below) == []
        assert str(store.root) not in Path("/proc/self/mounts").read_text()
    after = answer(driver("slow", store.root, "rebuild"))
    assert after["layers"] == expected
    assert [path for path in (store.tmp).iterdir() if path.is_dir()] == []


def test_interrupt_ends_everything(store: Store) -> None:
    process = driver("endless", store.root, stderr=subprocess.DEVNULL, preexec_fn=reset_signals)
    wait_for_steps(process.pid)
    below = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert left_of(below) == []
    assert [path for path in (store.tmp).iterdir() if path.is_dir()] == []


def left_of(below: dict[int, str]) -> list[int]:
    """Return which of these processes live on; the kernel is given its time to end a killed namespace."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        left = [pid for pid, began in below.items() if began and start_time(pid) == began]
        if not left:
            break
        time.sleep(0.02)
    return left


def names(pids: dict[int, str]) -> list[str]:
    found = []
    for pid in pids:
        try:
            found.append(Path(f"/proc/{pid}/comm").read_text().strip())
        except OSError:
            continue
    return found


def test_shell_in_a_failed_step(store: Store) -> None:
    """On a terminal: the failed root, writable, and the evidence untouched."""
    main, terminal = pty.openpty()
    command = [sys.executable, kit.__file__, "fails", str(store.root), "shell"]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    process = subprocess.Popen(command, **streams, env=importing(), start_new_session=True)
    os.close(terminal)
    os.write(main, b"cat /opt/mark; cd /opt && rm mark; echo sum-$((40+2)) $PWD; ls /run/envbuild; exit\n")
    text = b""
    while select.select([main], [], [], 60)[0]:
        try:
            chunk = os.read(main, 4096)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    process.wait(timeout=60)
    os.close(main)
    output = text.decode(errors="replace")
    assert "kept" in output and "sum-42 /opt" in output and "exit code: 3" in output, output


def test_no_shell_without_a_terminal(store: Store) -> None:
    result = answer(driver("fails", store.root, "shell", stdin=subprocess.DEVNULL))
    assert result["code"] == 6 and "no terminal: no shell was opened" in result["reported"]  # type: ignore[operator]
    assert not any("a shell in" in line for line in result["reported"])  # type: ignore[attr-defined]


def test_probe_names_the_mode(store: Store) -> None:
    result = kit.Embedded().probe(store)
    assert result.ok and result.detail


def test_probe_on_an_overlay_names_the_step(store: Store, scratch: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount an overlay")
    folders = [scratch / f"ov-{name}" for name in ("lower", "upper", "work", "root")]
    for folder in folders:
        folder.mkdir()
    options = f"lowerdir={folders[0]},upperdir={folders[1]},workdir={folders[2]}"
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", str(folders[3])], check=True)
    try:
        result = kit.Embedded().probe(Store.open(folders[3]))
    finally:
        subprocess.run(["umount", str(folders[3])], check=True)
    assert not result.ok and result.step == "mount overlay" and "ENVBUILD_STORE" in result.fix


def test_probe_where_namespaces_are_forbidden(store: Store, other_user: tuple[str, str]) -> None:
    """A process that may not unshare: no capabilities, and no subordinate ids for its user."""
    name, python = other_user
    code = (
        "import sys; from pathlib import Path; from envbuild.core.store.store import Store\n"
        "import envbuild.core.userns.namespaces as n; from envbuild.build.engines.embedded.engine import Embedded\n"
        "p = Embedded().probe(Store.open(Path(sys.argv[1]))); print(p.ok, p.step, p.fix, sep='|')"
    )
    shutil.chown(store.root, name)
    for path in store.root.rglob("*"):
        shutil.chown(path, name)
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    command = ["runuser", "-u", name, "--", *bare, python, "-c", code, str(store.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=importing())
    assert done.stdout.startswith("False|map ids|"), done.stdout + done.stderr
    assert "use root" in done.stdout and "--engine" not in done.stdout


@pytest.mark.parametrize(
    ("step", "code", "expected"),
    [
        ("newuidmap", 0, "apt-get install uidmap"),
        ("subordinate ids", 0, "usermod --add-subuids"),
        ("unshare", errno.ENOSPC, "user.max_user_namespaces"),
        ("mount overlay", errno.ENOSPC, "store gc"),
        ("mount overlay", errno.EINVAL, "ENVBUILD_STORE"),
    ],
)
def test_every_failure_has_a_fix(step: str, code: int, expected: str) -> None:
    assert expected in diagnose.fix_for(step, code)
