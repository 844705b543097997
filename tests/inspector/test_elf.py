"""ELF headers and fat binaries: everything that was written is read, and any damage is refused."""

from __future__ import annotations

import contextlib
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.inspector import elf, fatbin
from tests.support.binaries import make_elf, make_fatbin

pytestmark = pytest.mark.unit

names = st.text(
    st.characters(codec="utf-8", exclude_characters="\0:", exclude_categories=["Cs"]), min_size=1, max_size=20
)


@given(
    bits=st.sampled_from([32, 64]),
    order=st.sampled_from("<>"),
    needed=st.lists(names, max_size=5),
    soname=st.just("") | names,
    rpath=st.lists(names, max_size=3),
    runpath=st.lists(names, max_size=3),
    interpreter=st.sampled_from(["", "/lib64/ld-linux-x86-64.so.2"]),
)
def test_written_files_are_read_back(
    bits: int, order: str, needed: list[str], soname: str, rpath: list[str], runpath: list[str], interpreter: str
) -> None:
    data = make_elf(
        bits=bits,
        order=order,
        needed=needed,
        soname=soname,
        rpath=":".join(rpath),
        runpath=":".join(runpath),
        interpreter=interpreter,
        sections={".nv_fatbin": b"content", ".other": b"x"},
    )
    found = elf.parse(data, frozenset({".nv_fatbin"}))
    assert (found.bits, found.machine, found.kind, found.dynamic) == (bits, "x86_64", 3, True)
    assert (found.needed, found.soname, found.interpreter) == (tuple(needed), soname, interpreter)
    assert (found.rpath, found.runpath) == (tuple(rpath), tuple(runpath))
    offset, size = found.sections[".nv_fatbin"]
    assert data[offset : offset + size] == b"content"
    assert list(found.sections) == [".nv_fatbin"]


def test_static_file_has_no_dynamic_section() -> None:
    found = elf.parse(make_elf(dynamic=False, needed=["libc.so.6"]))
    assert not found.dynamic
    assert found.needed == ()


@pytest.mark.parametrize("bits", [64, 32])
def test_program_headers_may_be_the_end_of_the_file(bits: int) -> None:
    """As patchelf leaves them where they outgrew their place."""
    data = bytearray(make_elf(bits=bits, soname="libx.so.1"))
    start, size = (64, 3 * 56) if bits == 64 else (52, 3 * 32)
    struct.pack_into("<Q" if bits == 64 else "<I", data, 32 if bits == 64 else 28, len(data))
    data += data[start : start + size]
    struct.pack_into("<H", data, 56 if bits == 64 else 44, 2)
    end = len(data) - size // 3
    assert elf.parse(bytes(data[:end])).soname == "libx.so.1"
    with pytest.raises(ValueError):
        elf.parse(bytes(data[: end - 1]))


@given(st.integers(0, 600), st.sampled_from([32, 64]))
def test_a_truncated_file_is_refused_unless_its_headers_are_whole(length: int, bits: int) -> None:
    data = make_elf(bits=bits, needed=["libc.so.6"], sections={".nv_fatbin": b"x" * 64})
    try:
        found = elf.parse(data[:length], fatbin.SECTIONS)
    except ValueError:
        return
    assert found == elf.parse(data, fatbin.SECTIONS)


@given(st.binary(min_size=60, max_size=400), st.sampled_from([b"\x01", b"\x02"]), st.sampled_from([b"\x01", b"\x02"]))
def test_noise_is_damaged_or_read_but_never_another_error(noise: bytes, bits: bytes, order: bytes) -> None:
    data = elf.MAGIC + bits + order + noise
    with contextlib.suppress(ValueError):
        found = elf.parse(data, fatbin.SECTIONS)
        assert found.bits == 32 * bits[0]
        fatbin.count_architectures(data, found.sections)


@pytest.mark.parametrize("offset", [(1 << 64) - 1, 1 << 63, 1 << 32])
def test_offsets_beyond_every_file_are_damage(offset: int) -> None:
    data = bytearray(make_elf(sections={".nv_fatbin": b"x"}))
    struct.pack_into("<Q", data, 40, offset)  # e_shoff
    with pytest.raises(ValueError):
        elf.parse(bytes(data), fatbin.SECTIONS)


entries = st.lists(
    st.tuples(
        st.sampled_from(["sm", "compute", "lto"]),
        st.sampled_from([75, 80, 90, 100, 120]),
        st.sampled_from(["", "a", "f"]),
    ),
    max_size=8,
)


@given(st.lists(entries, max_size=4), st.binary(max_size=40))
def test_architectures_are_counted(binaries: list[list[tuple[str, int, str]]], payload: bytes) -> None:
    section = b""
    for binary in binaries:
        section += make_fatbin(binary, payload)
        section += bytes(-len(section) % 8) + bytes(8)  # the linker may leave room between two
    data = make_elf(sections={".nv_fatbin": section})
    expected: dict[str, int] = {}
    for word, number, suffix in (entry for binary in binaries for entry in binary):
        name = f"{word}_{number}{suffix}"
        expected[name] = expected.get(name, 0) + 1
    assert fatbin.count_architectures(data, elf.parse(data, fatbin.SECTIONS).sections) == expected


def test_relocatable_code_counts_only_where_nothing_was_linked() -> None:
    linked, relocatable = make_fatbin([("sm", 90, "")]), make_fatbin([("sm", 75, "")])
    both = make_elf(sections={"__nv_relfatbin": relocatable, ".nv_fatbin": linked})
    assert fatbin.count_architectures(both, elf.parse(both, fatbin.SECTIONS).sections) == {"sm_90": 1}
    alone = make_elf(sections={"__nv_relfatbin": relocatable})
    assert fatbin.count_architectures(alone, elf.parse(alone, fatbin.SECTIONS).sections) == {"sm_75": 1}


def test_ptx_of_all_objects_counts_beside_what_was_linked() -> None:
    """NCCL 2.21.5's wheel has it: the driver compiles and links it for a later GPU when the library is loaded."""
    linked = make_fatbin([("sm", 80, ""), ("sm", 90, "")])
    first = make_fatbin([("sm", 80, ""), ("sm", 90, ""), ("compute", 90, ""), ("compute", 80, "")])
    second = make_fatbin([("sm", 80, ""), ("sm", 90, ""), ("compute", 90, "")])
    data = make_elf(sections={"__nv_relfatbin": first + second, ".nv_fatbin": linked})
    found = fatbin.count_architectures(data, elf.parse(data, fatbin.SECTIONS).sections)
    assert found == {"sm_80": 1, "sm_90": 1, "compute_90": 2}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-8],  # payload cut
        lambda data: b"\1" + data[1:],  # magic
        lambda data: data[:8] + struct.pack("<Q", 1 << 40) + data[16:],  # length
        lambda data: data[:20] + struct.pack("<I", 0) + data[24:],  # an entry without a header would never end
    ],
)
def test_a_damaged_fat_binary_is_refused(damage) -> None:  # type: ignore[no-untyped-def]
    data = damage(make_fatbin([("sm", 90, "")]))
    with pytest.raises(ValueError, match="fat binary"):
        fatbin.count_architectures(data, {".nv_fatbin": (0, len(data))})


def test_padding_is_skipped_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A section of zeros, which two megabytes of a wheel can contain, would take a minute."""
    reads = []

    def unpack_from(*words: Any) -> Any:
        reads.append(words[-1])
        return struct.unpack_from(*words)

    monkeypatch.setattr(fatbin, "struct", SimpleNamespace(unpack_from=unpack_from))
    section = bytes(8) + make_fatbin([("sm", 90, "")]) + bytes(1 << 20) + make_fatbin([("sm", 75, "")]) + bytes(5000)
    data = make_elf(sections={".nv_fatbin": section})
    assert fatbin.count_architectures(data, elf.parse(data, fatbin.SECTIONS).sections) == {"sm_90": 1, "sm_75": 1}
    assert len(reads) < 2000
