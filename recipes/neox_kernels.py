"""Fused kernels of GPT-NeoX."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from envbuild.sdk import (
    Check,
    Git,
    Recipe,
    RecipeEnv,
    Refusal,
    Sources,
    cubins,
    imports,
    python_wheel,
    unknown_words,
    written,
)

SETUP = Path(__file__).with_name("data") / "fused_kernels" / "setup.py"
FOLDER = "megatron/fused_kernels"
RELEASE = "0.0.2"  # of upstream's own setup.py at ea7aefd
SOFTMAX = ("scaled_masked_softmax_cuda", "scaled_upper_triang_masked_softmax_cuda")
ROPE = "fused_rotary_positional_embedding"  # since commit 77605cab of 2024-01-05


class Revision(NamedTuple):
    """Source of a version; `rope`: whether it contains the kernel for rotary embeddings."""

    origin: str
    commit: str
    tag: str = ""
    rope: bool = False


# The versions of gpt-neox. Its tag v2.0 does not parse.
REVISIONS = {
    "ea7aefd": Revision("github:EleutherAI/gpt-neox", "ea7aefd8f8e183256992d9fede4d7c71a46d67a5", rope=True),
    "66fe501": Revision("github:LambdaLabsML/gpt-neox", "66fe5013f9eecb289ec3e66665b6b10a9bebe9d4"),
    "1.0": Revision("github:EleutherAI/gpt-neox", "71df4d5017f9f4919566a11454fe3a507ffdc632", "v1.0"),
}


@dataclass(frozen=True, kw_only=True)
class NeoxKernels(Recipe):
    """GPT-NeoX's softmax and rotary kernels, compiled for the target's GPU.

    - `version`: that of gpt-neox: ``ea7aefd``, ``66fe501`` (LambdaLabs' branch) or ``1.0``.
    - `origin`, `commit`, `rope`: another revision, and whether it has the rotary kernel. If its kernels differ, the
      build fails.

    Upstream compiles for sm_70 and sm_80 only: an H100 runs neither, and CUDA 13 does not support sm_70. The sources
    are upstream's, the build file is envbuild's own. With it revisions before 7e7c1152 (2022-10-29) build as well;
    their setup.py builds nothing, without an error, if no GPU is visible.
    """

    shorthand: ClassVar[str] = "version"
    wheel: ClassVar[bool] = True
    on_venv: ClassVar[bool] = True
    arch_specific: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("torch", "cuda")
    meets: ClassVar[tuple[str, ...]] = ("neox-kernels.gpu-needed",)
    memory_gb: ClassVar[float] = 2.8  # one nvcc job over torch's headers
    cpu_minutes: ClassVar[float] = 8.8  # three modules with torch 2.15 and CUDA 13.2

    version: str = "ea7aefd"
    origin: str = "github:EleutherAI/gpt-neox"
    commit: str = ""
    rope: bool = True

    def faults(self) -> dict[str, Refusal]:
        if self.commit:
            return {}
        other = "for another revision write origin:, commit: and rope:"
        return unknown_words((self.version,), REVISIONS, "is not a known version", other=other)

    @property
    def revision(self) -> Revision:
        if self.commit:
            return Revision(self.origin, self.commit, rope=self.rope)
        return REVISIONS[self.version]

    @property
    def git(self) -> Git:
        return Git("neox-kernels", self.revision.origin, self.revision.commit, self.revision.tag)

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        code = getattr(env.recipes.get("gpt-neox"), "git", None)
        if code and code.commit != self.git.commit:
            found.append(
                Refusal(
                    f"its sources are those of commit {self.git.commit[:7]} and gpt-neox is {code.commit[:7]}",
                    "write the same version for both",
                )
            )
        apex = env.recipes.get("apex")
        if apex and (same := sorted(set(self.extensions()) & set(apex.extensions()))):
            found.append(
                Refusal(f"layer 'apex' contains {', '.join(same)} as well", "remove cuda_ext from its extensions_of")
            )
        return tuple(found)

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        # Megatron-LM's kernels are modules of the same names. For those of apex see refusals().
        return tuple(f"the module {name}" for name in self.extensions())

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {"neox-kernels": "arch-list"}

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            # torch 2.0 and older need pkg_resources to compile extensions; setuptools 82 removed it
            python=("ninja", "numpy", "setuptools<82", "wheel"),
            git=(self.git,),
            gives=(f"neox-kernels=={RELEASE}",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        kernels = {name: (f"{name.removesuffix('_cuda')}.cpp", f"{name}.cu") for name in SOFTMAX}
        if self.revision.rope:
            kernels[ROPE] = (f"{ROPE}.cpp", f"{ROPE}_cuda.cu")
        return python_wheel(
            "neox-kernels",
            git=self.git,
            subfolder=FOLDER,
            before=[written("setup.py", SETUP.read_text(encoding="utf-8"))],
            environment={
                "CUDA_HOME": "/opt/cuda",
                "FUSED_NAME": "neox-kernels",
                "FUSED_VERSION": RELEASE,
                "FUSED_KERNELS": " ".join(f"{name}={','.join(files)}" for name, files in sorted(kernels.items())),
                "NVCC_GENCODE": env.target.gencode,
                "MAX_JOBS": "$ENVBUILD_JOBS",
            },
        )

    def extensions(self) -> tuple[str, ...]:
        return (*SOFTMAX, *((ROPE,) if self.revision.rope else ()))

    def verify(self, env: RecipeEnv) -> list[Check]:
        return [imports("neox-kernels", self.extensions()), cubins("neox-kernels", self.extensions(), env)]
