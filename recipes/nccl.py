"""NCCL: collectives between GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from envbuild.recipe import VENV, Check, Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Nccl(Recipe):
    """The wheel that torch itself pins; one libnccl in the image (a second one shadows it: the last installed wins).

    Without a version the one that torch asks for. CUDA 13 only: the wheel for CUDA 12 writes the same file.
    """

    package: ClassVar[str] = "nvidia-nccl-cu13"
    component: ClassVar[str] = "nccl"
    requires: ClassVar[tuple[str, ...]] = ("torch",)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {**super().matrix(env), "torch-cuda": "13"}

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(core=(f"nvidia-nccl-cu13=={self.version}" if self.version else "nvidia-nccl-cu13",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        library = f"{VENV}/lib/python{env.python}/site-packages/nvidia/nccl/lib/libnccl.so.2"
        program = (
            "import ctypes; n = ctypes.c_int(); "
            f"ctypes.CDLL('{library}').ncclGetVersion(ctypes.byref(n)); "
            "print('.'.join(map(str, (n.value // 10000, n.value // 100 % 100, n.value % 100))))"
        )
        expect = env.versions.get("nvidia-nccl-cu13", "").replace(".", r"\.")
        return [Check("nccl: the library says the locked version", f'{VENV}/bin/python -c "{program}"', rf"^{expect}$")]
