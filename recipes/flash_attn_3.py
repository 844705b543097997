"""FlashAttention 3: fused attention kernels for H100 and H800."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import (
    Check,
    Git,
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

COMMIT = "0251105a2fb19d2957484b7f023cd8c115286ced"  # the folder hopper/ has no releases; its version is 3.0.0
# Parts that may be left out to shorten the build, by upstream's variables FLASH_ATTENTION_DISABLE_….
PARTS = (
    "appendkv",
    "backward",
    "fp16",
    "fp8",
    "hdim192",
    "hdim256",
    "hdim64",
    "hdim96",
    "local",
    "pagedkv",
    "softcap",
    "split",
    "varlen",
)


@dataclass(frozen=True, kw_only=True)
class FlashAttn3(Recipe):
    """FlashAttention 3 for H100 and H800, from the folder hopper/ of the repository.

    - `without`: parts to leave out (``fp8``, ``backward``, ``hdim256``, …). The whole takes hours to compile.
    - `commit`, `release`: another revision, and the version in its setup.py.

    Of the repository's submodules the build needs only csrc/cutlass; the other two are for AMD's GPUs. The project
    flash-attn-3 on the package index is a placeholder.
    """

    package: ClassVar[str] = "flash-attn-3"
    component: ClassVar[str] = "flash-attn-3"
    wheel: ClassVar[bool] = True
    on_venv: ClassVar[bool] = True
    arch_specific: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("torch", "cuda")
    memory_gb: ClassVar[float] = 6.0  # not measured; CUTLASS templates in one nvcc job

    commit: str = COMMIT
    release: str = "3.0.0"
    without: tuple[str, ...] = ()

    def faults(self) -> dict[str, Refusal]:
        return unknown_words(self.without, PARTS, "is not a part of FlashAttention 3 that can be left out")

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        if env.target.sm and env.target.sm != "9.0":
            found.append(
                Refusal(f"FlashAttention 3 is for sm_90 and this target has sm_{env.target.sm_arch}", "take flash-attn")
            )
        cuda = getattr(env.recipes.get("cuda"), "version", "")
        if cuda.startswith("12.") and not cuda.startswith("12.8"):
            # of 12.3 to 12.9 it uses only 12.8 itself
            found.append(Refusal(f"its build downloads another compiler with CUDA {cuda}", "take CUDA 12.8 or 13"))
        return tuple(found)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {"flash-attn-3": "hopper"}

    @property
    def git(self) -> Git:
        return Git(
            "flash-attention",
            "github:Dao-AILab/flash-attention",
            self.commit,
            submodules=("csrc/cutlass",),
            left_out="the others are for GPUs of AMD",
        )

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            python=("einops", "ninja", "packaging", env.setuptools, "wheel"),
            git=(self.git,),
            gives=(f"flash-attn-3=={self.release}",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        return python_wheel(
            "flash-attention",
            git=self.git,
            subfolder="hopper",
            environment={
                "CUDA_HOME": "/opt/cuda",
                "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
                "FLASH_ATTENTION_OFFLINE_BUILD": "1",
                "FLASH_ATTENTION_DISABLE_SM80": "TRUE",
                **{f"FLASH_ATTENTION_DISABLE_{part.upper()}": "TRUE" for part in self.without},
                "MAX_JOBS": "$ENVBUILD_JOBS",
                "NVCC_THREADS": "1",
            },
            # line tables contain the paths of the build
            before=["sed -i '/\"-lineinfo\"/d' setup.py"],
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(python=("einops", "ninja", "packaging"))

    def extensions(self) -> tuple[str, ...]:
        return ("flash_attn_3._C",)

    def verify(self, env: RecipeEnv) -> list[Check]:
        return [imports("flash-attn-3", ("flash_attn_interface",)), cubins("flash-attn-3", self.extensions(), env)]
