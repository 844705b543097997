"""NCCL's network plugin for libfabric."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Check, RecipeEnv, Refusal, Released, Runtime, Sources, autotools, rdma

# Tags of aws/aws-ofi-nccl; before 1.14 they end with "-aws".
RELEASES = {
    "1.21.1": "2475c4c736907e68ebeadb3848f31231ee4a44d0",
    "1.21.0": "720b36298749b5c2ef21c555878f62a0ff3036e3",
    "1.20.0": "a2a6d08ea98296f99596b5c18b30b8a20d74f609",
    "1.19.2": "17120adbfd9721f4d0861360b09f05a8d9c5fba4",
    "1.19.1": "206c02c478c6d724af09c3cbca59c06863a0b9c0",
    "1.19.0": "4afc89b740324f0ed1bd8df1c75b6e5c03e8b3a0",
    "1.18.0": "86ebeaf59a2348b22780023effdb682503747de7",
    "1.17.3": "93fa84ca880325013b2f639356bbb60f075148af",
    "1.17.2": "790ea4a2cd664b496fb42e9246d5f8eb96063193",
    "1.17.1": "368bb6e0248621dada193c5e867334fc1ea44ca7",
    "1.16.3": "b9e4cc4239ea23f3fb5fedb03da0e7c27b800569",
    "1.15.0": "34e79f1d8991e61907578e000157ba4bd433dd04",
    "1.14.2": "42f78e821deee7c5492b745b39760de81bbc0ac0",
    "1.13.2": "5d0c0757bdf8160c290f93a4b1e826e36e5e3f78",
    "1.12.1": "23015790362b12fb9038aea95b84c9494ae71d1d",
    "1.11.1": "2db8375ef10b37a91284dad44e2f52e777f4c8cb",
    "1.9.2": "cf6f657f8c83c9bc0ca28b6630dad469072bef8e",
    "1.8.1": "cf6f822d95d9523397c4e120223a1c5685432b9f",
    "1.7.4": "42802e41d045a54ad01c328f10c6505785ebd6ac",
}
DEBIAN = ("autoconf", "automake", "g++", "gcc", "libc6-dev", "libhwloc-dev", "libtool", "make")
NGC = "nvcr.io/nvidia/"  # images whose NCCL looks for libnccl-net-aws-ofi.so (NVIDIA/exemplar-performance#39)


@dataclass(frozen=True, kw_only=True)
class AwsOfiNccl(Released):
    """NCCL's plugin in /opt/aws-ofi-nccl, compiled from its repository against the libfabric of layer efa or libfabric.

    NCCL finds it by its name, libnccl-net.so, and falls back to sockets without an error if it cannot use it. A job
    should therefore set NCCL_NET (launch profile). On a target with EFA it has AWS's tuning for its instances. The EFA
    installer contains a copy as well (efa: {plugin: true}): use one of the two.
    """

    upstream: ClassVar[str] = "aws-ofi-nccl"
    repository: ClassVar[str] = "github:aws/aws-ofi-nccl"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    package: ClassVar[str] = "aws-ofi-nccl"
    prefix: ClassVar[str] = "/opt/aws-ofi-nccl"
    component: ClassVar[str] = "aws-ofi-nccl"
    requires: ClassVar[tuple[str, ...]] = ("cuda",)
    after: ClassVar[tuple[str, ...]] = ("libfabric", "efa", "cuda", "gdrcopy")
    on_toolkit: ClassVar[bool] = True  # /opt/cuda may be links into it
    memory_gb: ClassVar[float] = 0.5

    def at_least(self, major: int, minor: int) -> bool:
        return tuple(int(part) for part in re.findall(r"\d+", self.whole)[:2]) >= (major, minor)

    @property
    def tag(self) -> str:
        return "v{}" if self.at_least(1, 14) else "v{}-aws"

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = self.lacking()
        if not env.has("efa") and not env.has("libfabric"):
            why = "it is a plugin for libfabric, and the image has none"
            return (*found, Refusal(why, "add libfabric to the layers, or efa on AWS"))
        return found

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libnccl-net",)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        # without a version the newest that is known here: the matrix has newer ones as well
        return {self.component: self.version or f"<={next(iter(RELEASES))}"}

    def sources(self, env: RecipeEnv) -> Sources:
        # with the libraries that its libfabric needs: configure links against it, and the linker follows them
        below = rdma.packages(env) if rdma.libfabric(env) else ("libfabric-dev",)
        return Sources(debian=(*DEBIAN, *below), git=(self.source(),))

    def build(self, env: RecipeEnv) -> list[Any]:
        own, ngc = rdma.libfabric(env), env.base.startswith(NGC)
        switched = ngc and self.at_least(1, 20)  # since then configure has an option for that name
        options = [
            "--disable-static",
            "--disable-tests",
            "--disable-werror",
            *([f"--with-libfabric={own}"] if own else []),
            "--with-cuda=/opt/cuda",
            *(["--with-gdrcopy=/opt/gdrcopy"] if env.has("gdrcopy") else []),
            # without this option configure detects EC2 on the build machine, which is not the one that runs jobs
            f"--{'enable' if env.target.fabric == 'efa' else 'disable'}-platform-aws",
            *(["--enable-ngc"] if switched else []),
        ]
        named = [] if switched or not ngc else ["ln -s libnccl-net.so lib/libnccl-net-aws-ofi.so"]
        return autotools(
            self.source(),
            self.prefix,
            title="aws-ofi-nccl: compiled",
            # from 1.19 on the version comes from git or from this file; a source without history has only the file
            before=[f"echo {self.whole} > .release_version"],
            bootstrap="./autogen.sh",
            configure=options,
            # Debian's libibverbs needs no path
            environment={"LD_LIBRARY_PATH": ":".join(rdma.linked_folders(env))} if own and rdma.prefix(env) else {},
            after=[" && ".join([f"cd {self.prefix}", *named])] if named else [],
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=("libhwloc15",), libraries=(f"{self.prefix}/lib",))

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = (
            "import ctypes; plugin = ctypes.CDLL('libnccl-net.so'); "
            "print('net', *(number for number in range(30) if hasattr(plugin, f'ncclNetPlugin_v{number}'))); "
            "print({line.split()[-1] for line in open('/proc/self/maps') if 'libfabric.so' in line})"
        )
        own = rdma.libfabric(env) or "/usr/lib"
        return [
            Check(
                "aws-ofi-nccl: the plugin loads with the image's own libfabric",
                f'python3 -c "{program}"',
                rf"net [0-9 ]+\n\{{'{re.escape(own)}/[^']*libfabric\.so[^']*'\}}",
            ),
            Check(
                "aws-ofi-nccl: NCCL reports that it uses the plugin",
                "NCCL_NET='AWS Libfabric' NCCL_DEBUG=INFO all_reduce_perf -b 8 -e 8M -f 2 -g 1",
                r"NET/OFI Selected [Pp]rovider is efa",
                tier="fabric",
            ),
        ]
