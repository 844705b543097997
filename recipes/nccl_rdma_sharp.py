"""NCCL's network plugin for InfiniBand, with reductions in the switches (SHARP)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Check, RecipeEnv, Released, Runtime, Sources, autotools, rdma

# Commits of Mellanox/nccl-rdma-sharp-plugins, which tags no releases, by the version in its configure.ac. 2.4 is the
# version of Azure's HPC images of 2023 and 2024.
RELEASES = {
    "2.7": "2f5ac02e164336044388b7f1f6242cc0db575fec",
    "2.4": "575c1e0ed4511cb897bd8f909f037bfecfa512c7",
}
# Version → the versions of NCCL's network interface in its symbols.
INTERFACES = {"2.7": "6 7 8 9 10 11", "2.4": "4 5 6"}
DEBIAN = ("autoconf", "automake", "g++", "gcc", "libc6-dev", "libibverbs-dev", "libtool", "make")


@dataclass(frozen=True, kw_only=True)
class NcclRdmaSharp(Released):
    """libnccl-net.so in /opt/nccl-rdma-sharp, compiled from its repository.

    SHARP itself is only in HPC-X, which also contains this plugin: beside it write hpcx: {plugin: false}. Without HPC-X
    this is the RDMA half, which NCCL also has built in. 2.4 has NCCL's interface up to version 6, 2.7 up to 11.
    """

    upstream: ClassVar[str] = "nccl-rdma-sharp-plugins"
    repository: ClassVar[str] = "github:Mellanox/nccl-rdma-sharp-plugins"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    tag: ClassVar[str] = ""
    package: ClassVar[str] = "nccl-rdma-sharp"
    prefix: ClassVar[str] = "/opt/nccl-rdma-sharp"
    requires: ClassVar[tuple[str, ...]] = ("cuda",)
    after: ClassVar[tuple[str, ...]] = ("rdma-core", "ofed", "hpcx", "ucx", "cuda")
    on_toolkit: ClassVar[bool] = True  # /opt/cuda may be links into it
    memory_gb: ClassVar[float] = 0.2
    cpu_minutes: ClassVar[float] = 0.2

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libnccl-net",)

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(debian=DEBIAN, git=(self.source(),))

    def ucx(self, env: RecipeEnv) -> str:
        if env.has("hpcx"):
            return "/opt/hpcx/ucx"
        return env.prefix_of("ucx")

    def build(self, env: RecipeEnv) -> list[Any]:
        own, ucx = env.prefix_of("rdma-core"), self.ucx(env)
        return autotools(
            self.source(),
            self.prefix,
            title="nccl-rdma-sharp: compiled",
            bootstrap="./autogen.sh",
            configure=[
                "--disable-static",
                "--with-cuda=/opt/cuda",
                *([f"--with-verbs={own}"] if own else []),
                f"--with-ucx={ucx}" if ucx else "--without-ucx",
                "--with-sharp=/opt/hpcx/sharp" if env.has("hpcx") else "--without-sharp",
            ],
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=rdma.packages(env), libraries=(f"{self.prefix}/lib",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import ctypes; plugin = ctypes.CDLL('libnccl-net.so.0'); "
            "print('net', *(number for number in range(30) if hasattr(plugin, f'ncclNetPlugin_v{number}')))"
        )
        known = INTERFACES.get("" if self.commit else self.whole, r"[0-9 ]+")
        return [
            Check(
                "nccl-rdma-sharp: the plugin loads and has NCCL's interfaces",
                f'python3 -c "{program}"',
                rf"^net {known}$",
            ),
            Check(
                "nccl-rdma-sharp: it has the name that NCCL searches for",
                f"readlink -f {self.prefix}/lib/libnccl-net.so",
                rf"^{re.escape(self.prefix)}/lib/libnccl-net\.so\.0",
            ),
        ]
