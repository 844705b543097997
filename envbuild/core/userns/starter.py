"""The program that a box executes before the first program of an image.

While the kernel opens a program, /proc/self/exe is still the one before. An image whose /bin/sh begins with
``#!/proc/self/exe`` would get the interpreter that envbuild itself runs on, with a loader of the image, and could
change the mode, the owner and, on some kernels, the bytes of that file of the machine (runc had the same fault:
CVE-2019-5736). So the process of a step first becomes a small program in memory, which nothing but the step can reach.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Mapping, Sequence

from envbuild.core.userns.namespaces import SetupError

REPORT = 3  # the descriptor on which the program reports why it could not start another: 8 bytes, the negative errno
MFD_EXEC = 0x10  # memfd_create(2), from Linux 6.3 on
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

# The program in assembler is tests/core/starter-MACHINE.s; a test compares. Its arguments: "=" (otherwise an image
# started it, and it ends with 126), the path of the program to start, and all arguments of that one.
CODE = {
    "x86_64": (
        62,  # EM_X86_64
        "488b44240880383d7545b848000000bf03000000be02000000ba010000000f05488b0c24488b7c2410488d742418488d"
        "54cc10b83b0000000f0550b801000000bf030000004889e6ba080000000f05b83c000000bf7e0000000f05",
    ),
    "aarch64": (
        183,  # EM_AARCH64
        "e00740f9000040391ff4007161020054280380d2600080d2410080d2220080d2010000d4e30340f9e00b40f9e1630091"
        "e2430091420c038ba81b80d2010000d4e00300f9080880d2600080d2e1030091020180d2010000d4a80b80d2c00f80d2"
        "010000d4",
    ),
}


def make_starter() -> int:
    """Return a sealed file in memory (a descriptor, closed on exec) with the program for this machine.

    Raises SetupError.
    """
    try:
        content = elf(*CODE[os.uname().machine])
    except KeyError:
        raise SetupError("init", f"no program that starts steps for {os.uname().machine}") from None
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        file = os.memfd_create("starter", flags | MFD_EXEC)
    except OSError:
        file = os.memfd_create("starter", flags)
    if not os.fstat(file).st_mode & 0o111:
        raise SetupError("init", "the kernel starts no program in memory (sysctl vm.memfd_noexec=2)")
    os.write(file, content)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    return file


def elf(machine: int, code: str) -> bytes:
    """Return an executable (ELF64, elf(5)) of one segment: `code`, hexadecimal, for the number of a `machine`."""
    program, base, head = bytes.fromhex(code), 0x400000, 64 + 56
    size = head + len(program)
    identity = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)  # 64 bits, little-endian, version 1
    header = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, base + head, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x10000)  # PT_LOAD, readable and executable
    return identity + header + segment + program


def start(starter: int, report: int, command: Sequence[str], env: Mapping[str, str]) -> None:
    """Replace this process by `command`, found along the PATH of `env`, through a program of `make_starter`.

    report: the writing end of a pipe; `read_report` reads its other end. Raises OSError if there is no such program.
    """
    path = find_program(command[0], env.get("PATH", os.defpath))
    if report != REPORT:
        if starter == REPORT:
            starter = os.dup(starter)
            os.set_inheritable(starter, False)
        os.dup2(report, REPORT)
    os.set_inheritable(REPORT, True)
    os.execve(starter, ["=", path, *command], dict(env))


def find_program(name: str, search: str) -> str:
    """Return the path of a program as execvp(3) finds it. Raises OSError: EACCES, ENOENT."""
    if "/" in name:
        return name
    paths = [f"{folder or '.'}/{name}" for folder in search.split(":")]
    for path in paths:
        if os.access(path, os.X_OK):
            return path
    reason = errno.EACCES if any(os.access(path, os.F_OK) for path in paths) else errno.ENOENT
    raise OSError(reason, os.strerror(reason), name)


def read_report(report: int) -> int:
    """Return why a program could not be started (errno), when it has ended; 0: it was started."""
    content = os.read(report, 8)
    return -int(struct.unpack("<q", content)[0]) if len(content) == 8 else 0
