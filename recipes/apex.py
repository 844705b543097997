"""NVIDIA apex."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import (
    Check,
    Git,
    OptionError,
    Recipe,
    RecipeEnv,
    Refusal,
    Sources,
    cubins,
    imports,
    python_wheel,
    unknown_words,
)

# What people pin: a tag of the monthly containers, or a commit; the names of the version matrix (facts/apex.yaml).
COMMITS = {
    "6424da3b": "6424da3b4faa6c8f062da4a48c424fff3f02d42d",  # torch 2.15
    "25.09": "4bdecd06b3c4b2c0a8fb6603829a8f9f05a42b49",
    "25.07": "e74a67bba3ee679f778670e17edc21639008ae0a",
    "265b451": "265b451de8ba9bfcb67edc7360f3d8772d0a8bea",  # metaseq, torch 1.10
    "22.03": "59978d5e37612606e2f9ef334a7687360fbaf19e",
    "a651e2c2": "a651e2c24ecf97cbf367fd3f330df36760e1c597",  # gpt-neox of Lambda, torch 1.8
    "e2083df5": "e2083df5eb96643c61613b9df48dd4eea6b07690",  # metaseq's documents
}
# Before 25.08 setup.py read words of its command line only.
OLD_STYLE = ("25.07", "265b451", "22.03", "a651e2c2", "e2083df5")

# setup.py's word for a group of extensions → their modules (at 6424da3b; "" stands for what the word itself says).
CUDA_EXT = (
    "amp_C",
    "syncbn",
    "fused_layer_norm_cuda",
    "mlp_cuda",
    "fused_dense_cuda",
    "scaled_upper_triang_masked_softmax_cuda",
    "generic_scaled_masked_softmax_cuda",
    "scaled_masked_softmax_cuda",
    "scaled_softmax_cuda",
    "fused_rotary_positional_embedding",
    "fused_weight_gradient_mlp_cuda",
)
MODULES = {
    "cpp_ext": ("apex_C",),
    "cuda_ext": CUDA_EXT,
    "bnp": ("bnp",),
    "deprecated_fused_adam": ("fused_adam_cuda",),
    "deprecated_fused_lamb": ("fused_lamb_cuda",),
    "distributed_adam": ("distributed_adam_cuda",),
    "distributed_lamb": ("distributed_lamb_cuda",),
    "fast_layer_norm": ("fast_layer_norm",),
    "fast_multihead_attn": ("fast_multihead_attn",),
    "focal_loss": ("focal_loss_cuda",),
    "index_mul_2d": ("fused_index_mul_2d",),
    "nccl_p2p": ("nccl_p2p_cuda",),
    "peer_memory": ("peer_memory_cuda",),
    "transducer": ("transducer_joint_cuda", "transducer_loss_cuda"),
    "xentropy": ("xentropy_cuda",),
}
# What other commits make of these words (their setup.py); None: they do not know the word.
SOFTMAX = ("scaled_upper_triang_masked_softmax_cuda", "scaled_masked_softmax_cuda")
OF_2022 = {"cuda_ext": (*CUDA_EXT[:5], *SOFTMAX, CUDA_EXT[-1]), "index_mul_2d": None}
OF_2021 = {
    **dict.fromkeys(("focal_loss", "index_mul_2d", "nccl_p2p", "peer_memory")),
    "cuda_ext": CUDA_EXT[:4],
    "fast_multihead_attn": (
        "fast_additive_mask_softmax_dropout",
        "fast_mask_softmax_dropout",
        "fast_self_multihead_attn_bias_additive_mask",
        "fast_self_multihead_attn_bias",
        "fast_self_multihead_attn",
        "fast_self_multihead_attn_norm_add",
        "fast_encdec_multihead_attn",
        "fast_encdec_multihead_attn_norm_add",
    ),
}
OTHER: Mapping[str, Mapping[str, tuple[str, ...] | None]] = {
    "6424da3b": {"fast_multihead_attn": None},
    "265b451": OF_2022,
    "22.03": {**OF_2022, **dict.fromkeys(("focal_loss", "nccl_p2p", "peer_memory"))},
    "a651e2c2": OF_2021,
    "e2083df5": {**OF_2021, "transducer": None},
}
# Those that fetch a submodule or compile while setup.py is read.
WITHOUT = ("cudnn_gbn", "fast_bottleneck", "fused_conv_bias_relu", "group_norm", "nccl_allocator", "permutation_search")


@dataclass(frozen=True, kw_only=True)
class Apex(Recipe):
    """apex at a commit, with chosen extensions compiled for the target.

    `version` is a tag of NVIDIA's containers or a commit (``6424da3b``); `extensions_of` are setup.py's words
    (``cpp_ext``, ``cuda_ext``, ``xentropy``, …). The project called apex on the package index is another one. Its
    version is always 0.1. Without these words apex installs without kernels and without an error.

    Another revision is a `commit` and `modules`, the extension modules that its setup.py makes of these words: a word
    that it does not know, or reads from elsewhere, makes none, without an error, and only their names can tell.
    """

    package: ClassVar[str] = "apex"
    component: ClassVar[str] = "apex"
    meets: ClassVar[tuple[str, ...]] = ("apex.flags", "apex.arch-default")
    wheel: ClassVar[bool] = True
    on_venv: ClassVar[bool] = True
    arch_specific: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("torch", "cuda")
    memory_gb: ClassVar[float] = 2.8
    cpu_minutes: ClassVar[float] = 23.8  # cpp_ext and cuda_ext

    version: str = "6424da3b"
    extensions_of: tuple[str, ...] = ("cpp_ext", "cuda_ext")
    commit: str = ""
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.modules and not self.commit:
            raise OptionError(
                "'modules' belong to a commit that is not known here", "leave them out, or write its commit"
            )
        if self.commit and not self.modules:
            write = "modules: [apex_C, amp_C, …], what its setup.py makes of extensions_of"
            raise OptionError(
                "nobody says which extension modules a commit of the spec's own must have", f"write {write}"
            )

    @property
    def pin(self) -> str:
        """The name in the tables above; "" for a commit of the spec's own."""
        for name, commit in COMMITS.items():
            if self.commit:
                if self.commit == commit:
                    return name
            elif self.version == name or (len(self.version) >= 7 and commit.startswith(self.version)):
                return name
        return ""

    @property
    def git(self) -> Git:
        return Git("apex", "github:NVIDIA/apex", self.commit or COMMITS.get(self.pin, self.version))

    def faults(self) -> dict[str, Refusal]:
        untried = Refusal("fetches or compiles while it is asked what it is, and was not tried")
        found = {word: untried for word in self.extensions_of if word in WITHOUT}
        if self.commit:
            spelt = Refusal("is not a word of setup.py, as in cuda_ext")
            named = Refusal("is not the name of a module, as in amp_C")
            found |= {word: spelt for word in self.extensions_of if not re.fullmatch(r"[a-z0-9_]+", word)}
            return found | {name: named for name in self.modules if not re.fullmatch(r"[A-Za-z_][\w.]*", name)}
        if not self.pin:
            other = "any other is a commit, and modules: the extension modules that it must have"
            return unknown_words((self.version,), COMMITS, "is no apex that is known here", other=other)
        there = [word for word in MODULES if self.modules_of(word) is not None]
        return unknown_words(self.extensions_of, there, f"is no group of extensions of apex {self.pin}") | found

    def sources(self, env: RecipeEnv) -> Sources:
        # a commit of the spec's own may be of either kind, and what the older ones need serves the newer ones too
        old = ("setuptools>=59,<70",) if self.pin in ("", *OLD_STYLE) else ("setuptools>=77",)
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            python=(*old, "ninja", "numpy", "packaging", "wheel"),
            git=(self.git,),
            gives=("apex==0.1",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        # Both ways for a commit of the spec's own: old ones do not look at the environment, new ones at both.
        words, variables = self.pin in ("", *OLD_STYLE), self.pin not in OLD_STYLE
        return python_wheel(
            "apex",
            git=self.git,
            environment={
                "CUDA_HOME": "/opt/cuda",
                "TORCH_CUDA_ARCH_LIST": env.target.cuda_arch_list,
                "MAX_JOBS": "$ENVBUILD_JOBS",  # APEX_PARALLEL_BUILD would multiply it
                **({f"APEX_{word.upper()}": "1" for word in self.extensions_of} if variables else {}),
            },
            settings=[f"--build-option=--{word}" for word in self.extensions_of] if words else (),
        )

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {"apex": self.pin} if self.pin else {}  # of a commit of the spec's own no fact can speak

    def modules_of(self, word: str) -> tuple[str, ...] | None:
        """The modules of a group at this commit; None when it has no such group."""
        other = OTHER.get(self.pin, {})
        return other[word] if word in other else MODULES[word]

    def extensions(self) -> tuple[str, ...]:
        if self.modules:
            return self.modules
        return tuple(module for word in self.extensions_of for module in self.modules_of(word) or ())

    def verify(self, env: RecipeEnv) -> list[Check]:
        modules = self.extensions()
        kernels = [module for module in modules if module != "apex_C"]
        checks = [imports("apex", ("apex",))]
        if modules:
            checks.append(imports("apex", modules))
        return checks + ([cubins("apex", kernels, env)] if kernels else [])
