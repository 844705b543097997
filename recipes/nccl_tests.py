"""NVIDIA's benchmarks of NCCL, used to accept nodes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import (
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

# Tags of NVIDIA/nccl-tests.
RELEASES = {
    "2.19.6": "a0b82b2260cf5152b9f8c061bbf7eaf0ba096432",
    "2.19.5": "5bcd45d2ee8365e37895e118c9d11b0ebc15aa69",
    "2.18.5": "5db290cddaf595ae18fdd5f46931b3a7f0d6a4d1",
    "2.18.3": "f727aa2a540fef911de9d7bfd8852bc5d2c69815",
    "2.17.10": "c379e19a711e011f2086b0001deb3d590e4b46f4",
    "2.16.9": "c2cb96faac521510dfb40a0f264aa8c2d322349c",
    "2.15.2": "e041d901e6d3dabb67a22905cba77d9ba2689898",
    "2.14.1": "b4300cc79d05dd35e26f13afcdb4938f29aa31a5",
    "2.13.13": "cb6a46fdd677783eec470e3df09aa138891bfebf",
}
# The first release that prints its version and that of NCCL's headers and library (src/common.cu, src/util.cu).
PRINTS_VERSIONS = (2, 17, 10)
# The header of MSCCL includes cuda_fp8.h and is that of NCCL 2.23. From this release on src/common.cu then uses
# ncclFloat8e4m3, which NCCL has since 2.24 (tested with its header: 2.14.1 compiles, 2.19.6 does not).
NEEDS_FLOAT8 = (2, 15)


@dataclass(frozen=True, kw_only=True)
class NcclTests(Released):
    """all_reduce_perf and the other programs in /opt/nccl-tests, compiled for the target's GPU.

    With Open MPI in the image they are compiled with MPI; without it they measure one node. Default of `version`: the
    newest release.
    """

    upstream: ClassVar[str] = "nccl-tests"
    repository: ClassVar[str] = "github:NVIDIA/nccl-tests"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    package: ClassVar[str] = "nccl-tests"
    prefix: ClassVar[str] = "/opt/nccl-tests"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    arch_specific: ClassVar[bool] = True
    on_toolkit: ClassVar[bool] = True  # /opt/cuda and /opt/nccl may be links into it
    after: ClassVar[tuple[str, ...]] = ("cuda", "nccl", "msccl", "openmpi")
    requires: ClassVar[tuple[str, ...]] = ("cuda",)
    memory_gb: ClassVar[float] = 0.6
    cpu_minutes: ClassVar[float] = 1.9

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = self.lacking()
        if not env.has("nccl") and not env.has("msccl"):
            found += (Refusal("it measures NCCL, and this image has none", "add nccl to the layers"),)
        if env.has("msccl") and self.numbers >= NEEDS_FLOAT8:
            why = f"{self.whole} does not compile with the header of layer 'msccl', which lacks NCCL's types of 8 bits"
            found += (Refusal(why, 'write nccl-tests: "2.14.1"'),)
        return found

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", self.whole))

    def sources(self, env: RecipeEnv) -> Sources:
        mpi = env.recipes.get("openmpi")
        development: tuple[str, ...] = mpi.development(env) if mpi else ()
        return Sources(debian=("g++", "gcc", "libc6-dev", "make", *development), git=(self.source(),))

    def build(self, env: RecipeEnv) -> list[Any]:
        mpi = env.recipes.get("openmpi")
        # Debian splits Open MPI: headers and libraries are not beside the folder of mpicc
        with_mpi = f"MPI=1 MPI_HOME={mpi.home(env)} " if mpi else ""
        found = "".join(f"{name}={value} " for name, value in mpi.link_path(env).items()) if mpi else ""
        library = env.recipes["msccl" if env.has("msccl") else "nccl"].prefix
        return [
            *source(self.source()),
            comment("nccl-tests: compiled"),
            shell(
                commands=[
                    f"cd {folder(self.source())}",
                    f'{found}make -j "$ENVBUILD_JOBS" {with_mpi}CUDA_HOME=/opt/cuda NCCL_HOME={library} '
                    f"NVCC_GENCODE={env.target.gencode}",
                    f"mkdir -p {self.prefix}/bin",
                    f"cp build/*_perf {self.prefix}/bin/",
                    f"ln -s bin {self.prefix}/build",  # the makefile's folder, which job scripts use
                    tidy(self.prefix),
                ]
            ),
        ]

    def starts(self, program: str) -> Check:
        """Return the check that a program starts: without a GPU it ends with CUDA's error, exit status 2."""
        command = f"{program} -b 8 -e 8; test $? -eq 2"
        if self.numbers < PRINTS_VERSIONS:
            name = "nccl-tests: starts, and reports that there is no driver"
            return Check(name, command, r"# Using devices[\s\S]*driver version is insufficient")
        name = "nccl-tests: starts, has the NCCL that it was compiled with, and reports that there is no driver"
        versions = rf"version {re.escape(self.whole)} nccl-headers=(\d+) nccl-library=\1"
        return Check(name, command, rf"{versions}[\s\S]*driver version is insufficient")

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = f"{self.prefix}/bin/all_reduce_perf"
        return [
            self.starts(program),
            only_this_gpu("nccl-tests", [f"{self.prefix}/bin/*_perf"], env),
            Check(
                "nccl-tests: all-reduce over the GPUs of this node",
                f"{program} -b 8 -e 8G -f 2 -g {env.target.gpus or 1}",
                r"Avg bus bandwidth",
                tier="gpu",
            ),
        ]
