"""A program that tries, inside a sandbox, what must not succeed there, and what must; standard library only.

``box_program.py NUMBERS`` (JSON: system call → number) prints JSON: name of the trial → "ok", the name of an errno, or
what was read."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

NEWNS, NEWCGROUP, NEWUSER, CLONE_FILES = 0x20000, 0x02000000, 0x10000000, 0x400
PROCESS, SESSION, USER = -2, -3, -4  # KEY_SPEC_PROCESS_KEYRING, KEY_SPEC_SESSION_KEYRING, KEY_SPEC_USER_KEYRING
GET_KEYRING_ID, SEARCH = 0, 10
TRACE_ME, ATTACH, TIOCSTI = 0, 16, 0x5412
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def fail_with(code: int) -> str:
    return errno.errorcode.get(code, str(code))


def call(name: str, *arguments: object) -> str:
    values = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    result = libc.syscall(ctypes.c_long(NUMBERS[name]), *values)
    return "ok" if result >= 0 else fail_with(ctypes.get_errno())


def open_socket(*arguments: int) -> str:
    try:
        socket.socket(*arguments).close()
    except OSError as error:
        return fail_with(error.errno or 0)
    return "ok"


def clone_user() -> str:
    """Clone a child in a user namespace of its own; it ends at once."""
    flags = NEWUSER | signal.SIGCHLD
    pid = libc.syscall(ctypes.c_long(NUMBERS["clone"]), ctypes.c_long(flags), *[ctypes.c_long(0)] * 4)
    if pid == 0:
        os._exit(0)
    if pid < 0:
        return fail_with(ctypes.get_errno())
    os.waitpid(pid, 0)
    return "ok"


def kill_cgroup() -> str:
    """Try the way to the caller's cgroup: namespaces, a mount of cgroup2, cgroup.kill (opened, not written)."""
    uid, gid = os.getuid(), os.getgid()
    steps = [call("unshare", NEWUSER | NEWNS | NEWCGROUP)]
    if steps[0] == "ok":
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    target = Path("/tmp/cgroup")
    target.mkdir()
    steps.append(call("mount", b"none", os.fsencode(target), b"cgroup2", 0, None))
    if steps[1] == "ok":
        for path in (*target.rglob("cgroup.kill"), *target.glob("cgroup.procs")):
            os.close(os.open(path, os.O_WRONLY))
            return f"{path} can be written"
    return " ".join(steps)


def take_descriptors() -> str:
    """Return the results of taking each descriptor of pid 1."""
    first = libc.syscall(ctypes.c_long(NUMBERS["pidfd_open"]), ctypes.c_long(1), ctypes.c_long(0))
    found = {call("pidfd_getfd", first, number, 0) for number in range(16)}
    return " ".join(sorted(found))


def start_thread() -> str:
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(1))
    thread.start()
    thread.join()
    return "ok" if seen else "the thread did not run"


def type_into_terminal() -> str:
    with Path("/dev/null").open("rb") as file:
        try:
            fcntl.ioctl(file, TIOCSTI, b"x")
        except OSError as error:
            return fail_with(error.errno or 0)
    return "ok"


def call_as_i386() -> str:
    """Make the system call getpid of 32-bit programs, which has the number of another call of this machine."""
    code = bytes.fromhex("53b814000000cd805bc3")  # push rbx; mov eax, 20; int 0x80; pop rbx; ret
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return "ok" if ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0 else "the call failed"


def status(field: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((line.split()[1] for line in lines if line.startswith(f"{field}:")), "")


def change_user() -> str:
    os.setgroups([1000])
    os.setresgid(1000, 1000, 1000)
    os.setresuid(1000, 1000, 1000)
    return "ok"


def run_program() -> str:
    return subprocess.run(["/bin/sh", "-c", "echo ok"], capture_output=True, text=True, check=True).stdout.strip()


TRIALS: dict[str, Callable[[], str]] = {
    "unshare user": lambda: call("unshare", NEWUSER),
    "unshare files": lambda: call("unshare", CLONE_FILES),
    "clone user": clone_user,
    "clone3": lambda: call("clone3", None, 0),
    "setns": lambda: call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0),
    "kill the cgroup": kill_cgroup,
    "cgroup": lambda: " ".join({line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines()}),
    "mount": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "umount": lambda: call("umount2", b"/tmp", 0),
    "fsopen": lambda: call("fsopen", b"tmpfs", 0),
    "open_tree": lambda: call("open_tree", -100, b"/tmp", 0),
    "session keyring": lambda: call("keyctl", GET_KEYRING_ID, SESSION, 0),
    "key of the session": lambda: call("keyctl", SEARCH, SESSION, b"user", b"envbuild-test", 0),
    "key of root": lambda: call("keyctl", SEARCH, USER, b"user", b"envbuild-test", 0),
    "add_key": lambda: call("add_key", b"user", b"envbuild-step", b"x", 1, PROCESS),
    "request_key": lambda: call("request_key", b"user", b"envbuild-test", None, USER),
    "vsock": lambda: open_socket(40, socket.SOCK_STREAM),
    "alg": lambda: open_socket(38, socket.SOCK_SEQPACKET),
    "vsock pair": lambda: call("socketpair", 40, socket.SOCK_STREAM, 0, ctypes.create_string_buffer(8)),
    "unix": lambda: open_socket(socket.AF_UNIX, socket.SOCK_STREAM),
    "inet": lambda: open_socket(socket.AF_INET, socket.SOCK_STREAM),
    "packet": lambda: open_socket(socket.AF_PACKET, socket.SOCK_RAW),
    "netlink audit": lambda: open_socket(socket.AF_NETLINK, socket.SOCK_RAW, 9),
    "netlink route": lambda: open_socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
    "netlink generic": lambda: open_socket(socket.AF_NETLINK, socket.SOCK_RAW, 16),
    "bpf": lambda: call("bpf", 99, None, 0),
    "io_uring": lambda: call("io_uring_setup", 1, None),
    "userfaultfd": lambda: call("userfaultfd", 1),
    "perf": lambda: call("perf_event_open", None, 0, -1, -1, 0),
    "kcmp": lambda: call("kcmp", os.getpid(), os.getpid(), 0, 0, 0),
    "ptrace": lambda: call("ptrace", TRACE_ME, 0, 0, 0),
    "debug init": lambda: call("ptrace", ATTACH, 1, 0, 0),
    "descriptors of init": take_descriptors,
    "open_by_handle_at": lambda: call("open_by_handle_at", -1, None, 0),
    "adjtimex": lambda: call("adjtimex", ctypes.create_string_buffer(512)),
    "personality": lambda: call("personality", 0xFFFFFFFF),
    "read implies exec": lambda: call("personality", 0x0400000),
    "type into the terminal": type_into_terminal,
    "thread": start_thread,
    "program": run_program,
    "user": change_user,
    "seccomp": lambda: status("Seccomp"),
    "no new privileges": lambda: status("NoNewPrivs"),
}
if platform.machine() == "x86_64":
    TRIALS["i386"] = call_as_i386


def run_trial(trial: Callable[[], str]) -> str:
    """Run one trial in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = trial()
        except OSError as error:
            answer = fail_with(error.errno or 0)
        except BaseException as error:
            answer = repr(error)
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return answer if code == 0 else signal.Signals(-code).name


if __name__ == "__main__":
    NUMBERS: dict[str, int] = json.loads(sys.argv[1])
    print(json.dumps({name: run_trial(trial) for name, trial in TRIALS.items()}))
