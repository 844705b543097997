"""CUDA, NCCL, UCX, UCC, MPI and their tools: what their recipes ask for, refuse, do and look at."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from packaging.version import Version
from recipekit import NGC, ROOT, image, line, matches, recipe, steps, table

from envbuild import releases
from envbuild.bases import DISTRIBUTIONS
from envbuild.errors import SpecError
from envbuild.make import open_lock, planned
from envbuild.plan import stubs
from envbuild.plan.containerfile import OPEN_BASE, containerfile
from envbuild.plan.planner import image_config
from envbuild.plan.revision import git_that_knows
from envbuild.project import Project
from envbuild.recipe import Git, RecipeEnv
from envbuild.resolve import resolve_in
from envbuild.spec import load

pytestmark = pytest.mark.unit

PROVIDERS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "cuda": (
        {"version": "13.2"},
        {"version": "13.2", "flavor": "runtime"},
        {"version": "12.4", "provider": "apt"},
        {"version": "13.0", "provider": "base"},
    ),
    "cudnn": ({}, {"provider": "apt", "cuda": "12", "version": "9.1.0.70"}, {"provider": "base"}),
    "nccl": ({}, {"provider": "source", "version": "2.30.7"}, {"provider": "base"}),
    "gdrcopy": ({},),
    "ucx": ({}, {"version": "1.20"}, {"provider": "source"}),
    "ucc": ({"version": "1.8.0"}, {"version": "1.8.0", "mpi_test": True}),
    "nccl-tests": ({},),
    "openmpi": ({}, {"provider": "source", "version": "5.0.10"}, {"provider": "source", "version": "4.1.5"}),
    "mpi4py": ({},),
}
EVERY = [(name, options) for name, choices in PROVIDERS.items() for options in choices]
TABLES = ("gdrcopy", "nccl", "nccl-tests", "openmpi", "ucc", "ucx")


def whole(name: str, options: Mapping[str, Any]) -> tuple[Any, RecipeEnv]:
    """A recipe in an image that has everything it can make use of."""
    mine = recipe(name, **options)
    others = [recipe(other, **choices[0]) for other, choices in PROVIDERS.items() if other != name]
    if name in ("ucc", "nccl-tests", "openmpi"):
        others = [recipe("ucx", version="1.20") if other.name == "ucx" else other for other in others]
    return mine, image(mine, *others, base=NGC if options.get("provider") == "base" else "debian:13")


# --- every recipe


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_steps_and_verify_lines_are_shell(name: str, options: dict[str, Any]) -> None:
    mine, env = whole(name, options)
    texts = [*steps(mine, env), *(check.command for check in mine.verify(env))]
    assert texts
    for text in texts:
        run = subprocess.run(["/bin/sh", "-n"], input=text.encode(), capture_output=True, check=False)
        assert run.returncode == 0, (text, run.stderr)
    for check in mine.verify(env):
        re.compile(check.expect, re.MULTILINE)
    assert steps(mine, env) == steps(mine, env)


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_what_builds_has_steps_and_what_does_not_has_none(name: str, options: dict[str, Any]) -> None:
    mine, env = whole(name, options)
    assert mine.builds == bool(mine.builds and steps(mine, env))
    asked = mine.sources(env)
    assert bool(asked.git) <= mine.builds
    for git in asked.git:
        assert any(f"archives/{git.file}" in text for text in steps(mine, env))
    if mine.builds and mine.prefix:
        assert any(mine.prefix in text for text in steps(mine, env))


@pytest.mark.parametrize("name", TABLES)
def test_releases_are_whole_hashes_newest_first(name: str) -> None:
    found: Mapping[str, str] = table(name).RELEASES
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for commit in found.values())
    assert len(set(found.values())) == len(found)
    assert all(Version(first) > Version(second) for first, second in itertools.pairwise(found))


class Example(releases.Released):
    name = "x"
    repository = "github:o/x"
    releases: ClassVar = {"1.20.1": "a" * 40, "1.20.0": "b" * 40, "1.2.0": "c" * 40}


@pytest.mark.parametrize("asked,whole", [("1.20", "1.20.1"), ("1.2", "1.2.0"), ("", "1.20.1"), ("1.21", "")])
def test_a_version_names_its_newest_release(asked: str, whole: str) -> None:
    assert Example(version=asked).whole == whole


def test_the_commit_of_a_release() -> None:
    assert Example(version="1.20").source() == Git("x", "github:o/x", "a" * 40, "v1.20.1")
    # upstream's tag says nothing about a commit of the spec's own
    own = Example(version="1.20", commit="d" * 40)
    assert own.source() == Git("x", "github:o/x", "d" * 40) and own.whole == "1.20"


@pytest.mark.parametrize("name", TABLES)
def test_an_unknown_version_asks_for_its_commit(name: str) -> None:
    own = {"provider": "source"} if name in ("nccl", "ucx", "openmpi") else {}
    mine, env = whole(name, {"version": "77.1", **own})
    (reason,) = [text for text in mine.refusals(env) if "77.1" in text]
    assert "commit" in reason
    mine, env = whole(name, {"version": "77.1", "commit": "a" * 40, **own})
    assert not [text for text in mine.refusals(env) if "77.1" in text]
    assert mine.sources(env).git[0].commit == "a" * 40
    with pytest.raises(SpecError, match="write version"):
        recipe(name, commit="a" * 40, **own)


# --- PATH

# What each recipe that makes a folder of its own brings onto PATH: nothing, where it has no programs.
PROGRAMS = {
    "aws-ofi-nccl": (),
    "cuda": ("/opt/cuda/bin",),
    "cudnn": (),
    "efa": ("/opt/amazon/efa/bin",),
    "gdrcopy": (),
    "gpt-neox": (),
    "hpcx": tuple(f"/opt/hpcx/{part}/bin" for part in ("ompi", "ucx", "ucc", "sharp")),
    "libfabric": ("/opt/libfabric/bin",),
    "msccl": (),
    "nccl": (),
    "nccl-rdma-sharp": (),
    "nccl-tests": ("/opt/nccl-tests/bin",),
    "nvshmem": (),
    "openmpi": ("/opt/openmpi/bin",),
    "osu-micro-benchmarks": tuple(
        f"/opt/osu-micro-benchmarks/libexec/osu-micro-benchmarks/mpi/{kind}"
        for kind in ("pt2pt", "collective", "one-sided")
    ),
    "perftest": ("/opt/perftest/bin",),
    "pmix": ("/opt/pmix/bin",),
    "rdma-core": ("/opt/rdma-core/bin",),
    "ucc": ("/opt/ucc/bin",),
    "ucx": ("/opt/ucx/bin",),
}
BUILT: dict[str, dict[str, str]] = {
    "cudnn": {"provider": "apt"},
    **{name: {"provider": "source"} for name in ("libfabric", "openmpi", "perftest", "pmix", "rdma-core", "ucx")},
}


def test_every_recipe_with_a_folder_says_whether_it_has_programs() -> None:
    names = [path.stem.replace("_", "-") for path in (ROOT / "recipes").glob("*.py")]
    assert {name for name in names if recipe(name).prefix} == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_path_names_only_folders_with_programs(name: str) -> None:
    assert recipe(name, **BUILT.get(name, {})).bins == PROGRAMS[name]


def test_what_builds_nothing_is_not_on_path() -> None:
    for name in ("ucx", "openmpi", "libfabric", "perftest", "pmix", "rdma-core"):
        assert recipe(name).bins == ()
    assert recipe("efa", mpi="4").bins == ("/opt/amazon/efa/bin", "/opt/amazon/openmpi/bin")


def test_the_path_of_an_image() -> None:
    project = Project.find(ROOT)
    resolution = resolve_in(load("azure-msccl", project), project)
    folders = image_config(resolution, open_lock(resolution)).env["PATH"].split(":")
    assert folders[:2] == ["/opt/venv/bin", "/opt/cuda/bin"]
    assert "/opt/msccl/bin" not in folders


def test_a_base_image_that_is_not_locked_is_said_to_be_open() -> None:
    """Its own folders of PATH are known with the lock; the text must not look as if it had none."""
    project = Project.find(ROOT)
    texts = {}
    for name in ("azure-msccl", "cpu-ucx"):
        resolution = resolve_in(load(name, project), project)
        plan = planned(resolution, open_lock(resolution))
        texts[name] = containerfile(plan, locked=False), containerfile(plan)
    said = f"# {OPEN_BASE}\n\nENV CUDA_HOME="
    assert [said in text for text in texts["azure-msccl"]] == [True, False]
    assert not any(OPEN_BASE in text for text in texts["cpu-ucx"])


# --- the driver's stand-ins

HEADER = """
#define __CUDA_API_PTSZ(api) api ## _ptsz
#define cuMemAlloc                          cuMemAlloc_v2
#define cuMemcpyAsync                       __CUDA_API_PTSZ(cuMemcpyAsync_v2)
#define cuOldName                           cuNewName
#define CU_STREAM_LEGACY 1
typedef void (CUDA_CB *CUhostFn)(void *userData);
/* a comment that says CUresult CUDAAPI cuInComment(int); and goes on
   over lines */
// CUresult CUDAAPI cuInLineComment(int);
CUresult CUDAAPI cuInit(unsigned int Flags);
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);
CUresult CUDAAPI
    cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s);
__CUDA_DEPRECATED CUresult CUDAAPI cuGetErrorString(CUresult error, const char **pStr);
static inline CUresult cuInlineOnly(const char *symbol) { return 0; }
"""
NVML = """
#define nvmlInit    nvmlInit_v2
#define nvmlGetBlacklist nvmlGetExcluded
nvmlReturn_t DECLDIR nvmlInit_v2(void);
nvmlReturn_t DECLDIR nvmlInit(void);
const DECLDIR char* nvmlErrorString(nvmlReturn_t result);
typedef struct { int x; } nvmlThing_t;
"""
FILLER = "".join(f"CUresult CUDAAPI cuFiller{number}(int x);\n" for number in range(100))
NVML_FILLER = "".join(f"nvmlReturn_t DECLDIR nvmlFiller{number}(int x);\n" for number in range(100))


def made_stubs(folder: Path, cuda: str = HEADER + FILLER, nvml: str = NVML + NVML_FILLER) -> Any:
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    (folder / "include").mkdir()
    (folder / "include" / "cuda.h").write_text(cuda)
    (folder / "include" / "nvml.h").write_text(nvml)
    command = [sys.executable, "-", str(folder / "include"), str(folder / "stubs")]
    return subprocess.run(command, input=stubs.PROGRAM, capture_output=True, text=True, check=False)


def exported(path: Path) -> set[str]:
    if not shutil.which("nm"):
        pytest.skip("no nm (binutils)")
    told = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return {text.split()[-1] for text in told.splitlines()}


def test_stand_ins_have_what_the_headers_declare_and_nothing_else(tmp_path: Path) -> None:
    run = made_stubs(tmp_path)
    assert run.returncode == 0, run.stderr
    names = {name for name in exported(tmp_path / "stubs" / "libcuda.so") if "Filler" not in name}
    plain = {"cuInit", "cuMemAlloc", "cuMemcpyAsync", "cuGetErrorString"}
    assert names == plain | {"cuMemAlloc_v2", "cuMemcpyAsync_v2", "cuMemcpyAsync_v2_ptsz"}
    names = {name for name in exported(tmp_path / "stubs" / "libnvidia-ml.so") if "Filler" not in name}
    assert names == {"nvmlInit", "nvmlInit_v2", "nvmlErrorString"}


def test_stand_ins_answer_that_they_are_none(tmp_path: Path) -> None:
    assert made_stubs(tmp_path).returncode == 0
    driver = tmp_path / "stubs" / "driver"
    assert {path.name: path.readlink().as_posix() for path in driver.iterdir()} == {
        "libcuda.so.1": "../libcuda.so",
        "libnvidia-ml.so.1": "../libnvidia-ml.so",
    }
    cuda, nvml = ctypes.CDLL(str(driver / "libcuda.so.1")), ctypes.CDLL(str(driver / "libnvidia-ml.so.1"))
    assert (cuda.cuInit(0), cuda.cuMemcpyAsync_v2_ptsz(), nvml.nvmlInit_v2()) == (34, 34, 12)
    # what callers print, whatever the code says: a text, not what happens to stand in memory
    text = ctypes.c_char_p()
    assert cuda.cuGetErrorString(34, ctypes.byref(text)) == 34
    assert text.value and b"driver" in text.value
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    assert nvml.nvmlErrorString(12) == text.value


def test_stand_ins_are_the_same_bytes_twice_and_have_the_drivers_sonames(tmp_path: Path) -> None:
    contents = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        assert made_stubs(tmp_path / str(number)).returncode == 0
        contents.append([path.read_bytes() for path in sorted((tmp_path / str(number) / "stubs").glob("*.so"))])
    assert contents[0] == contents[1]
    assert [name in data for name, data in zip((b"libcuda.so.1", b"libnvidia-ml.so.1"), contents[0], strict=True)] == [
        True,
        True,
    ]


def test_a_header_without_functions_is_told(tmp_path: Path) -> None:
    run = made_stubs(tmp_path, cuda=HEADER)
    assert run.returncode == 1
    assert "cuda.h declares" in run.stderr


def test_a_git_that_knows_one_revision(tmp_path: Path) -> None:
    written, path = git_that_knows(Git("ucx", "github:openucx/ucx", "d8e50df6651b9ea5b76f23aee0aefbf053a4137a"))
    folder = path.removesuffix(":$PATH")
    run = " && ".join(text.replace(folder, str(tmp_path / "bin")) for text in written)
    assert subprocess.run(["/bin/sh", "-c", run], check=False).returncode == 0
    for words, answer in (("rev-parse --short=7 HEAD", "d8e50df\n"), ("rev-parse --short HEAD", "d8e50df\n")):
        told = subprocess.run([tmp_path / "bin" / "git", *words.split()], capture_output=True, text=True, check=False)
        assert (told.returncode, told.stdout) == (0, answer)
    for words in ("symbolic-ref --quiet HEAD", "rev-list HEAD", "describe --always"):
        told = subprocess.run([tmp_path / "bin" / "git", *words.split()], capture_output=True, text=True, check=False)
        assert (told.returncode, told.stdout) == (1, "")


# --- cuda, cudnn, nccl


def test_wheels_of_cuda_12_are_refused_because_they_hold_no_compiler() -> None:
    old = recipe("cuda", version="12.4")
    assert "no compiler" in old.refusals(image(old))[0]
    new = recipe("cuda", version="13.0")
    assert new.refusals(image(new)) == ()
    vendor = recipe("cuda", version="12.4", provider="apt")
    assert vendor.refusals(image(vendor)) == ()


def test_nvidias_archive_is_named_by_distribution_and_architecture() -> None:
    mine = recipe("cuda", version="12.4", provider="apt")
    (archive,) = mine.sources(image(mine, base="ubuntu:22.04")).repositories
    assert (archive.origin, archive.suite, archive.components) == ("apt:nvidia-cuda/ubuntu2204/x86_64", "./", ())
    (archive,) = mine.sources(image(mine, base="ubuntu:24.04", target="gb200-nvl")).repositories
    assert archive.origin == "apt:nvidia-cuda/ubuntu2404/sbsa"
    keys = {mine.sources(image(mine, base=name)).repositories[0].key for name in DISTRIBUTIONS}
    assert all(re.fullmatch(r"[0-9A-F]{40}", key) for key in keys)
    own = recipe("cuda", version="12.4", provider="apt", key="A" * 40)
    assert own.sources(image(own)).repositories[0].key == "A" * 40
    with pytest.raises(SpecError, match="not the fingerprint"):
        recipe("cuda", version="12.4", provider="apt", key="3bf863cc")
    elsewhere = replace(image(mine), distribution=replace(DISTRIBUTIONS["debian:13"], name="debian:99"))
    assert "debian:99" in mine.refusals(elsewhere)[0]


def test_the_base_provider_needs_an_image_as_base() -> None:
    for name in ("cuda", "nccl", "cudnn", "openmpi"):
        mine = recipe(name, provider="base", **({"version": "13.0"} if name == "cuda" else {}))
        assert len(mine.refusals(image(mine))) == 1
        assert mine.refusals(image(mine, base=NGC)) == ()
        assert mine.promised(image(mine, base=NGC))
        assert not recipe(name).promised(image(recipe(name), base=NGC))


@pytest.mark.parametrize("name", ["deepspeed", "deeperspeed"])
def test_ops_that_jobs_compile_need_the_compiler_in_the_image(name: str) -> None:
    mine, torch = recipe(name), recipe("torch", version="1.13.1")
    refused = mine.refusals(image(mine, torch, recipe("cuda", version="13.2", flavor="runtime")))
    assert [text.partition("; ")[2] for text in refused] == ["write cuda: {flavor: devel}"]
    assert mine.refusals(image(mine, torch, recipe("cuda", version="13.2"))) == ()


@pytest.mark.parametrize("provider", ["apt", "base"])
def test_only_the_wheels_of_cuda_come_apart(provider: str) -> None:
    with pytest.raises(SpecError, match=f"'flavor: runtime' is for provider: wheels, not for {provider}"):
        recipe("cuda", version="13.2", provider=provider, flavor="runtime")


def test_the_matrix_hears_where_cuda_comes_from() -> None:
    for provider in ("wheels", "apt", "base"):
        mine = recipe("cuda", version="13.2", provider=provider)
        assert mine.matrix(image(mine)) == {"cuda": "13.2", "cuda-from": provider}


def test_nccl_beside_a_ready_made_torch_is_the_wheel() -> None:
    cuda, torch = recipe("cuda", version="13.2"), recipe("torch", version="2.15")
    mine = recipe("nccl", provider="source", version="2.30.7")
    assert "loads its own NCCL" in mine.refusals(image(cuda, torch, mine))[0]
    assert mine.refusals(image(cuda, mine)) == ()
    built = recipe("torch", version="2.15.0", provider="source", commit="a" * 40)
    assert mine.refusals(image(cuda, built, mine)) == ()
    assert recipe("nccl").refusals(image(cuda, torch, recipe("nccl"))) == ()


def test_nccl_from_source_is_for_one_gpu_and_meets_the_matrix_conditions() -> None:
    mine = recipe("nccl", provider="source", version="2.30")
    env = image(mine, recipe("cuda", version="13.2"), target="a100-ib")
    text = "\n".join(steps(mine, env))
    assert "NVCC_GENCODE=-gencode=arch=compute_80,code=sm_80 " in text
    assert "sm_90" not in text
    assert mine.sources(env).git[0].tag == "v2.30.7-1"
    assert (mine.arch_specific, bool(mine.meets)) == (True, True)
    assert (recipe("nccl").arch_specific, recipe("nccl").meets) == (False, ())


def test_a_wheel_for_another_cuda_than_the_images_is_refused() -> None:
    cuda = recipe("cuda", version="12.4", provider="apt")
    for name in ("nccl", "cudnn"):
        mine = recipe(name)
        assert "write cuda: '12'" in mine.refusals(image(cuda, mine))[0]
        fitting = recipe(name, cuda="12")
        assert fitting.refusals(image(cuda, fitting)) == ()
        asked = fitting.runtime(image(cuda, fitting))
        assert (*asked.toolkit, *asked.core)[0].endswith("-cu12")


def test_packages_of_cudnn_have_cuda_in_their_names_since_9() -> None:
    assert recipe("cudnn", provider="apt", cuda="12").names() == ("libcudnn9-cuda-12", "libcudnn9-dev-cuda-12")
    assert recipe("cudnn", provider="apt", cuda="12", version="8.9").names() == ("libcudnn8", "libcudnn8-dev")
    cuda, mine = recipe("cuda", version="12.4", provider="apt"), recipe("cudnn", provider="apt", cuda="12")
    env = image(cuda, mine)
    assert mine.sources(env).repositories == cuda.sources(env).repositories


# --- ucx, ucc, openmpi


def test_ucx_is_compiled_when_a_version_is_asked_for() -> None:
    env = image(recipe("rdma-core"))
    assert not recipe("ucx").builds
    assert recipe("ucx").runtime(env).debian == ("libucx0", "ucx-utils")
    assert (recipe("ucx").component, recipe("ucx").package) == ("", "libucx0")
    own = recipe("ucx", version="1.20")
    assert own.builds
    assert (own.component, own.package) == ("ucx", "")
    assert own.sources(env).git[0].tag == "v1.20.1"
    assert own.runtime(env).libraries == ("/opt/ucx/lib",)
    assert recipe("ucx", provider="source").builds
    with pytest.raises(SpecError, match="the distribution has one version of UCX"):
        recipe("ucx", provider="debian", version="1.18")


def test_debians_ucx_beside_cuda_has_to_be_asked_for() -> None:
    cuda = recipe("cuda", version="13.2")
    assert "no CUDA support" in recipe("ucx").refusals(image(cuda, recipe("ucx")))[0]
    meant = recipe("ucx", provider="debian")
    assert meant.refusals(image(cuda, meant)) == ()
    assert recipe("ucx").refusals(image(recipe("ucx"), target="cpu")) == ()


def test_ucx_takes_what_the_image_has_and_names_the_rest() -> None:
    mine = recipe("ucx", version="1.20")
    plain = steps(mine, image(mine, target="cpu"))[-1]
    assert "--without-cuda" in plain
    assert "--without-gdrcopy" in plain
    cuda = steps(mine, image(mine, recipe("cuda", version="13.2"), recipe("gdrcopy")))[-1]
    assert "--with-cuda=/opt/cuda" in cuda
    assert "--with-gdrcopy=/opt/gdrcopy" in cuda
    # nothing in it is for one GPU, so that images for several share it
    h100, a100 = (image(mine, recipe("cuda", version="13.2"), target=name) for name in ("h100-ib", "a100-ib"))
    assert steps(mine, h100) == steps(mine, a100)


def test_ucc_compiles_for_the_target_and_over_what_the_image_has() -> None:
    mine, ucx = recipe("ucc", version="1.8"), recipe("ucx", version="1.20")
    cuda, nccl = recipe("cuda", version="13.2"), recipe("nccl")
    full = steps(mine, image(mine, ucx, cuda, nccl, target="a100-ib"))[-1]
    assert '--with-nvcc-gencode="-gencode=arch=compute_80,code=sm_80"' in full
    assert "--with-ucx=/opt/ucx " in full
    assert "--with-nccl=/opt/nccl" in full
    assert "--without-mpi" in full
    small = steps(mine, image(mine, ucx, target="cpu"))[-1]
    assert "--without-cuda" in small
    assert "--without-nccl" in small
    assert "gencode" not in small
    assert matches(line(mine, image(mine, ucx, cuda, nccl), "over with one"), "cuda=40 nccl=20 self=50 ucp=10")
    assert not matches(line(mine, image(mine, ucx, cuda, nccl), "over with one"), "self=50 ucp=10")


def test_uccs_mpi_programs_need_the_distributions_open_mpi() -> None:
    ucx, mine = recipe("ucx", version="1.20"), recipe("ucc", version="1.8", mpi_test=True)
    assert "Open MPI" in mine.refusals(image(ucx, mine))[0]
    own = recipe("openmpi", provider="source", version="5.0.10")
    assert "Open MPI" in mine.refusals(image(ucx, mine, own))[0]
    env = image(ucx, mine, recipe("openmpi"))
    assert mine.refusals(env) == ()
    assert "libopenmpi-dev" in mine.sources(env).debian
    assert "--with-mpi " in steps(mine, env)[-1]


def test_ucc_on_debians_ucx_compiles_against_its_headers() -> None:
    mine, ucx = recipe("ucc", version="1.8"), recipe("ucx")
    env = image(mine, ucx, target="cpu")
    assert "libucx-dev" in mine.sources(env).debian
    assert "--with-ucx=/usr" in steps(mine, env)[-1]


def test_open_mpi_says_where_it_is() -> None:
    debian, own = recipe("openmpi"), recipe("openmpi", provider="source", version="5.0.10")
    assert debian.home(image(debian)) == "/usr/lib/x86_64-linux-gnu/openmpi"
    assert debian.home(image(debian, target="gb200-nvl")) == "/usr/lib/aarch64-linux-gnu/openmpi"
    assert (own.home(image(own)), own.mpicc(image(own))) == ("/opt/openmpi", "/opt/openmpi/bin/mpicc")
    base = recipe("openmpi", provider="base", folder="/opt/amazon/openmpi")
    assert base.promised(image(base, base=NGC))[0] == "/opt/amazon/openmpi/bin/mpirun"
    mpi4py = recipe("mpi4py")
    assert 'MPICC="/opt/openmpi/bin/mpicc"' in "\n".join(steps(mpi4py, image(own, mpi4py)))
    assert "libopenmpi-dev" not in mpi4py.sources(image(own, mpi4py)).debian
    assert "libopenmpi-dev" in mpi4py.sources(image(debian, mpi4py)).debian


@pytest.mark.parametrize("folder", ["relative/mpi", "/opt/mpi; reboot", "/opt/a b", "/opt/'x", "/opt/mpi/"])
def test_a_folder_of_open_mpi_that_is_none_is_told(folder: str) -> None:
    with pytest.raises(SpecError, match="not the path of a folder"):
        recipe("openmpi", provider="base", folder=folder)


def test_debians_open_mpi_has_one_version() -> None:
    mine = recipe("openmpi", version="4.1.5")
    assert "one version" in mine.refusals(image(mine))[0]


def test_open_mpi_4_has_no_submodules_and_other_options() -> None:
    fourth = recipe("openmpi", provider="source", version="4.1.5")
    fifth = recipe("openmpi", provider="source", version="5.0")
    ucx = recipe("ucx", version="1.20")
    assert (fourth.source().submodules, fifth.source().submodules) == ((), ("*",))
    assert "prrte" not in steps(fourth, image(fourth, ucx))[-1]
    assert "--with-prrte=internal" in steps(fifth, image(fifth, ucx))[-1]
    assert "--with-ucx=/opt/ucx" in steps(fifth, image(fifth, ucx))[-1]
    assert "--without-ucx" in steps(fifth, image(fifth, recipe("ucx")))[-1]


# --- verify lines against what the programs print


def test_verify_lines_know_a_right_answer_from_a_wrong_one() -> None:
    cuda, ucx = recipe("cuda", version="13.2"), recipe("ucx", version="1.20")
    tests, nccl = recipe("nccl-tests"), recipe("nccl")
    env = image(cuda, ucx, nccl, tests, versions={"nvidia-nccl-cu13": "2.30.7"})
    said = "# Library version: 1.20.1\n# Library path: /opt/ucx/lib/libucs.so.0\n# Git branch '', revision {}\n"
    assert matches(line(ucx, env, "version and commit"), said.format("d8e50df"))
    assert not matches(line(ucx, env, "version and commit"), said.format(""))
    both = line(ucx, env, "CUDA module")
    assert matches(both, "without 0\nwith 13\n")
    assert not matches(both, "without 0\nwith 0\n")
    assert not matches(both, "without 13\nwith 13\n")
    assert matches(line(nccl, env, "locked version"), "2.30.7\n")
    assert not matches(line(nccl, env, "locked version"), "2.30.70\n")
    starts = line(tests, env, "starts")
    told = "# nccl-tests version 2.19.6 nccl-headers={} nccl-library=23007\n'CUDA driver version is insufficient'\n"
    assert matches(starts, told.format(23007))
    assert not matches(starts, told.format(23004))


def test_ucc_perftest_that_reached_nobody_is_no_pass() -> None:
    ucx, openmpi = recipe("ucx", version="1.22"), recipe("openmpi")
    mine = recipe("ucc", version="1.8", mpi_test=True)
    check = line(mine, image(ucx, openmpi, mine, target="cpu"), "over self,tcp")
    rows = "       Count        Size     Time, us\n       16384       65536       34.27\n       32768      131072\n"
    assert matches(check, rows)
    assert not matches(check, rows.replace("65536", "65535"))
    assert not matches(check, "tl_ucp_ep.h:79 TL_UCP ERROR failed to connect team ep\n" + rows)
    assert not matches(check, rows + "ucc_schedule.h:254 UCC ERROR failure in task\n")
    report = line(mine, image(ucx, openmpi, mine, target="cpu"), "five collectives")
    told = "total tests:  197\npassed:       197\nskipped:      0\nfailed:       {}\nelapsed:      3s\n"
    assert matches(report, told.format(0))
    assert not matches(report, told.format(10))


def test_ucx_1_20_is_not_asked_over_the_loopback_device() -> None:
    assert recipe("ucx", version="1.20").alone() == ("self,sm",)
    for version in ("1.19", "1.21", "1.22"):
        assert recipe("ucx", version=version).alone() == ("self,sm", "self,tcp")
    assert recipe("ucx").alone() == ("self,sm", "self,tcp")


def test_a_cubin_line_wants_code_in_every_file_and_for_one_gpu() -> None:
    tests = recipe("nccl-tests")
    check = line(tests, image(tests, recipe("cuda", version="13.2")), "code for sm_90")
    one = "/opt/nccl-tests/bin/{}_perf\nELF file    1: {}.1.sm_90.cubin\nELF file    2: {}.2.sm_90.cubin\n"
    assert matches(check, one.format(*"aaa") + one.format(*"bbb"))
    assert not matches(check, one.format(*"aaa") + "/opt/nccl-tests/bin/b_perf\n")
    assert not matches(check, one.format(*"aaa").replace("2.sm_90", "2.sm_80"))
    assert not matches(check, one.format(*"aaa") + "PTX file    1: a.1.sm_90.ptx\n")
