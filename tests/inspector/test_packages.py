"""dpkg's status, dist-info folders, compiled Python files."""

from __future__ import annotations

import os
import py_compile
from pathlib import Path

import pytest

from envbuild.inspector import packages, pyc
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit

STATUS = """\
Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.22.21
Description: Debian package management system
 Version: 9.9 in a description is no field

Package: libc6
Status: install ok installed
Architecture: i386
Version: 2.41-12

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12+deb13u1

Package: tzdata
Status: install ok installed
Architecture: all
Version: 2025b-4

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: half
Status: install ok half-configured
Architecture: amd64
Version: 2

Package: torn
Status: install reinstreq installed
Architecture: amd64
Version: 3
"""


def test_dpkg_status() -> None:
    versions, broken = packages.parse_dpkg_status(STATUS)
    assert versions == {
        "dpkg": "1.22.21",
        "libc6": "2.41-12+deb13u1",
        "libc6:i386": "2.41-12",
        "tzdata": "2025b-4",
        "torn": "3",
    }
    assert broken == ["half (half-configured)", "torn"]


def dist(site: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Write a distribution whose RECORD lists `files` (path → digest)."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nName: not this\n")
    (info / "RECORD").write_text("".join(f"{path},{digest},\n" for path, digest in files.items()))


def test_dists_modules_owners_and_missing_files(tmp_path: Path) -> None:
    files = {
        "apex/__init__.py": "sha256=a",
        "apex_C.cpython-313-x86_64-linux-gnu.so": "sha256=b",
        "deepspeed/ops/adam/fused_adam_op.so": "sha256=c",
        "numpy/_core/_umath.abi3.so": "sha256=d",
        "torch/lib/libtorch.so": "sha256=e",
        "../../../bin/ds_report": "sha256=f",
        "apex/__pycache__/__init__.cpython-313.pyc": "",
    }
    site = tmp_path / "lib/python3.13/site-packages"
    dist(site, "many-things", "1.0", files)
    for name in files:
        if "umath" not in name and not name.endswith(".pyc"):
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).touch()
    found, owners = packages.list_dists([f"{tmp_path}/lib/python*/site-packages"])
    assert found == [
        {
            "name": "many-things",
            "version": "1.0",
            "site": str(site),
            "modules": ["apex_C", "deepspeed.ops.adam.fused_adam_op", "numpy._core._umath"],
            "missing": ["numpy/_core/_umath.abi3.so"],
        }
    ]
    assert owners[str(tmp_path / "bin/ds_report")] == "many-things"


@pytest.mark.parametrize("content", [b'"' + b"x" * 200_000, b"\xff,\n"], ids=len)
def test_a_record_that_cannot_be_read_is_missing(content: bytes, tmp_path: Path) -> None:
    dist(tmp_path, "odd", "1.0", {})
    (tmp_path / "odd-1.0.dist-info/RECORD").write_bytes(content)
    (found,), _ = packages.list_dists([str(tmp_path)])
    assert found["version"] == "1.0" and len(found["missing"]) == 1  # type: ignore[arg-type]
    assert packages.find_clashes([str(tmp_path)]) == []


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    dist(tmp_path, "odd", "1.0", {})
    for name in ("RECORD", "METADATA"):
        (tmp_path / "odd-1.0.dist-info" / name).unlink()
        os.mkfifo(tmp_path / "odd-1.0.dist-info" / name)
    with ends_within(30):
        (found,), _ = packages.list_dists([str(tmp_path)])
    assert (found["name"], found["version"]) == ("odd", "")


def test_two_packages_that_write_one_file(tmp_path: Path) -> None:
    """nvidia-nccl-cu12 and -cu13 do; an equal licence in both is not a conflict."""
    library = "nvidia/nccl/lib/libnccl.so.2"
    dist(tmp_path, "nvidia-nccl-cu12", "2.27", {library: "sha256=a", "nvidia/License.txt": "sha256=l"})
    dist(tmp_path, "nvidia-nccl-cu13", "2.30", {library: "sha256=b", "nvidia/License.txt": "sha256=l"})
    assert packages.find_clashes([str(tmp_path)]) == [
        {"path": f"{tmp_path}/{library}", "dists": ["nvidia_nccl_cu12-2.27", "nvidia_nccl_cu13-2.30"]}
    ]


def compiled(path: Path, mode: py_compile.PycInvalidationMode) -> str:
    path.write_text("x = 1\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return py_compile.compile(str(path), invalidation_mode=mode, doraise=True)


def test_compiled_files_against_their_sources(tmp_path: Path) -> None:
    by_time, by_hash = py_compile.PycInvalidationMode.TIMESTAMP, py_compile.PycInvalidationMode.UNCHECKED_HASH
    fresh = compiled(tmp_path / "fresh.py", by_time)
    touched = compiled(tmp_path / "touched.py", by_time)
    os.utime(tmp_path / "touched.py", (1_600_000_000, 1_600_000_000))
    grown = compiled(tmp_path / "grown.py", by_time)
    (tmp_path / "grown.py").write_text("x = 1000\n")
    os.utime(tmp_path / "grown.py", (1_700_000_000, 1_700_000_000))
    hashed = compiled(tmp_path / "hashed.py", by_hash)
    os.utime(tmp_path / "hashed.py", (1, 1))
    orphan = compiled(tmp_path / "orphan.py", by_time)
    (tmp_path / "orphan.py").unlink()
    short = tmp_path / "short.pyc"
    short.write_bytes(b"\0" * 15)
    assert pyc.check([fresh, touched, grown, hashed, orphan, str(short)]) == {
        "hash": 1,
        "timestamp": 3,
        "orphan": 1,
        "stale": [touched, grown],
        "damaged": [str(short)],
    }


def test_source_of_a_compiled_file() -> None:
    assert pyc.source_path("/a/__pycache__/b.cpython-313.opt-1.pyc") == "/a/b.py"
    assert pyc.source_path("/a/b.pyc") == "/a/b.py"
