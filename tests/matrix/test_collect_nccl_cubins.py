"""facts/derived/nccl-cubins.yaml from libraries with fat binaries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.matrix.collect import nccl_cubins
from envbuild.matrix.collect.fact_writer import DerivedFact, render_derived
from tests.support.binaries import make_elf, make_fatbin
from tests.support.lock_server import sha256
from tests.support.wheel_server import context, index_site, make_wheel

pytestmark = pytest.mark.unit


def wheel(folder: Path, cuda: str, version: str, library: bytes, tag: str = "x86_64") -> Path:
    name = f"nvidia_nccl_cu{cuda}-{version}-py3-none-manylinux2014_{tag}.whl"
    return make_wheel(
        folder, name, members={"nvidia/nccl/lib/libnccl.so.2": library, "nvidia/nccl/include/nccl.h": b""}
    )


def library(*entries: tuple[str, int, str]) -> bytes:
    return make_elf(soname="libnccl.so.2", sections={".nv_fatbin": make_fatbin(entries)})


def collect(tmp_path: Path, *wheels: Path) -> DerivedFact:
    return nccl_cubins.collect(context(index_site(tmp_path / "simple", list(wheels))))["nccl-cubins"].facts[0]


def test_code_of_each_wheel(tmp_path: Path) -> None:
    fact = collect(
        tmp_path,
        wheel(
            tmp_path, "12", "2.27.3", library(("sm", 90, ""), ("sm", 100, "f"), ("sm", 50, ""), ("compute", 120, ""))
        ),
        wheel(tmp_path, "13", "2.27.7", library(("sm", 90, "a"), ("sm", 75, ""))),
        wheel(tmp_path, "12", "2.28.0", b"torch for arm64 has no CUDA 12", tag="aarch64"),
    )
    rows = sorted((str(row.when["nccl"]), row.when["torch-cuda"], row.then["sm"]) for row in fact.rows)
    assert rows == [
        ("==2.27.3", "12", {"cubins": ["50", "90", "100f"], "ptx": ["120"]}),
        ("==2.27.7", "13", {"cubins": ["75", "90a"]}),
    ]
    assert fact.rows[0].when["channel"] == "index"  # NCCL from elsewhere is compiled otherwise
    assert fact.question == "nccl-sm"


def test_a_wheel_that_is_known_is_not_read_again(tmp_path: Path) -> None:
    """12 GB would be read at each refresh otherwise; a wheel is known by the digest that the index lists."""
    first = wheel(tmp_path, "12", "2.27.3", library(("sm", 90, "")))
    second = wheel(tmp_path, "13", "2.27.3", library(("sm", 90, "")), tag="aarch64")
    site = index_site(tmp_path / "simple", [first, second])
    found = nccl_cubins.collect(context(site))["nccl-cubins"]
    folder = tmp_path / "derived"
    folder.mkdir()
    (folder / "nccl-cubins.yaml").write_text(render_derived(found, {"nccl.wheel-cubins": "2026-11-21"}))
    first.unlink()
    known = replace(context(site), folders=(tmp_path / "none", folder))
    assert nccl_cubins.collect(known) == {"nccl-cubins": found}
    with pytest.raises(InputError, match="is not available"):
        nccl_cubins.collect(context(site))
    text = (folder / "nccl-cubins.yaml").read_text()
    (folder / "nccl-cubins.yaml").write_text(text.replace(sha256(second.read_bytes())[:12], "0" * 12))
    second.unlink()
    with pytest.raises(InputError, match=f"{second.name} is not available"):  # another digest: another wheel
        nccl_cubins.collect(known)
    (folder / "nccl-cubins.yaml").write_text(text.replace(nccl_cubins.COLLECTOR, "collector cubins 0"))
    with pytest.raises(InputError, match="is not available"):  # what an earlier collector read is read again
        nccl_cubins.collect(known)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (make_elf(), "holds no device code"),
        (b"\x7fELF", "no ELF header"),
        (make_elf(sections={".nv_fatbin": b"\x01" * 64}), "no fat binary"),
        (b"\x00", "no ELF header"),
    ],
)
def test_libraries_without(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        collect(tmp_path, wheel(tmp_path, "12", "2.27.3", content))


def test_empty_library_and_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty file"):
        collect(tmp_path, wheel(tmp_path, "12", "2.27.3", b""))
    with pytest.raises(InputError, match="0 of its members are"):
        collect(tmp_path / "x", make_wheel(tmp_path, "nvidia_nccl_cu12-2.27.3-py3-none-manylinux2014_x86_64.whl"))
