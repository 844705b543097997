"""Expectations against the report of an image: each difference is reported, and nothing passes without comparison."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from envbuild.verify.audit import audit
from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import AuditResult, Status

pytestmark = pytest.mark.unit
SITE = "/opt/venv/lib/python3.13/site-packages"
ADAM = f"{SITE}/deepspeed/ops/adam/fused_adam_op.so"
NCCL = f"{SITE}/nvidia/nccl/lib/libnccl.so.2"
SEEN: dict[str, Any] = {
    "prefixes": ["/opt/ucx"],
    "debian": {"libc6": "2.41-12", "python3": "3.13.5-1"},
    "debian_broken": [],
    "python": [
        {
            "name": "deepspeed",
            "version": "0.19.8",
            "site": SITE,
            "modules": ["deepspeed.ops.adam.fused_adam_op"],
            "missing": [],
        },
        {"name": "nvidia-nccl-cu13", "version": "2.30.7", "site": SITE, "modules": [], "missing": []},
        {"name": "typing_extensions", "version": "4.16.0", "site": SITE, "modules": [], "missing": []},
    ],
    "clashes": [],
    "elves": {
        "/usr/bin/python3.13": {"class": 64, "machine": "x86_64", "needed": {"libc.so.6": "/usr/lib/libc.so.6"}},
        ADAM: {
            "class": 64,
            "machine": "x86_64",
            "dist": "deepspeed",
            "preload": {"libnccl.so.2": NCCL},
            "missing": ["libcuda.so.1"],
        },
        NCCL: {"class": 64, "machine": "x86_64", "dist": "nvidia-nccl-cu13"},
    },
    "cache_error": "",
    "cache_gone": [],
    "singles": {"libnccl": {"files": [NCCL], "first": {"libnccl.so.2": ""}, "used": {NCCL: 1}}},
    "search": {"environment": [], "cache": ["/lib/x86_64-linux-gnu", "/opt/ucx/lib"]},
    "link": {"files": 2, "symbols": 40, "not_found": {}, "elsewhere": {}, "driver": 1, "skipped": []},
    "versions": {"compared": 12, "not_found": {}},
    "levels": {"/usr/bin/python3.13": "x86-64"},
    "compiled": {ADAM: {}},
    "driver": {"libcuda.so.1": "", "libnvidia-ml.so.1": ""},
    "cuda": {ADAM: {"sm_90": 1}, NCCL: {"sm_80": 28, "sm_90": 28, "compute_120": 27}},
    "cuobjdump": {ADAM: {"code": ["sm_90"], "ptx": []}},
    "pyc": {"hash": 0, "timestamp": 900, "orphan": 0, "stale": [], "damaged": []},
    "damaged": {},
    "setuid": ["/usr/bin/su 4755"],
    "devices": [],
    "open_folders": ["/tmp 1777"],
    "host_keys": [],
    "leftovers": [],
    "shell": True,
    "files": 3,
}
DECLARED = Expectations(
    debian=SEEN["debian"],
    python={"nvidia-nccl-cu13": "2.30.7", "typing-extensions": "4.16"},
    python_also=("deepspeed",),
    sm="90",
    cpu="x86-64-v3",
    modules=("deepspeed.ops.adam.fused_adam_op",),
)


def failures(seen: dict[str, Any], expected: Expectations = DECLARED) -> dict[str, str]:
    return {result.name: result.detail for result in audit(seen, expected) if result.status == Status.FAIL}


def changed_report(*path: object, to: object) -> dict[str, Any]:
    """SEEN with one value, at `path`, replaced or added."""
    seen = copy.deepcopy(SEEN)
    place: Any = seen
    for key in path[:-1]:
        place = place[key]
    if path[-1] == "+":
        place.append(to)
    else:
        place[path[-1]] = to
    return seen


def test_an_image_as_declared_passes_everything() -> None:
    results = audit(SEEN, DECLARED)
    assert {result.status for result in results} == {Status.PASS}
    assert len(results) == len({result.name for result in results})
    assert all(result.detail for result in results)


@pytest.mark.parametrize(
    ("seen", "name", "detail"),
    [
        (
            changed_report("debian", "libc6", to="2.41-13"),
            "Debian packages are those of the lock",
            "libc6 is 2.41-13, declared 2.41-12",
        ),
        (changed_report("debian", "sudo", to="1"), "Debian packages are those of the lock", "sudo 1 was not declared"),
        (
            changed_report("debian_broken", to=["dbus (half-configured)"]),
            "Debian packages are configured",
            "dbus (half-configured)",
        ),
        (
            changed_report("python", 1, "version", to="2.27.3"),
            "Python packages are those of the lock",
            "nvidia-nccl-cu13 is 2.27.3, declared 2.30.7",
        ),
        (
            changed_report("python", 0, "name", to="apex"),
            "Python packages are those of the lock",
            "deepspeed is not installed",
        ),
        (
            changed_report("python", "+", to=SEEN["python"][1]),
            "Python packages are those of the lock",
            "nvidia-nccl-cu13 is installed 2 times",
        ),
        (
            changed_report("python", 1, "missing", to=["a.so"]),
            "Python packages are whole",
            "nvidia-nccl-cu13: a.so missing",
        ),
        (
            changed_report("clashes", to=[{"path": NCCL, "dists": ["a", "b"]}]),
            "no file belongs to two Python packages",
            f"{NCCL}: a and b",
        ),
        (
            changed_report("elves", "/opt/ucx/lib/libuct_cuda.so", to={"missing": ["libcudart.so.12"]}),
            "libraries are found",
            "libuct_cuda.so needs libcudart.so.12",
        ),
        (
            changed_report("elves", ADAM, "missing", to=["libcuda.so.1", "libnvidia-ml.so.1", "libgone.so"]),
            "libraries are found",
            f"{ADAM} needs libgone.so",
        ),
        (
            changed_report("elves", NCCL, "missing", to=["libgone.so"]),
            "libraries are found",
            f"{NCCL} needs libgone.so",
        ),
        (
            changed_report("elves", "/bin/x", to={"no_interpreter": "/lib/ld-musl-x86_64.so.1"}),
            "libraries are found",
            "ld-musl",
        ),
        (changed_report("cache_error", to="/etc/ld.so.cache: missing"), "the loader's cache fits", "missing"),
        (changed_report("cache_gone", to=["/usr/lib/liba.so"]), "the loader's cache fits", "/usr/lib/liba.so is gone"),
        (changed_report("damaged", "/opt/a.so", to="cut short"), "files can be read", "/opt/a.so: cut short"),
        (
            changed_report("singles", "libnccl", "files", to=[NCCL, "/usr/lib/libnccl.so.2.27"]),
            "at most 1 libnccl",
            "2 are there",
        ),
        (
            changed_report("driver", "libcuda.so.1", to="/opt/stubs/libcuda.so.1"),
            "the driver is the host's",
            "libcuda.so.1 is /opt/stubs",
        ),
        (
            changed_report("elves", ADAM, "needed", to={"libcuda.so.1": "/opt/stubs/libcuda.so.1"}),
            "the driver is the host's",
            "takes libcuda.so.1 from",
        ),
        (
            changed_report("cuda", ADAM, to={"sm_70": 1, "sm_80": 1}),
            "CUDA code for sm_90",
            f"{ADAM} contains sm_70, sm_80",
        ),
        (
            changed_report("cuda", ADAM, to={"sm_80": 1, "sm_90": 1}),
            "what was compiled here has CUDA code for sm_90 and nothing else",
            f"{ADAM} contains sm_80, sm_90",
        ),
        (
            changed_report("cuda", ADAM, to={"compute_90": 1}),
            "what was compiled here has CUDA code for sm_90 and nothing else",
            f"{ADAM} contains compute_90",
        ),
        (
            changed_report("link", "not_found", to={ADAM: {"names": ["_ZN3c105ErrorC1Ev"], "count": 9, "torch": []}}),
            "symbols are found",
            f"{ADAM} requires c10::Error::Error (_ZN3c105ErrorC1Ev) and 8 more",
        ),
        (
            changed_report("versions", "not_found", to={ADAM: ["GLIBC_2.99 of /usr/lib/libc.so.6"]}),
            "versions of symbols are there",
            f"{ADAM} requires GLIBC_2.99 of /usr/lib/libc.so.6",
        ),
        (
            changed_report("levels", ADAM, to="x86-64-v4"),
            "no file requires more than x86-64-v3",
            f"{ADAM} requires x86-64-v4",
        ),
        (
            changed_report("compiled", ADAM, to={"x86-64-v4": 16}),
            "what was compiled here runs on x86-64-v3",
            f"{ADAM} has AVX-512",
        ),
        (
            changed_report("search", "cache", to=["/opt/cuda/lib64/stubs"]),
            "stub libraries are on no path of the loader",
            "/opt/cuda/lib64/stubs is in ld.so.cache",
        ),
        (
            changed_report("search", "environment", to=["/opt/cuda/lib64/stubs/driver"]),
            "stub libraries are on no path of the loader",
            "/opt/cuda/lib64/stubs/driver is in LD_LIBRARY_PATH",
        ),
        (
            changed_report("elves", ADAM, "rpath", to=["/opt/cuda/lib64/stubs"]),
            "stub libraries are on no path of the loader",
            f"{ADAM} searches /opt/cuda/lib64/stubs",
        ),
        (
            changed_report("elves", NCCL, "runpath", to=["$ORIGIN/../stubs/"]),
            "stub libraries are on no path of the loader",
            f"{NCCL} searches $ORIGIN/../stubs/",
        ),
        (
            changed_report("cuobjdump", to={ADAM: {"code": ["sm_80"], "ptx": ["compute_90"]}}),
            "cuobjdump agrees",
            "it reports sm_80, the headers contain sm_90",
        ),
        (
            changed_report("cuda", ADAM, to={"sm_90": 1, "compute_90": 2}),
            "cuobjdump agrees",
            "it reports sm_90, the headers contain compute_90; sm_90",
        ),
        (changed_report("python", 0, "modules", to=[]), "extension modules", "fused_adam_op is not there"),
        (changed_report("pyc", "stale", to=["/usr/a.pyc"]), "compiled Python files fit their sources", "/usr/a.pyc"),
        (changed_report("shell", to=False), "/bin/sh is there", "no executable"),
        (changed_report("host_keys", to=["/etc/ssh/ssh_host_rsa_key"]), "no host keys of ssh", "ssh_host_rsa_key"),
        (changed_report("devices", to=["/opt/null"]), "no device nodes", "/opt/null"),
        (changed_report("leftovers", to=["/etc/passwd-"]), "nothing is left over", "/etc/passwd-"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_each_difference_is_reported(seen: dict[str, Any], name: str, detail: str) -> None:
    found = failures(seen)
    assert detail in found[name]


@pytest.mark.parametrize("code", [["sm_90"], ["sm_90", "compute_90"]])
def test_cuobjdump_lists_the_ptx_of_objects_with_another_option(code: list[str]) -> None:
    seen = changed_report("cuda", ADAM, to={"sm_90": 1, "compute_90": 2})
    seen["cuobjdump"] = {ADAM: {"code": code, "ptx": ["compute_120", "compute_90"]}}
    (result,) = (row for row in audit(seen, DECLARED) if row.name == "cuobjdump agrees")
    assert result.status is Status.PASS


def test_packages_of_a_base_image_are_accepted() -> None:
    seen = changed_report("debian", "sudo", to="1")
    expected = Expectations(debian=SEEN["debian"], python={"nvidia-nccl-cu13": "2.30.7"}, complete=False)
    assert failures(seen, expected) == {}


def test_undeclared_contents_have_no_result() -> None:
    names = {result.name for result in audit(SEEN, Expectations(complete=False))}
    words = ("lock", "sm_", "extension", "x86-64", "compiled here")
    assert not [name for name in names if any(word in name for word in words)]
    assert "at most 1 libucc" not in names  # it was not counted in the image


def test_contents_of_a_base_image_are_named_and_not_counted() -> None:
    theirs = "/usr/local/lib/python3.12/dist-packages/x/_C.so"
    seen = copy.deepcopy(SEEN)
    seen["cuda"][theirs] = {"sm_70": 1}
    seen["elves"][theirs] = {"missing": ["libgone.so"], "rpath": ["/usr/local/cuda/lib64/stubs"]}
    seen["leftovers"] = ["/var/log/apt.log"]
    details = {item.name: item.detail for item in audit(seen, replace(DECLARED, complete=False))}
    assert failures(seen, replace(DECLARED, complete=False)) == {}
    for name in (
        "libraries are found",
        "stub libraries are on no path of the loader",
        "CUDA code for sm_90",
        "nothing is left over",
    ):
        assert "of the base image, not judged" in details[name]
        assert name in failures(seen)  # made from packages it does count
    seen["cuda"]["/usr/local/lib/python3.12/dist-packages/torch/lib/libtorch_cuda.so"] = {"sm_70": 1}
    assert "libtorch_cuda.so contains sm_70" in failures(seen, replace(DECLARED, complete=False))["CUDA code for sm_90"]
    seen["shell"] = False
    assert "/bin/sh is there" in failures(seen, replace(DECLARED, complete=False))


def test_the_venv_precedes_the_packages_of_a_base_image() -> None:
    seen = copy.deepcopy(SEEN)
    theirs = {**SEEN["python"][1], "version": "2.20", "site": "/usr/local/lib/python3.13/dist-packages"}
    for order in ([*seen["python"], theirs], [theirs, *seen["python"]]):
        assert failures({**seen, "python": order}, replace(DECLARED, complete=False)) == {}


def test_undeclared_wheels() -> None:
    seen = copy.deepcopy(SEEN)
    seen["python"].append({**SEEN["python"][1], "name": "apex", "version": "0.1"})
    assert "apex 0.1 was not declared" in failures(seen)["Python packages are those of the lock"]
    assert failures(seen, replace(DECLARED, python_more=True)) == {}
    assert failures(seen, replace(DECLARED, python_also=("deepspeed", "apex"))) == {}


def test_libraries_found_by_a_products_own_scripts() -> None:
    seen = copy.deepcopy(SEEN)
    seen["elves"]["/opt/tool/bin/nsys"] = {"missing": ["libQt6Core.so.6"]}
    assert "/opt/tool/bin/nsys needs libQt6Core.so.6" in failures(seen)["libraries are found"]
    seen["elves"]["/opt/tool/Qt/libQt6Core.so.6"] = {}
    result = next(item for item in audit(seen, DECLARED) if item.name == "libraries are found")
    assert result.status == Status.PASS
    assert "by their product's own scripts alone: /opt/tool/bin/nsys" in result.detail


def test_an_unused_plugin_of_a_wheel_is_named_and_not_a_failure() -> None:
    plugin = f"{SITE}/nvidia/nvshmem/lib/nvshmem_transport_ucx.so.6"
    seen = changed_report("elves", plugin, to={"missing": ["libucp.so.0"]})
    result = next(item for item in audit(seen, DECLARED) if item.name == "libraries are found")
    assert result.status == Status.PASS
    assert f"{plugin} (no libucp.so.0)" in result.detail
    needed = copy.deepcopy(seen)
    needed["elves"][NCCL]["needed"] = {"nvshmem_transport_ucx.so.6": plugin}  # a module → NCCL → the plugin
    assert plugin in failures(needed)["libraries are found"]


def test_a_plugin_of_a_wheel_with_missing_symbols() -> None:
    plugin, name = f"{SITE}/tool/lib/libplugin.so", "symbols are found"
    seen = copy.deepcopy(SEEN)
    symbols = {"names": ["gone"], "count": 1, "torch": []}
    seen["link"]["not_found"] = {plugin: symbols}
    seen["elves"][plugin] = {"dist": "tool"}
    result = next(item for item in audit(seen, DECLARED) if item.name == name)
    assert result.status == Status.PASS
    assert f"optional plugins that cannot be used: {plugin}" in result.detail
    by_module = copy.deepcopy(seen)
    by_module["elves"][ADAM]["needed"] = {"libplugin.so": plugin}
    assert f"{plugin} requires gone" in failures(by_module)[name]
    compiled = copy.deepcopy(seen)
    compiled["compiled"][plugin] = {}
    assert f"{plugin} requires gone" in failures(compiled)[name]
    for_torch = copy.deepcopy(seen)
    for_torch["link"]["not_found"] = {plugin: {**symbols, "torch": ["libc10.so"]}}
    assert f"{plugin} requires gone" in failures(for_torch)[name]
    for_torch["elves"][plugin]["dist"] = "torch"
    assert name not in failures(for_torch)


def test_exempt_and_ptx_only_libraries_are_named() -> None:
    seen = copy.deepcopy(SEEN)
    seen["cuda"] |= {"/v/libcufft.so.12": {"sm_75": 1}, "/v/old.so": {"compute_70": 1}}
    result = next(item for item in audit(seen, DECLARED) if item.name == "CUDA code for sm_90")
    assert result.status == Status.PASS
    assert "exempt: /v/libcufft.so.12" in result.detail
    assert "PTX only, compiled at the first start: /v/old.so" in result.detail


def test_a_library_for_newer_gpus_alone_is_exempt_by_its_name() -> None:
    """torchao's kernels of MX-FP8 contain code for Blackwell; its Python code loads them on no H100."""
    seen = copy.deepcopy(SEEN)
    library = "/opt/venv/lib/python3.13/site-packages/torchao/_C_mxfp8.cpython-310-x86_64-linux-gnu.so"
    seen["cuda"] |= {library: {"sm_100": 2, "compute_120": 1}}
    result = next(item for item in audit(seen, DECLARED) if item.name == "CUDA code for sm_90")
    assert result.status == Status.PASS and f"exempt: {library}" in result.detail
    seen["cuda"] |= {library.replace("_C_mxfp8", "_C"): {"sm_100": 2}}
    assert next(item for item in audit(seen, DECLARED) if item.name == "CUDA code for sm_90").status == Status.FAIL


def test_long_lists_are_truncated_and_counted() -> None:
    result = AuditResult("x", Status.FAIL)
    assert result.tier == "audit"
    seen = changed_report("leftovers", to=[f"/etc/{number:02}-" for number in range(20)])
    detail = failures(seen)["nothing is left over"]
    assert "/etc/11-; and 8 more" in detail


@pytest.mark.parametrize("report", [{}, {"python": 5, "debian": [], "files": {"a": 1}}, dict.fromkeys(SEEN, None)])
def test_a_report_of_another_form_fails(report: dict[str, Any]) -> None:
    """A program of the image prints it."""
    assert any(result.status == Status.FAIL for result in audit(report, DECLARED))
