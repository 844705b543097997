"""Symbols and versions against what a tree has: each is searched where the loader would, and nowhere else."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from envbuild.inspector import elf
from envbuild.inspector.dynamic_loader import Loader
from envbuild.inspector.elf_symbols import SECTIONS
from envbuild.inspector.link_check import Linker
from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import Status
from envbuild.verify.symbols import link_results
from tests.support.binaries import make_elf
from tests.support.compiled import compiled

pytestmark = pytest.mark.unit

KERNEL = "venv/site/apex/_C.so"
TORCH = {
    "venv/site/torch/lib/libtorch_global_deps.so": {"needed": ["libgomp.so.1"]},
    "venv/site/torch/lib/libgomp.so.1": {"soname": "libgomp.so.1", "has": ["GOMP_parallel"]},
    "venv/site/torch/lib/libc10.so": {"soname": "libc10.so", "has": ["_ZN3c105Error4whatEv", "c10_old"]},
    "usr/bin/python3": {"has": ["PyModule_Create2"], "needed": ["libm.so.6"]},
    "usr/lib/libm.so.6": {"soname": "libm.so.6", "has": ["cos"]},
}


def linker(root: Path, files: Mapping[str, Mapping[str, Any]], owners: Mapping[str, str] | None = None) -> Linker:
    """Return a linker of a tree below `root` with a venv, an interpreter, and the prefix `ucx`."""
    elves = {}
    for name, options in files.items():
        data = options["bytes"] if "bytes" in options else make_elf(**options)
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        elves[str(path)] = elf.parse(data, SECTIONS)
    cache = [(item.soname, path) for path, item in elves.items() if item.soname and "/site/" not in path]
    site = str(root / "venv/site")
    loader = Loader(elves, {}, cache, (), [site])
    owned = {str(root / name): owner for name, owner in (owners or {}).items()}
    return Linker(loader, loader.resolve(), [site], owned, [str(root / "ucx")], str(root / "usr/bin/python3"))


def unresolved_names(root: Path, files: Mapping[str, Mapping[str, Any]], *paths: str, **more: Any) -> dict[str, Any]:
    result = linker(root, files, **more).check(str(root / path) for path in paths)
    return {path.removeprefix(f"{root}/"): item["names"] for path, item in result["not_found"].items()}


def test_a_kernel_that_fits(tmp_path: Path) -> None:
    wants = ["_ZN3c105Error4whatEv", "PyModule_Create2", "cos", "GOMP_parallel"]
    files = {**TORCH, KERNEL: {"needed": ["libc10.so"], "wants": wants}}
    result = linker(tmp_path, files).check([str(tmp_path / KERNEL)])
    assert (result["files"], result["symbols"], result["not_found"]) == (1, 4, {})


def test_a_kernel_for_another_torch(tmp_path: Path) -> None:
    files = {**TORCH, KERNEL: {"needed": ["libc10.so"], "wants": ["_ZN3c105Error7gone_inEv", "c10_old"]}}
    result = linker(tmp_path, files).check([str(tmp_path / KERNEL)])
    assert result["not_found"] == {
        str(tmp_path / KERNEL): {"names": ["_ZN3c105Error7gone_inEv"], "count": 1, "torch": ["libc10.so"]}
    }
    seen = {
        "link": result,
        "versions": {"compared": 0, "not_found": {}},
        "python": [{"name": "torch", "version": "2.15.0", "site": str(tmp_path / "venv/site"), "modules": []}],
        "compiled": {},
        "elves": {},
        "prefixes": [],
    }
    failure = next(item for item in link_results(seen, Expectations()) if item.status == Status.FAIL)
    named = "c10::Error::gone_in (_ZN3c105Error7gone_inEv)"
    assert f"{KERNEL} requires {named}, which no library that it needs has" in failure.detail
    assert "linked with libc10.so of torch 2.15.0" in failure.detail
    assert "made for torch 2.15.0" in failure.hint and "--rebuild" in failure.hint


def test_libraries_loaded_by_interpreter_and_torch_count_for_python_modules_only(tmp_path: Path) -> None:
    wants = ["PyModule_Create2", "GOMP_parallel"]
    files = {
        **TORCH,
        "venv/site/plain.so": {"wants": wants},  # not linked with torch, so torch may not be there
        "ucx/lib/libucx.so": {"wants": wants},
        "ucx/lib/libtorchy.so": {"wants": ["c10_old"], "needed": ["libc10.so"]},
    }
    assert unresolved_names(tmp_path, files, "venv/site/plain.so", "ucx/lib/libucx.so") == {
        "venv/site/plain.so": ["GOMP_parallel"],
        "ucx/lib/libucx.so": ["GOMP_parallel", "PyModule_Create2"],
    }
    found = linker(tmp_path, files)
    products = [path for path in files if found.product_on_torch(str(tmp_path / path))]
    assert products == ["ucx/lib/libtorchy.so"]


def test_a_plugin_uses_symbols_of_its_loader(tmp_path: Path) -> None:
    files = {
        "ucx/lib/libucs.so": {"has": ["ucs_log"]},
        "ucx/lib/ucx/libmodule.so": {"wants": ["ucs_log"]},
        "other/libmodule.so": {"wants": ["ucs_log"]},
        "venv/site/torch/lib/libtorch_nvshmem.so": {"wants": ["c10_old"]},
        **TORCH,
    }
    owners = {"venv/site/torch/lib/libtorch_nvshmem.so": "torch", "venv/site/torch/lib/libc10.so": "torch"}
    paths = [str(tmp_path / path) for path in files if path not in TORCH and path != "ucx/lib/libucs.so"]
    result = linker(tmp_path, files, owners).check(paths)
    assert list(result["not_found"]) == [str(tmp_path / "other/libmodule.so")]
    assert result["elsewhere"] == {
        str(tmp_path / "ucx/lib/ucx/libmodule.so"): 1,
        str(tmp_path / "venv/site/torch/lib/libtorch_nvshmem.so"): 1,
    }


def test_the_parts_of_a_package_may_come_from_several_distributions(tmp_path: Path) -> None:
    """transformer_engine loads the core, a distribution of its own, before the part for torch."""
    files = {
        "venv/site/engine/wheel_lib/part.so": {"wants": ["engine_permute", "gone"]},
        "venv/site/engine/libengine.so": {"has": ["engine_permute"]},
        "venv/site/single.so": {"wants": ["other_symbol"]},
        "venv/site/other.so": {"has": ["other_symbol"]},  # in no folder: another package
    }
    owners = {"venv/site/engine/wheel_lib/part.so": "engine-torch", "venv/site/engine/libengine.so": "engine-core"}
    paths = [str(tmp_path / path) for path in ("venv/site/engine/wheel_lib/part.so", "venv/site/single.so")]
    result = linker(tmp_path, files, owners).check(paths)
    assert {path.rpartition("/")[2]: item["names"] for path, item in result["not_found"].items()} == {
        "part.so": ["gone"],
        "single.so": ["other_symbol"],
    }
    assert result["elsewhere"] == {paths[0]: 1}


def test_functions_of_the_driver_are_counted_where_the_driver_is_needed(tmp_path: Path) -> None:
    files = {
        "ucx/a.so": {"needed": ["libcuda.so.1"], "wants": ["cuInit", "cudaMalloc", "nvmlInit_v2"]},
        "ucx/b.so": {"wants": ["cuInit"]},
    }
    result = linker(tmp_path, files).check(str(tmp_path / path) for path in files)
    assert result["driver"] == 1
    assert {path.rpartition("/")[2]: item["names"] for path, item in result["not_found"].items()} == {
        "a.so": ["cudaMalloc", "nvmlInit_v2"],
        "b.so": ["cuInit"],
    }


def test_a_file_with_a_missing_library_is_listed_as_skipped(tmp_path: Path) -> None:
    files = {"ucx/a.so": {"needed": ["libgone.so"], "wants": ["gone"]}}
    result = linker(tmp_path, files).check([str(tmp_path / "ucx/a.so")])
    assert (result["files"], result["skipped"]) == (0, [str(tmp_path / "ucx/a.so")])


def test_a_symbol_may_be_far_down_and_libraries_may_need_each_other(tmp_path: Path) -> None:
    files = {
        "ucx/a.so": {"needed": ["libb.so"], "wants": ["deep"], "runpath": "$ORIGIN"},
        "ucx/libb.so": {"needed": ["libc.so"], "runpath": "$ORIGIN", "soname": "libb.so"},
        "ucx/libc.so": {"needed": ["libb.so"], "runpath": "$ORIGIN", "soname": "libc.so", "has": ["deep"]},
    }
    assert unresolved_names(tmp_path, files, "ucx/a.so") == {}


def test_a_damaged_table_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    broken = bytearray(make_elf(has=["b"] * 3, soname="libb.so"))
    place = broken.find((0x6FFFFEF5).to_bytes(8, "little")) + 8
    broken[place : place + 8] = (1 << 40).to_bytes(8, "little")  # DT_GNU_HASH leads nowhere
    files = {
        "ucx/a.so": {"needed": ["libb.so"], "wants": ["b"], "runpath": "$ORIGIN"},
        "ucx/libb.so": {"bytes": bytes(broken)},
    }
    found = linker(tmp_path, files)
    assert found.check([str(tmp_path / "ucx/a.so")])["not_found"]
    assert list(found.damaged) == [str(tmp_path / "ucx/libb.so")]


def test_a_limit_of_open_files_is_no_damage(tmp_path: Path) -> None:
    names = [f"ucx/lib{number}.so" for number in range(40)]
    found = linker(tmp_path, {name: {"has": ["f"], "soname": name} for name in names})
    opened = len(list(Path("/proc/self/fd").iterdir()))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 10, hard))
    try:
        if sys.version_info >= (3, 13):  # a map has no descriptor
            assert all(found.symbols(str(tmp_path / name)) for name in names)
            resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
            found.opened.clear()
        with pytest.raises(OSError, match="Too many open files"):
            for name in names:
                found.symbols(str(tmp_path / name))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not found.damaged


def test_a_missing_symbol_version_is_reported(tmp_path: Path) -> None:
    (tmp_path / "new.map").write_text("V_1 { global: f; };\nV_2 { global: g; } V_1;\n")
    (tmp_path / "old.map").write_text("V_1 { global: f; g; };\n")
    code = "int f(void) { return 1; } int g(void) { return 2; }"
    compiled(tmp_path, "libv.so", code, "-Wl,--version-script=new.map")
    user = compiled(
        tmp_path, "libuser.so", "int f(void); int g(void); int h(void) { return f() + g(); }", "-L.", "-lv", "-nostdlib"
    )
    old = compiled(tmp_path, "libv.so", code, "-Wl,--version-script=old.map", "-nostdlib")
    files = {
        "usr/lib/libuser.so": {"bytes": user.read_bytes()},
        "usr/lib/libv.so": {"bytes": old.read_bytes()},
    }
    found = linker(tmp_path / "root", files)
    paths = [str(tmp_path / "root" / name) for name in files]
    library = f"{tmp_path}/root/usr/lib/libv.so"
    assert found.versions(paths)["not_found"] == {paths[0]: [f"V_2 of {library}"]}
    assert found.check(paths)["not_found"][paths[0]]["names"] == ["g@V_2"]
    seen = {
        "link": found.check([]),
        "versions": found.versions(paths),
        "python": [],
        "compiled": {},
        "elves": files,
        "prefixes": [],
    }
    failed = [item for item in link_results(seen, Expectations()) if item.status == Status.FAIL]
    assert [item.name for item in failed] == ["versions of symbols are there"]
    assert f"libuser.so requires V_2 of {library}" in failed[0].detail
    on_base = list(link_results(seen, Expectations(complete=False)))
    assert {item.status for item in on_base} == {Status.PASS}
    assert "of the base image, not judged" in on_base[1].detail
