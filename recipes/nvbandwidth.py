"""NVIDIA's benchmark of copies between GPUs, and between GPUs and host memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import (
    STUB_DRIVER,
    Check,
    RecipeEnv,
    Refusal,
    Released,
    Sources,
    comment,
    folder,
    only_this_gpu,
    shell,
    source,
    tidy,
)

# Tags of NVIDIA/nvbandwidth.
RELEASES = {
    "0.8": "66746a3bef61c8c2e12ab34955310da70b9e38cb",
    "0.7": "64d683772a4d75e392b22c43eb065d33f4adb41b",
    "0.6": "445d8aef742e8a48a69779a939996f9e8863df9d",
}
DEBIAN = ("cmake", "g++", "gcc", "libboost-program-options-dev", "libc6-dev", "make")


@dataclass(frozen=True, kw_only=True)
class Nvbandwidth(Released):
    """nvbandwidth in /opt/nvbandwidth, compiled for the target's GPU; for one node, without MPI.

    Bandwidth of NVLink and PCIe, by the copy engines and by kernels. ``nvbandwidth -t device_to_device_memcpy_read_ce``
    runs one test, ``-l`` lists all, ``-j`` prints JSON.
    """

    upstream: ClassVar[str] = "nvbandwidth"
    repository: ClassVar[str] = "github:NVIDIA/nvbandwidth"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    package: ClassVar[str] = "nvbandwidth"
    prefix: ClassVar[str] = "/opt/nvbandwidth"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    arch_specific: ClassVar[bool] = True
    on_toolkit: ClassVar[bool] = True  # /opt/cuda may be links into it
    after: ClassVar[tuple[str, ...]] = ("cuda",)
    requires: ClassVar[tuple[str, ...]] = ("cuda",)
    memory_gb: ClassVar[float] = 0.6

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if not env.target.sm:
            return (*self.lacking(), Refusal("it measures GPUs", "take a target with a GPU"))
        return self.lacking()

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(debian=DEBIAN, git=(self.source(),))

    def build(self, env: RecipeEnv) -> list[Any]:
        # Without an architecture CMakeLists.txt runs a program that looks for a GPU. The linker finds the toolkit and
        # the stubs of the driver by LIBRARY_PATH: nvcc out of wheels does not know /opt/cuda.
        options = (
            "-DCMAKE_BUILD_TYPE=Release "
            f"-DCMAKE_CUDA_ARCHITECTURES={env.target.sm_arch}-real "
            "-DCMAKE_CUDA_COMPILER=/opt/cuda/bin/nvcc"
        )
        return [
            *source(self.source()),
            comment("nvbandwidth: compiled"),
            shell(
                commands=[
                    f"cd {folder(self.source())}",
                    "export LIBRARY_PATH=/opt/cuda/lib64:/opt/cuda/lib64/stubs",
                    f"cmake -B build {options} .",
                    'cmake --build build -j "$ENVBUILD_JOBS"',
                    f"mkdir -p {self.prefix}/bin",
                    f"cp build/nvbandwidth {self.prefix}/bin/",
                    tidy(self.prefix),
                ]
            ),
        ]

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = f"{self.prefix}/bin/nvbandwidth"
        copies = "device_to_device_memcpy_read_ce" if (env.target.gpus or 1) > 1 else "host_to_device_memcpy_ce"
        return [
            Check(
                "nvbandwidth: lists its tests",
                f"LD_LIBRARY_PATH={STUB_DRIVER} {program} --list",
                rf"Version: v{self.whole}\n[\s\S]*host_to_device_memcpy_ce",
            ),
            only_this_gpu("nvbandwidth", [program], env),
            Check("nvbandwidth: copies", f"{program} -t {copies}", r"SUM \S+ \d", tier="gpu"),
        ]
