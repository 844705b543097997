"""One library of each kind: which files count, which one wins, and what a second one may be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.single_copy import single_results
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit

SITE = "/opt/venv/lib/python3.13/site-packages"
DEBIAN = "/usr/lib/x86_64-linux-gnu/libucp.so.0.0.0"
OWN = "/opt/ucx/lib/libucp.so.0.0.0"
HPCX, DEBUG = "/opt/hpcx/ucx/lib/libucp.so.0", "/opt/hpcx/ucx/debug/lib/libucp.so.0"


def result(
    library: str, files: list[str], taken: str = "", users: dict[str, str] | None = None, **more: Any
) -> AuditResult:
    """Return the result for one library; `users`: path → the file of the library that it gets."""
    elves: dict[str, Any] = {path: {"soname": f"{library}.so.0"} for path in files}
    elves |= {path: {"needed": {f"{library}.so.0": target}} for path, target in (users or {}).items()}
    elves |= {path: {"soname": soname} for path, soname in more.pop("sonames", {}).items()}
    used = dict(Counter((users or {}).values()))
    single = {"files": files, "first": {f"{library}.so.0": taken}, "used": used}
    expected = Expectations(singles={library: 1}, **more)
    return next(iter(single_results({"elves": elves, "singles": {library: single}}, expected)))


def test_the_own_one_shadows_the_distributions() -> None:
    found = result("libucp", [OWN, DEBIAN], OWN, {"/usr/lib/libmpi.so.40": OWN})
    assert found.status == Status.PASS
    assert f"shadowed: {DEBIAN}" in found.detail
    assert f"on the loader's path: {OWN}" in found.detail


def test_the_distributions_one_must_not_win() -> None:
    found = result("libucp", [OWN, DEBIAN], DEBIAN, {"/usr/lib/libmpi.so.40": DEBIAN})
    assert found.status == Status.FAIL
    assert f"the loader takes {DEBIAN}, not {OWN}" in found.detail
    assert f"/usr/lib/libmpi.so.40 gets {DEBIAN}, not {OWN}" in found.detail
    assert "shadowed" not in found.detail and "libraries=" in found.hint


def test_one_user_of_the_distributions_one_is_enough() -> None:
    found = result("libucp", [OWN, DEBIAN], OWN, {"/usr/lib/libmpi.so.40": OWN, "/opt/x/lib/libx.so": DEBIAN})
    assert found.status == Status.FAIL
    assert f"/opt/x/lib/libx.so gets {DEBIAN}" in found.detail


@pytest.mark.parametrize("taken", [DEBIAN, ""])
def test_a_file_that_a_hostile_image_lists_often_counts_once(taken: str) -> None:
    """9,000 times, with as many users, they were 81 million faults."""
    users = {f"/usr/lib/user{number}.so": DEBIAN for number in range(9000)}
    with ends_within(60):
        found = result("libucp", [OWN, *[DEBIAN] * 9000], taken, users)
    assert found.status == Status.FAIL and f"and {9000 + bool(taken) - 12} more" in found.detail


def test_an_own_one_that_the_loader_does_not_find() -> None:
    assert result("libucp", [OWN, DEBIAN], DEBIAN).status == Status.FAIL


@pytest.mark.parametrize("library", ["libnccl", "libibverbs", "libfabric", "libmpi"])
def test_a_second_copy_fails_whichever_is_loaded(library: str) -> None:
    own, debian = f"/opt/own/lib/{library}.so.0", f"/usr/lib/{library}.so.0"
    found = result(library, [own, debian], own)
    assert found.status == Status.FAIL
    assert f"2 are there: {own}, {debian}" in found.detail


def test_a_copy_in_a_wheel_counts_even_when_nothing_uses_it() -> None:
    copies = [f"{SITE}/nvidia/nccl/lib/libnccl.so.2", f"{SITE}/x/libnccl-0a1b2c3d.so.2"]
    assert result("libnccl", copies).status == Status.FAIL
    assert result("libucp", [f"{SITE}/x/libucp.so.0", DEBIAN], DEBIAN).status == Status.FAIL


def test_variants_inside_one_product() -> None:
    inside = {"/opt/hpcx/ucx/debug/bin/ucx_info": DEBUG, "/opt/hpcx/ompi/lib/libmpi.so": HPCX}
    found = result("libucp", [DEBUG, HPCX], HPCX, inside)
    assert found.status == Status.PASS
    assert f"not counted: {DEBUG}" in found.detail
    assert result("libucp", [DEBUG, HPCX], HPCX, {**inside, "/usr/bin/x": DEBUG}).status == Status.FAIL


def test_a_base_image_may_have_an_unused_copy() -> None:
    theirs, own = "/usr/lib/libnccl.so.2.28", "/opt/msccl/lib/libnccl.so.2.23"
    assert result("libnccl", [own, theirs], own, complete=False).status == Status.PASS
    assert result("libnccl", [own, theirs], own).status == Status.FAIL
    by_own = {"/opt/own/lib/libx.so": theirs}
    assert result("libnccl", [own, theirs], own, by_own, complete=False).status == Status.FAIL


def test_the_cuda_runtime_of_a_toolkit_and_of_torch() -> None:
    wheel, toolkit = f"{SITE}/torch/lib/libcudart-1b2c3d4e.so.12", "/opt/cuda/lib64/libcudart.so.12.4"
    names = {wheel: "libcudart-1b2c3d4e.so.12", toolkit: "libcudart.so.12"}
    assert result("libcudart", [wheel, toolkit], toolkit, sonames=names).status == Status.PASS
    names[wheel] = "libcudart.so.13"
    assert result("libcudart", [wheel, toolkit], toolkit, sonames=names).status == Status.FAIL


def test_the_library_that_torch_loads_is_named() -> None:
    library = f"{SITE}/nvidia/nccl/lib/libnccl.so.2"
    found = result("libnccl", [library], "", {f"{SITE}/torch/lib/libtorch_cuda.so": library})
    assert (found.status, f"torch uses {library}" in found.detail) == (Status.PASS, True)


def test_any_number_of_copies_is_judged_in_linear_time_and_listed_in_part() -> None:
    files = [f"/opt/a{number}/libnccl.so.2" for number in range(40_000)]
    with ends_within(30):
        found = result("libnccl", files, users={f"/usr/x{number}": path for number, path in enumerate(files)})
    assert found.status == Status.FAIL and "40000 are there" in found.detail and "39988 more" in found.detail
    assert len(found.detail) < 4096
