"""DeepSpeed."""

from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.recipe import VENV, Check, Recipe, RecipeEnv, Runtime, Sources

FOLDERS = {"fused_adam": "adam", "cpu_adam": "adam", "fused_lamb": "lamb", "fused_lion": "lion", "cpu_lion": "lion"}
NEEDS = (
    "einops",
    "hjson",
    "msgpack",
    "ninja",
    "numpy",
    "packaging>=20.0",
    "psutil",
    "py-cpuinfo",
    "pydantic>=2.0.0",
    "tqdm",
)


@dataclass(frozen=True, kw_only=True)
class Deepspeed(Recipe):
    """DeepSpeed from its source distribution, with chosen ops compiled for the target's GPU.

    `ops` are the names of DeepSpeed's builders (``fused_adam``, ``cpu_adam``, …); the index has no binary wheel, and
    ops left out are compiled at the first use in a job.
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

    ops: tuple[str, ...] = ("fused_adam",)

    def sources(self, env: RecipeEnv) -> Sources:
        # op builders are imported by setup.py, and with them what DeepSpeed itself needs
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            python=("setuptools>=77", *NEEDS),
            sdists=(f"deepspeed=={self.version}" if self.version else "deepspeed",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        from envbuild.plan.blocks import python_wheel

        return python_wheel(
            "deepspeed",
            environment={
                "CUDA_HOME": "/opt/cuda",
                # without a visible GPU DeepSpeed records the accelerator cpu and its prebuilt ops are skipped in the
                # job
                "DS_ACCELERATOR": "cuda",
                "DS_BUILD_OPS": "0",
                **{f"DS_BUILD_{op.upper()}": "1" for op in self.ops},
                "TORCH_CUDA_ARCH_LIST": env.target.cuda_arch_list,
                "MAX_JOBS": "$ENVBUILD_JOBS",
            },
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(python=NEEDS)

    def extensions(self) -> tuple[str, ...]:
        return tuple(f"deepspeed.ops.{FOLDERS.get(op, op)}.{op}_op" for op in self.ops)

    def verify(self, env: RecipeEnv) -> list[Check]:
        site = f"{VENV}/lib/python{env.python}/site-packages"
        imports = f'{VENV}/bin/python -c "import torch, deepspeed; print(deepspeed.__version__)"'
        checks = [Check("deepspeed: imports beside torch", imports, self.version)]
        for op in self.ops:
            library = f"$(ls {site}/deepspeed/ops/*/{op}_op*.so | head -1)"
            checks.append(
                Check(
                    f"deepspeed: {op} holds code for sm_{env.target.sm_arch} and nothing else",
                    f"/opt/cuda/bin/cuobjdump --list-elf {library}",
                    rf"\A(?:ELF file +\d+: \S*sm_{env.target.sm_arch}\S*\n?)+\Z",
                )
            )
        return checks
