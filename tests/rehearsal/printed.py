"""Text that a version prints, made from the format strings and the version files of its source.

Each function returns what the command of one check prints in this version, or raises Unknown, naming what the source
does not have. The recipe's pattern is then applied to that text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Unknown(Exception):
    """The source does not have the text that the function expects."""


class Printed(NamedTuple):
    """A text that a version prints; `check` are words of the name of the check that reads it."""

    check: str
    text: str


def literal(folder: Path, pattern: str, *globs: str) -> re.Match[str]:
    """Return the first match of a regular expression in the files that `globs` name."""
    for glob in globs:
        for path in sorted(folder.glob(glob)):
            if found := re.search(pattern, path.read_text(errors="replace"), re.MULTILINE):
                return found
    raise Unknown(f"no {pattern!r} in {', '.join(globs)}")


def literals(folder: Path, pattern: str, parts: tuple[str, ...], *globs: str) -> list[str]:
    """Return the first group of `pattern` for each of `parts`, which replaces its braces."""
    return [literal(folder, pattern.replace("{}", part), *globs)[1] for part in parts]


def autoconf_version(folder: Path, name: str) -> str:
    parts = tuple(f"{name}_ver_{part}" for part in ("major", "minor", "patch"))
    return ".".join(literals(folder, r"define\(\[{}\],\s*(\d+)\)", parts, "configure.ac"))


def fill(template: str, *values: str) -> str:
    """Return a C format string with its conversions replaced."""
    rest = iter(values)
    return re.sub(r"%[-+0-9.]*l*[a-z]", lambda _: next(rest), template).replace("\\n", "\n")


def ucx(folder: Path, commit: str) -> Printed:
    version = autoconf_version(folder, "ucx")
    line = literal(folder, r'printf\("(# (?:Library version|UCT version=)[^"]*)"', "src/tools/info/*.c")[1]
    revision = literal(folder, r'printf\("(# (?:Git branch|.*revision)[^"]*)"', "src/tools/info/*.c")[1]
    head = fill(line, version, commit[:7])
    return Printed("version and commit", head + ("" if revision == line else fill(revision, "", commit[:7])))


def ucc(folder: Path, commit: str) -> Printed:
    version = autoconf_version(folder, "ucc")
    line = literal(folder, r'printf\("(# UCC version=[^"]*)"', "tools/info/*.c")[1]
    return Printed("version", fill(line, version, commit[:7]))


def libfabric(folder: Path, commit: str) -> Printed:
    version = literal(folder, r"AC_INIT\(\[libfabric\],\s*\[([^]]+)\]", "configure.ac")[1]
    line = literal(folder, r'printf\("(libfabric: [^"]*)"', "util/info.c")[1]
    return Printed("version", fill(line, version))


def perftest(folder: Path, commit: str) -> Printed:
    version = literal(folder, r"AC_INIT\(\[perftest\],\s*\[([^]]+)\]", "configure.ac")[1]
    line = literal(folder, r'printf\("(Version: [^"]*)"', "src/perftest_parameters.c")[1]
    return Printed("", fill(line, version))


def gdrcopy(folder: Path, commit: str) -> Printed:
    numbers = literals(folder, r"define GDR_API_{}_VERSION\s+(\d+)", ("MAJOR", "MINOR"), "include/gdrapi.h")
    return Printed("", f"gdrapi {' '.join(numbers)}\n")


def nccl(folder: Path, commit: str) -> Printed:
    numbers = literals(folder, r"^NCCL_{}\s*:=\s*(\d+)", ("MAJOR", "MINOR", "PATCH"), "makefiles/version.mk")
    return Printed("locked version", ".".join(numbers) + "\n")


def msccl(folder: Path, commit: str) -> Printed:
    major, minor, patch = (int(text) for text in nccl(folder, commit).text.strip().split("."))
    file = f"/opt/msccl/lib/libnccl.so.{major}.{minor}.{patch}"
    return Printed("", f"nccl {major * 10000 + minor * 100 + patch}\n{{'{file}'}}\n")


def nccl_tests(folder: Path, commit: str) -> Printed:
    error = "node: Test CUDA failure common.cu:893 'CUDA driver version is insufficient for CUDA runtime version'\n"
    try:
        line = literal(folder, r'PRINT\("(# nccl-tests version [^"]*)"', "src/*.cu")[1]
    except Unknown:  # before 2.17.10 the first line states the sizes
        line = literal(folder, r'PRINT\("(# nThread [^"]*)"', "src/*.cu")[1]
        devices = literal(folder, r'PRINT\("(# Using devices[^"]*)"', "src/*.cu")[1]
        return Printed("starts", fill(line, *("8" for _ in range(20))) + fill(devices) + error)
    version = literal(folder, r'define NCCL_TESTS_VERSION "([^"]+)"', "src/*.h")[1]
    return Printed("starts", fill(line, version, "23007", "23007") + error)


def pmix(folder: Path, commit: str) -> Printed:
    numbers = literals(folder, r"^{}=(\d+)", ("major", "minor", "release"), "VERSION")
    # before 4.0 the number alone
    name = literal(folder, r'pmix_version_string\[\] =[\s\\]*(?:"(\w+ )"|PMIX_VERSION)', "src/client/pmix_client.c")[1]
    return Printed("", f"{name or ''}{'.'.join(numbers)}, repo rev: gitclone\n")


def openmpi(folder: Path, commit: str) -> Printed:
    numbers = literals(folder, r"^{}=(\d+)", ("major", "minor", "release"), "VERSION")
    places = ("orte/tools/orterun/help-orterun.txt", "3rd-party/prrte/src/**/help-*.txt")
    line = literal(folder, r"^%s \(%s\) %s$", *places)[0]
    return Printed("version", fill(line, "mpirun", "Open MPI", ".".join(numbers)) + "\n")


def rdma_core(folder: Path, commit: str) -> Printed:
    version = literal(folder, r'set\(PACKAGE_VERSION "([^"]+)"\)', "CMakeLists.txt")[1]
    number = literal(folder, r"^\s*1 (1\.\d+)\.\$\{PACKAGE_VERSION\}", "libibverbs/CMakeLists.txt")[1]
    return Printed("loader", f"/opt/rdma-core/lib/libibverbs.so.{number}.{version}\n")


def network_plugin(folder: Path, commit: str) -> Printed:
    texts = "".join(path.read_text(errors="replace") for path in folder.glob("src/**/*.c*"))
    numbers = sorted({int(number) for number in re.findall(r"ncclNet(?:Plugin)?_v(\d+)\b\s*(?:=|\))", texts)})
    if not numbers:
        raise Unknown("no ncclNetPlugin_vN in src")
    return Printed("", f"net {' '.join(map(str, numbers))}\n{{'/opt/libfabric/lib/libfabric.so.1'}}\n")


PRINTED: dict[str, Callable[[Path, str], Printed]] = {
    "gdrcopy": gdrcopy,
    "libfabric": libfabric,
    "msccl": msccl,
    "nccl": nccl,
    "nccl-rdma-sharp": network_plugin,
    "nccl-tests": nccl_tests,
    "openmpi": openmpi,
    "perftest": perftest,
    "pmix": pmix,
    "rdma-core": rdma_core,
    "ucc": ucc,
    "ucx": ucx,
}
