"""NVIDIA's fused kernels and optimizers for PyTorch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
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
    written,
)

# Revisions that images pin: a tag of NVIDIA's monthly containers or a commit, by the names of the version matrix
# (envbuild/matrix/data/apex.yaml).
COMMITS = {
    "6424da3b": "6424da3b4faa6c8f062da4a48c424fff3f02d42d",  # torch 2.15
    "25.09": "4bdecd06b3c4b2c0a8fb6603829a8f9f05a42b49",
    "25.07": "e74a67bba3ee679f778670e17edc21639008ae0a",
    "265b451": "265b451de8ba9bfcb67edc7360f3d8772d0a8bea",  # metaseq, torch 1.10
    "22.03": "59978d5e37612606e2f9ef334a7687360fbaf19e",
    "a651e2c2": "a651e2c24ecf97cbf367fd3f330df36760e1c597",  # gpt-neox of Lambda, torch 1.8
    "e2083df5": "e2083df5eb96643c61613b9df48dd4eea6b07690",  # metaseq's instructions
}
# Before 25.09, setup.py reads options from its command line only.
OLD_STYLE = ("25.07", "265b451", "22.03", "a651e2c2", "e2083df5")

# Group of extensions by the name that setup.py has for it → its modules, at 6424da3b.
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
# The modules of these groups at other commits, from their setup.py. None: the commit does not have the group.
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
# setup.py of these names GPUs of its time for some modules (fused_weight_gradient_mlp_cuda, fast_multihead_attn), and
# torch then ignores TORCH_CUDA_ARCH_LIST for them. 6424da3b does so only in groups of WITHOUT.
NAMES_GPUS = ("", "25.09", *OLD_STYLE)
ONE_GPU = Path(__file__).with_name("data") / "one_gpu" / "prelude.py"
CUTLASS = "apex/contrib/csrc/multihead_attn/cutlass"  # submodule that fast_multihead_attn includes
# Groups that fetch a submodule or compile something while setup.py is read.
WITHOUT = ("cudnn_gbn", "fast_bottleneck", "fused_conv_bias_relu", "group_norm", "nccl_allocator", "permutation_search")


@dataclass(frozen=True, kw_only=True)
class Apex(Recipe):
    """apex at a commit, with chosen groups of extensions compiled for the target.

    - `version`: a tag of NVIDIA's containers, or a commit (``6424da3b``).
    - `extensions_of`: groups of extensions, by the names in setup.py (``cpp_ext``, ``cuda_ext``, ``xentropy``, …).
      Without a group apex installs without its kernels and without an error. ``fast_multihead_attn`` takes CUTLASS
      from apex's submodule.
    - `commit`, `modules`: another revision, and the extension modules that its setup.py builds for these groups. A
      group that its setup.py does not know builds nothing and reports no error; only missing modules show that.

    The version of the Python package is always 0.1. The project apex on the package index is a different one.
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
            raise OptionError("'modules' requires 'commit'", "remove modules:, or write commit: with 40 hex digits")
        if self.commit and not self.modules:
            hint = "write modules: [apex_C, amp_C, …], the modules that its setup.py builds for extensions_of"
            raise OptionError("'commit' requires 'modules', the extension modules that it must build", hint)

    @property
    def pin(self) -> str:
        """Return the name in the tables above; "" for a commit that they do not have."""
        for name, commit in COMMITS.items():
            if self.commit:
                if self.commit == commit:
                    return name
            elif self.version == name or (len(self.version) >= 7 and commit.startswith(self.version)):
                return name
        return ""

    @property
    def git(self) -> Git:
        needed = (CUTLASS,) if "fast_multihead_attn" in self.extensions_of else ()
        commit = self.commit or COMMITS.get(self.pin, self.version)
        why = "none of the chosen groups of extensions is compiled with the others"
        return Git("apex", "github:NVIDIA/apex", commit, submodules=needed, left_out=why)

    def faults(self) -> dict[str, Refusal]:
        untried = Refusal("fetches or compiles something while setup.py is read, and was not tested")
        found = {word: untried for word in self.extensions_of if word in WITHOUT}
        if self.commit:
            spelt = Refusal("is not the name of a group of extensions, such as cuda_ext")
            named = Refusal("is not the name of a module, such as amp_C")
            found |= {word: spelt for word in self.extensions_of if not re.fullmatch(r"[a-z0-9_]+", word)}
            return found | {name: named for name in self.modules if not re.fullmatch(r"[A-Za-z_][\w.]*", name)}
        if not self.pin:
            other = "for another revision write commit: and modules:, the extension modules that it must build"
            return unknown_words((self.version,), COMMITS, "is not a known revision of apex", other=other)
        groups = [word for word in MODULES if self.modules_of(word) is not None]
        return unknown_words(self.extensions_of, groups, f"is not a group of extensions of apex {self.pin}") | found

    def sources(self, env: RecipeEnv) -> Sources:
        # setuptools passes --build-option to setup.py since 64; before, the words were dropped without an error. An
        # unknown commit may be old or new, and the requirements of the old ones also work for the new ones.
        old = ("setuptools>=64,<70",) if self.pin in ("", *OLD_STYLE) else ("setuptools>=77",)
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            python=(*old, "ninja", "numpy", "packaging", "wheel"),
            git=(self.git,),
            gives=("apex==0.1",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        # Both ways for an unknown commit: old ones read the command line only, new ones the environment as well.
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
            before=for_one_gpu() if self.pin in NAMES_GPUS else (),
        )

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {"apex": self.pin} if self.pin else {}  # no fact covers an unknown commit

    def modules_of(self, word: str) -> tuple[str, ...] | None:
        """Return the modules of a group at this commit; None if it has no such group."""
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


def for_one_gpu() -> tuple[str, ...]:
    """Return the commands that remove the GPUs which a setup.py names, so that TORCH_CUDA_ARCH_LIST decides."""
    text = ONE_GPU.read_text(encoding="utf-8")
    return (
        written("one_gpu.py", text),
        "cat one_gpu.py setup.py > setup.new",
        "mv setup.new setup.py",
        "rm one_gpu.py",
    )
