"""The programs of the sandbox's profiles, run on a machine for classic BPF: what each call is answered."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.userns.profiles import BUILD, RUN
from envbuild.core.userns.seccomp import (
    ALLOW,
    ARCHITECTURES,
    ERRNO,
    KILL_PROCESS,
    ArgumentCheck,
    Case,
    Condition,
    Profile,
    make_program,
)
from envbuild.core.userns.system_calls import NUMBERS
from tests.support.bpf_machine import run_filter

pytestmark = pytest.mark.unit

MACHINES = sorted(NUMBERS)
PROFILES = {"build": BUILD, "run": RUN}
PROGRAMS = {(kind, name): make_program(profile, name) for kind, profile in PROFILES.items() for name in MACHINES}
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
GONE = """
_sysctl afs_syscall create_module epoll_ctl_old epoll_wait_old get_kernel_syms get_thread_area getpmsg lookup_dcookie
nfsservctl putpmsg query_module security set_thread_area sysfs tuxcall uselib ustat vserver
arch_specific_syscall fstatat sync_file_range2
"""  # of the headers, not of today's kernel for these machines, or under another name in the table
NEWUSER, NEWNS, NEWTIME, SIGCHLD = 0x10000000, 0x20000, 0x80, 17
EPERM, ENOSYS, EAFNOSUPPORT = errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT

# (call, arguments, errno for a build, errno for a run); 0: allowed
ANSWERS: list[tuple[str, tuple[int, ...], int, int]] = [
    ("read", (), 0, 0),
    ("execve", (), 0, 0),
    ("chroot", (), 0, 0),
    ("ptrace", (), 0, 0),
    ("process_vm_readv", (), 0, 0),
    ("process_vm_writev", (), 0, 0),
    ("set_mempolicy", (), 0, 0),
    ("file_setattr", (), 0, 0),
    ("clone3", (), ENOSYS, ENOSYS),
    ("clone", (SIGCHLD,), 0, 0),
    ("clone", (0x3D0F00,), 0, 0),  # of a thread of the C library
    ("clone", (SIGCHLD | NEWUSER,), EPERM, EPERM),
    ("clone", (SIGCHLD | NEWNS,), EPERM, EPERM),
    ("clone", (1 << 40 | NEWUSER,), EPERM, EPERM),
    ("clone", (NEWTIME,), 0, 0),  # a signal
    ("unshare", (0x400,), 0, 0),
    ("unshare", (0,), 0, 0),
    ("unshare", (NEWUSER,), EPERM, EPERM),
    ("unshare", (NEWTIME,), EPERM, EPERM),
    ("unshare", (0x02000000,), EPERM, EPERM),
    ("setns", (), EPERM, EPERM),
    ("personality", (0,), 0, 0),
    ("personality", (0xFFFFFFFF,), 0, 0),
    ("personality", (0x40000,), 0, 0),
    ("personality", (0x20008,), 0, 0),
    ("personality", (0x0400000,), EPERM, EPERM),
    ("personality", (0xFFFFFFFE,), EPERM, EPERM),
    ("ioctl", (0, 0x5401), 0, 0),
    ("ioctl", (0x5412, 0x5401), 0, 0),
    ("ioctl", (0, 0x5412), EPERM, EPERM),
    ("ioctl", (0, 1 << 32 | 0x5412), EPERM, EPERM),  # the kernel reads 32 bits
    ("ioctl", (0, 0x541C), EPERM, EPERM),
    ("fcntl", (0, 1024), EPERM, EPERM),  # F_SETLEASE
    ("fcntl", (0, 1025), 0, 0),
    ("fcntl", (0, 2), 0, 0),
    ("socket", (1,), 0, 0),
    ("socket", (2, 3, 1), 0, 0),
    ("socket", (10,), 0, 0),
    ("socket", (17,), EAFNOSUPPORT, 0),
    ("socket", (38,), EAFNOSUPPORT, EAFNOSUPPORT),
    ("socket", (40,), EAFNOSUPPORT, EAFNOSUPPORT),
    ("socket", (1 << 32 | 40,), EAFNOSUPPORT, EAFNOSUPPORT),
    ("socket", (0,), EAFNOSUPPORT, EAFNOSUPPORT),
    ("socket", (16, 3, 0), 0, 0),
    ("socket", (16, 3, 9), errno.EPROTONOSUPPORT, errno.EPROTONOSUPPORT),
    ("socket", (16, 3, 12), errno.EPROTONOSUPPORT, errno.EPROTONOSUPPORT),
    ("socket", (16, 3, 20), errno.EPROTONOSUPPORT, 0),
    ("socketpair", (1,), 0, 0),
    ("socketpair", (40,), EAFNOSUPPORT, EAFNOSUPPORT),
    ("perf_event_open", (), EPERM, 0),
    ("kcmp", (), EPERM, 0),
    ("process_madvise", (), EPERM, 0),
]  # fmt: skip
REFUSED = """
add_key request_key keyctl mount umount2 pivot_root fsopen fsmount fsconfig fspick move_mount open_tree open_tree_attr
mount_setattr open_by_handle_at bpf io_uring_setup io_uring_enter io_uring_register userfaultfd kexec_load
kexec_file_load init_module finit_module delete_module acct quotactl quotactl_fd reboot swapon swapoff settimeofday
clock_settime adjtimex clock_adjtime syslog sethostname setdomainname vhangup fanotify_init
"""
ANSWERS += [(name, (), EPERM, EPERM) for name in REFUSED.split()]


def answer(error: int) -> int:
    return ERRNO | error if error else ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("call", "arguments", "build", "run"), ANSWERS)
def test_each_call_has_the_answer_of_its_profile(
    machine: str, call: str, arguments: tuple[int, ...], build: int, run: int
) -> None:
    number, architecture = NUMBERS[machine][call], ARCHITECTURES[machine]
    assert run_filter(PROGRAMS["build", machine], architecture, number, *arguments) == answer(build)
    assert run_filter(PROGRAMS["run", machine], architecture, number, *arguments) == answer(run)


def test_ports_of_the_machine_are_refused_where_they_exist() -> None:
    for call in ("iopl", "ioperm"):
        assert call not in NUMBERS["aarch64"]
        assert run_filter(PROGRAMS["run", "x86_64"], ARCHITECTURES["x86_64"], NUMBERS["x86_64"][call]) == answer(EPERM)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", PROFILES)
def test_every_known_call_is_decided_and_every_other_one_does_not_exist(kind: str, machine: str) -> None:
    profile, program, names = PROFILES[kind], PROGRAMS[kind, machine], {v: k for k, v in NUMBERS[machine].items()}
    for number in range(-2, max(names) + 300):
        found = run_filter(program, ARCHITECTURES[machine], number)
        if number not in names:
            assert found == answer(ENOSYS), number
        elif names[number] in profile.refused:
            assert found == answer(EPERM), names[number]
        elif names[number] not in profile.checks and names[number] not in profile.absent:
            assert found == ALLOW, names[number]


@pytest.mark.parametrize("kind", PROFILES)
def test_calls_of_32_bit_programs_kill_and_those_of_x32_do_not_exist(kind: str) -> None:
    i386, arm, x32 = 0x40000003, 0x40000028, 0x40000000
    for machine, other in (("x86_64", i386), ("aarch64", arm), ("x86_64", ARCHITECTURES["aarch64"])):
        assert {run_filter(PROGRAMS[kind, machine], other, number) for number in range(500)} == {KILL_PROCESS}
    for name, number in NUMBERS["x86_64"].items():
        found = run_filter(PROGRAMS[kind, "x86_64"], ARCHITECTURES["x86_64"], x32 | number)
        assert found == answer(ENOSYS), name


@given(flags=st.integers(0, 2**64 - 1), call=st.sampled_from(["clone", "unshare"]))
def test_no_flags_make_a_user_namespace(flags: int, call: str) -> None:
    for (_, machine), program in PROGRAMS.items():
        found = run_filter(program, ARCHITECTURES[machine], NUMBERS[machine][call], flags | NEWUSER)
        assert found == answer(EPERM)


def test_the_sandbox_finds_the_calls_that_it_makes_itself() -> None:
    assert all({"seccomp", "keyctl", "pivot_root"} <= set(numbers) for numbers in NUMBERS.values())


def test_every_name_of_a_profile_is_a_system_call() -> None:
    known = {name for numbers in NUMBERS.values() for name in numbers}
    for profile in PROFILES.values():
        assert (profile.refused | profile.absent | set(profile.checks)) - known == set()
        assert not profile.refused & set(profile.checks)
    assert BUILD.refused - RUN.refused == {"perf_event_open", "kcmp", "process_madvise"}


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    path = HEADERS[machine]
    if not path.is_file():
        pytest.skip(f"{path} (linux-libc-dev) is not installed")
    found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(), re.MULTILINE)
    header = {name: int(number) for name, number in found}
    header["newfstatat"] = header.get("newfstatat", header.get("fstatat", -1))
    header["sync_file_range"] = header.get("sync_file_range", 84)
    newest = header.pop("syscalls", 0) - 1 if machine == "aarch64" else max(header.values())
    for name, number in NUMBERS[machine].items():
        if number <= newest and name not in ("uretprobe", "uprobe"):
            assert header[name] == number, name
    numbers = list(NUMBERS[machine].values())
    assert len(set(numbers)) == len(numbers)
    missing = {name for name, number in header.items() if number <= newest and name not in NUMBERS[machine]}
    assert {name for name in missing if not name.endswith("64")} - set(GONE.split()) == set()


def test_plain_calls_are_decided_without_their_arguments() -> None:
    """The kernel then decides them once for each number: only a call with a check runs the program each time."""
    program = PROGRAMS["build", "x86_64"]
    loads = [operand for code, _, _, operand in struct.iter_unpack("=HBBI", program) if code == 0x20]
    assert loads[:2] == [4, 0] and all(operand >= 16 for operand in loads[2:])


def test_cases_are_tried_in_order_and_all_conditions_must_hold() -> None:
    check = ArgumentCheck(
        (Case((Condition(0, 7), Condition(2, 0x10, 0xF0)), 5), Case((Condition(0, 7),)), Case((Condition(5, 1),), 6)), 9
    )
    program = make_program(Profile(frozenset(), frozenset(), {"read": check}), "x86_64")
    table = {(7, 0, 0x1F): 5, (7, 0, 0x2F): 0, (8, 0, 0x10): 9, (8, 0, 0, 0, 0, 1): 6, (7, 0, 0, 0, 0, 1): 0}
    for arguments, error in table.items():
        assert run_filter(program, ARCHITECTURES["x86_64"], 0, *arguments) == answer(error)
    assert run_filter(program, ARCHITECTURES["x86_64"], 1) == ALLOW


def test_a_machine_without_a_table_is_named() -> None:
    with pytest.raises(OSError, match="no system call numbers for riscv64"):
        make_program(BUILD, "riscv64")
