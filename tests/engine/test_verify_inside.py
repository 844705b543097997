"""The program inside a real root: this machine's Python and C library in a folder, entered with chroot."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.verify.audit import audit
from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import Status
from envbuild.verify.run_inspector import OwnContent, Runner, inspect_image
from tests.support.binaries import make_elf, make_fatbin, make_property
from tests.support.tools import tool

pytestmark = pytest.mark.engine

SITE = "/opt/venv/lib/python3.13/site-packages"
OUTSIDE = ("test", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__", "tkinter", "ensurepip")


def libraries(path: str) -> set[str]:
    """Files that ldd names for an ELF file."""
    run = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    return set(re.findall(r"(?:=> |^\s)(/\S+)", run.stdout, re.MULTILINE))


def copy_in(root: Path, path: str) -> None:
    """Copy a file to its own path, with the targets of its links."""
    target = root / path.lstrip("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(os.path.realpath(path), target)


def runner_in(root: Path) -> Runner:
    chroot = [tool("chroot"), str(root)]
    enter = chroot if os.geteuid() == 0 else [tool("unshare"), "--map-root-user", *chroot]

    def run(argv: Sequence[str]) -> tuple[int, str]:
        done = subprocess.run(
            [*enter, *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": "/bin"},
            check=False,
        )
        return done.returncode, done.stdout

    return run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a root with an interpreter, /bin/sh, ldconfig's cache, and a venv of made-up wheels."""
    tool("ldd")
    root = tmp_path_factory.mktemp("root")
    executable = os.path.realpath(sys.executable)
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(
        library, root / str(library)[1:], ignore=shutil.ignore_patterns(*OUTSIDE, "config-*"), symlinks=True
    )
    modules = [str(path) for path in (library / "lib-dynload").glob("*.so")]
    for path in {executable, "/bin/sh"}.union(*map(libraries, [executable, "/bin/sh", *modules])):
        copy_in(root, path)
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/python3").symlink_to(executable)
    (root / "etc").mkdir()
    shutil.copytree("/etc/ld.so.conf.d", root / "etc/ld.so.conf.d")
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    subprocess.run([tool("ldconfig"), "-r", str(root)], check=True, capture_output=True)
    shutil.rmtree(root / "var/cache/ldconfig", ignore_errors=True)
    status = root / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text("Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.41-12\n")
    machine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
    wheel(
        root,
        "nvidia-nccl-cu13",
        {
            "nvidia/nccl/lib/libnccl.so.2": make_elf(
                soname="libnccl.so.2",
                machine=machine,
                needed=["libc.so.6"],
                sections={".nv_fatbin": make_fatbin([("sm", 80, ""), ("sm", 90, ""), ("compute", 120, "")])},
            ),
        },
    )
    wheel(
        root,
        "deepspeed",
        {
            "deepspeed/ops/adam/fused_adam_op.so": make_elf(
                machine=machine,
                needed=["libnccl.so.2", "libcuda.so.1"],
                sections={".nv_fatbin": make_fatbin([("sm", 90, "")])},
            ),
        },
    )
    yield root


def wheel(root: Path, name: str, files: dict[str, bytes]) -> None:
    """Install a distribution of these files into the venv."""
    site = root / SITE[1:]
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{path},sha256=x,1\n" for path in files))
    for path, data in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)


OWN = OwnContent(prefixes=("/opt/ucx",), folders=("/opt/ucx",), dists=("DeepSpeed",))
EXPECTED = Expectations(
    debian={"libc6": "2.41-12"},
    python={"nvidia-nccl-cu13": "1.0", "deepspeed": "1.0"},
    sm="90",
    modules=("deepspeed.ops.adam.fused_adam_op",),
)


def failures(seen: dict[str, Any]) -> dict[str, str]:
    return {result.name: result.detail for result in audit(seen, EXPECTED) if result.status == Status.FAIL}


def test_an_image_as_declared(root: Path) -> None:
    seen = inspect_image(runner_in(root), OWN)
    assert failures(seen) == {}
    assert list(seen["compiled"]) == [f"{SITE}/deepspeed/ops/adam/fused_adam_op.so"]
    assert seen["link"]["files"] == 2
    assert seen["versions"]["compared"] > 100  # of the interpreter and its libraries
    assert seen["cuda"] == {
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2": {"sm_80": 1, "sm_90": 1, "compute_120": 1},
        f"{SITE}/deepspeed/ops/adam/fused_adam_op.so": {"sm_90": 1},
    }
    adam = seen["elves"][f"{SITE}/deepspeed/ops/adam/fused_adam_op.so"]
    assert adam["preload"] == {"libnccl.so.2": f"{SITE}/nvidia/nccl/lib/libnccl.so.2"}
    assert (adam["missing"], adam["dist"]) == (["libcuda.so.1"], "deepspeed")
    assert seen["shell"]
    assert seen["cuobjdump"] is None


def test_inspection_changes_nothing_and_is_repeatable(root: Path) -> None:
    def state() -> list[tuple[str, int]]:
        return sorted((str(path), path.lstat().st_mtime_ns) for path in root.rglob("*"))

    before = state()
    first, second = inspect_image(runner_in(root)), inspect_image(runner_in(root))
    first.pop("cpu_seconds"), second.pop("cpu_seconds")
    assert first == second
    assert state() == before


def machine() -> int:
    return {"x86_64": 62, "aarch64": 183}[os.uname().machine]


@pytest.fixture
def planted(root: Path, tmp_path: Path) -> Path:
    """Return a copy with UCX in a prefix, the distribution's beside it, and a torch; nothing is wrong yet."""
    copied = tmp_path / "planted"
    shutil.copytree(root, copied, symlinks=True)
    ucp: dict[str, Any] = {"soname": "libucp.so.0", "machine": machine(), "needed": ["libc.so.6"]}
    put(copied, "/opt/ucx/lib/libucp.so.0", **ucp, has=["ucp_init_version"], wants=["printf"])
    put(copied, f"/usr/lib/{os.uname().machine}-linux-gnu/libucp.so.0", **ucp, has=["ucp_init_version"])
    put(copied, "/usr/bin/ucx_info", machine=machine(), needed=["libucp.so.0"], wants=["ucp_init_version"])
    torch = {"soname": "libc10.so", "machine": machine(), "has": ["_ZN3c105Error4whatEv"]}
    wheel(copied, "torch", {"torch/lib/libc10.so": make_elf(**torch)})
    (copied / "opt/venv/bin").mkdir()
    (copied / "opt/venv/bin/python").symlink_to("/usr/bin/python3")
    (copied / "etc/ld.so.conf.d/00-envbuild.conf").write_text("/opt/ucx/lib\n")
    cached(copied)
    return copied


def put(root: Path, path: str, **options: Any) -> None:
    (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    (root / path[1:]).write_bytes(make_elf(**options))


def cached(root: Path) -> None:
    subprocess.run([tool("ldconfig"), "-r", str(root)], check=True, capture_output=True)
    shutil.rmtree(root / "var/cache/ldconfig", ignore_errors=True)


def failed_checks(root: Path, **expected: Any) -> dict[str, str]:
    """Return name of each failed result → detail; packages that this file's other tests check are ignored."""
    results = audit(inspect_image(runner_in(root), OWN), replace(EXPECTED, python_more=True, **expected))
    return {item.name: item.detail for item in results if item.status == Status.FAIL}


def test_the_own_ucx_beside_the_distribution_s(planted: Path) -> None:
    assert failed_checks(planted) == {}
    seen = inspect_image(runner_in(planted), OWN)
    assert seen["singles"]["libucp"]["first"] == {"libucp.so.0": "/opt/ucx/lib/libucp.so.0"}
    assert seen["link"]["files"] == 4  # three of the venv, one of the prefix
    (planted / "etc/ld.so.conf.d/00-envbuild.conf").unlink()
    cached(planted)
    detail = failed_checks(planted)["at most 1 libucp"]
    debian = f"/usr/lib/{os.uname().machine}-linux-gnu/libucp.so.0"
    assert f"the loader takes {debian}, not /opt/ucx/lib/libucp.so.0" in detail
    assert f"/usr/bin/ucx_info gets {debian}" in detail


def test_a_kernel_for_another_torch(planted: Path) -> None:
    common: dict[str, Any] = {"machine": machine(), "needed": ["libc10.so"]}
    good, bad = f"{SITE}/good/_C.so", f"{SITE}/bad/_C.so"
    put(planted, good, **common, wants=["PyModule_Create2", "_ZN3c105Error4whatEv"])
    assert failed_checks(planted) == {}
    put(planted, bad, **common, wants=["_ZN3c105Error8gone_whyEv"])
    found = failed_checks(planted)
    assert list(found) == ["symbols are found"]
    assert f"{bad} requires c10::Error::gone_why (_ZN3c105Error8gone_whyEv)" in found["symbols are found"]
    assert "libc10.so of torch 1.0" in found["symbols are found"]
    assert good not in found["symbols are found"]


def test_stubs_on_a_path_of_the_loader(planted: Path) -> None:
    stubs, name = "/opt/cuda/lib64/stubs", "stub libraries are on no path of the loader"
    put(planted, f"{stubs}/libcuda.so", soname="libcuda.so.1", machine=machine())
    assert failed_checks(planted) == {}
    put(planted, "/opt/ucx/bin/x", machine=machine(), runpath=stubs)
    found = failed_checks(planted)
    assert list(found) == [name]
    assert f"/opt/ucx/bin/x searches {stubs}" in found[name]
    (planted / "etc/ld.so.conf.d/zz.conf").write_text(f"{stubs}\n")
    cached(planted)
    found = failed_checks(planted)
    assert f"{stubs} is in ld.so.cache" in found[name]
    assert "libcuda.so.1 is /opt/cuda/lib64/stubs/libcuda.so" in found["the driver is the host's"]


def test_code_for_the_cpu_that_built(planted: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("only code for x86-64 is scanned")
    name, library = "what was compiled here runs on x86-64-v2", "/opt/ucx/lib/libucs.so.0"
    wide, cpuid = b"\xc5\xfc\x11\x07\xc3", b"\x0f\xa2\xc3"  # vmovups %ymm0, (%rdi)
    put(planted, library, sections={".text": wide}, unwind=[0])
    put(planted, "/opt/other/lib/libx.so.0", sections={".text": wide}, unwind=[0])  # not compiled here
    found = failed_checks(planted, cpu="x86-64-v2")
    assert list(found) == [name]
    assert f"{library} has AVX or BMI2 (x86-64-v3)" in found[name]
    assert failed_checks(planted, cpu="x86-64-v3") == {}
    put(planted, library, sections={".text": wide + cpuid}, unwind=[0, 5])
    assert failed_checks(planted, cpu="x86-64-v2") == {}
    put(planted, library, needed=["libc.so.6"], sections={".text": wide}, wants=["getauxval"], unwind=[0])
    assert failed_checks(planted, cpu="x86-64-v2") == {}
    put(planted, "/usr/bin/new", note=make_property(0xC0008002, 4))
    found = failed_checks(planted, cpu="x86-64-v2")
    assert "/usr/bin/new requires x86-64-v3" in found["no file requires more than x86-64-v2"]


def test_cuda_code_of_a_prefix_without_a_line_of_its_own(planted: Path) -> None:
    section = {".nv_fatbin": make_fatbin([("sm", 80, ""), ("sm", 90, "")])}
    put(planted, "/opt/ucx/lib/ucc/libucc_tl_cuda.so", machine=machine(), sections=section)
    found = failed_checks(planted)
    name = "what was compiled here has CUDA code for sm_90 and nothing else"
    assert list(found) == [name]
    assert found[name].startswith("/opt/ucx/lib/ucc/libucc_tl_cuda.so contains sm_80, sm_90 (2 libraries")


def test_every_need_resolves_as_the_loader_itself_does(root: Path) -> None:
    """Compared with ``ld.so --list`` of the root for each of its programs and modules."""
    run = runner_in(root)
    elves = {path: elf for path, elf in inspect_image(run)["elves"].items() if not path.startswith(SITE)}
    interpreter = next(
        line for line in libraries(sys.executable) | libraries("/bin/sh") if re.search(r"/ld-[^/]*\.so", line)
    )
    compared = 0
    for path, elf in elves.items():
        if not elf.get("needed") or path == os.path.realpath(interpreter):
            continue
        code, output = run([interpreter, "--list", path])
        assert code == 0, output
        listed = dict(re.findall(r"(\S+) => (\S+)", output))
        for name, target in elf["needed"].items():
            place = listed.get(name)
            if place:  # the interpreter itself is listed without an arrow
                code, real = run(["/usr/bin/python3", "-I", "-c", f"import os; print(os.path.realpath({place!r}))"])
                assert (code, real.strip()) == (0, target)
                compared += 1
    assert compared > 10


def test_one_fault_of_each_kind(root: Path, tmp_path: Path) -> None:
    """One fault of each kind, planted in a copy."""
    bad = tmp_path / "bad"
    shutil.copytree(root, bad, symlinks=True)
    machine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
    wheel(
        bad,
        "nvidia-nccl-cu12",
        {
            "nvidia/other/libnccl.so.2": make_elf(soname="libnccl.so.2", machine=machine),
            "x/_C.abi3.so": make_elf(machine=machine, needed=["libcudart.so.12"]),
            "x/old.so": make_elf(machine=machine, sections={".nv_fatbin": make_fatbin([("sm", 75, "")])}),
            "x/torn.so": make_elf(machine=machine)[:100],
            "nvidia/nccl/lib/libnccl.so.2": (bad / SITE[1:] / "nvidia/nccl/lib/libnccl.so.2").read_bytes(),
        },
    )
    record = next(bad.glob(f"{SITE[1:]}/nvidia_nccl_cu12*/RECORD"))
    record.write_text(record.read_text().replace("lib/libnccl.so.2,sha256=x", "lib/libnccl.so.2,sha256=y"))
    cache = bad / SITE[1:] / "__pycache__"
    cache.mkdir()
    (bad / SITE[1:] / "a.py").write_text("x = 1\n")
    (cache / "a.cpython-313.pyc").write_bytes(bytes(16))
    for path in ("etc/ssh/ssh_host_rsa_key", "etc/passwd-", "var/log/dpkg.log", "usr/bin/raised"):
        (bad / path).parent.mkdir(parents=True, exist_ok=True)
        (bad / path).write_text("x")
    (bad / "usr/bin/raised").chmod(0o4755)
    (bad / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    (bad / "opt/open").mkdir()
    (bad / "opt/open").chmod(0o777)
    triplet = f"{os.uname().machine}-linux-gnu"
    (bad / "usr/lib" / triplet).mkdir(parents=True, exist_ok=True)
    (bad / "usr/lib" / triplet / "libcuda.so.1").write_bytes(make_elf(soname="libcuda.so.1", machine=machine))
    seen = inspect_image(runner_in(bad))
    found = failures(seen)
    assert "nvidia-nccl-cu12 1.0 was not declared" in found["Python packages are those of the lock"]
    assert f"{SITE}/nvidia/nccl/lib/libnccl.so.2" in found["no file belongs to two Python packages"]
    assert f"{SITE}/x/_C.abi3.so needs libcudart.so.12" in found["libraries are found"]
    assert f"{SITE}/x/torn.so" in found["files can be read"]
    assert "2 are there" in found["at most 1 libnccl"]
    assert f"libcuda.so.1 is /usr/lib/{triplet}/libcuda.so.1" in found["the driver is the host's"]
    assert f"{SITE}/x/old.so contains sm_75" in found["CUDA code for sm_90"]
    assert "a.cpython-313.pyc" in found["compiled Python files fit their sources"]
    assert "ssh_host_rsa_key" in found["no host keys of ssh"]
    assert found["nothing is left over"].startswith("/etc/machine-id; /etc/passwd-; /var/log/dpkg.log (")
    assert seen["setuid"] == ["/usr/bin/raised 4755"]
    assert "/opt/open 0777" in seen["open_folders"]


def test_two_names_of_one_file_are_one_and_two_copies_are_two(root: Path, tmp_path: Path) -> None:
    several = tmp_path / "several"
    shutil.copytree(root, several, symlinks=True)
    library = several / SITE[1:] / "nvidia/nccl/lib/libnccl.so.2"
    os.link(library, library.with_name("libnccl.so.2.30.7"))
    library.with_name("libnccl.so").symlink_to("libnccl.so.2")
    assert inspect_image(runner_in(several))["singles"]["libnccl"]["files"] == [f"{SITE}/nvidia/nccl/lib/libnccl.so.2"]
    shutil.copy(library, library.with_name("libnccl-0a1b2c3d.so.2.30.7"))  # as auditwheel names it
    assert len(inspect_image(runner_in(several))["singles"]["libnccl"]["files"]) == 2


def test_a_device_node_is_seen(root: Path, tmp_path: Path) -> None:
    seen = inspect_image(runner_in(root))
    if os.geteuid():
        pytest.skip("mknod needs root")
    node = root / "opt/null"
    os.mknod(node, 0o20666, os.makedev(1, 3))
    try:
        with_node = inspect_image(runner_in(root))
    finally:
        node.unlink()
    assert (seen["devices"], with_node["devices"]) == ([], ["/opt/null"])
    changed = copy.deepcopy(seen) | {"devices": with_node["devices"]}
    assert "no device nodes" in failures(changed)
