"""One-sided communication between GPUs, from inside kernels."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import Check, Recipe, RecipeEnv, Refusal, Runtime, comment, shell


@dataclass(frozen=True, kw_only=True)
class Nvshmem(Recipe):
    """NVIDIA's wheel as /opt/nvshmem (include and lib), as builds expect it (DeepEP: NVSHMEM_DIR).

    - `version`: by default that which torch requires. torch 2.10 and newer pin this wheel.
    - `cuda`: major version of CUDA that the wheel and torch are for, as in the wheel's name.

    Its transports over InfiniBand, EFA and UCX and its bootstraps over MPI and PMIx are plugins that it opens by name.
    Each needs the layer of its library.
    """

    prefix: ClassVar[str] = "/opt/nvshmem"
    component: ClassVar[str] = "nvshmem"
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda")
    on_toolkit: ClassVar[bool] = True

    cuda: Literal["12", "13"] = "13"

    @property
    def package(self) -> str:
        return f"nvidia-nvshmem-cu{self.cuda}"

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        cuda = env.recipes.get("cuda")
        major = cuda.version.partition(".")[0] if cuda else ""
        if major and major != self.cuda:
            return (
                Refusal(
                    f"the image has CUDA {cuda.version} and this wheel is for CUDA {self.cuda}",
                    f"write cuda: '{major}'",
                ),
            )
        return ()

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libnvshmem_host",)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {**super().matrix(env), **({"torch-cuda": self.cuda} if env.has("torch") else {})}

    def wheel_folder(self, env: RecipeEnv) -> str:
        return f"{env.site_packages}/nvidia/nvshmem"

    def build(self, env: RecipeEnv) -> list[Any]:
        wheel, libraries = self.wheel_folder(env), f"{self.prefix}/lib"
        return [
            comment("the wheel as a prefix"),
            shell(
                commands=[
                    f"mkdir -p {libraries}",
                    f"ln -s {wheel}/include {self.prefix}/include",
                    f"ln -s {wheel}/lib/* {libraries}/",
                    # linkers search for libNAME.so; the wheel contains only libNAME.so.MAJOR
                    f"ln -s libnvshmem_host.so.3 {libraries}/libnvshmem_host.so",
                    f"test -e {libraries}/libnvshmem_host.so",
                ]
            ),
        ]

    def runtime(self, env: RecipeEnv) -> Runtime:
        wanted = f"=={self.version}{'.*' if self.version.count('.') < 2 else ''}" if self.version else ""
        # on the loader's path: bootstraps and transports are opened by name
        return Runtime(toolkit=(f"{self.package}{wanted}",), libraries=(f"{self.wheel_folder(env)}/lib",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import ctypes; library = ctypes.CDLL('libnvshmem_host.so.3'); "
            "numbers = [ctypes.c_int() for _ in range(3)]; "
            "library.nvshmemx_vendor_get_version_info(*map(ctypes.byref, numbers)); "
            "print('nvshmem', '.'.join(str(number.value) for number in numbers))"
        )
        locked = env.versions.get(self.package, "")
        return [
            Check(
                "nvshmem: the library reports the locked version",
                f'python3 -c "{program}"',
                rf"^nvshmem {re.escape(locked)}",
            )
        ]
