"""NVIDIA's kernels for transformers, with FP8."""

from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Check, Recipe, RecipeEnv, Refusal, Runtime, Sources, imports, python_wheel

# build_tools/pytorch.py of 2.20.2 (install_requirements)
NEEDS = (
    "einops",
    "nvdlfw-inspect",
    "nvidia-cudnn-frontend>=1.29.0",
    "onnx",
    "onnxscript",
    "packaging",
    "pydantic",
)
CORES = ("12", "13")  # major versions of CUDA that have a core


@dataclass(frozen=True, kw_only=True)
class TransformerEngine(Recipe):
    """Transformer Engine: the core from the index, the part for torch compiled here.

    The wheel transformer-engine-cu12 or -cu13 contains the kernels, for all GPUs that NVIDIA compiles them for.
    transformer-engine-torch is source only, C++ without kernels. Its setup.py would download a wheel for the version of
    torch if one existed. Its module is in the folder ``wheel_lib`` of the package, which loads it from there
    (transformer_engine/common/__init__.py of 2.20.2): the check imports the package.
    """

    package: ClassVar[str] = "transformer-engine"
    component: ClassVar[str] = "transformer-engine"
    meets: ClassVar[tuple[str, ...]] = ("transformer-engine.core",)
    wheel: ClassVar[bool] = True
    on_venv: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("torch", "cuda")
    memory_gb: ClassVar[float] = 2.5  # C++ over torch's headers; not measured for the largest file

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        if not env.target.sm:
            found.append(Refusal("it has kernels for GPUs only", "take a target with a GPU"))
        if self.core(env) not in CORES:
            found.append(
                Refusal(
                    f"it has a core for CUDA {' and '.join(CORES)}, not for CUDA {env.recipes['cuda'].version}",
                    f"take CUDA {' or '.join(CORES)}",
                )
            )
        return tuple(found)

    def core(self, env: RecipeEnv) -> str:
        """Return CUDA's major version, which is in the core's name; 13 if the matrix has not picked one yet."""
        return env.recipes["cuda"].version.partition(".")[0] or CORES[-1]

    def sources(self, env: RecipeEnv) -> Sources:
        name = "transformer-engine-torch"
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            python=("ninja", "packaging", "pybind11", env.setuptools, "wheel", NEEDS[2]),
            sdists=(f"{name}=={self.version}" if self.version else name,),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        # cuDNN and NCCL are wheels beside the toolkit, and the build searches for their headers only in the toolkit
        nvidia = f"{env.site_packages}/nvidia"
        headers = f"{nvidia}/cudnn/include:{nvidia}/nccl/include"
        return python_wheel(
            "transformer_engine_torch",
            environment={
                "CUDA_HOME": "/opt/cuda",
                "CPLUS_INCLUDE_PATH": headers,
                "NVTE_PYTORCH_FORCE_BUILD": "TRUE",
                "NVTE_FRAMEWORK": "pytorch",
                "NVTE_CUDA_ARCHS": env.target.sm_arch,
                "TORCH_CUDA_ARCH_LIST": env.target.cuda_arch_list,
                "MAX_JOBS": "$ENVBUILD_JOBS",
            },
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        pin = f"=={self.version}" if self.version else ""
        core = f"transformer-engine-cu{self.core(env)}{pin}"
        return Runtime(python=(f"transformer-engine{pin}", core, *NEEDS))

    def verify(self, env: RecipeEnv) -> list[Check]:
        version = "transformer_engine.__version__"
        expect = self.version.replace(".", r"\.") or r"\d"
        return [imports("transformer-engine", ("transformer_engine.pytorch",), show=version, expect=expect)]
