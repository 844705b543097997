"""Communication layer below MPI and UCC."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import (
    STUB_DRIVER,
    Check,
    DebianOrSource,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    autotools,
    git_that_knows,
    rdma,
)

# Tags of openucx/ucx. UCC 1.4.4 and newer needs 1.14.0 or newer (ucp_memh_pack).
RELEASES = {
    "1.22.0": "8a6b06fb880accbb933a79cda893883872c68d9d",
    "1.21.0": "b6a9d47fccce849c28111f05a7fa8f1c930ff17d",
    "1.20.1": "d8e50df6651b9ea5b76f23aee0aefbf053a4137a",
    "1.20.0": "4b7a6ca8410f9cea0e15857233ecfeefdd863dde",
    "1.19.1": "7009d7a19b1c2464224a3fe117a4155fb29298f5",
    "1.19.0": "e4636149592d5a435c2c911fe7727444a13bfa2e",
    "1.18.1": "d9aa5650d4cbcbb00d61af980614dbe9dd27a1f2",
    "1.18.0": "693d02837894b9c346c9f91b105e4aff6f259c09",
    "1.17.0": "4ef9a097c12ee6f7a8d3e41c317ea2d47e424b32",
    "1.16.0": "e4bb80267c5978f18ad0b4fcfb53d3f552d884d6",
    "1.15.0": "348d14f111de710f12247b6a3ae12aefd0fe7b99",
    "1.14.1": "04897a079ac88713842f7209c5e82430d095444e",
    "1.14.0": "ae505b93582b10ce15c29a546a86c168e2e36216",
}
# As contrib/configure-release-mt of the repository: fast, and usable from several threads (torch,
# MPI_THREAD_MULTIPLE). Not --enable-optimizations, which compiles for the build machine.
RELEASE = ("--disable-logging", "--disable-debug", "--disable-assertions", "--disable-params-check", "--enable-mt")
# Every part is enabled or disabled by name: detection would let a library of the build root change the product
# silently.
FABRIC = ("mlx5", "rc", "ud", "dc", "dm", "devx", "ib-hw-tm")
# Its device code is all part of DOCA GPUNetIO. Without that UCX is the same for every GPU: no architecture is named
# (--with-nvcc-gencode), and images for several kinds of node share it.
WITHOUT = ("bfd", "doca-gpunetio", "fuse3", "go", "java", "knem", "mad", "rocm", "ugni", "valgrind", "xpmem", "ze")
DEBIAN = ("autoconf", "automake", "g++", "gcc", "libc6-dev", "libtool", "make", "pkgconf")
VERBS = ("libibverbs-dev", "librdmacm-dev")


@dataclass(frozen=True, kw_only=True)
class Ucx(DebianOrSource):
    """UCX with verbs and mlx5, shared memory and TCP; from source also with CUDA and GDRCopy if the image has them.

    - `provider`: ``debian``, the distribution's package, without CUDA, or ``source``, upstream's repository, compiled
      in /opt/ucx. Default: ``source`` if the spec sets `version`, else ``debian``.
    - `commit`: full hash of a `version` that this recipe does not know.
    """

    upstream: ClassVar[str] = "UCX"
    repository: ClassVar[str] = "github:openucx/ucx"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    left_out: ClassVar[str] = "the collectives of xucg are compiled with --enable-ucg alone"
    prefix: ClassVar[str] = "/opt/ucx"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    after: ClassVar[tuple[str, ...]] = ("rdma-core", "ofed", "efa", "cuda", "gdrcopy")
    on_toolkit: ClassVar[bool] = True  # /opt/cuda may be links into it
    memory_gb: ClassVar[float] = 0.4
    cpu_minutes: ClassVar[float] = 3.6

    @property
    def component(self) -> str:
        return "ucx" if self.builds else ""

    @property
    def package(self) -> str:
        return "" if self.builds else "libucx0"

    @property
    def submodules(self) -> tuple[str, ...] | Literal[False]:
        # from 1.21 on its transport for CUDA kernels is compiled with headers of a repository of their own
        return ("*",) if tuple(int(part) for part in re.findall(r"\d+", self.whole)[:2]) >= (1, 21) else False

    def alone(self) -> tuple[str, ...]:
        """Return the values of UCX_TLS with which two ranks reach each other on a machine without a network.

        1.20.0 and 1.20.1 treat the loopback device as unreachable (fixed in 1.21.0: openucx/ucx#11202).
        """
        no_loopback = self.builds and self.whole.startswith("1.20.")
        return ("self,sm",) if no_loopback else ("self,sm", "self,tcp")

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if self.builds:
            return self.lacking()
        if not self.provider and env.has("cuda"):
            why = f"the UCX of {env.distribution.name} has no CUDA support, and this image has CUDA"
            return (Refusal(why, "write version: to compile it, or provider: debian to use it without CUDA"),)
        return ()

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libucp",)

    def sources(self, env: RecipeEnv) -> Sources:
        if not self.builds:
            return Sources()
        development = () if rdma.prefix(env) else VERBS
        return Sources(debian=(*DEBIAN, *development), git=(self.source(),))

    def build(self, env: RecipeEnv) -> list[Any]:
        own = rdma.prefix(env)
        options = [
            *RELEASE,
            "--disable-static",
            "--enable-devel-headers",  # UCC and the torch plugin compile against uct and ucs
            "--enable-cma",
            *(f"--with-{name}{f'={own}' if own else ''}" for name in ("verbs", "rdmacm")),
            *(f"--with-{name}" for name in FABRIC),
            *(f"--without-{name}" for name in WITHOUT),
            "--with-gdrcopy=/opt/gdrcopy" if env.has("gdrcopy") and env.has("cuda") else "--without-gdrcopy",
        ]
        options.append("--with-cuda=/opt/cuda" if env.has("cuda") else "--without-cuda")
        shim, path = git_that_knows(self.source())
        return autotools(
            self.source(),
            self.prefix,
            title="ucx: compiled",
            before=shim,
            bootstrap="./autogen.sh",
            configure=options,
            # upstream's own -O3 remains, -Werror is disabled: the next compiler has new warnings
            environment={"CFLAGS": "-g0 -Wno-error", "CXXFLAGS": "-g0 -Wno-error", "PATH": path},
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        if not self.builds:
            return Runtime(debian=("libucx0", "ucx-utils"))
        # only modules link verbs, and without the library they are skipped silently
        # ucx_perftest is linked with OpenMP's library, which an image without a compiler lacks
        return Runtime(debian=("libgomp1", *rdma.packages(env)), libraries=(f"{self.prefix}/lib",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        checks = [
            Check("ucx: shared memory and TCP transports", "ucx_info -d", r"Transport: tcp"),
            Check("ucx: InfiniBand module", "ucx_info -c -f", r"UCX_RC_MLX5_"),
        ]
        if not self.builds:
            return checks
        version = rf"Library version: {self.whole}[\s\S]*revision {self.revision[:7]}"
        checks.insert(0, Check("ucx: the requested version and commit", "ucx_info -v", version))
        for number, transports in enumerate(self.alone()):
            run = f"UCX_TLS={transports} ucx_perftest -p {13337 + number}"
            once = f"{run} 127.0.0.1 -t tag_bw -s 65536 -n 200"
            both = f"{run} & for second in 1 2 3 4 5; do sleep 1; {once} && break; done && wait"
            checks.append(Check(f"ucx: two ranks of ucx_perftest over {transports}", both, r"Final:\s+200"))
        if env.has("cuda"):
            count = "ucx_info -c -f | grep -c -E '^#? *UCX_CUDA_COPY_'"
            checks.append(
                Check(
                    "ucx: its CUDA module loads with a driver, and is skipped without one",
                    f"echo without $({count}); echo with $(LD_LIBRARY_PATH={STUB_DRIVER} {count})",
                    r"^without 0\nwith [1-9]",
                )
            )
        return checks
