"""Fused kernels of Megatron-LM's legacy code."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from envbuild.sdk import Check, Git, Recipe, RecipeEnv, Refusal, Sources, cubins, imports, python_wheel, written

SETUP = Path(__file__).with_name("data") / "fused_kernels" / "setup.py"
FOLDER = "megatron/fused_kernels"
RELEASE = "23.6"  # upstream's kernels have no version of their own: that of the tag, as Python writes it
KERNELS = ("scaled_masked_softmax", "scaled_softmax", "scaled_upper_triang_masked_softmax")


@dataclass(frozen=True, kw_only=True)
class MegatronKernels(Recipe):
    """Three softmax kernels that ``--masked-softmax-fusion`` of Megatron-LM imports, compiled for the target's GPU.

    They are those of the tag 23.06, the last one that contains them: core_v0.4.0 and later import the same modules from
    apex. Upstream compiles them at their first use in a job, always for sm_70 as well, which CUDA 13 does not support.
    `commit` is another revision with the same three kernels. The kernel for the fused weight gradient is only in apex.
    """

    wheel: ClassVar[bool] = True
    on_venv: ClassVar[bool] = True
    arch_specific: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("torch", "cuda")
    memory_gb: ClassVar[float] = 2.8  # one nvcc job over torch's headers

    commit: str = "4f8e9ac412eff9cabae31495b9f5f3f02fe5a9d4"

    @property
    def git(self) -> Git:
        own = self.commit == type(self).commit
        return Git("megatron-kernels", "github:NVIDIA/Megatron-LM", self.commit, "23.06" if own else "")

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        apex = env.recipes.get("apex")
        if apex and (same := sorted(set(self.extensions()) & set(apex.extensions()))):
            return (Refusal(f"layer 'apex' contains {', '.join(same)} as well", "remove one of the two"),)
        return ()

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        # GPT-NeoX's kernels are modules of the same names. For those of apex see refusals().
        return tuple(f"the module {name}" for name in self.extensions())

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {"megatron-kernels": "arch-list"}

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            # torch 2.0 and older need pkg_resources to compile extensions; setuptools 82 removed it
            python=("ninja", "numpy", "setuptools<82", "wheel"),
            git=(self.git,),
            gives=(f"megatron-kernels=={RELEASE}",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        return python_wheel(
            "megatron-kernels",
            git=self.git,
            subfolder=FOLDER,
            before=[written("setup.py", SETUP.read_text(encoding="utf-8"))],
            environment={
                "CUDA_HOME": "/opt/cuda",
                "FUSED_NAME": "megatron-kernels",
                "FUSED_VERSION": RELEASE,
                "FUSED_KERNELS": " ".join(f"{name}_cuda={name}.cpp,{name}_cuda.cu" for name in KERNELS),
                "NVCC_GENCODE": env.target.gencode,
                "MAX_JOBS": "$ENVBUILD_JOBS",
            },
        )

    def extensions(self) -> tuple[str, ...]:
        return tuple(f"{name}_cuda" for name in KERNELS)

    def verify(self, env: RecipeEnv) -> list[Check]:
        return [imports("megatron-kernels", self.extensions()), cubins("megatron-kernels", self.extensions(), env)]
