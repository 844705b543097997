"""Host code against the target's CPU: notes, instructions as compilers write them, and the results of both."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.inspector import elf, gnu_notes, x86_isa
from envbuild.verify.cpu import cpu_results
from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import Status
from tests.support.binaries import make_elf, make_property
from tests.support.tools import tool

pytestmark = pytest.mark.unit

NEEDED = 0xC0008002
LOOP = "void f(float *a, const float *b, int n) { for (int i = 0; i < n; i++) a[i] = a[i] * b[i] + 1.5f; }"
SHIFT = "unsigned long f(unsigned long a, int b) { return a << b ^ a >> (b + 1); }"


@pytest.mark.parametrize(
    ("bits", "level"),
    [(1, "x86-64"), (2, "x86-64-v2"), (7, "x86-64-v3"), (4, "x86-64-v3"), (8, "x86-64-v4"), (1 << 20, "x86-64-v4")],
)
@pytest.mark.parametrize("size", [64, 32])
def test_the_note_is_read(bits: int, level: str, size: int) -> None:
    note = make_property(0xC0000002, 3, size) + make_property(NEEDED, bits, size)  # CET's property precedes it
    data = make_elf(bits=size, machine=62 if size == 64 else 3, note=note)
    assert gnu_notes.read_level(data, elf.parse(data)) == level


def test_other_notes_have_no_level() -> None:
    for note in (make_property(0xC0010002, 8), struct.pack("<III", 4, 4, 1) + b"GNU\0" + b"abcd", b"\0" * 7, b""):
        data = make_elf(note=note)
        assert gnu_notes.read_level(data, elf.parse(data)) == ""
    data = make_elf(machine=183, note=make_property(NEEDED, 8))  # the number means something else on arm64
    assert gnu_notes.read_level(data, elf.parse(data)) == ""


@given(st.binary(max_size=64), st.integers(0, 40))
def test_a_damaged_note_is_refused_or_has_no_level(noise: bytes, at: int) -> None:
    note = bytearray(make_property(NEEDED, 4) + make_property(NEEDED, 8))
    note[at : at + len(noise)] = noise
    data = make_elf(note=bytes(note))
    with contextlib.suppress(ValueError):
        assert gnu_notes.read_level(data, elf.parse(data)) in (*gnu_notes.LEVELS, "")


def scanned(text: bytes, unwind: tuple[int, ...] = (0,)) -> dict[str, int]:
    data = make_elf(sections={".text": text}, unwind=unwind)
    found = elf.parse(data, x86_isa.SECTIONS)
    start = found.sections[".text"][0] + 0x10000
    return {name: at - start for name, at in x86_isa.scan(data, found).items()}


RET = b"\xc3"
VZEROUPPER, VMOVUPS = b"\xc5\xf8\x77", b"\xc5\xfc\x11\x07"
SHLX, FMADD = b"\xc4\xe2\xf9\xf7\xc7", b"\xc4\xe2\x71\xb8\xc2"
ZMM, KMOV = b"\x62\xf1\x7c\x48\x11\x07", b"\xc5\xfb\x92\xc8"
MOVUPS, CPUID = b"\x0f\x11\x07", b"\x0f\xa2"


@pytest.mark.parametrize("code", [VZEROUPPER, VMOVUPS, SHLX, FMADD])
def test_avx_and_bmi(code: bytes) -> None:
    assert scanned(MOVUPS + code + RET) == {"x86-64-v3": 3}


@pytest.mark.parametrize("code", [ZMM, KMOV])
def test_avx_512(code: bytes) -> None:
    assert scanned(MOVUPS + code + RET) == {"x86-64-v4": 3}


def test_the_cpuid_instruction_is_found() -> None:
    assert scanned(CPUID + MOVUPS + RET) == {"cpuid": 0}


def test_bytes_inside_another_instruction_do_not_count() -> None:
    for code in (VMOVUPS, ZMM[:4], KMOV, VZEROUPPER + b"\0", CPUID * 2):
        assert scanned(b"\xb8" + code[:4] + RET) == {}  # mov $…, %eax
        assert scanned(b"\x48\x8d\x80" + code[:4] + RET) == {}  # lea …(%rax), %rax


def test_functions_start_at_the_addresses_of_the_unwind_table() -> None:
    filler = b"\xb8\xc5"  # taken from the start of the section it swallows what follows; nothing calls it
    assert scanned(filler + VMOVUPS + RET, unwind=(0, 2)) == {"x86-64-v3": 2}
    assert scanned(filler + VMOVUPS + RET, unwind=(0,)) == {}


def test_code_that_is_not_x86_is_not_scanned() -> None:
    data = make_elf(machine=183, sections={".text": VMOVUPS})
    assert x86_isa.scan(data, elf.parse(data, x86_isa.SECTIONS)) == {}
    data = make_elf()
    assert x86_isa.scan(data, elf.parse(data, x86_isa.SECTIONS)) == {}


@given(st.binary(max_size=300))
def test_the_scan_of_random_bytes_ends(noise: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert set(scanned(noise or b"\0")) <= {"x86-64-v3", "x86-64-v4", "cpuid"}


@given(st.binary(min_size=16, max_size=16))
def test_no_instruction_is_longer_than_the_format_allows(code: bytes) -> None:
    with contextlib.suppress(IndexError):
        assert x86_isa.instruction_length(code + bytes(64), 0) <= 16 + 15  # prefixes may repeat here; a CPU stops at 15


def on_x86() -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("gcc of this machine does not compile for x86-64")


def library(folder: Path, code: str, *options: str) -> bytes:
    on_x86()
    path = folder / "library.so"
    command = [tool("gcc"), "-x", "c", "-", "-shared", "-fPIC", "-O3", "-o", str(path), *options]
    subprocess.run(command, input=code, text=True, check=True)
    return path.read_bytes()


def scan(data: bytes) -> dict[str, int]:
    return x86_isa.scan(data, elf.parse(data, x86_isa.SECTIONS))


@pytest.mark.slow_unit
@pytest.mark.parametrize("code", [LOOP, SHIFT])
def test_compiled_code_of_each_level(tmp_path: Path, code: str) -> None:
    for level in ("x86-64", "x86-64-v2"):
        assert scan(library(tmp_path, code, f"-march={level}")) == {}
    assert set(scan(library(tmp_path, code, "-march=x86-64-v3"))) == {"x86-64-v3"}
    wide = ("-march=x86-64-v4", "-mprefer-vector-width=512")
    assert set(scan(library(tmp_path, LOOP, *wide))) == {"x86-64-v3", "x86-64-v4"}


def test_dispatched_code_contains_cpuid(tmp_path: Path) -> None:
    code = '__attribute__((target_clones("default", "arch=haswell"))) ' + LOOP
    found = scan(library(tmp_path, code))
    assert {"x86-64-v3", "cpuid"} <= set(found)  # libgcc's question is linked in


def test_the_note_that_gcc_writes(tmp_path: Path) -> None:
    data = library(tmp_path, LOOP, "-march=x86-64-v3", "-mneeded")
    assert gnu_notes.read_level(data, elf.parse(data)) == "x86-64-v3"


@pytest.mark.slow_unit
def test_lengths_and_findings_are_those_of_objdump() -> None:
    """Over the shell and the C library, some hundred thousand instructions."""
    on_x86()
    program = tool("objdump")
    maps = Path("/proc/self/maps").read_text()
    libraries = re.findall(r"(/\S+/(?:libc|libm)\.so\S*)", maps)
    total = wrong = 0
    for path in sorted({os.path.realpath("/bin/sh"), *libraries}):
        with Path(path).open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        found = elf.parse(data, x86_isa.SECTIONS)
        offset = found.sections[".text"][0]
        shift = next(at - start for _, start, at, size in found.segments if start <= offset < start + size)
        run = [program, "-d", "-j", ".text", "--insn-width=16", "-w", path]
        listing = subprocess.run(run, capture_output=True, text=True, check=True).stdout
        vex = evex = False
        for at, code, text in re.findall(r"^ +([0-9a-f]+):\t((?:[0-9a-f]{2} )+)[ \t]*([^\n]*)", listing, re.MULTILINE):
            if "(bad)" in text or code.startswith("9b "):  # objdump writes fwait and what follows as one
                continue
            total += 1
            wrong += x86_isa.instruction_length(data, int(at, 16) - shift) != len(code.split())
            vex = vex or code.startswith(("c5 ", "c4 "))
            evex = evex or code.startswith("62 ")
        seen = x86_isa.scan(data, found)
        assert ("x86-64-v3" in seen, "x86-64-v4" in seen) == (vex, evex), path
    assert total > 100_000
    assert wrong <= total // 10_000  # objdump reads data between hand-written functions as code


def results(cpu: str = "x86-64-v2", **seen: Any) -> dict[str, tuple[Status, str]]:
    document = {"levels": {}, "compiled": {}, "elves": {"/opt/a.so": {}}, **seen}
    return {item.name: (item.status, item.detail) for item in cpu_results(document, Expectations(cpu=cpu))}


def test_a_file_that_requires_a_higher_level_fails() -> None:
    found = results(levels={"/opt/a.so": "x86-64-v3", "/usr/lib/glibc-hwcaps/x86-64-v3/b.so": "x86-64-v3"})
    status, detail = found["no file requires more than x86-64-v2"]
    assert status == Status.FAIL
    assert detail.startswith("/opt/a.so requires x86-64-v3 (2 of 1 files")
    assert results("x86-64-v3", levels={"/opt/a.so": "x86-64-v3"})["no file requires more than x86-64-v3"][0] == "pass"


def test_code_of_the_machine_that_built() -> None:
    name = "what was compiled here runs on x86-64-v2"
    native = {"x86-64-v3": 0x10, "x86-64-v4": 0x20}
    status, detail = results(compiled={"/opt/a.so": native, "/opt/b.so": {}})[name]
    assert status == Status.FAIL
    assert "/opt/a.so has AVX-512 (x86-64-v4) at 0x20 and never queries the CPU" in detail
    assert "2 files" in detail
    for question in ({"cpuid": 5}, {"asks": "ucs_arch_get_cpu_flag"}):
        status, detail = results(compiled={"/opt/a.so": {**native, **question}})[name]
        assert status == Status.PASS
        assert "query the CPU first: /opt/a.so" in detail
    on_v3 = results("x86-64-v3", compiled={"/opt/a.so": {"x86-64-v3": 1}, "/opt/b.so": native})
    status, detail = on_v3["what was compiled here runs on x86-64-v3"]
    assert status == Status.FAIL
    assert "/opt/b.so has AVX-512" in detail and "/opt/a.so" not in detail


def test_checks_without_data_have_no_result() -> None:
    assert results("") == {}
    assert results("armv8-a") == {}
    arm = results("armv8-a", compiled={"/opt/a.so": {}})
    assert [status for status, _ in arm.values()] == [Status.NOT_RUN]
    assert list(results("x86-64-v4", compiled={"/opt/a.so": {}})) == ["no file requires more than x86-64-v4"]
    assert list(results()) == ["no file requires more than x86-64-v2"]  # nothing was compiled here


@pytest.mark.parametrize(
    "name",
    ["__cpu_model", "getauxval", "ucs_arch_get_cpu_flag", "cpuinfo_initialize", "_ZN2at3cpu19is_avx512_supportedEv"],
)
def test_functions_that_query_the_cpu(name: str) -> None:
    assert x86_isa.ASKS.fullmatch(name.encode())


@pytest.mark.parametrize("name", ["_ZN2at3cpu4copyEv", "ncclCpuAffinity", "omp_get_num_procs", "cudaGetDevice"])
def test_functions_that_do_not_query_the_cpu(name: str) -> None:
    assert not x86_isa.ASKS.fullmatch(name.encode())
