"""torch and the kernels beside it: what their recipes ask for, refuse and do."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

import pytest
from recipekit import NGC, ROOT, commands, exported, image, line, matches, recipe

from envbuild.errors import SpecError
from envbuild.plan import checks
from envbuild.recipe import Recipe

pytestmark = pytest.mark.unit

DATA = ROOT / "recipes" / "data" / "torch_ucc"


# --- torch


@pytest.mark.parametrize(
    ("options", "core"),
    [
        ({}, ("torch",)),
        ({"version": "2.15"}, ("torch==2.15.*",)),
        ({"version": "2.15.0", "beside": ["torchvision"]}, ("torch==2.15.0", "torchvision")),
        ({"version": "2.6.0", "provider": "vendor", "channel": "cu126"}, ("torch==2.6.0+cu126",)),
        ({"version": "2.6.0+cu126", "provider": "vendor", "channel": "cu126"}, ("torch==2.6.0+cu126",)),
        ({"version": "2.6", "provider": "vendor", "channel": "cpu"}, ("torch==2.6.*",)),
        (
            {
                "version": "1.10.1",
                "provider": "vendor",
                "channel": "cu113",
                "beside": ["torchvision==0.11.2", "torchaudio"],
            },
            ("torch==1.10.1+cu113", "torchvision==0.11.2+cu113", "torchaudio"),
        ),
        ({"provider": "base"}, ()),
    ],
)
def test_what_torch_asks_an_index_for(options: dict[str, Any], core: tuple[str, ...]) -> None:
    made = recipe("torch", **options)
    env = image(made, base="nvcr.io/nvidia/pytorch:25.10-py3")
    assert made.runtime(env).core == core
    assert not made.builds and not made.build(env)


@pytest.mark.parametrize(
    ("options", "matrix"),
    [
        ({"version": "2.15"}, {"torch": "2.15", "channel": "index"}),
        ({"version": "2.6.0", "provider": "vendor", "channel": "cu126"}, {"torch": "==2.6.0+cu126"}),
        ({"version": "2.6", "provider": "vendor", "channel": "cu126"}, {"torch": "2.6", "torch-cuda": "12.6"}),
        ({"provider": "vendor", "channel": "cpu"}, {"torch": "*", "torch-cuda": "-"}),
        ({"provider": "base"}, {"torch": "*"}),
    ],
)
def test_what_torch_tells_the_matrix(options: dict[str, Any], matrix: dict[str, str]) -> None:
    made = recipe("torch", **options)
    channel = {"channel": "pytorch"} if "channel" in options else {}
    assert made.matrix(image(made)) == {**channel, **matrix}


def test_a_channel_is_an_index_of_its_own() -> None:
    made = recipe("torch", version="2.6.0", provider="vendor", channel="cu126")
    (index,) = made.sources(image(made)).indexes
    assert index.origin == "pip:pytorch/cu126"
    assert {"torch", "torchvision"} <= set(index.packages)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"provider": "vendor"}, "go together"),
        ({"channel": "cu126"}, "go together"),
        ({"provider": "source", "version": "2.15.0"}, "'commit' go together"),
        ({"provider": "source", "commit": "a" * 40, "version": "2.15"}, "needs a whole version"),
        ({"provider": "base", "beside": ["torchvision"]}, "'beside'"),
        ({"provider": "vendor", "channel": "cuda12"}, "'cuda12' is no channel"),
        ({"provider": "vendor", "channel": "cuda126"}, "hint: did you mean 'cu126'\\? there are: cpu, cu132"),
        (
            {"beside": ["torch-vision"]},
            "'torch-vision' is none that torch brings along\nhint: did you mean 'torchvision'",
        ),
        ({"provider": "wheel"}, "'provider' cannot be 'wheel'\nhint: it is one of: index, vendor, source, base"),
        ({"provider": "sorce"}, "hint: did you mean 'source'\\? it is one of: index, vendor, source, base"),
        ({"beside": ["torchvision; rm"]}, "is none that torch brings along"),
    ],
)
def test_options_of_torch_that_cannot_be_right(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        recipe("torch", **options)


def test_torch_of_a_base_image() -> None:
    made = recipe("torch", provider="base")
    assert not made.refusals(image(made, base="nvcr.io/nvidia/pytorch:25.10-py3"))
    (refusal,) = made.refusals(image(made))
    assert refusal.startswith("the base debian:13 is a distribution")
    (path,) = made.promised(image(made))
    for found in ("/usr/local/lib/python3.13/dist-packages", "/opt/conda/lib/python3.13/site-packages"):
        assert Path(f"{found}/torch/lib/libtorch_python.so").match(path)


def test_torch_from_source_has_ucc_when_the_image_has() -> None:
    made = recipe("torch", provider="source", version="2.15.0", commit="a" * 40)
    assert made.builds
    assert made.sources(image(made)).gives == ("torch==2.15.0",)
    assert made.sources(image(made)).git[0].tag == "v2.15.0"
    plain, full = (
        commands(made, image(made, *others))
        for others in ((), (recipe("cuda", version="13.2"), recipe("nccl"), Named("ucc"), Named("ucx")))
    )
    assert 'USE_CUDA="0"' in plain and "USE_UCC" not in plain
    for word in (
        'USE_CUDA="1"',
        'TORCH_CUDA_ARCH_LIST="9.0"',
        'USE_UCC="1"',
        'USE_SYSTEM_UCC="1"',
        "/opt/ucc:/opt/ucx",
    ):
        assert word in full
    assert made.after and not recipe("torch").after
    assert made.matrix(image(made, Named("ucc")))["torch-ucc"] == "native"


class Named(Recipe):
    """A recipe that only is there, with a prefix or without."""

    def __init__(self, name: str, *, builds: bool = True) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "prefix", f"/opt/{name}" if builds else "")


def test_the_image_says_which_torch_it_holds() -> None:
    made = recipe("torch", version="2.15")
    assert made.runtime(image(made)).env == {}
    assert made.runtime(image(made, versions={"torch": "2.15.0"})).env == {"PYTORCH_VERSION": "2.15.0"}


@pytest.mark.parametrize(
    ("options", "packages"),
    [
        ({}, ("g++", "gcc", "libc6-dev", "python3-dev")),
        ({"version": "2.6.0", "provider": "vendor", "channel": "cu126"}, ("g++", "gcc", "libc6-dev", "python3-dev")),
        ({"compiler": False}, ()),
        ({"provider": "base"}, ()),  # what that image has
    ],
)
def test_torch_compile_has_a_compiler(options: dict[str, Any], packages: tuple[str, ...]) -> None:
    made = recipe("torch", **options)
    env = image(made, base=NGC if options.get("provider") == "base" else "debian:13")
    assert made.runtime(env).debian == packages
    assert any("C and C++ compile" in check.name for check in made.verify(env)) is bool(packages)


def test_the_compilers_are_looked_at_by_compiling(tmp_path: Path) -> None:
    """The check runs here, with this machine's Python and compilers; without Python's headers it fails."""
    headers = Path(sysconfig.get_paths()["include"])
    if not (shutil.which("gcc") and shutil.which("g++") and (headers / "Python.h").exists()):
        pytest.skip("no gcc, g++ or Python.h")
    check = line(recipe("torch"), image(), "C and C++ compile")
    assert check.tier == "run"
    command = check.command.replace(checks.PYTHON, sys.executable).replace("/tmp/made", str(tmp_path))
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0 and matches(check, done.stdout), done.stderr
    bare = command.replace("['include']", "['purelib']")
    done = subprocess.run(["/bin/sh", "-c", bare], capture_output=True, text=True)
    assert done.returncode != 0 and not matches(check, done.stdout)


# --- torch-ucc


@pytest.mark.parametrize("version", ["", "2.15", "2.15.0", "2"])
def test_torch_ucc_beside_the_torch_it_was_fitted_to(version: str) -> None:
    made = recipe("torch-ucc")
    env = image(recipe("torch", **({"version": version} if version else {})), Named("ucc"), made)
    assert made.refusals(env) == ()
    assert made.runtime(env).core == ("torch==2.15.0",)
    assert made.matrix(env) == {"torch-ucc": "plugin", "torch": "2.15"}


@pytest.mark.parametrize("version", ["2.14", "2.14.1", "2.1", "2.15.1"])
def test_torch_ucc_refuses_a_torch_that_was_not_tried(version: str) -> None:
    made = recipe("torch-ucc")
    (refusal,) = made.refusals(image(recipe("torch", version=version), Named("ucc"), made))
    assert f"torch {version} was not tried" in refusal


def test_torch_ucc_refuses_what_it_cannot_stand_on() -> None:
    made = recipe("torch-ucc", version="2.14.0")
    env = image(recipe("torch", provider="base"), Named("ucc", builds=False), made)
    assert [refusal.partition(" ")[0] for refusal in made.refusals(env)] == ["its", "torch", "it"]


def test_torch_ucc_takes_three_files_of_a_pinned_source() -> None:
    made = recipe("torch-ucc")
    sources = made.sources(image(recipe("torch"), Named("ucc"), made))
    assert sources.gives == ("envbuild-torch-ucc==2.15.0",)
    (archive,) = sources.archives
    assert archive.origin.startswith("debian:pool/main/p/pytorch/") and archive.sha256.startswith("099a9601")
    other = recipe("torch-ucc", source="tag")
    assert other.sources(image(recipe("torch"), Named("ucc"), other)).archives[0].origin.endswith("@v2.15.0")


def test_torch_ucc_is_for_cuda_tensors_where_the_image_has_cuda() -> None:
    made, ucc, torch = recipe("torch-ucc"), Named("ucc"), recipe("torch")
    with_cuda = image(torch, ucc, made, recipe("cuda", version="13.2"))
    without = image(torch, ucc, made, target="cpu")
    setting = 'export TORCH_UCC_CUDA="1"'
    assert setting in commands(made, with_cuda) and setting not in commands(made, without)
    assert [check.tier for check in made.verify(without)] == ["run"] * 3
    assert [check.tier for check in made.verify(with_cuda)] == ["run"] * 4 + ["gpu"]


def test_the_build_writes_the_files_that_are_in_the_tree(tmp_path: Path) -> None:
    """Every part goes through printf and a shell, and must come out as it was."""
    made = recipe("torch-ucc")
    text = commands(made, image(recipe("torch"), Named("ucc"), made))
    parts = [path for path in DATA.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for part in parts:
        name = part.relative_to(DATA).as_posix()
        assert (f"> {name}" in text) is (name != "compare.py")
        command = checks.written(str(tmp_path / part.name), part.read_text())
        subprocess.run(["/bin/sh", "-c", command], check=True)
        assert (tmp_path / part.name).read_bytes() == part.read_bytes()


def test_written_keeps_what_a_shell_and_a_containerfile_would_take_away(tmp_path: Path) -> None:
    text = '# not a comment\n\n  $HOME `id` \\ it\'s\n%s \\n "x" \\\n'
    command = checks.written(str(tmp_path / "a file"), text)
    assert not any(line.lstrip().startswith("#") for line in command.splitlines())  # Docker drops such lines
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert (tmp_path / "a file").read_text() == text


GROUP = """#include <ATen/cuda/nvrtc_stub/ATenNVRTC.h>
#include <torch/csrc/distributed/c10d/UCCTracing.hpp>
#include <torch/csrc/distributed/c10d/UCCUtils.hpp>
  CUcontext pctx = nullptr;
  cuCtxSetCurrent(pctx);
  }
ProcessGroupUCC::_allgather_base(
ProcessGroupUCC::_reduce_scatter_base(
ProcessGroupUCC::alltoall_base(
void ProcessGroupUCC::setSequenceNumberForGroup() {}
"""
OTHERS = "#include <torch/csrc/distributed/c10d/UCCTracing.hpp>\n#include <torch/csrc/distributed/c10d/UCCUtils.hpp>\n"
FILES = {"ProcessGroupUCC.cpp": GROUP, "UCCUtils.cpp": OTHERS, "UCCTracing.cpp": OTHERS}


def edits(folder: Path, files: dict[str, str], source: str = "debian") -> subprocess.CompletedProcess[str]:
    """Run edits.py on a tarball of `files` (made-up sources with what the edits look for)."""
    with tarfile.open(folder / "source.tar.xz", "w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"pytorch-2/torch/csrc/distributed/c10d/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    command = [sys.executable, DATA / "edits.py", folder / "source.tar.xz", folder, source]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_edits(tmp_path: Path) -> None:
    assert edits(tmp_path, FILES).returncode == 0
    text = (tmp_path / "ProcessGroupUCC.cpp").read_text()
    assert text.startswith('#include "compat.h"\n#include <torch/csrc/distributed/c10d/ucc/UCCTracing.hpp>\n')
    for word in ("all_gather_single", "reduce_scatter_single", "all_to_all_single", "make_context_current"):
        assert text.count(word) == 1
    for word in ("_base(", "setSequenceNumberForGroup", "nvrtc", "CUcontext"):
        assert word not in text


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        ("ProcessGroupUCC.cpp", "alltoall_base", "all_to_all_single", 0),
        ("ProcessGroupUCC.cpp", "alltoall_base(", "alltoall_base(\nProcessGroupUCC::alltoall_base(", 2),
        ("UCCUtils.cpp", "c10d/UCCUtils", "c10d/ucc/UCCUtils", 0),
        ("ProcessGroupUCC.cpp", "cuCtxSetCurrent", "cuCtxPushCurrent", 0),
    ],
)
def test_an_edit_that_does_not_match_once_stops_the_build(
    name: str, old: str, new: str, found: int, tmp_path: Path
) -> None:
    done = edits(tmp_path, {**FILES, name: FILES[name].replace(old, new)})
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}: expected exactly one match of") and f"found {found}" in done.stderr


def test_a_source_without_the_files(tmp_path: Path) -> None:
    done = edits(tmp_path, {"UCCUtils.cpp": OTHERS})
    assert done.returncode == 1
    assert "no ProcessGroupUCC.cpp and no UCCTracing.cpp" in done.stderr


def test_the_sources_of_a_tag_need_only_what_no_wheel_ships(tmp_path: Path) -> None:
    assert edits(tmp_path, FILES, "tag").returncode == 0
    text = (tmp_path / "ProcessGroupUCC.cpp").read_text()
    assert '#include "compat.h"' in text and "alltoall_base" in text


def test_programs_of_the_image_are_python() -> None:
    for path in DATA.rglob("*.py"):
        compile(path.read_text(), path.name, "exec")


# --- kernels


@pytest.mark.parametrize(
    ("listing", "right"),
    [
        ("/x/a.so\nELF file    1: a.1.sm_90.cubin\nELF file    2: a.2.sm_90.cubin\n", True),
        ("/x/a.so\nELF file    1: a.1.sm_90a.cubin", True),
        ("/x/a.so\nELF file    1: a.1.sm_90.cubin\n/x/b.so\nELF file    1: b.1.sm_90.cubin\n", True),
        ("/x/a.so\nELF file    1: a.1.sm_90.cubin\nELF file    2: a.2.sm_80.cubin\n", False),
        ("/x/a.so\nELF file    1: a.1.sm_90.cubin\n/x/b.so\n", False),
        ("/x/a.so\n", False),
        ("", False),
    ],
)
def test_code_for_the_target_and_nothing_else(listing: str, right: bool) -> None:
    check = checks.cubins("x", ("a.b",), image())
    assert "/opt/venv/lib/python3.13/site-packages/a/b.*so" in check.command
    assert bool(re.search(check.expect, listing)) is right


def test_deepspeed_knows_its_ops() -> None:
    made = recipe("deepspeed", version="0.19.8", ops=["fused_adam", "cpu_adam", "async_io"])
    env = image(made)
    assert made.extensions() == (
        "deepspeed.ops.adam.fused_adam_op",
        "deepspeed.ops.adam.cpu_adam_op",
        "deepspeed.ops.aio.async_io_op",
        "deepspeed.ops.pin_memory.pin_memory_op",  # DeepSpeed compiles it along
    )
    text = commands(made, env)
    for word in ("FUSED_ADAM", "CPU_ADAM", "AIO", "PIN_MEMORY"):
        assert f'DS_BUILD_{word}="1"' in text
    assert 'DS_ACCELERATOR="cuda"' in text
    assert made.runtime(env).debian == ("libaio1t64",) and "libaio-dev" in made.sources(env).debian
    kernels = [check for check in made.verify(env) if "cuobjdump" in check.command]
    assert len(kernels) == 1 and "cpu_adam" not in kernels[0].command


# Builds that look for a GPU, find none and then compile for every one, for none, or take somebody's wheel, in silence:
# what tells them otherwise (where it was found out: the recipe's own comments).
TOLD = {
    "apex": {"APEX_CPP_EXT": "1", "APEX_CUDA_EXT": "1", "TORCH_CUDA_ARCH_LIST": "8.0"},
    "deepspeed": {
        "DS_ACCELERATOR": "cuda",
        "DS_BUILD_OPS": "0",
        "DS_BUILD_FUSED_ADAM": "1",
        "TORCH_CUDA_ARCH_LIST": "8.0",
    },
    "deeperspeed": {
        "DS_ACCELERATOR": "cuda",
        "DS_BUILD_OPS": "0",
        "DS_BUILD_FUSED_ADAM": "1",
        "TORCH_CUDA_ARCH_LIST": "8.0",
    },
    "flash-attn": {"FLASH_ATTENTION_FORCE_BUILD": "TRUE", "FLASH_ATTN_CUDA_ARCHS": "80"},
    "flash-attn-3": {
        "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
        "FLASH_ATTENTION_OFFLINE_BUILD": "1",
        "FLASH_ATTENTION_DISABLE_SM80": "TRUE",
    },
    "megatron-kernels": {"NVCC_GENCODE": "-gencode=arch=compute_80,code=sm_80"},
    "metaseq": {"TORCH_CUDA_ARCH_LIST": "8.0"},
    "neox-kernels": {"NVCC_GENCODE": "-gencode=arch=compute_80,code=sm_80"},
    "transformer-engine": {
        "NVTE_PYTORCH_FORCE_BUILD": "TRUE",
        "NVTE_FRAMEWORK": "pytorch",
        "NVTE_CUDA_ARCHS": "80",  # left out it asks nvidia-smi
    },
    "xformers": {"FORCE_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "8.0", "XFORMERS_BUILD_TYPE": "Release"},
}


@pytest.mark.parametrize("name", TOLD)
def test_builds_without_a_gpu_are_told_what_they_would_ask_it(name: str) -> None:
    made = recipe(name, **({"provider": "source"} if name == "xformers" else {}))
    cuda, torch = recipe("cuda", version="12.8", provider="apt"), recipe("torch", version="2.6.0")
    env = image(made, cuda, torch, target="a100-ib")
    variables = exported(made, env)
    assert {key: variables.get(key) for key in TOLD[name]} == TOLD[name]
    assert variables["CUDA_HOME"] == "/opt/cuda"
    assert variables["MAX_JOBS"] == "$ENVBUILD_JOBS"
    # and what must be there in the end, because an extension that was left out is no error to any of them
    assert made.extensions() and made.wheel


def test_every_recipe_that_compiles_beside_torch_is_among_them() -> None:
    """A new one has to say here what its build would ask a GPU."""
    found = [recipe(path.stem.replace("_", "-")) for path in sorted((ROOT / "recipes").glob("*.py"))]
    assert {made.name for made in found if made.wheel and made.on_venv} == {*TOLD, "torch-ucc"}


def test_deepspeed_without_ops_compiles_none() -> None:
    made = recipe("deepspeed", ops=[])
    assert made.extensions() == () and len(made.verify(image(made))) == 1


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (
            "fused_adm",
            "is no op that can be compiled here\nhint: did you mean 'fused_adam'\\? there are: async_io, cpu_adagrad",
        ),
        ("cutlass_ops", "needs the"),
    ],
)
def test_ops_that_deepspeed_lacks_or_that_need_more(op: str, reason: str) -> None:
    with pytest.raises(SpecError, match=f"'{op}' {reason}"):
        recipe("deepspeed", ops=[op])


def test_ops_for_the_cpu_are_compiled_for_the_target(tmp_path: Path) -> None:
    """DeepSpeed asks the machine that builds: the line that answers in its place is run here."""
    made = recipe("deepspeed", ops=["cpu_adam"])
    (line,) = re.findall(r'sed -i "1i .*" setup\.py', commands(made, image(made)))
    (tmp_path / "op_builder").mkdir()
    (tmp_path / "op_builder" / "__init__.py").touch()
    methods = "def cpu_arch(self): return '-march=native'", "def simd_width(self): return '-D__AVX512__'"
    (tmp_path / "op_builder" / "builder.py").write_text("\n    ".join(("class OpBuilder:", *methods)))
    (tmp_path / "setup.py").write_text(
        "from op_builder.builder import OpBuilder\nprint(OpBuilder().cpu_arch(), OpBuilder().simd_width())\n"
    )
    subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, check=True)
    done = subprocess.run([sys.executable, "setup.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "-march=x86-64-v3 -D__AVX256__\n"
    assert "sed" not in commands(recipe("deepspeed"), image(made))


@pytest.mark.parametrize(("target", "code"), [("h100-ib", "90"), ("a100-ib", "80"), ("lambda-a6000", "80")])
def test_flash_attention_is_compiled_for_what_runs_it(target: str, code: str) -> None:
    made = recipe("flash-attn", version="2.8.3.post2")
    env = image(made, target=target)
    text = commands(made, env)
    assert f'FLASH_ATTN_CUDA_ARCHS="{code}"' in text and 'FLASH_ATTENTION_FORCE_BUILD="TRUE"' in text
    assert f"sm_{code} and nothing else" in made.verify(env)[-1].name


def test_flash_attention_does_not_pass_over_a_standard_that_it_cannot_set(tmp_path: Path) -> None:
    made = recipe("flash-attn")
    text = commands(made, image(made))
    lines = [line.strip().removesuffix(" && \\") for line in text.splitlines() if "-std=c++20" in line]
    (tmp_path / "setup.py").write_text('flags = ["-O3", "-std=c++17"]\n')
    subprocess.run(["/bin/sh", "-c", " && ".join(lines)], cwd=tmp_path, check=True)
    assert (tmp_path / "setup.py").read_text() == 'flags = ["-O3", "-std=c++20"]\n'
    (tmp_path / "setup.py").write_text('flags = ["-O3"]\n')
    assert subprocess.run(["/bin/sh", "-c", " && ".join(lines)], cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(("cuda", "core"), [("13.2", "13"), ("12.8", "12")])
def test_transformer_engine_takes_the_core_of_its_cuda(cuda: str, core: str) -> None:
    made = recipe("transformer-engine", version="2.20.2")
    env = image(made, recipe("cuda", version=cuda), recipe("torch"))
    python = made.runtime(env).python
    assert f"transformer-engine-cu{core}==2.20.2" in python and "transformer-engine==2.20.2" in python
    assert made.sources(env).sdists == ("transformer-engine-torch==2.20.2",)
    assert not made.refusals(env)


def test_transformer_engine_needs_a_gpu_and_a_core() -> None:
    made = recipe("transformer-engine")
    env = image(made, recipe("cuda", version="11.8"), recipe("torch"), target="cpu")
    assert len(made.refusals(env)) == 2


def test_xformers_comes_from_where_torch_does() -> None:
    torch = recipe("torch", version="2.10.0", provider="vendor", channel="cu128")
    made = recipe("xformers", version="0.0.35", provider="vendor")
    env = image(torch, made)
    assert made.sources(env).indexes[0].origin == "pip:pytorch/cu128"
    assert made.runtime(env).python == ("xformers==0.0.35",)
    assert not made.builds and not made.refusals(env)
    assert made.refusals(image(recipe("torch"), made))


def test_xformers_from_source() -> None:
    made = recipe("xformers", provider="source")
    env = image(recipe("torch"), recipe("cuda", version="13.2"), made)
    assert made.builds and made.extensions() == ("xformers._C",)
    assert 'TORCH_CUDA_ARCH_LIST="9.0"' in commands(made, env)
    assert made.refusals(image(recipe("torch"), made))
