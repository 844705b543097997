"""facts/derived/nvcc.yaml: what each CUDA toolkit compiles for, and which host compilers it accepts.

Read of the newest patch of each minor on the package index, x86_64: ``ptxas`` is taken out of the nvcc wheel and run to
list its targets, in a sandbox; the limits are those of NVIDIA's ``crt/host_config.h``, which is in the nvcc wheel up
to 12.9 and in nvidia-cuda-crt from 13.0 on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from envbuild.core.errors import InputError
from envbuild.core.text import printable
from envbuild.matrix.collect.fact_writer import Context, Derived, DerivedFact, DerivedRow, FlowNode
from envbuild.matrix.collect.release_rows import digest_note
from envbuild.matrix.facts.index_releases import list_releases
from envbuild.matrix.facts.version import newest_first
from envbuild.net.python_index import IndexFile
from envbuild.net.range_file import MalformedFileError

COLLECTOR = "collector nvcc 2"
COMPILERS = ("nvidia-cuda-nvcc-cu11", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc")  # they have ptxas
HEADERS = ("nvidia-cuda-nvcc-cu11", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-crt")  # they have crt/host_config.h
PTXAS, HEADER = ".+/bin/ptxas", r".+/include/crt/host_config\.h"
LARGEST = {PTXAS: 1 << 28, HEADER: 1 << 20}  # bytes; a header has some 12 kB
ARCH = "amd64"
UNLESS_PTX: Mapping[str, FlowNode] = {"code": ["-", "sm_*"]}  # of PTX that is requested: facts/code.yaml
DISPUTED = ("12.3",)  # torch's table allows gcc 13 there, the header does not: facts/gcc.yaml states it


@dataclass(frozen=True, slots=True)
class CompilerLimits:
    """The limits of one host_config.h: the highest gcc major that it accepts, and the lowest clang major that it
    refuses."""

    gcc: str
    clang: str


@dataclass(frozen=True, slots=True)
class ReadValue:
    """A result of one toolkit (`value`), the file that it is from, and the sha256 of the member."""

    value: tuple[str, ...] | CompilerLimits
    file: str
    sha256: str


def collect(context: Context) -> dict[str, Derived]:
    """Return the file. Raise InputError; also where ptxas does not run (it is a program for x86_64)."""

    def targets(job: tuple[str, IndexFile]) -> tuple[str, ReadValue]:
        data = _member(context, job[1], PTXAS)
        return job[0], ReadValue(targets_of(help_of(context, data, job[1].name)), job[1].name, _sha256(data))

    def limits(job: tuple[str, IndexFile]) -> tuple[str, ReadValue]:
        data = _member(context, job[1], HEADER)
        return job[0], ReadValue(limits_of(data.decode("utf-8", "replace"), job[1].name), job[1].name, _sha256(data))

    compilers, headers = newest_patches(context, COMPILERS), newest_patches(context, HEADERS)
    return {
        "nvcc": make_facts(
            dict(context.each("ptxas", "running ptxas of CUDA toolkits", targets, list(compilers.items()))),
            dict(context.each("headers", "reading host compilers of CUDA toolkits", limits, list(headers.items()))),
        )
    }


def newest_patches(context: Context, packages: tuple[str, ...]) -> dict[str, IndexFile]:
    """Return CUDA minor → the x86_64 wheel of its newest patch."""
    found: dict[str, IndexFile] = {}
    for package in packages:
        for number, release in list_releases(context.index, package).items():
            wheel = next((build.file for (arch, _), build in release.wheels.items() if arch == ARCH), None)
            if wheel is not None:
                found.setdefault(".".join(number.split(".")[:2]), wheel)
    return {minor: found[minor] for minor in newest_first(found)}


def help_of(context: Context, program: bytes, name: str) -> str:
    """Return the help text of ptxas. Raise InputError."""
    code, text = context.run(program, ["--help"])
    if code:
        last = text.strip().rpartition("\n")[2]
        why = f"exit code {code}{f': {printable(last)}' if last else ''}"
        raise InputError(f"ptxas of {name} does not run here: {why}", "run the collector on an x86_64 machine")
    return text


def targets_of(text: str) -> tuple[str, ...]:
    """Return ``sm_90a`` and ``compute_90a`` for each of these that the help of ptxas allows for --gpu-name, lowest
    first."""
    option = re.search(r"^--gpu-name .*?(?=^--|\Z)", text, re.MULTILINE | re.DOTALL)
    allowed = re.search(r"Allowed values for this option:([^.]*)", option[0] if option else "")
    found = set(re.findall(r"'((?:sm|compute)_\d+[af]?)'", allowed[1])) if allowed else set()
    return tuple(sorted(found, key=_target_key))


def limits_of(header: str, name: str) -> CompilerLimits:
    """Return the limits of the header. A test of clang's version counts more than the message about it: in 12.3 the
    message states less than 16, and the test is for 17. Raise InputError when they are missing."""
    gcc = re.findall(r"#error -- unsupported GNU version! gcc versions later than (\d+) are not supported", header)
    clang = re.findall(r"#error -- unsupported clang version! clang version must be less than (\d+) ", header)
    if len(gcc) != 1 or len(clang) != 1:
        raise InputError(f"the host_config.h of {name} does not state its limits as those before did")
    tests = set(re.findall(r"^[ \t]*#[ \t]*if\b.*\(__clang_major__ >= (\d+)\)", header, re.MULTILINE))
    return CompilerLimits(gcc[0], tests.pop() if len(tests) == 1 else clang[0])


def make_facts(targets: Mapping[str, ReadValue], limits: Mapping[str, ReadValue]) -> Derived:
    """Return the file, from CUDA minor → what was read."""

    def row(minor: str, read: ReadValue, then: Mapping[str, FlowNode], when: Mapping[str, FlowNode] = {}) -> DerivedRow:
        return DerivedRow({"cuda": minor, **when}, then, f"{read.file}, {digest_note([read.sha256])}")

    sm: list[DerivedRow] = []
    code: list[DerivedRow] = []
    names: dict[str, None] = {}
    for minor, read in targets.items():
        if isinstance(read.value, tuple) and read.value:
            machine_code = [target.removeprefix("sm_") for target in read.value if target.startswith("sm_")]
            sm.append(row(minor, read, {"sm": {"cubins": machine_code}}, UNLESS_PTX))
            code.append(row(minor, read, {"code": list(read.value)}))
            names |= dict.fromkeys(read.value)
    hosts = [(minor, read, read.value) for minor, read in limits.items() if isinstance(read.value, CompilerLimits)]
    header = "crt/host_config.h of nvidia-cuda-nvcc-cu11, nvidia-cuda-nvcc-cu12, nvidia-cuda-crt (x86_64 wheels)"
    how = f"{COLLECTOR}; the tests of versions in the header; the sha256 is of the header"
    found = (
        DerivedFact(
            id="cuda.ptxas-targets",
            question="cuda-sm",
            kind="limits",
            scope="build",
            type="measured",
            where="bin/ptxas of nvidia-cuda-nvcc-cu11, nvidia-cuda-nvcc-cu12, nvidia-cuda-nvcc (x86_64 wheels)",
            how=f"{COLLECTOR}; targets in the output of ptxas --help; the sha256 is of ptxas",
            because="CUDA {cuda} compiles no machine code for {sm}",
            rows=tuple(sm),
        ),
        DerivedFact(
            id="cuda.code-targets",
            question="cuda-code",
            kind="limits",
            scope="build",
            type="measured",
            where="bin/ptxas of nvidia-cuda-nvcc-cu11, nvidia-cuda-nvcc-cu12, nvidia-cuda-nvcc (x86_64 wheels)",
            how=f"{COLLECTOR}; targets in the output of ptxas --help; the sha256 is of ptxas",
            because="nvcc of CUDA {cuda} has no target {code}",
            rows=tuple(code),
        ),
        DerivedFact(
            id="cuda.gcc-max",
            question="cuda-gcc",
            kind="limits",
            scope="build",
            type="measured",
            where=header,
            how=how,
            because="nvcc of CUDA {cuda} refuses gcc {gcc} as its host compiler",
            rows=tuple(
                row(minor, read, {"gcc": f"<={value.gcc}"}) for minor, read, value in hosts if minor not in DISPUTED
            ),
        ),
        DerivedFact(
            id="cuda.clang-max",
            question="cuda-clang",
            kind="limits",
            scope="build",
            type="measured",
            where=header,
            how=how,
            because="nvcc of CUDA {cuda} refuses clang {clang} as its host compiler",
            rows=tuple(row(minor, read, {"clang": f"<{value.clang}"}) for minor, read, value in hosts),
        ),
    )
    values: dict[str, Mapping[str, FlowNode]] = {"cuda": {"values": newest_first([*targets, *limits])}}
    if names:
        ordered: list[str] = sorted(names, key=_target_key)
        values["code"] = {"values": ordered}
    return Derived(values, {}, tuple(fact for fact in found if fact.rows))


def _target_key(name: str) -> tuple[str, int, str]:
    """Return a key that sorts the targets of nvcc by number, those of PTX first: compute_90, sm_90, sm_90a, sm_100."""
    kind, _, rest = name.partition("_")
    number = rest.rstrip("af")
    return kind, int(number), rest[len(number) :]


def _member(context: Context, file: IndexFile, pattern: str) -> bytes:
    with context.wheels.open(file) as wheel:
        found = [name for name in wheel.names() if re.fullmatch(pattern, name)]
        if len(found) != 1:
            raise MalformedFileError(f"{len(found)} of its members are {pattern}")
        return wheel.read(found[0], LARGEST[pattern])


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
