"""DeepSpeed: the ops that are compiled, and for which CPU."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from tests.support.recipes import commands, image, recipe, stack

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ["deepspeed", "deeperspeed"])
def test_ops_that_jobs_compile_need_the_compiler_in_the_image(name: str) -> None:
    mine, torch = recipe(name), recipe("torch", version="1.13.1")
    refused = mine.refusals(image(mine, torch, recipe("cuda", version="13.2", flavor="runtime")))
    assert [refusal.hint for refusal in refused] == ["write cuda: {flavor: devel}"]
    assert mine.refusals(image(mine, torch, recipe("cuda", version="13.2"))) == ()


@pytest.mark.parametrize(
    ("name", "version", "needed"),
    [("deepspeed", "0.19.8", True), ("deeperspeed", "3.0", True), ("deeperspeed", "eb7f5cff", False)],
)
def test_the_wheel_for_cuda_requires_nvml(name: str, version: str, needed: bool) -> None:
    """setup.py adds it to the requirements of the wheel, and does not need it itself."""
    made = recipe(name, version=version)
    env = stack(made, torch="1.13.1")
    assert ("nvidia-ml-py" in made.runtime(env).python) is needed
    assert "nvidia-ml-py" not in made.sources(env).python
    assert ("pynvml" in made.verify(env)[0].command) is needed


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


@pytest.mark.parametrize(
    ("version", "separate"), [("0.16.9", False), ("0.19.4", False), ("0.19.5", True), ("0.19", True)]
)
def test_async_io_is_two_ops_since_0_19_5(version: str, separate: bool) -> None:
    """The source distribution has op_builder/pin_memory.py from 0.19.5 on; the build fails if a module is missing."""
    made = recipe("deepspeed", version=version, ops=["async_io"])
    assert ("deepspeed.ops.pin_memory.pin_memory_op" in made.extensions()) == separate
    assert ('DS_BUILD_PIN_MEMORY="1"' in commands(made, image(made))) == separate


def test_async_io_is_linked_with_the_stub_of_the_driver_and_loads_without_one() -> None:
    """op_builder/async_io.py links -lcuda with the paths /opt/cuda and /opt/cuda/lib64, which do not have it."""
    made = recipe("deepspeed", version="0.16.9", ops=["async_io"])
    text = commands(made, image(made))
    assert 'LIBRARY_PATH="/opt/cuda/lib64/stubs"' in text and 'LDFLAGS="-Wl,--as-needed"' in text
    other = recipe("deepspeed", version="0.16.9")
    assert "LIBRARY_PATH" not in commands(other, image(other))


@pytest.mark.parametrize(("version", "queries"), [("0.16.9", True), ("0.17.4", True), ("0.17.5", False), ("", False)])
def test_setup_py_of_older_releases_queries_no_gpu(version: str, queries: bool, tmp_path: Path) -> None:
    """It imports deepspeed, which up to 0.17.4 beside triton ends with an error on a machine without a driver."""
    made = recipe("deepspeed", **({"version": version} if version else {}))
    found = re.findall(r"find \. -name cuda_accelerator\.py .* \+", commands(made, image(made)))
    assert bool(found) == queries
    if queries:
        before = "        major, _ = torch.cuda.get_device_capability()\n"
        for folder in ("accelerator", "deepspeed/accelerator"):
            (tmp_path / folder).mkdir(parents=True)
            (tmp_path / folder / "cuda_accelerator.py").write_text(before)
        subprocess.run(["/bin/sh", "-c", found[0]], cwd=tmp_path, check=True)
        after = {path.read_text() for path in tmp_path.rglob("*.py")}
        assert after == {before.rstrip() + " if self.is_available() else (0, 0)\n"}


def test_deepspeed_without_ops_compiles_none() -> None:
    made = recipe("deepspeed", ops=[])
    assert made.extensions() == () and len(made.verify(image(made))) == 1


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (
            "fused_adm",
            "is not an op that this recipe can compile\nhint: did you mean 'fused_adam'\\? there are: async_io",
        ),
        ("cutlass_ops", "requires the package"),
    ],
)
def test_ops_that_deepspeed_does_not_have_or_that_need_more(op: str, reason: str) -> None:
    with pytest.raises(SpecError, match=f"'{op}' {reason}"):
        recipe("deepspeed", ops=[op])


def test_ops_for_the_cpu_are_compiled_for_the_target(tmp_path: Path) -> None:
    """DeepSpeed detects the CPU of the build machine: the line that overrides this is run here."""
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
