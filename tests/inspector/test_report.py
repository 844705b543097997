"""The report of an image about itself, of a small tree in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.inspector import elf, file_walk, packages, report
from envbuild.inspector.dynamic_loader import Loader
from envbuild.inspector.elf import Elf
from envbuild.inspector.file_walk import ImageFiles
from tests.support.binaries import make_cache, make_elf, make_fatbin

pytestmark = pytest.mark.unit

NATIVE = Elf(64, "x86_64", 3, "", "", (), (), (), True, {})


def tree(files: dict[str, dict[str, Any]]) -> tuple[ImageFiles, Loader]:
    """Return the walk over files that are only named, and their loader; /usr/lib is on its path."""
    found = ImageFiles()
    for number, (path, options) in enumerate(files.items()):
        found.elves[path] = elf.parse(make_elf(**options))
        found.inodes[path] = (1, number)
    return found, Loader(found.elves, {})


def test_copies_of_a_library_and_who_uses_which() -> None:
    found, loader = tree(
        {
            "/usr/lib/libnccl.so.2": {"soname": "libnccl.so.2"},
            "/opt/nccl/libnccl.so.2.30": {"soname": "libnccl.so.2"},
            "/opt/nccl/libnccl.so": {"soname": "libnccl.so.2"},
            "/opt/venv/nccl/libnccl-0a1b2c3d.so.2": {"soname": "libnccl-0a1b2c3d.so.2"},
            "/opt/x/renamed": {"soname": "libnccl.so.3"},
            "/usr/lib/libnccl-net.so": {"soname": "libnccl-net.so"},
            "/usr/lib/libnccl_static.so": {"soname": "libnccl_static.so"},
            "/opt/bin/libnccl.so.2": {"kind": 2},
            "/bin/a": {"needed": ["libnccl.so.2"]},
            "/bin/b": {"needed": ["libnccl.so.2", "libnccl-net.so"]},
        }
    )
    found.inodes["/opt/nccl/libnccl.so"] = found.inodes["/opt/nccl/libnccl.so.2.30"]
    assert report.describe_library("libnccl", found, loader, loader.resolve(), NATIVE) == {
        "files": [
            "/opt/nccl/libnccl.so",
            "/opt/venv/nccl/libnccl-0a1b2c3d.so.2",
            "/opt/x/renamed",
            "/usr/lib/libnccl.so.2",
        ],
        "first": {"libnccl-0a1b2c3d.so.2": "", "libnccl.so.2": "/usr/lib/libnccl.so.2", "libnccl.so.3": ""},
        "used": {"/usr/lib/libnccl.so.2": 2},
    }


def test_nvidias_own_program_reads_the_smaller_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "cuobjdump"
    monkeypatch.setattr(report, "CUOBJDUMP", (str(tmp_path / "none"), str(program)))
    found = ImageFiles()
    for number in range(report.COMPARED + 2):
        found.cuda[f"/{number:02}"], found.sizes[f"/{number:02}"] = {"sm_90": 1}, 100 + number
    found.cuda["/huge"], found.sizes["/huge"] = {"sm_90": 1}, report.LARGEST + 1
    found.cuda["/limit"], found.sizes["/limit"] = {"sm_90": 1}, report.LARGEST
    assert report.run_cuobjdump(found) is None
    program.write_text(
        "#!/bin/sh\n"
        '[ "$2" != /05 ] || exit 1\n'
        'case "$1" in --list-elf) echo "ELF file 1: x.1.sm_90a.cubin"; echo "ELF file 2: x.2.sm_100.cubin";;\n'
        '*) [ "$2" != --all-fatbin ] || echo "PTX file 2: x.2.sm_80.ptx"\n'
        'echo "PTX file 1: x.1.sm_120f.ptx";; esac\n'
    )
    program.chmod(0o755)
    result = report.run_cuobjdump(found)
    assert result == {
        path: {"code": ["compute_120f", "sm_100", "sm_90a"], "ptx": ["compute_120f", "compute_80"]}
        for path in [*(f"/{number:02}" for number in range(3, 14) if number != 5), "/limit"]
    }


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that the report takes for the root, with a C library, a venv and a product."""
    files = {
        "usr/lib/x86_64-linux-gnu/libc.so.6": make_elf(soname="libc.so.6", has=["puts"]),
        "lib64/ld-linux-x86-64.so.2": make_elf(),
        "usr/bin/python3": make_elf(kind=2, needed=["libc.so.6"], interpreter="/lib64/ld-linux-x86-64.so.2"),
        "usr/bin/odd": make_elf(kind=2, interpreter="/lib/ld-none.so", rpath="/opt/ucx/lib"),
        "opt/ucx/lib/libucp.so.0": make_elf(soname="libucp.so.0", needed=["libc.so.6", "libgone.so.1"]),
        "opt/venv/lib/x.so": make_elf(sections={".nv_fatbin": make_fatbin([("sm", 90, "")])}, wants=["puts", "lost"]),
        "opt/cuda/lib64/libcudart.so": make_elf(soname="libcudart.so.13"),
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    real, walk = open, file_walk.walk_image

    def inside(path: str, *more: Any, **named: Any) -> Any:
        return real(f"{tmp_path}{path}", *more, **named)

    def rooted() -> ImageFiles:
        found = walk(str(tmp_path), [str(tmp_path / "etc"), str(tmp_path / "var")])
        for name in ("elves", "cuda", "sizes", "inodes"):
            table = getattr(found, name)
            setattr(found, name, {path.removeprefix(str(tmp_path)): value for path, value in table.items()})
        return found

    monkeypatch.setattr(report, "open", inside, raising=False)
    monkeypatch.setattr("envbuild.inspector.link_check.open", inside, raising=False)
    monkeypatch.setattr("envbuild.inspector.machine_code.open", inside, raising=False)
    monkeypatch.setattr(file_walk, "walk_image", rooted)
    site = {"name": "x", "version": "1", "site": "/opt/venv/lib", "modules": [], "missing": []}
    monkeypatch.setattr(packages, "list_dists", lambda: ([site], {"/opt/venv/lib/x.so": "x"}))
    monkeypatch.setattr(packages, "find_clashes", list)
    monkeypatch.setattr(report, "CUOBJDUMP", ())
    monkeypatch.setattr(report.platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("LD_LIBRARY_PATH", ":/opt/ucx/lib:")
    return tmp_path


def test_files_are_described_without_empty_values(image: Path) -> None:
    found = report.make_document({})
    assert found["elves"]["/usr/bin/odd"] == {
        "class": 64,
        "machine": "x86_64",
        "rpath": ["/opt/ucx/lib"],
        "no_interpreter": "/lib/ld-none.so",
    }
    assert found["elves"]["/opt/ucx/lib/libucp.so.0"] == {
        "class": 64,
        "machine": "x86_64",
        "soname": "libucp.so.0",
        "needed": {"libc.so.6": "/usr/lib/x86_64-linux-gnu/libc.so.6"},
        "missing": ["libgone.so.1"],
    }
    assert found["elves"]["/opt/venv/lib/x.so"]["dist"] == "x"
    assert "no_interpreter" not in found["elves"]["/usr/bin/python3"]
    assert (found["files"], found["cuda"], found["cuobjdump"]) == (7, {"/opt/venv/lib/x.so": {"sm_90": 1}}, None)


def test_products_are_the_folders_of_opt_unless_they_are_named(image: Path) -> None:
    found = report.make_document({})
    assert found["prefixes"] == ["/opt/ucx"]
    assert found["link"]["skipped"] == ["/opt/ucx/lib/libucp.so.0"]
    assert list(found["link"]["not_found"]) == ["/opt/venv/lib/x.so"]
    named = report.make_document({"prefixes": [], "compiled": {"folders": ["/opt/cuda"], "dists": ["x"]}})
    assert (named["prefixes"], named["link"]["skipped"]) == ([], [])
    assert sorted(named["compiled"]) == ["/opt/cuda/lib64/libcudart.so", "/opt/venv/lib/x.so"]


def test_where_the_loader_searches(image: Path) -> None:
    found = report.make_document({"singles": ["libucp", "libnccl"]})
    assert found["search"] == {"environment": ["/opt/ucx/lib"], "cache": []}
    assert found["cache_error"].startswith("/etc/ld.so.cache: ") and found["cache_gone"] == []
    assert found["singles"]["libucp"]["first"] == {"libucp.so.0": "/opt/ucx/lib/libucp.so.0"}
    assert found["singles"]["libnccl"] == {"files": [], "first": {}, "used": {}}
    assert found["driver"] == {"libcuda.so.1": "", "libnvidia-ml.so.1": ""}
    (image / "etc").mkdir()
    entries = [("libcudart.so.13", "/opt/cuda/lib64/libcudart.so", False), ("libq.so", "/usr/gone/libq.so", False)]
    (image / "etc/ld.so.cache").write_bytes(make_cache(entries))
    found = report.make_document({})
    assert found["search"]["cache"] == ["/opt/cuda/lib64", "/usr/gone"]
    assert (found["cache_error"], found["cache_gone"]) == ("", ["/usr/gone/libq.so"])


def test_an_image_without_dpkg_has_no_debian_packages(image: Path) -> None:
    found = report.make_document({})
    assert (found["debian"], found["debian_broken"]) == ({}, [])
    (image / "var/lib/dpkg").mkdir(parents=True)
    (image / "var/lib/dpkg/status").write_text("Package: a\nStatus: install ok installed\nVersion: 1\n")
    assert report.make_document({})["debian"] == {"a": "1"}


def test_a_machine_id_is_a_leftover_if_it_names_a_machine(image: Path) -> None:
    (image / "etc").mkdir()
    for text, left in ((None, []), ("", []), ("uninitialized\n", []), ("0123abcd\n", ["/etc/machine-id"])):
        if text is not None:
            (image / "etc/machine-id").write_text(text)
        found = report.make_document({})["leftovers"]  # the folder of the test may be one below /tmp
        assert [path for path in found if path == "/etc/machine-id"] == left


def test_the_report_is_one_line_after_its_mark(
    image: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH")
    report.main({"cuobjdump": False})
    _, line, *rest = capsys.readouterr().out.split("\n")
    assert line.startswith(report.MARK) and rest == [""]
    found = json.loads(line.removeprefix(report.MARK))
    assert (found["schema"], found["search"]["environment"], found["machine"]) == (1, [], "x86_64")
