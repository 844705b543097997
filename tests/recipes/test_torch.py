"""torch: the index, a vendor's channel, from source, or of a base image; and its compilers."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.blocks import checks
from envbuild.core.errors import SpecError
from tests.support.recipes import NGC, Named, commands, image, line, matches, recipe
from tests.support.recipes import matrix as matrix  # a fixture
from tests.support.tools import require_tools

pytestmark = pytest.mark.unit


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
            ("torch==1.10.1+cu113", "torchvision==0.11.2+cu113", "torchaudio", "numpy<2", "setuptools<82"),
        ),
        ({"provider": "base"}, ()),
    ],
)
def test_requirements_of_torch(options: dict[str, Any], core: tuple[str, ...]) -> None:
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
def test_components_of_torch_in_the_matrix(options: dict[str, Any], matrix: dict[str, str]) -> None:
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
        ({"provider": "vendor"}, "require each other"),
        ({"channel": "cu126"}, "require each other"),
        ({"provider": "source", "version": "2.15.0"}, "'commit' require each other"),
        ({"provider": "source", "commit": "a" * 40, "version": "2.15"}, "requires a full version"),
        ({"provider": "base", "beside": ["torchvision"]}, "'beside'"),
        ({"provider": "vendor", "channel": "cuda12"}, "'cuda12' is not a channel"),
        ({"provider": "vendor", "channel": "cuda126"}, "hint: did you mean 'cu126'\\? there are: cpu, cu132"),
        (
            {"beside": ["torch-vision"]},
            "'torch-vision' is not a package of torch's indexes\nhint: did you mean 'torchvision'",
        ),
        ({"provider": "wheel"}, "'provider' cannot be 'wheel'\nhint: it is one of: index, vendor, source, base"),
        ({"provider": "sorce"}, "hint: did you mean 'source'\\? it is one of: index, vendor, source, base"),
        ({"beside": ["torchvision; rm"]}, "is not a package of torch's indexes"),
    ],
)
def test_invalid_options_of_torch(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        recipe("torch", **options)


def test_torch_of_a_base_image() -> None:
    made = recipe("torch", provider="base")
    assert not made.refusals(image(made, base="nvcr.io/nvidia/pytorch:25.10-py3"))
    (refusal,) = map(str, made.refusals(image(made)))
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


def test_the_image_sets_pytorch_version() -> None:
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


@pytest.mark.slow_unit
def test_the_compilers_are_checked_by_compiling(tmp_path: Path) -> None:
    """The check runs here, with this machine's Python and compilers; without Python's headers it fails."""
    headers = Path(sysconfig.get_paths()["include"])
    require_tools("gcc", "g++")
    if not (headers / "Python.h").exists():
        pytest.skip(f"Python.h is not installed in {headers}")
    check = line(recipe("torch"), image(), "C and C++ compile")
    assert check.tier == "run"
    command = check.command.replace(checks.PYTHON, sys.executable).replace("/tmp/made", str(tmp_path))
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
    assert done.returncode == 0 and matches(check, done.stdout), done.stderr
    bare = command.replace("['include']", "['purelib']")
    done = subprocess.run(["/bin/sh", "-c", bare], capture_output=True, text=True)
    assert done.returncode != 0 and not matches(check, done.stdout)


def test_the_ucc_of_a_base_image_is_checked_on_request() -> None:
    made = recipe("torch", provider="base", ucc=True)
    env = image(made, base=NGC)
    assert "/opt/hpcx/ucc/bin/ucc_info" in made.promised(env)
    assert matches(line(made, env, "built with UCC"), "True\n") and not matches(
        line(made, env, "built with UCC"), "False"
    )
    transports = line(made, env, "UCC of the base")
    assert matches(
        transports, "Default CLs scores: basic=10 hier=50\nDefault TLs scores: cuda=40 nccl=20 self=50 ucp=10\n"
    )
    # HPC-X of NVIDIA's images has more transports than UCC builds by default
    assert matches(transports, "Default TLs scores: cuda=40 mlx5=1 nccl=20 self=50 sharp=30 ucp=10\n")
    assert not matches(transports, "Default TLs scores: self=50 ucp=10\n")
    assert not matches(transports, "Default TLs scores: cuda=40 mlx5=1 self=50 ucp=10\n")
    plain = recipe("torch", provider="base")
    assert not any("UCC" in check.name for check in plain.verify(image(plain, base=NGC)))
    with pytest.raises(SpecError, match="'ucc' is for provider: base"):
        recipe("torch", ucc=True)


def test_torchrun_of_a_base_image_starts_workers_with_the_venv() -> None:
    """Its launcher is the base's, in /usr/local/bin, and would start them with the base's Python."""
    made = recipe("torch", provider="base")
    env = image(made, base=NGC)
    assert made.runtime(env).env["PYTHON_EXEC"] == checks.PYTHON
    assert "'torchrun'" in line(made, env, "two workers").command.replace('"\'"', "")
    worker = line(made, env, "Python of the venv")
    assert matches(worker, "/opt/venv\n") and not matches(worker, "/usr\n")
    wheel = recipe("torch")
    assert "PYTHON_EXEC" not in wheel.runtime(image()).env
    assert "/opt/venv/bin/torchrun" in line(wheel, image(), "two workers").command


@pytest.mark.parametrize(
    ("options", "old"),
    [
        ({"version": "1.10.1", "provider": "vendor", "channel": "cu113"}, True),
        ({"version": "2.1.2", "provider": "vendor", "channel": "cu118"}, True),
        ({"version": "2.2.2"}, True),
        ({"version": "2.3.0"}, False),
        ({"version": "2.15"}, False),
        ({}, False),
        ({"provider": "base", "version": "2.1.0"}, False),  # what that image has
    ],
)
def test_torch_compiled_for_numpy_1_comes_with_it(options: dict[str, Any], old: bool) -> None:
    """torch 2.1.2 beside NumPy 2.2.6 raises "Numpy is not available" in from_numpy."""
    made = recipe("torch", **options)
    env = image(made, base=NGC if options.get("provider") == "base" else "debian:13")
    assert ("numpy<2" in made.runtime(env).core) is old
    checks = [check for check in made.verify(env) if "NumPy" in check.name]
    assert bool(checks) is old
    for check in checks:
        assert matches(check, "from 6\n") and not matches(check, "RuntimeError: Numpy is not available")


@pytest.mark.parametrize(
    ("options", "base", "comes"),
    [
        ({"version": "1.10.1", "provider": "vendor", "channel": "cu113"}, "ubuntu:20.04", True),
        ({"version": "2.4.1"}, "ubuntu:22.04", True),
        ({"version": "2.4.1"}, "ubuntu:24.04", True),
        ({"version": "2.6.0"}, "ubuntu:22.04", True),
        ({"version": "2.10"}, "ubuntu:22.04", True),
        ({"version": "2.6.0"}, "ubuntu:24.04", False),  # its metadata requires it there
        ({"version": "2.11"}, "ubuntu:22.04", False),  # and everywhere from this release on
        ({"version": "2.15"}, "debian:13", False),
        ({}, "debian:13", False),
        ({"provider": "base", "version": "2.1.0"}, NGC, False),
    ],
)
def test_a_torch_that_needs_setuptools_and_does_not_require_it_comes_with_it(
    options: dict[str, Any], base: str, comes: bool
) -> None:
    """Without it `import triton` (up to 3.2) and torch.utils.cpp_extension end with ModuleNotFoundError."""
    made = recipe("torch", **options)
    env = image(made, base=base)
    assert ("setuptools<82" in made.runtime(env).core) is comes
    checks = [check for check in made.verify(env) if "extensions" in check.name]
    assert bool(checks) is comes
    for check in checks:
        assert matches(check, "builds CUDAExtension\n")
        assert not matches(check, "ModuleNotFoundError: No module named 'setuptools'")
