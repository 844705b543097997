"""Distributed training with ZeRO, and fused ops, for PyTorch."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from envbuild.sdk import (
    DEEPSPEED,
    DEEPSPEED_NO_GPU,
    Check,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    cubins,
    imports,
    python_wheel,
    unknown_words,
)


class Op(NamedTuple):
    """A builder of DeepSpeed: the variable that enables it, its module, and whether that contains GPU code."""

    variable: str
    module: str
    gpu: bool = True


# The builders of 0.19.8 for the accelerator cuda, as op_builder.all_ops.ALL_OPS returns them (BUILD_VAR,
# absolute_name(), sources()). The missing dot of inference_core_ops is upstream's.
OPS = {
    "async_io": Op("AIO", "deepspeed.ops.aio.async_io_op", gpu=False),
    "cpu_adagrad": Op("CPU_ADAGRAD", "deepspeed.ops.adagrad.cpu_adagrad_op", gpu=False),
    "cpu_adam": Op("CPU_ADAM", "deepspeed.ops.adam.cpu_adam_op", gpu=False),
    "cpu_lion": Op("CPU_LION", "deepspeed.ops.lion.cpu_lion_op", gpu=False),
    "fp_quantizer": Op("FP_QUANTIZER", "deepspeed.ops.fp_quantizer.fp_quantizer_op"),
    "fused_adam": Op("FUSED_ADAM", "deepspeed.ops.adam.fused_adam_op"),
    "fused_lamb": Op("FUSED_LAMB", "deepspeed.ops.lamb.fused_lamb_op"),
    "fused_lion": Op("FUSED_LION", "deepspeed.ops.lion.fused_lion_op"),
    "inference_core_ops": Op("INFERENCE_CORE_OPS", "deepspeed.inference.v2.kernelsinference_core_ops"),
    "pin_memory": Op("PIN_MEMORY", "deepspeed.ops.pin_memory.pin_memory_op", gpu=False),
    "quantizer": Op("QUANTIZER", "deepspeed.ops.quantizer.quantizer_op"),
    "ragged_ops": Op("RAGGED_OPS", "deepspeed.inference.v2.ragged_ops"),
    "random_ltd": Op("RANDOM_LTD", "deepspeed.ops.random_ltd_op"),
    "spatial_inference": Op("SPATIAL_INFERENCE", "deepspeed.ops.spatial.spatial_inference_op"),
    "stochastic_transformer": Op("STOCHASTIC_TRANSFORMER", "deepspeed.ops.transformer.stochastic_transformer_op"),
    "transformer": Op("TRANSFORMER", "deepspeed.ops.transformer.transformer_op"),
    "transformer_inference": Op(
        "TRANSFORMER_INFERENCE", "deepspeed.ops.transformer.inference.transformer_inference_op"
    ),
    "utils": Op("UTILS", "deepspeed.ops.utils_op", gpu=False),
}
# Ops of DeepSpeed that this recipe cannot build → the reason.
WITHOUT = {
    "cutlass_ops": "requires the package deepspeed-kernels, which this recipe does not provide",
    "dc": "was not tested",
    "evoformer_attn": "requires the source of CUTLASS, which this recipe does not provide",
    "gds": "requires cuFile on the node and was not tested",
    "ragged_device_ops": "requires the package deepspeed-kernels, which this recipe does not provide",
}
STUBS = "/opt/cuda/lib64/stubs"
NVML = "nvidia-ml-py"  # setup.py requires it where the accelerator is cuda; free memory of a GPU is read with it
PIN_MEMORY = (0, 19, 5)  # the first source distribution with op_builder/pin_memory.py
WITHOUT_GPU = (0, 17, 5)  # the first release that imports on a machine without a GPU beside triton
# CPU → its vector instructions, by the names in op_builder/builder.py, which would detect those of the build machine.
VECTORS = {"x86-64-v3": "AVX256", "x86-64-v4": "AVX512", "armv8-a": "NEON", "armv9-a": "NEON"}


@dataclass(frozen=True, kw_only=True)
class Deepspeed(Recipe):
    """DeepSpeed from its source distribution, with chosen ops compiled for the target.

    `ops` lists names of DeepSpeed's builders (``fused_adam``, ``cpu_adam``, …) and may be empty. The index has no
    binary wheel. The other ops are compiled at their first use in a job, with the compiler of layer torch (torch:
    compiler).
    """

    package: ClassVar[str] = "deepspeed"
    component: ClassVar[str] = "deepspeed"
    meets: ClassVar[tuple[str, ...]] = ("deepspeed.accelerator", "deepspeed.arch-default")
    wheel: ClassVar[bool] = True
    on_venv: ClassVar[bool] = True
    arch_specific: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("torch", "cuda")
    memory_gb: ClassVar[float] = 2.5  # one nvcc job over torch's headers peaks at 2.0 GB
    cpu_minutes: ClassVar[float] = 1.1  # fused_adam alone

    ops: tuple[str, ...] = ("fused_adam",)

    def faults(self) -> dict[str, Refusal]:
        return unknown_words(self.ops, OPS, "is not an op that this recipe can compile") | {
            op: Refusal(WITHOUT[op]) for op in self.ops if op in WITHOUT
        }

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if env.has_nvcc:
            return ()
        why = "jobs compile its other ops with nvcc, and the layer cuda of this image has flavor: runtime"
        return (Refusal(why, "write cuda: {flavor: devel}"),)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {**super().matrix(env), **({"deepspeed-ops": "compiled"} if self.ops else {})}

    def is_from(self, release: tuple[int, int, int]) -> bool:
        """Return whether the version is this release or a newer one; True if the spec leaves it open."""
        numbers = tuple(int(part) for part in self.version.split(".")[:3] if part.isdigit())
        return not numbers or numbers >= release[: len(numbers)]

    @property
    def chosen(self) -> tuple[str, ...]:
        """Return the requested ops, and those that DeepSpeed compiles along with them: since 0.19.5 async_io is two."""
        along = self.is_from(PIN_MEMORY) and "async_io" in self.ops and "pin_memory" not in self.ops
        return (*self.ops, *(("pin_memory",) if along else ()))

    def sources(self, env: RecipeEnv) -> Sources:
        aio = ("libaio-dev",) if "async_io" in self.ops else ()
        # setup.py imports the op builders, and with them DeepSpeed's own requirements
        return Sources(
            debian=("g++", "gcc", *aio, "libc6-dev", "python3-dev"),
            python=(env.setuptools, *DEEPSPEED),
            sdists=(f"deepspeed=={self.version}" if self.version else "deepspeed",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        # DeepSpeed compiles CPU ops for the build machine, and the target's CPU may be older. Only setup.py is changed:
        # ops that a job compiles at their first use are for the node of the job.
        vectors = f"-D__{VECTORS.get(env.target.cpu, 'SCALAR')}__"
        lines = (
            "import op_builder.builder as _builder",
            f"_builder.OpBuilder.cpu_arch = lambda self: '-march={env.target.cpu}'",
            f"_builder.OpBuilder.simd_width = lambda self: '{vectors}'",
        )
        before = [f'sed -i "1i {"; ".join(lines)}" setup.py'] if any(not OPS[op].gpu for op in self.ops) else []
        if not self.is_from(WITHOUT_GPU):
            # in the source distribution the folder is there twice
            found = "find . -name cuda_accelerator.py -exec sed -E -i"
            before.append(f"{found} {shlex.quote(DEEPSPEED_NO_GPU)} {{}} +")
        return python_wheel(
            "deepspeed",
            environment={
                "CUDA_HOME": "/opt/cuda",
                # without a visible GPU DeepSpeed records the accelerator cpu and its prebuilt ops are skipped in the
                # job
                "DS_ACCELERATOR": "cuda",
                "DS_BUILD_OPS": "0",
                **{f"DS_BUILD_{OPS[op].variable}": "1" for op in self.chosen},
                "TORCH_CUDA_ARCH_LIST": env.target.cuda_arch_list,
                "MAX_JOBS": "$ENVBUILD_JOBS",
                # It is linked with -lcuda, which a toolkit has among its stubs only, and calls nothing of it.
                **({"LDFLAGS": "-Wl,--as-needed", "LIBRARY_PATH": STUBS} if "async_io" in self.ops else {}),
            },
            before=before,
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        aio = (env.distribution.package("libaio1"),) if "async_io" in self.ops else ()
        return Runtime(debian=aio, python=(*DEEPSPEED, NVML))

    def extensions(self) -> tuple[str, ...]:
        return tuple(OPS[op].module for op in self.chosen)

    def verify(self, env: RecipeEnv) -> list[Check]:
        expect = self.version.replace(".", r"\.") or r"\d"
        checks = [imports("deepspeed", ("deepspeed", "pynvml"), show="deepspeed.__version__", expect=expect)]
        if modules := self.extensions():
            checks.append(imports("deepspeed ops", modules))
        if kernels := [OPS[op].module for op in self.chosen if OPS[op].gpu]:
            checks.append(cubins("deepspeed", kernels, env))
        return checks
