"""Network layer (OFI) below aws-ofi-nccl and Open MPI's OFI transport."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Check, DebianOrSource, RecipeEnv, Refusal, Runtime, Sources, autotools, rdma

# Tags of ofiwg/libfabric.
RELEASES = {
    "2.6.0": "5de2d6a2df83595bcc38531cb91bf59495559495",
    "2.5.1": "5b73bf2f11ad57ff8dfbca216ceefc08eb9505ea",
    "2.4.0": "5a13558c2fcea15f1a6c4e8c06dc702e50724cf8",
    "2.3.1": "413a2d315ee8485488fb4fdcc0012e029f570b6b",
    "2.1.0": "cf173800a23505a0c6ec9ad42b935bde60a57da2",
    "1.22.0": "159219639b7fd69d140892120121bbb4d694e295",
    "1.21.0": "f67fad269327a1a25731d89fb94548d89ae7ae63",
    "1.20.1": "e43589a5113ad3db0a18a6a1a02b6e6f4ee317d6",
    "1.19.0": "145d9a84d5e396cef39f21e92cc695fa9b1157d7",
    "1.18.2": "66b599cf0293e8f9979a89efdf2e12de4336f3fd",
    "1.18.1": "a2585866c48f041ad941ab503a651d474b9a6d7b",
}
DEBIAN = ("autoconf", "automake", "gcc", "libc6-dev", "libibverbs-dev", "librdmacm-dev", "libtool", "make")
# Every provider is enabled or disabled by name: detection would let a library of the build root change the product
# silently. EFA and verbs for RDMA; shared memory, TCP and the providers layered over them for the rest.
PROVIDERS = ("efa", "verbs", "tcp", "udp", "shm", "sm2", "rxm", "rxd", "mrail")
WITHOUT = ("cxi", "lpp", "opx", "psm2", "psm3", "sockets", "ucx", "usnic")


@dataclass(frozen=True, kw_only=True)
class Libfabric(DebianOrSource):
    """libfabric with its EFA, verbs, shared memory and TCP providers.

    - `provider`: ``debian``, the distribution's package, without CUDA, or ``source``, upstream's repository, compiled
      in /opt/libfabric. Default: ``source`` if the spec sets `version`, else ``debian``.
    - `commit`: full hash of a `version` that this recipe does not know.

    From source it supports CUDA memory if the image has cuda, through libraries that it opens at run time, so that the
    same image starts on nodes without a GPU. AWS's own build with its backports is part of layer efa.
    """

    upstream: ClassVar[str] = "libfabric"
    repository: ClassVar[str] = "github:ofiwg/libfabric"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    prefix: ClassVar[str] = "/opt/libfabric"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    after: ClassVar[tuple[str, ...]] = ("rdma-core", "ofed", "cuda", "gdrcopy")
    on_toolkit: ClassVar[bool] = True  # /opt/cuda may be links into it
    memory_gb: ClassVar[float] = 0.3
    cpu_minutes: ClassVar[float] = 2.1

    @property
    def package(self) -> str:
        return "" if self.builds else "libfabric1"

    @property
    def component(self) -> str:
        return "libfabric" if self.builds else ""

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        if self.builds:
            return self.lacking()
        if env.has("cuda") and not self.provider:
            why = f"the libfabric of {env.distribution.name} has no support for CUDA memory, and this image has CUDA"
            return (Refusal(why, "write version: to compile it, or provider: debian to use it without CUDA"),)
        return ()

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libfabric",)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        # the matrix has facts about its versions only for the NCCL plugin
        requested = self.version or f"<={next(iter(RELEASES))}"
        return {"libfabric": requested} if self.builds and env.has("aws-ofi-nccl") else {}

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(debian=DEBIAN, git=(self.source(),)) if self.builds else Sources()

    def build(self, env: RecipeEnv) -> list[Any]:
        if not self.builds:
            return []
        own = rdma.prefix(env)
        enabled = {name: f"={own}" if own and name in ("efa", "verbs") else "" for name in PROVIDERS}
        options = [
            "--disable-static",
            *(f"--enable-{name}{where}" for name, where in enabled.items()),
            *(f"--disable-{name}" for name in WITHOUT),
            # dlopen: a library that links CUDA would not load on a node without a driver
            *(["--with-cuda=/opt/cuda", "--enable-cuda-dlopen"] if env.has("cuda") else ["--without-cuda"]),
            *(
                ["--with-gdrcopy=/opt/gdrcopy", "--enable-gdrcopy-dlopen"]
                if env.has("gdrcopy") and env.has("cuda")
                else ["--without-gdrcopy"]
            ),
        ]
        return autotools(
            self.source(),
            self.prefix,
            title="libfabric: compiled",
            bootstrap="./autogen.sh",
            configure=options,
            after=[f"rm -rf {self.prefix}/share/man"],
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        if not self.builds:
            return Runtime(debian=("libfabric-bin", "libfabric1"))
        return Runtime(debian=rdma.packages(env), libraries=(f"{self.prefix}/lib",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        checks = [Check("libfabric: it has the EFA and verbs providers", "fi_info -l", r"(?s)efa:.*verbs:")]
        if self.builds:
            version = re.escape(self.whole)
            checks.insert(
                0, Check("libfabric: the requested version", "fi_info --version", rf"(?m)^libfabric: {version}$")
            )
        if self.builds and env.has("cuda"):
            opened = f"grep -c -a 'libcudart[.]so' {self.prefix}/lib/libfabric.so.1"
            checks.append(Check("libfabric: opens CUDA's libraries at run time", opened, "^[1-9]"))
        checks += [
            Check(
                f"libfabric: two processes over {name}",
                f"timeout 60 {self.pingpong(name, kind)} & sleep 1; "
                f"timeout 60 {self.pingpong(name, kind)} 127.0.0.1 && wait",
                r"4k +100 +=100",
            )
            for name, kind in (("tcp", "msg"), ("shm", "rdm"))
        ]
        return checks

    @staticmethod
    def pingpong(name: str, kind: str) -> str:
        # both sides need the same options, else each waits for the other
        return f"fi_pingpong -p {name} -e {kind} -I 100 -S 4096"
