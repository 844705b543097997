"""Filters of system calls (seccomp(2)): a profile becomes a program of classic BPF, which the kernel runs at each call.

Pure: `envbuild.core.userns.libc.set_filter` installs a program. There is no binding of libseccomp here: none is on the
package index, and the program is short.

A profile is a list of what is allowed. A call that the table of `system_calls` lacks, of a later kernel for example,
is answered with ENOSYS: libraries then take the older way, as on an older kernel. A known call that is refused is
answered with EPERM, as the kernel answers a process without the capability.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from envbuild.core.userns.system_calls import NUMBERS

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_* of linux/audit.h
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000  # SECCOMP_RET_* of linux/seccomp.h
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # linux/bpf_common.h: ld [k], and #k, jeq, jge, ret

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


@dataclass(frozen=True, slots=True)
class Condition:
    """``argument & mask == value``, of the lower 32 bits: the kernel reads no more of the arguments compared here."""

    argument: int
    value: int
    mask: int = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Case:
    """The answer to a call if all conditions hold: an errno, or 0 if it is allowed."""

    conditions: tuple[Condition, ...]
    error: int = 0


@dataclass(frozen=True, slots=True)
class ArgumentCheck:
    """A call that depends on its arguments: the first case that holds decides, else `otherwise`."""

    cases: tuple[Case, ...]
    otherwise: int = errno.EPERM


@dataclass(frozen=True, slots=True)
class Profile:
    """The calls of the table that are `refused` (EPERM), `absent` (ENOSYS) or allowed for some arguments (`checks`);
    the rest of the table is allowed."""

    refused: frozenset[str]
    absent: frozenset[str]
    checks: Mapping[str, ArgumentCheck]

    def decision(self, call: str) -> int | ArgumentCheck:
        """Return the errno with which a call is answered, 0 if it is allowed, or how its arguments decide."""
        if call in self.refused:
            return errno.EPERM
        return errno.ENOSYS if call in self.absent else self.checks.get(call, 0)


def make_program(profile: Profile, machine: str | None = None) -> bytes:
    """Return the program of a profile for a machine (None: this one). Raises OSError for an unknown machine.

    A call of another architecture (32-bit programs) kills the process: its numbers mean other calls. The calls of x32
    have numbers above the table. Plain calls are decided by the number alone, so that the kernel runs the program once
    for each number (since Linux 5.11).
    """
    machine = machine or platform.machine()
    if machine not in NUMBERS:
        raise OSError(errno.ENOSYS, f"no system call numbers for {machine}")
    code: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, ARCHITECTURES[machine]),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER),
    ]
    for end, decision in decision_ranges(profile, NUMBERS[machine]):
        block = decision_code(decision)
        code += [(AT_LEAST, len(block), 0, end), *block]
    code += decision_code(errno.ENOSYS)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def decision_ranges(profile: Profile, numbers: Mapping[str, int]) -> list[tuple[int, int | ArgumentCheck]]:
    """Return (first number behind it, decision) of each run of calls with the same decision, from 0."""
    names = {number: name for name, number in numbers.items()}
    ranges: list[tuple[int, int | ArgumentCheck]] = []
    for number in range(max(names) + 1):
        decision = profile.decision(names[number]) if number in names else errno.ENOSYS
        if ranges and ranges[-1][1] == decision:
            ranges.pop()
        ranges.append((number + 1, decision))
    return ranges


def decision_code(decision: int | ArgumentCheck) -> list[Instruction]:
    """Return the instructions of a decision; the last one returns."""
    if isinstance(decision, int):
        return [(RETURN, 0, 0, ERRNO | decision if decision else ALLOW)]
    code: list[Instruction] = []
    for case in decision.cases:
        answer = decision_code(case.error)
        tests: list[Instruction] = []
        for item in reversed(case.conditions):
            skipped = len(tests) + len(answer)  # to the next case
            tests[:0] = [
                (LOAD, 0, 0, ARGUMENTS + 8 * item.argument),  # both machines are little-endian
                (AND, 0, 0, item.mask),
                (EQUAL, 0, skipped, item.value),
            ]
        code += [*tests, *answer]
    return code + decision_code(decision.otherwise)
