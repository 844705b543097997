"""Dynamic symbols: what was written is read, by either hash table; versions as a real linker writes them."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.inspector import elf, elf_symbols
from envbuild.inspector.elf_symbols import SECTIONS, Symbols, gnu_hash
from envbuild.verify.symbols import demangle
from tests.support.binaries import make_elf
from tests.support.compiled import compiled

pytestmark = pytest.mark.unit

words = st.text("abcXYZ_0129", min_size=1, max_size=30)


def symbols(data: bytes) -> Symbols:
    return Symbols(data, elf.parse(data, SECTIONS))


@given(
    bits=st.sampled_from([32, 64]),
    order=st.sampled_from("<>"),
    gnu=st.booleans(),
    names=st.lists(words, unique=True, max_size=40),
    wanted=st.integers(0, 40),
)
def test_written_files_are_read_back(bits: int, order: str, gnu: bool, names: list[str], wanted: int) -> None:
    wants, has = names[:wanted], names[wanted:]
    found = symbols(make_elf(bits=bits, order=order, gnu=gnu, wants=wants, has=has))
    assert [(name.decode(), version) for name, version in found.wanted()] == [(name, "") for name in wants]
    assert all(found.has(name.encode()) for name in has)
    assert not any(found.has(name.encode()) for name in wants)
    assert not found.has(b"somebody else's")


@pytest.mark.parametrize("gnu", [True, False])
def test_without_section_headers_the_hash_table_has_the_number_of_symbols(gnu: bool) -> None:
    data = make_elf(gnu=gnu, wants=["a", "b"], has=["c"])
    found = Symbols(data, elf.parse(data))
    assert [name for name, _ in found.wanted()] == [b"a", b"b"]


def test_a_hash_that_is_known_is_not_computed_again() -> None:
    found = symbols(make_elf(has=["there"]))
    assert found.has(b"there", "", gnu_hash(b"there"))
    assert not found.has(b"there", "", gnu_hash(b"there") ^ 2)


def test_a_name_that_the_filter_excludes_is_not_found() -> None:
    """As the loader does not find it."""
    data = bytearray(make_elf(has=["there"]))
    at = symbols(bytes(data)).gnu + 16
    data[at : at + 8] = bytes(8)
    assert not symbols(bytes(data)).has(b"there")


@given(st.binary(min_size=8, max_size=200), st.integers(64, 900), st.booleans())
def test_noise_is_damaged_or_read_but_never_another_error(noise: bytes, at: int, gnu: bool) -> None:
    data = bytearray(make_elf(gnu=gnu, wants=["a", "bb"], has=["ccc", "dddd"], needed=["libx.so"]))
    data[at : at + len(noise)] = noise
    with contextlib.suppress(ValueError):
        found = symbols(bytes(data))
        found.wanted()
        found.has(b"ccc")


def test_tables_that_name_one_string_many_times_are_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 16 MB could name gigabytes: needed libraries, symbols, versions."""
    with pytest.raises(ValueError, match="strings in the dynamic section"):
        elf.parse(make_elf(needed=["l" * 40_000] * 40))
    with pytest.raises(ValueError, match="of more than 65536 bytes"):
        elf.parse(make_elf(soname="s" * 70_000))
    data = make_elf(wants=["a" * 1000, "b" * 1000])
    assert len(symbols(data).wanted()) == 2
    monkeypatch.setattr(elf_symbols, "MAX_WANTED", 1500)
    with pytest.raises(ValueError, match="bytes of symbols"):
        symbols(data).wanted()
    monkeypatch.setattr(elf_symbols, "LONGEST", 500)
    with pytest.raises(ValueError, match="of more than 500 bytes"):
        symbols(data).wanted()


def test_a_dynamic_section_without_an_end_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf, "MAX_ENTRIES", 5)
    with pytest.raises(ValueError, match="more than 5 entries"):
        elf.parse(make_elf(needed=["liba.so"] * 6))


def opened(path: Path) -> Symbols:
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return Symbols(data, elf.parse(data, SECTIONS))


@pytest.mark.slow_unit
@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_versions_as_a_linker_writes_them(tmp_path: Path, style: str) -> None:
    (tmp_path / "map").write_text("V_1 { global: old; both; local: *; };\nV_2 { global: both; } V_1;\n")
    code = (
        '__asm__(".symver both_1, both@V_1"); __asm__(".symver both_2, both@@V_2");'
        "int old(void) { return 1; } int both_1(void) { return 1; } int both_2(void) { return 2; }"
        "int hidden(void) { return 3; }"
    )
    hashes = f"-Wl,--hash-style={style}"
    library = compiled(tmp_path, "libv.so", code, "-Wl,--version-script=map", hashes)
    client = "int old(void); int both(void); int weak(void) __attribute__((weak)); int f(void)"
    client += "{ return old() + both() + (weak ? weak() : 0); }"
    user = opened(compiled(tmp_path, "libuser.so", client, "-L.", "-lv", hashes))
    found = opened(library)
    assert {(b"old", "V_1"), (b"both", "V_2")} <= set(user.wanted())
    assert b"weak" not in {name for name, _ in user.wanted()}
    assert user.needs["libv.so"] == {"V_1": True, "V_2": True}
    assert {"V_1", "V_2"} <= found.versions
    have = [(name, version) for name in (b"old", b"both") for version in ("V_1", "V_2", "") if found.has(name, version)]
    assert have == [(b"old", "V_1"), (b"old", ""), (b"both", "V_1"), (b"both", "V_2"), (b"both", "")]
    assert not found.has(b"hidden")


def test_versions_of_several_libraries(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "map").write_text(f"V_{name} {{ global: {name}; local: *; }};\nW_{name} {{ }} V_{name};\n")
        compiled(tmp_path, f"lib{name}.so", f"int {name}(void) {{ return 1; }}", "-Wl,--version-script=map")
    code = "int a(void); int b(void); int f(void) { return a() + b(); }"
    user = opened(compiled(tmp_path, "libuser.so", code, "-L.", "-la", "-lb", "-nostdlib"))
    assert user.needs == {"liba.so": {"V_a": True}, "libb.so": {"V_b": True}}
    assert {(b"a", "V_a"), (b"b", "V_b")} <= set(user.wanted())
    assert opened(tmp_path / "liba.so").versions >= {"V_a", "W_a"}


def test_a_library_without_versions_has_them_all(tmp_path: Path) -> None:
    assert opened(compiled(tmp_path, "libp.so", "int f(void) { return 1; }")).has(b"f", "V_9")


@pytest.mark.parametrize(
    ("symbol", "text"),
    [
        ("_ZN3c104cuda20getCurrentCUDAStreamEa", "c10::cuda::getCurrentCUDAStream"),
        ("_ZNK2at10TensorBase8data_ptrEv", "at::TensorBase::data_ptr"),
        ("_ZN3c105ErrorC1ENS_14SourceLocationE", "c10::Error::Error"),
        ("_ZN3c105ErrorD2Ev", "c10::Error::~Error"),
        ("_ZN3c1010LogCapture6suffixB5cxx11Ev", "c10::LogCapture::suffix"),
        ("_ZTVN5torch8autograd4NodeE", "torch::autograd::Node"),
        ("_Z3addii", "add"),
        ("_ZSt4cout", "std::cout"),
        ("_ZNSt6thread4joinEv", "std::thread::join"),
        ("_ZN2at6TensorIiEC1Ev", "_ZN2at6TensorIiEC1Ev"),  # templates are left alone
        ("_ZN2ateqEv", "_ZN2ateqEv"),
        ("_Z", "_Z"),
        ("ncclCommInitRank", "ncclCommInitRank"),
    ],
)
def test_names_are_demangled(symbol: str, text: str) -> None:
    assert demangle(symbol) == text


@given(st.text("_ZNKSt0123456789EIBCDabc", max_size=30))
def test_any_name_is_readable_or_itself(symbol: str) -> None:
    assert demangle(f"_Z{symbol}")


def test_a_name_that_repeats_itself_is_not_written_in_readable_form() -> None:
    """Each `D0` is the destructor of what came before: 2 MB of them would be 1 TB."""
    assert demangle("_ZN1aD0E") == "a::~a"
    for name in ("_ZN1aD0D0E", "_ZN1a" + "D0" * 1_000_000, f"_ZN{'1a' * 3000}E"):
        assert demangle(name) == name
