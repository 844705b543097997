"""Collectives over UCX, NCCL and shared memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import (
    STUB_DRIVER,
    Check,
    RecipeEnv,
    Refusal,
    Released,
    Runtime,
    Sources,
    autotools,
    git_that_knows,
    only_this_gpu,
)

# Tags of openucx/ucc.
RELEASES = {
    "1.8.0": "211e2f60436cba7c044195acb43752aa70eab38f",
    "1.7.0": "ec0bc8a8214fd7ebe9d8e4bc23e33f791dd8daad",
    "1.6.0": "87ee888b78d12d797ac8288c8214c7cb86c8bd8c",
    "1.5.1": "16ec7ab4514379f3c86db1ffacae4e6e47884701",
    "1.5.0": "430e241bf5d38cbc73fc7a6b89155397232e3f96",
    "1.4.4": "2c770741ffbe0fa0fba99bf0e08fb06c3d68500d",
    "1.3.0": "1522ccff5e107451d747b1085b3f84714a6c2eea",
    "1.2.0": "20fc1869025b8a310ef12be59bd90b92612801c8",
}
PRINTED = {"1.5.1": "1.5.0"}  # configure.ac of that tag has the version of the release before
DEBIAN = ("autoconf", "automake", "g++", "gcc", "libc6-dev", "libtool", "make", "pkgconf")
TESTED = "allreduce"  # of the collectives that ucc_perftest knows


@dataclass(frozen=True, kw_only=True)
class Ucc(Released):
    """UCC from upstream's repository in /opt/ucc: over UCX, and over CUDA and NCCL if the image has them.

    - `mpi_test`: whether to add upstream's MPI programs, ucc_perftest and ucc_test_mpi (its build makes both or
      neither). It needs the distribution's Open MPI, because one from source is compiled against UCC.
    - `commit`: full hash of a `version` that this recipe does not know.

    In CPU memory 1.3.0 to 1.8.0 do not reduce float16 tensors and truncate bfloat16 sums, without an error: use gloo
    for them.
    """

    upstream: ClassVar[str] = "UCC"
    repository: ClassVar[str] = "github:openucx/ucc"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    package: ClassVar[str] = "ucc"
    prefix: ClassVar[str] = "/opt/ucc"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    component: ClassVar[str] = "ucc"
    # the build sets --with-nvcc-gencode
    meets: ClassVar[tuple[str, ...]] = ("ucc.default-gencode", "ucc.no-sm-90-before-cuda-12")
    after: ClassVar[tuple[str, ...]] = ("ucx", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("ucx",)
    on_toolkit: ClassVar[bool] = True  # /opt/cuda and /opt/nccl may be links into it
    memory_gb: ClassVar[float] = 0.7  # one nvcc job
    cpu_minutes: ClassVar[float] = 4.1

    mpi_test: bool = False

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        reasons = self.lacking()
        openmpi = getattr(env.recipes.get("openmpi"), "provider", "")
        if self.mpi_test and openmpi != "debian":
            why = "mpi_test compiles with the distribution's Open MPI, and this image has none"
            reasons += (Refusal(why, "add openmpi: {} to the layers, or leave mpi_test out"),)
        return reasons

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libucc",)

    def nccl(self, env: RecipeEnv) -> bool:
        return env.has("cuda") and env.has("nccl")

    def sources(self, env: RecipeEnv) -> Sources:
        ucx = () if env.prefix_of("ucx") else ("libucx-dev",)
        mpi = ("libopenmpi-dev", "openmpi-bin") if self.mpi_test else ()
        return Sources(debian=(*DEBIAN, *ucx, *mpi), git=(self.source(),))

    def build(self, env: RecipeEnv) -> list[Any]:
        # By default upstream leaves out its transport mlx5, the one part that links libibverbs itself.
        options = [
            "--disable-static",
            f"--with-ucx={env.prefix_of('ucx') or '/usr'}",
            "--without-doca_urom",
            "--without-rocm",
            "--without-sharp",
            "--without-valgrind",
            "--with-mpi" if self.mpi_test else "--without-mpi",  # with a folder as value it requires DIR/bin/mpirun
        ]
        options.append("--with-cuda=/opt/cuda" if env.has("cuda") else "--without-cuda")
        options.append("--with-nccl=/opt/nccl" if self.nccl(env) else "--without-nccl")
        if env.has("cuda") and env.target.gencode:
            options.append(f'--with-nvcc-gencode="{env.target.gencode}"')
        shim, path = git_that_knows(self.source())
        return autotools(
            self.source(),
            self.prefix,
            title="ucc: compiled",
            before=shim,
            bootstrap="./autogen.sh",
            configure=options,
            environment={"CFLAGS": "-g0 -Wno-error", "CXXFLAGS": "-g0 -Wno-error", "PATH": path},
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(libraries=(f"{self.prefix}/lib",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        version = rf"UCC version={PRINTED.get(self.whole, self.whole)}\D[\s\S]*{self.revision[:7]}"
        checks = [
            Check("ucc: the requested version and commit", "ucc_info -v", version),
            Check("ucc: its transports without a driver", "ucc_info -s", r"self=50 ucp=10$"),
        ]
        if env.has("cuda"):
            over = f"cuda=40 {'nccl=20 ' if self.nccl(env) else ''}self=50 ucp=10$"
            modules = [f"{self.prefix}/lib/ucc/libucc_{name}.so" for name in ("ec_cuda", "tl_cuda")]
            checks.append(
                Check("ucc: its transports with a driver", f"LD_LIBRARY_PATH={STUB_DRIVER} ucc_info -s", over)
            )
            if env.target.sm:
                checks.append(only_this_gpu("ucc", modules, env))
        if self.mpi_test:
            run = "mpirun --oversubscribe -n 2"
            checks += [
                Check(
                    f"ucc: two ranks of ucc_perftest over {transports}",
                    f"UCX_TLS={transports} {run} ucc_perftest -c {TESTED} -b 8 -e 65536 -n 20 -w 2 -F",
                    r"\A(?![\s\S]*ERROR)[\s\S]*^ +16384 +65536 ",  # its exit status is 0 even if nothing arrived
                )
                for transports in env.recipes["ucx"].alone()
            ]
            some = "-c barrier,allreduce,allgather,bcast,alltoall -t world -d int32,float32 -o sum -M host -s 1"
            checks.append(
                Check(
                    "ucc: upstream's tests of five collectives",
                    f"UCX_TLS=self,sm {run} ucc_test_mpi {some}",
                    r"^passed: +[1-9][0-9]*\n[\s\S]*^failed: +0$",
                )
            )
        return checks
