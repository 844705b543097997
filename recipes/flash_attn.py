"""FlashAttention 2: fused attention kernels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Check, Recipe, RecipeEnv, Refusal, Runtime, Sources, cubins, imports, python_wheel

# Generation of GPUs → the architecture that setup.py of 2.8.3.post2 compiles for; all GPUs of it run that code.
CODE = {"8": "80", "9": "90", "10": "100", "12": "120"}


@dataclass(frozen=True, kw_only=True)
class FlashAttn(Recipe):
    """FlashAttention 2 from its source distribution (the index has no wheel), compiled for the target alone.

    Its setup.py would otherwise download a wheel whose name does not state the GPU. It compiles as C++17, which the
    headers of torch 2.14 and later reject; with those the standard is changed to C++20. Releases before 2.7.3 compile
    for every GPU that their setup.py lists for the toolkit, four files in a job.
    """

    package: ClassVar[str] = "flash-attn"
    component: ClassVar[str] = "flash-attn"
    meets: ClassVar[tuple[str, ...]] = (
        "flash-attn.source-only",
        "flash-attn.wheels",
        "flash-attn.wheels-python",
        "flash-attn.cxx20-warned",
        "flash-attn.ptx-default",
    )
    wheel: ClassVar[bool] = True
    on_venv: ClassVar[bool] = True
    arch_specific: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("torch", "cuda")
    # No `cpu_minutes`: the whole build was not measured. The smallest of its 72 kernels took 2.5 CPU minutes for one
    # architecture.

    @property
    def old(self) -> bool:
        """Return whether setup.py has no FLASH_ATTN_CUDA_ARCHS and compiles four files a job (before 2.7.3)."""
        numbers = [int(part) for part in self.version.split(".")[:3] if part.isdigit()]
        return bool(numbers) and numbers < [2, 7, 3]

    @property
    def memory_gb(self) -> float:
        return 20.0 if self.old else 5.0  # upstream plans 5 GB for each nvcc job and thread

    def code(self, env: RecipeEnv) -> str:
        """Return the architecture that is compiled for ("80" for an A6000, sm_86); "" if it has no kernels."""
        return CODE.get(env.target.sm.partition(".")[0], "")

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if env.target.sm and not self.code(env):
            return (
                Refusal(
                    f"FlashAttention 2 has no kernels for sm_{env.target.sm_arch}", "take a target with a later GPU"
                ),
            )
        return ()

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {**super().matrix(env), **({"flash-attn-std": "cxx20"} if self.standard(env) else {})}

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            python=("einops", "ninja", "packaging", "psutil", env.setuptools, "wheel"),
            sdists=(f"flash-attn=={self.version}" if self.version else "flash-attn",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        return python_wheel(
            "flash_attn",
            environment={
                "CUDA_HOME": "/opt/cuda",
                "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
                "FLASH_ATTN_CUDA_ARCHS": self.code(env),  # TORCH_CUDA_ARCH_LIST is ignored
                "MAX_JOBS": "$ENVBUILD_JOBS",
                "NVCC_THREADS": "1",  # the number of jobs follows from memory, and a thread needs as much as a job
            },
            before=self.standard(env),
        )

    def standard(self, env: RecipeEnv) -> list[str]:
        """Return the commands that set C++20 for torch 2.14 and later.

        Their headers reject C++17. For older torch nothing is changed, because nvcc before CUDA 12 knows no C++20.
        """
        version = getattr(env.recipes.get("torch"), "version", "").partition("+")[0]
        torch = [int(part) for part in version.split(".")[:2] if part.isdigit()]
        if torch and torch < [2, 14]:
            return []
        return ["sed -i 's/-std=c++17/-std=c++20/g' setup.py", "grep -q -e -std=c++20 setup.py"]

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(python=("einops",))

    def extensions(self) -> tuple[str, ...]:
        return ("flash_attn_cuda",) if self.version.startswith(("0.", "1.")) else ("flash_attn_2_cuda",)

    def verify(self, env: RecipeEnv) -> list[Check]:
        if self.old:  # it compiles for other GPUs of its time as well, and 0.x does not state its version
            return [imports("flash-attn", self.extensions())]
        version = "flash_attn.__version__"
        return [
            imports("flash-attn", ("flash_attn",), show=version, expect=self.version.replace(".", r"\.") or r"\d"),
            cubins("flash-attn", self.extensions(), env, sm=self.code(env)),
        ]
