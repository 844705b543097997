"""CPU: architecture, level of the instruction set, NUMA nodes; kernel and C library."""

from __future__ import annotations

import os
import re

from ..host import Host

# The flags of /proc/cpuinfo that each level of x86-64 adds (x86-64 psABI, table "Micro-Architecture Levels").
LEVELS = (
    ("x86-64-v2", ("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3")),
    ("x86-64-v3", ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")),
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
)
ORDER = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
ARM_V9 = "sve2"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def machine(host: Host) -> str:
    """Return amd64 or arm64, or the kernel's own name of another architecture."""
    name = os.uname().machine if host.is_real else host.text("/proc/sys/kernel/arch")
    return MACHINES.get(name, name)


def cpu_level(host: Host) -> str:
    """Return the level of the instruction set: x86-64-v3, armv9-a; "" where /proc/cpuinfo does not state it."""
    text = host.text("/proc/cpuinfo")
    if arm := re.search(r"^Features\s*:(.*)$", text, re.MULTILINE):
        return "armv9-a" if ARM_V9 in arm[1].split() else "armv8-a"
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    if not flags:
        return ""
    found, level = set(flags[1].split()), "x86-64"
    for name, needed in LEVELS:
        if not found.issuperset(needed):
            break
        level = name
    return level


def missing_flags(host: Host, level: str) -> list[str]:
    """Return the flags that this CPU lacks for a level."""
    flags = re.search(r"^flags\s*:(.*)$", host.text("/proc/cpuinfo"), re.MULTILINE)
    found = set(flags[1].split()) if flags else set()
    wanted = [flag for name, needed in LEVELS if name in ORDER[: ORDER.index(level) + 1] for flag in needed]
    return [flag for flag in wanted if flag not in found]


def cpu_model(host: Host) -> str:
    """Return the name of the CPU."""
    found = re.search(r"^model name\s*:\s*(.*)$", host.text("/proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else ""


def kernel(host: Host) -> str:
    """Return the kernel's release: 6.1.0-18-amd64."""
    return host.text("/proc/sys/kernel/osrelease")


def glibc(host: Host) -> str:
    """Return the version of the C library that this Python uses: 2.36; "" for another one."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2] if host.is_real else ""
    except (ValueError, OSError):
        return ""


def system_name(host: Host) -> str:
    """Return the name of the distribution."""
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', host.text("/etc/os-release"), re.MULTILINE)
    return found[1] if found else ""


def numa_cpus(host: Host) -> dict[str, set[int]]:
    """Return the CPUs of each NUMA node."""
    folder = "/sys/devices/system/node"
    nodes = [name for name in host.names(folder) if re.fullmatch(r"node\d+", name)]
    return {name: read_cpus(host.text(f"{folder}/{name}/cpulist")) for name in nodes}


def read_cpus(text: str) -> set[int]:
    """Return the CPUs of a list: 0-3,8."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            found.update(range(int(first), min(int(last or first), int(first) + 100_000) + 1))
    return found


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparisons: 580.65.06 → (580, 65, 6)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def is_older(version: str, floor: str) -> bool:
    """Return whether a version is older than another one: 580.65 is not older than 580.65.0."""
    one, two = numbers(version), numbers(floor)
    length = max(len(one), len(two))
    return one + (0,) * (length - len(one)) < two + (0,) * (length - len(two))
