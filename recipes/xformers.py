"""Attention kernels and parts of transformers, for PyTorch."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import Check, PythonIndex, Recipe, RecipeEnv, Refusal, Runtime, Sources, cubins, imports, python_wheel


@dataclass(frozen=True, kw_only=True)
class Xformers(Recipe):
    """xFormers as a wheel, or compiled for the target.

    - `provider`: ``index``, the wheel of the package index; ``vendor``, the wheel of torch's channel (torch: channel);
      or ``source``, the source distribution, compiled for the target.

    A wheel is built for one CUDA version; that of the package index is compatible with the torch there.
    """

    package: ClassVar[str] = "xformers"
    component: ClassVar[str] = "xformers"
    wheel: ClassVar[bool] = True  # of provider source; see `builds`
    on_venv: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("torch",)
    memory_gb: ClassVar[float] = 3.0  # not measured

    provider: Literal["index", "vendor", "source"] = "index"

    @property
    def builds(self) -> bool:
        return self.provider == "source"

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        if self.provider == "source" and not (env.target.sm and env.has("cuda")):
            found.append(Refusal("its kernels are compiled for a GPU with a CUDA toolkit", "add cuda to the layers"))
        if self.provider == "vendor" and not getattr(env.recipes["torch"], "channel", ""):
            found.append(Refusal("'provider: vendor' is for a torch with a channel", "write provider: index"))
        return tuple(found)

    def sources(self, env: RecipeEnv) -> Sources:
        if self.provider == "vendor":
            channel = getattr(env.recipes["torch"], "channel", "")
            return Sources(indexes=(PythonIndex(f"pip:pytorch/{channel}", ("xformers",)),))
        if self.provider == "index":
            return Sources()
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            python=("ninja", "numpy", env.setuptools, "wheel"),
            sdists=(f"xformers=={self.version}" if self.version else "xformers",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        if self.provider != "source":
            return []
        return python_wheel(
            "xformers",
            environment={
                "CUDA_HOME": "/opt/cuda",
                "FORCE_CUDA": "1",
                "TORCH_CUDA_ARCH_LIST": env.target.cuda_arch_list,
                "MAX_JOBS": "$ENVBUILD_JOBS",
                "XFORMERS_BUILD_TYPE": "Release",  # the default adds line tables, and with them paths
            },
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        if self.provider == "source":
            return Runtime(python=("numpy",))
        return Runtime(python=(f"xformers=={self.version}" if self.version else "xformers",))

    def extensions(self) -> tuple[str, ...]:
        return ("xformers._C",) if self.provider == "source" else ()

    def verify(self, env: RecipeEnv) -> list[Check]:
        version = "xformers.__version__"
        checks = [imports("xformers", ("xformers",), show=version, expect=self.version.replace(".", r"\.") or r"\d")]
        if self.provider == "source":
            checks.append(cubins("xformers", self.extensions(), env))
        return checks
