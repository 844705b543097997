"""The box of a step: what its programs may ask of the kernel, as root, as another user, and in `envbuild run`."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.build.engines.embedded.sandbox import NO_FILTER
from envbuild.core.store.store import Store
from envbuild.core.userns import libc
from envbuild.verify.open_image import open_image
from tests.support import tiny_root as kit
from tests.support.box_plan import RUN, builders_tree, read_report
from tests.support.captured_run import run_captured
from tests.support.engine_fixtures import Run
from tests.support.programs import importing

pytestmark = pytest.mark.engine

REFUSED = """
unshare user, clone user, setns, mount, umount, fsopen, open_tree, session keyring, key of the session, key of root,
add_key, request_key, bpf, io_uring, userfaultfd, open_by_handle_at, adjtimex, read implies exec, type into the terminal
"""
ALLOWED = "unshare files, unix, inet, netlink route, ptrace, personality, thread, program, user"
BOTH = {
    **{name.strip(): "EPERM" for name in REFUSED.split(",")},
    **{name.strip(): "ok" for name in ALLOWED.split(",")},
    "clone3": "ENOSYS",
    "kill the cgroup": "EPERM EPERM",
    "cgroup": "/",
    "vsock": "EAFNOSUPPORT",
    "vsock pair": "EAFNOSUPPORT",
    "alg": "EAFNOSUPPORT",
    "netlink audit": "EPROTONOSUPPORT",
    "seccomp": "2",
    "debug init": "EPERM",
    "descriptors of init": "EPERM",
    "no new privileges": "0",  # sudo and su work in builds
    **({"i386": "SIGSYS"} if platform.machine() == "x86_64" else {}),
}
IN_A_BUILD = {"packet": "EAFNOSUPPORT", "netlink generic": "EPROTONOSUPPORT", "perf": "EPERM", "kcmp": "EPERM"}
PROTECTED = {"seccomp": True, "keyring": True, "cgroup": True, "users": True}
SESSION_KEYRING = -3
USER = 54_321

# Before it starts the driver: a key in a session keyring of its own; and a kernel that has no filters to give.
PREPARE = """
import ctypes, errno, os, sys
from envbuild.core.userns import libc
from envbuild.core.userns.seccomp import ArgumentCheck, Profile, make_program
libc.join_new_session_keyring()
libc.system_call("add_key", b"user", b"envbuild-test", b"x", ctypes.c_long(1), ctypes.c_long(-3))
libc.set_filter(make_program(Profile(frozenset(), frozenset(), {"seccomp": ArgumentCheck((), errno.EINVAL)})))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture(scope="session", autouse=True)
def tools() -> None:
    if shutil.which("ldd") is None:
        pytest.skip("ldd is not installed")
    if not libc.has_filters():
        pytest.skip("this kernel has no seccomp")


def build_box(store: Store) -> list[str]:
    plan = kit.plans("box", store)
    built = kit.Embedded(packs=()).build(plan, store, kit.SilentReporter(), kit.BuildOptions())
    return [layer.diff_id for layer in built.layers]


def test_a_step_of_root_is_confined(store: Store) -> None:
    assert read_report(store, build_box(store)[-1]) == BOTH | IN_A_BUILD


def test_a_step_of_another_user_is_confined(scratch: Path, as_other: Run) -> None:
    answer = as_other("box", scratch / "box-of-a-user")
    assert answer["detail"].startswith("subordinate ids")
    assert read_report(Store(scratch / "box-of-a-user"), answer["layers"][-1]) == BOTH | IN_A_BUILD


def test_a_program_in_an_image_is_confined_but_may_be_debugged(store: Store) -> None:
    trees = [store.layer_tree(diff_id) for diff_id in build_box(store)[:-1]]
    seen: dict[str, bool] = {}
    code, output = run_captured(trees, ["/bin/sh", "-c", RUN], env={}, store=store, observe=seen.update)
    assert code == 0, output.decode()
    report = json.loads(output)
    assert {name: report[name] for name in BOTH} == BOTH
    # the kernel itself read the event that perf shall open: there was none
    assert [report[name] for name in IN_A_BUILD] == ["ok", "ok", "EFAULT", "ok"]
    assert seen == PROTECTED


def test_a_program_that_init_debugs_continues(store: Store) -> None:
    """PTRACE_TRACEME makes the parent the debugger: the program stops at each signal, and this parent is init."""
    trees = [store.layer_tree(diff_id) for diff_id in build_box(store)[:-1]]
    ends = {
        "os.kill(os.getpid(), signal.SIGUSR1)": 128 + signal.SIGUSR1,
        "signal.signal(signal.SIGUSR1, lambda *_: os._exit(7)); os.kill(os.getpid(), signal.SIGUSR1)": 7,
        "os.kill(os.getpid(), signal.SIGWINCH)": 3,
        "os.execv('/bin/sh', ['sh', '-c', 'exit 9'])": 9,
        "signal.signal(signal.SIGTRAP, lambda *_: os._exit(8)); signal.raise_signal(signal.SIGTRAP)": 8,
    }
    for end, expected in ends.items():
        code = f"import ctypes, os, signal; ctypes.CDLL(None).ptrace(0, 0, 0, 0); {end}; os._exit(3)"
        command = RUN.partition("exec")[0] + f'exec /opt/python/bin/python3 -S -c "{code}"'
        assert run_captured(trees, ["/bin/sh", "-c", command], env={}, store=store)[0] == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns what /proc has of the machine")
def test_a_program_in_an_image_changes_no_mode_in_the_machines_proc(store: Store) -> None:
    """The kernel has one entry for all mounts, until the machine is restarted."""
    entries = [path for path in Path("/proc").iterdir() if not path.name.isdecimal() and not path.is_symlink()]
    trees = [store.layer_tree(kit.build(store).layers[0].diff_id)]
    change = "for path in /proc/*; do chmod 0 $path; chown 1 $path; done 2>/dev/null; echo 1 > /proc/self/oom_score_adj"
    before = [modes_of(path) for path in entries]
    try:
        assert run_captured(trees, ["/bin/sh", "-c", change], env={}, store=store) == (0, b"")
        assert [modes_of(path) for path in entries] == before
    finally:
        for path, (mode, owner) in zip(entries, before, strict=True):
            if modes_of(path) != (mode, owner):
                os.chown(path, owner, -1)
                path.chmod(mode)


def test_a_command_with_the_machines_network_has_no_raw_sockets(store: Store) -> None:
    """Root could read and forge with them what other programs of the machine send."""
    trees = [store.layer_tree(kit.build(store).layers[0].diff_id)]
    look = ["/bin/sh", "-c", "grep -E '^Cap(Eff|Prm|Bnd)' /proc/self/status"]
    for network, expected in ((True, 0xA00405FB), (False, 0xA00425FB)):
        code, output = run_captured(trees, look, env={}, store=store, network=network)
        found = {int(line.split()[1], 16) for line in output.decode().splitlines()}
        assert (code, found) == (0, {expected})


@pytest.mark.skipif(not Path("/sys/firmware").is_dir(), reason="this machine has no /sys/firmware")
@pytest.mark.parametrize("network", [False, True])
def test_a_program_in_an_image_sees_no_tables_of_the_firmware(network: bool, store: Store) -> None:
    trees = [store.layer_tree(kit.build(store).layers[0].diff_id)]
    look = ["/bin/sh", "-c", "ls -A /sys/firmware; ls -d /sys/class"]
    assert run_captured(trees, look, env={}, store=store, network=network) == (0, b"/sys/class\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only the sandbox of root has processes with numbers of other users")
@pytest.mark.parametrize("network", [False, True])
def test_a_user_of_the_machine_does_not_enter_a_process_with_the_same_number(store: Store, network: bool) -> None:
    """The user could give it a folder of the machine through a socket in its /tmp, and it would leave its root."""
    trees = [store.layer_tree(diff_id) for diff_id in build_box(store)[:-1]]
    code = f"import os; os.setresgid({USER}, {USER}, {USER}); os.setresuid({USER}, {USER}, {USER})"
    code += "; os.execv('/bin/sh', ['/bin/sh', '-c', 'read x < /tmp/door', 'envbuild-door'])"
    command = (
        RUN.partition("exec")[0]
        + f'mkfifo /tmp/door && chmod 666 /tmp/door && exec /opt/python/bin/python3 -S -c "{code}"'
    )
    with ThreadPoolExecutor(1) as threads:
        ran = threads.submit(run_captured, trees, ["/bin/sh", "-c", command], env={}, store=store, network=network)
        place = Path("/proc", wait_for(USER, b"envbuild-door", ran), "root")
        try:
            looks = [run_as(user, ["ls", f"{place}/tmp"]) for user in (0, USER)]
        finally:
            (place / "tmp/door").write_text("x\n")
        assert ran.result()[0] == 0
    assert looks == [(0, b"door\n"), (2, b"")]


def test_root_of_a_rootless_container_has_users_of_its_own_in_a_box(
    scratch: Path, as_other: Run, other_user: tuple[str, str]
) -> None:
    """A container of podman has many users, and the same map as a namespace that envbuild makes for a user."""
    if shutil.which("buildah") is None:
        pytest.skip("buildah is not installed: it makes such a namespace")
    folder = scratch / "rootless"
    answer = as_other("everything", folder, "buildah", "unshare")
    code = (
        "import json, os, sys; from envbuild.build.engines.embedded import unit_process\n"
        "from envbuild.core.userns.process import spawn\n"
        "child = spawn(unit_process.run_job, {'job': json.loads(sys.argv[1])})\n"
        "output = child.process.communicate()[0]\n"
        "ended = child.result(output)\n"
        "inside, outside = output.decode().split(), os.readlink('/proc/self/ns/user')\n"
        "print(json.dumps([ended['code'], ended['protection']['users'], inside != [outside], len(inside)]))"
    )
    job = {
        "work": str(folder / "tmp/look"), "lowers": [str(builders_tree(Store(folder), answer["layers"][0]))],
        "argv": ["/bin/sh", "-c", "readlink /proc/self/ns/user"], "env": {"PATH": "/bin"},
        "interactive": False, "input_names": [], "apt": False, "network": False, "image": "", "binds": [],
    }  # fmt: skip
    name, python = other_user
    command = ["runuser", "-u", name, "--", "buildah", "unshare", python, "-c", code, json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=importing(), cwd=f"/home/{name}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0, True, True, 1]


def wait_for(user: int, word: bytes, ran: Future[tuple[int, bytes]]) -> str:
    """Return the number of the process of a user with a word in its arguments, once it runs."""
    while not ran.done():
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == user and word in (entry / "cmdline").read_bytes().split(b"\0"):
                    return entry.name
        time.sleep(0.01)
    raise AssertionError(ran.result())


def run_as(user: int, command: list[str]) -> tuple[int, bytes]:
    done = subprocess.run(
        command, user=user, group=user, extra_groups=[], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    return done.returncode, done.stdout


def modes_of(path: Path) -> tuple[int, int]:
    found = path.stat()
    return stat.S_IMODE(found.st_mode), found.st_uid


def test_evidence_records_the_box_of_the_checks(store: Store, tmp_path: Path) -> None:
    if shutil.which("mksquashfs") is None:
        pytest.skip("mksquashfs is not installed")
    tree = store.layer_tree(kit.build(store).layers[0].diff_id)
    image = tmp_path / "image.sqsh"
    subprocess.run(["mksquashfs", str(tree), str(image), "-quiet", "-no-progress"], check=True, capture_output=True)
    workspace: Any = SimpleNamespace(store=store, reporter=kit.SilentReporter())
    with open_image(image, {"PATH": "/usr/bin"}, workspace) as run:
        assert run.box == {}
        assert run(["/usr/bin/true"]) == (0, "") and run.box == PROTECTED


def test_the_record_of_a_unit_states_its_box(store: Store) -> None:
    kit.build(store)
    records = [json.loads(path.read_text()) for path in (store.root / "units").iterdir()]
    assert records and {json.dumps(record["box"], sort_keys=True) for record in records} == {
        json.dumps(PROTECTED, sort_keys=True)
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may filter the engine's own system calls")
def test_a_kernel_without_seccomp_builds_with_a_warning_and_an_own_keyring(store: Store) -> None:
    command = [sys.executable, "-c", PREPARE, kit.__file__, "box", str(store.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=importing())
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["reported"].count(NO_FILTER) == 1
    records = [json.loads(path.read_text()) for path in (store.root / "units").iterdir()]
    assert {record["box"]["seccomp"] for record in records} == {False}
    report = read_report(store, answer["layers"][-1])
    assert (report["session keyring"], report["key of the session"]) == ("ok", "ENOKEY")
    assert report["cgroup"] == "/"


def test_a_users_command_with_the_network_sees_no_cgroup(
    scratch: Path, as_other: Run, other_user: tuple[str, str]
) -> None:
    """Such a box has the machine's /sys: a user namespace may mount its own only with its own network."""
    folder = scratch / "cgroup-of-a-user"
    answer = as_other("everything", folder)
    code = (
        "import json, sys; from envbuild.build.engines.embedded import unit_process\n"
        "from envbuild.core.userns.process import spawn\n"
        "child = spawn(unit_process.run_job, {'job': json.loads(sys.argv[1])})\n"
        "output = child.process.communicate()[0]\n"
        "print(json.dumps([child.result(output)['code'], output.decode()]))"
    )
    job = {
        "work": str(folder / "tmp/look"), "lowers": [str(builders_tree(Store(folder), answer["layers"][0]))],
        "argv": ["/bin/sh", "-c", "ls /sys/class/net | grep -c . && ls -A /sys/fs/cgroup"], "env": {"PATH": "/bin"},
        "interactive": False, "input_names": [], "apt": False, "network": True, "image": "", "binds": [],
    }  # fmt: skip
    name, python = other_user
    command = ["runuser", "-u", name, "--", python, "-c", code, json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=importing())
    assert done.returncode == 0, done.stderr
    interfaces = len(list(Path("/sys/class/net").iterdir()))
    assert json.loads(done.stdout) == [0, f"{interfaces}\n"]
