"""CUDA toolkit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.recipe import VENV, Check, Recipe, RecipeEnv, Runtime

# nvcc needs crt, nvvm and cccl beside it; since 13.0 the wheel of that name holds the compiler (nvidia-cuda-nvcc-cu12
# never did).
COMPILER = ("nvcc", "crt", "nvvm", "cccl", "cudart", "cuobjdump", "nvdisasm", "cuxxfilt")
HEADERS = (
    "nvml",
    "profiler",
    "nvrtc",
    "nvtx",
    "cublas",
    "curand",
    "cusparse",
    "cusolver",
)  # torch 2.15 does not ask for curand itself


@dataclass(frozen=True, kw_only=True)
class Cuda(Recipe):
    """The toolkit from the index's wheels, seen as a prefix that builds expect: /opt/cuda with bin, include, nvvm and
    lib64.

    The wheels put everything below site-packages/nvidia/cu13, without lib64 and without unversioned library names; the
    prefix is links. `version` is CUDA major.minor; left out, it is that of torch's own CUDA: a floating nvcc would be a
    newer one.
    """

    package: ClassVar[str] = "cuda-toolkit"
    prefix: ClassVar[str] = "/opt/cuda"
    on_venv: ClassVar[bool] = True
    component: ClassVar[str] = "cuda"
    after: ClassVar[tuple[str, ...]] = ("torch",)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {**super().matrix(env), "cuda-from": "wheels"}

    def runtime(self, env: RecipeEnv) -> Runtime:
        extras = ",".join((*COMPILER, *HEADERS))
        return Runtime(core=(f"cuda-toolkit[{extras}]=={self.version}.*",), env={"CUDA_HOME": self.prefix})

    def build(self, env: RecipeEnv) -> list[Any]:
        from envbuild.plan import bridge

        wheels = f"{VENV}/lib/python{env.python}/site-packages/nvidia/cu{self.version.split('.')[0]}"
        return [
            bridge.comment("the toolkit as a prefix"),
            bridge.shell(
                commands=[
                    f"mkdir -p {self.prefix}/lib64",
                    f"ln -s {wheels}/bin {wheels}/include {wheels}/nvvm {self.prefix}/",
                    f"ln -s lib64 {self.prefix}/lib",
                    f"ln -s {wheels}/lib/*.so* {self.prefix}/lib64/",
                    # linkers look for libNAME.so; the wheels hold only libNAME.so.MAJOR
                    f'for library in {wheels}/lib/*.so.*; do name=$(basename "$library"); '
                    f'link="{self.prefix}/lib64/${{name%%.so.*}}.so"; '
                    'test -e "$link" || ln -s "$library" "$link"; done',
                    f"{self.prefix}/bin/nvcc --version",
                ]
            ),
        ]

    def verify(self, env: RecipeEnv) -> list[Check]:
        return [
            Check(
                "cuda: nvcc is the version asked for", f"{self.prefix}/bin/nvcc --version", rf"release {self.version},"
            )
        ]
