"""Benchmarks of verbs: bandwidth and latency (ib_write_bw and others)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Check, DebianOrSource, RecipeEnv, Refusal, Runtime, Sources, autotools, rdma

# Version → (tag of linux-rdma/perftest, commit, version that the programs print). Azure's health checks of 2023 use
# 4.5-0.12.
TAGS = {
    "26.04.17": ("26.04.17", "720b61082454e189b1f21835ec175536a944afc3", "6.29"),
    "26.01.5": ("perftest-26.01.5", "6a66a60c60a2fab43514d26bbfda0788929b61fe", "6.28"),
    "25.10.0-0.128": ("25.10.0-0.128", "8a1d3d7234add23fe006b2ff51d650ff022077a8", "6.27"),
    "24.10.0-0.66": ("24.10.0-0.66", "91fadb5f2798776ad57dba014cd554a185312023", "6.23"),
    "23.10.0-0.29": ("23.10.0-0.29", "5856a7ff6802b085367a0da41d3affdc538db711", "6.17"),
    "4.5-0.20": ("v4.5-0.20", "9411e12bad57fb36754e6f77b9ce92a7af1eb22a", "6.10"),
    "4.5-0.12": ("v4.5-0.12", "e9d614b5c3125ddc85ef24292fe1f5d1775effba", "6.03"),
}
RELEASES = {version: commit for version, (_, commit, _) in TAGS.items()}
DEBIAN = (
    "autoconf",
    "automake",
    "g++",
    "gcc",
    "libc6-dev",
    "libibumad-dev",
    "libibverbs-dev",
    "libnuma-dev",
    "libpci-dev",
    "librdmacm-dev",
    "libtool",
    "make",
)
# CPU of the target → its vector instructions. configure would detect those of the build machine.
VECTORS = {"x86-64-v2": "sse4.2", "x86-64-v3": "avx2", "x86-64-v4": "avx2"}
STUBS = "LD_LIBRARY_PATH=/opt/cuda/lib64/stubs/driver"  # lets programs that link the driver start without one


@dataclass(frozen=True, kw_only=True)
class Perftest(DebianOrSource):
    """ib_write_bw, ib_send_lat and the others, as the health checks of clusters run them.

    - `provider`: ``debian``, the distribution's package, for host memory only, or ``source``, upstream's repository,
      compiled in /opt/perftest, with GPU memory (--use_cuda) if the image has cuda. Default: ``source`` if the spec
      sets `version`, else ``debian``.
    - `commit`: full hash of a `version` that this recipe does not know.
    """

    upstream: ClassVar[str] = "perftest"
    repository: ClassVar[str] = "github:linux-rdma/perftest"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    prefix: ClassVar[str] = "/opt/perftest"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    after: ClassVar[tuple[str, ...]] = ("rdma-core", "ofed", "efa", "cuda")
    on_toolkit: ClassVar[bool] = True  # /opt/cuda may be links into it
    memory_gb: ClassVar[float] = 0.3
    cpu_minutes: ClassVar[float] = 0.4

    @property
    def tag(self) -> str:
        return TAGS[self.whole][0]

    @property
    def package(self) -> str:
        return "" if self.builds else "perftest"

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if self.builds:
            return self.lacking()
        if env.has("cuda") and not self.provider:
            why = f"the perftest of {env.distribution.name} measures host memory only, and this image has CUDA"
            return (
                Refusal(why, "write provider: source to compile it, or provider: debian to use it for host memory"),
            )
        return ()

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(debian=DEBIAN, git=(self.source(),)) if self.builds else Sources()

    def build(self, env: RecipeEnv) -> list[Any]:
        if not self.builds:
            return []
        cuda = env.has("cuda")
        # without vector instructions a header is missing for the pause instruction
        bare = env.target.cpu == "x86-64"
        environment = {"CFLAGS": f"-g0 -O2{' -include xmmintrin.h' if bare else ''}"}
        if cuda:
            environment |= {
                "CUDA_H_PATH": "/opt/cuda/include/cuda.h",
                # configure links a function of the driver to detect it; the programs open the driver at run time
                "LDFLAGS": "-L/opt/cuda/lib64/stubs",
                # its makefile links the kernels without NVCCFLAGS, which adds code for nvcc's default GPU
                "NVCC_APPEND_FLAGS": f"$NVCC_APPEND_FLAGS {env.target.gencode}",
            }
        return autotools(
            self.source(),
            self.prefix,
            title="perftest: compiled",
            before=[self.vectors(env)],
            bootstrap="./autogen.sh",
            configure=["--enable-cudart" if cuda else "--disable-cudart"],
            environment=environment,
            after=[f"rm -rf {self.prefix}/share/man"],
        )

    @staticmethod
    def vectors(env: RecipeEnv) -> str:
        """Return the command that replaces configure's detection by the instructions of the target's CPU."""
        detection = r"__builtin_cpu_supports *(\"%s\")"
        known = VECTORS.get(env.target.cpu, "none").replace(".", "[.]")
        return f"sed -i -e 's/{detection % known}/1/g' -e 's/{detection % '[a-z0-9.]*'}/0/g' configure.ac"

    def runtime(self, env: RecipeEnv) -> Runtime:
        if not self.builds:
            return Runtime(debian=("perftest",))
        plugin = (f"{self.prefix}/lib",) if env.has("cuda") else ()  # its kernels, opened by name
        return Runtime(debian=(*rdma.packages(env), "libnuma1", "libpci3"), libraries=plugin)

    def verify(self, env: RecipeEnv) -> list[Check]:
        printed = "" if self.commit or not self.builds else TAGS[self.whole][2]
        cuda = self.builds and env.has("cuda")
        start = f"{STUBS} " if cuda else ""  # releases before 26.04 link the driver
        # it prints its version or its help, and then exits with an error
        checks = [Check("perftest: prints its version", f"{start}ib_write_bw --version | cat", rf"Version: {printed}")]
        if cuda:
            checks.append(Check("perftest: supports GPU memory", f"{start}ib_write_bw --help | cat", r"--use_cuda="))
        return checks
