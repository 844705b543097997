"""Modified NCCL that runs custom collective algorithms (Azure/msccl-executor-nccl)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import (
    Check,
    Git,
    RecipeEnv,
    Refusal,
    Released,
    Runtime,
    Sources,
    beside_torch,
    comment,
    environment,
    folder,
    shell,
    source,
    tidy,
)

# Commits of Azure/msccl-executor-nccl by the NCCL that each is based on; it tags no releases of the new ones.
RELEASES = {"2.23.4": "c6f6b36d1a4c7ae44916fcc5c8e32c95cce2ae54"}
# The algorithms for Azure's machines are in another repository, a submodule of Azure/msccl at this commit.
ALGORITHMS = Git("msccl-scheduler", "github:Azure/msccl-scheduler", "a0bfca14a1869bd8ef71328c26ee998bd2dcc368")
NEWEST_CUDA = 12  # tested: 2.23.4 does not compile with 13.2
STUBS = "LD_LIBRARY_PATH=/opt/cuda/lib64/stubs/driver"
WHEELS = ("index", "vendor", "wheel", "")  # providers of torch that are wheels, with NCCL in another wheel


@dataclass(frozen=True, kw_only=True)
class Msccl(Released):
    """MSCCL's executor in /opt/msccl: a libnccl.so.2 that replaces NCCL, compiled for the target's GPU alone.

    `algorithms` adds the algorithm files for an Azure machine (ncv4, ndv4, ndv5). The library reads them from
    ../share/nccl/msccl-algorithms beside it; without them it is NCCL 2.23.4. A job selects them with NCCL_MSCCL_ENABLE
    and MSCCL_ALGO_DIR. MSCCL supports one GPU per process only: launch one task for each GPU.

    An image can have only one libnccl. With two, the search order of the loader would decide which one a program uses,
    and a torch wheel always loads the libnccl of its own package. So torch must be compiled here with /opt/msccl
    (``provider: source``) or come from the base image (``provider: base``), where the loader finds /opt/msccl before
    the image's NCCL.
    """

    upstream: ClassVar[str] = "MSCCL"
    repository: ClassVar[str] = "github:Azure/msccl-executor-nccl"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    tag: ClassVar[str] = ""  # none of these commits has one
    package: ClassVar[str] = "msccl-executor-nccl"
    prefix: ClassVar[str] = "/opt/msccl"
    component: ClassVar[str] = "msccl"
    # the loader finds its libnccl first, and the build sets NVCC_GENCODE
    meets: ClassVar[tuple[str, ...]] = ("msccl.nccl", "msccl.sm-90")
    requires: ClassVar[tuple[str, ...]] = ("cuda",)
    after: ClassVar[tuple[str, ...]] = ("cuda",)
    on_toolkit: ClassVar[bool] = True  # /opt/cuda may be links into it
    arch_specific: ClassVar[bool] = True
    memory_gb: ClassVar[float] = 1.5  # its own kernel's job peaks at 1.2

    algorithms: Literal["none", "ncv4", "ndv4", "ndv5"] = "none"

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = list(self.lacking())
        torch, cuda = env.recipes.get("torch"), env.recipes.get("cuda")
        major = cuda.version.partition(".")[0] if cuda else ""
        if major.isdigit() and int(major) > NEWEST_CUDA:
            why = f"its sources do not compile with CUDA {major} (cudaTypedefs.h no longer has some types)"
            found.append(Refusal(why, f"take CUDA {NEWEST_CUDA}"))
        if torch and getattr(torch, "provider", "") in WHEELS:
            why = "the torch wheel loads the NCCL of its own package and never this one"
            found.append(
                Refusal(why, "take a torch that is compiled here (provider: source) or the base's (provider: base)")
            )
        return tuple(found)

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libnccl",)

    def sources(self, env: RecipeEnv) -> Sources:
        extra = () if self.algorithms == "none" else (ALGORITHMS,)
        return Sources(debian=("g++", "gcc", "libc6-dev", "make", "python3"), git=(self.source(), *extra))

    def build(self, env: RecipeEnv) -> list[Any]:
        made = f"{folder(self.source())}/build"
        steps = [
            *source(self.source()),
            comment("msccl: compiled for the target's GPU"),
            # in the environment: arguments of make would override the makefile's own additions
            environment(variables={"CUDA_HOME": "/opt/cuda", "NVCC_GENCODE": env.target.gencode}),
            shell(
                commands=[
                    f"cd {folder(self.source())}",
                    # debug information contains build paths
                    "sed -i 's/^CXXFLAGS *+= -O3 -g$/CXXFLAGS += -O3 -g0/' makefiles/common.mk",
                    'make -j "$ENVBUILD_JOBS" src.build',
                    f"mkdir -p {self.prefix}/lib {self.prefix}/share/nccl/msccl-algorithms",
                    f"cp -a {made}/include {self.prefix}/",
                    f"cp -a {made}/lib/libnccl.so* {self.prefix}/lib/",
                    tidy(self.prefix),
                ]
            ),
        ]
        if self.algorithms != "none":
            files = f"{folder(ALGORITHMS)}/tools/msccl-algorithms/{self.algorithms}"
            steps += [
                *source(ALGORITHMS),
                comment(f"msccl: algorithms for {self.algorithms}"),
                shell(commands=[f"cp {files}/*.xml {self.prefix}/share/nccl/msccl-algorithms/"]),
            ]
        return steps

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(libraries=(f"{self.prefix}/lib",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import ctypes; number = ctypes.c_int(); library = ctypes.CDLL('libnccl.so.2'); "
            "library.ncclGetVersion(ctypes.byref(number)); print('nccl', number.value); "
            "print({line.split()[-1] for line in open('/proc/self/maps') if 'libnccl' in line})"
        )
        numbers = [int(part) for part in self.whole.split(".")[:3]] or [0]
        number = sum(part * scale for part, scale in zip(numbers, (10000, 100, 1), strict=False))
        checks = [
            Check(
                "msccl: it is the libnccl that the loader finds",
                f'{STUBS} python3 -c "{program}"',
                rf"^nccl {number}\n\{{'{self.prefix}/lib/libnccl\.so\.[0-9.]+'\}}",
            ),
            Check(
                "msccl: it executes algorithms", f"grep -c -a MSCCL_ALGO_DIR {self.prefix}/lib/libnccl.so.2", "^[1-9]"
            ),
        ]
        if env.has("torch"):
            mapped = "sorted({line.split()[-1] for line in open('/proc/self/maps') if 'libnccl.so' in line})"
            checks.append(
                beside_torch(
                    "msccl: torch loads it, and no other libnccl",
                    f"import torch; print({mapped})",
                    rf"^\['{self.prefix}/lib/libnccl\.so\.[0-9.]+'\]$",
                )
            )
        arch = env.target.sm_arch
        found = f"/opt/cuda/bin/cuobjdump --list-elf {self.prefix}/lib/libnccl.so.2 | grep -o 'sm_[0-9a-z]*' | sort -u"
        checks.append(Check(f"msccl: code for sm_{arch} and nothing else", found, rf"\Asm_{arch}[af]?\s*\Z"))
        if self.algorithms != "none":
            count = f"ls {self.prefix}/share/nccl/msccl-algorithms/*.xml | wc -l"
            checks.append(Check(f"msccl: algorithms for {self.algorithms} are present", count, "^[1-9]"))
        return checks
