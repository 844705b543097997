"""User space of AWS's Elastic Fabric Adapter, from AWS's installer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from envbuild.sdk import (
    Archive,
    Check,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    comment,
    folder,
    newest,
    shell,
    source,
)

# sha256 of AWS's tarballs, as the Amazon EC2 User Guide lists them ("Verify the EFA installer using a checksum", read
# up to 1.47.0; 1.34.0 and older also in aws/aws-parallelcluster-cookbook).
RELEASES = {
    "1.47.0": "2df4201e046833c7dc8160907bee7f52b76ff80ed147376a2d0ed8a0dd66b2db",
    "1.46.0": "8302bd7849afb95c903a875d7dcb6f85b3d7629e9a8b67d020031cfc6f4d0ee1",
    "1.45.1": "9aeb20c645135b6039cc08986d8f14e63280f7839e882a74df5e83627ffeaa17",
    "1.45.0": "25ba26a0877fe3317390dc126aad2f23e27fc461cf0b940004f032cb342fa539",
    "1.44.0": "f129a5b44a49d593d247e55a59eb9bcb57121566e1c2e42b832a4e794fa83d8a",
    "1.43.3": "6c470ebce254c7165347b5048895ac2996c88567271642297f4c597738300652",
    "1.43.2": "de15c5bdbc83b952afbde876110830c604ad0796680e5157c05f7c1979a41069",
    "1.43.1": "54211eda0c193138ee8ed09b5fb41c41fc76fe0a77935fa4ec8d989466342740",
    "1.43.0": "786df3458c499237be33bb8e50ffd4da7c18c20e254380ffc80fb90833d8cc73",
    "1.42.0": "4114fe612905ee05083ae5cb391a00a012510f3abfecc642d86c9a5ae4be9008",
    "1.41.0": "3506354cdfbe31ff552fe75f5d0d9bb7efd29cf79bd99457347d29c751c38f9f",
    "1.40.0": "30491b0fe7c3470d4439594538855c981b05fa69862d74f8c05eb9b97912368a",
    "1.39.0": "2cbc028c03064633bb990782b47c36156637769e2f48704417a9c700a7a32101",
    "1.38.1": "83923374afd388b1cfcf4b3a21a2b1ba7cf46a01a587f7b519b8386cb95e4f81",
    "1.38.0": "4f436954f35ad53754b4d005fd8d0be63de3b4184de41a695b504bdce0fecb22",
    "1.37.0": "2584fc3c8bb99f29b3285e275747ff09d67c18e162c2a652e36c976b72154bfb",
    "1.36.0": "de183f333cfb58aeb7908a67bf9106985ba3ccb7f8638b851d2a0d8dbfacaec4",
    "1.35.0": "432b6ad4368ba0cd8b902729d14a908a97be7a3dcc5239422ea994a47f35a5e1",
    "1.34.0": "bd68839e741b0afd3ec2e37d50603803cfa7a279c120f0a736cc57c2ff2d7fdc",
    "1.33.0": "0372877b87c6a7337bb7791d255e1053b907d030489fb2c3732ba70069185fce",
    "1.32.0": "5f7233760be57f6fee6de8c09acbfbf59238de848e06048dc54d156ef578fc66",
    "1.31.0": "943325bd37902a4300ac9e5715163537d56ecb4e7b87b37827c3e547aa1897bf",
    "1.30.0": "876ab9403e07a0c3c91a1a34685a52eced890ae052df94857f6081c5f6c78a0a",
    "1.29.1": "178b263b8c25845b63dc93b25bcdff5870df5204ec509af26f43e8d283488744",
    "1.29.0": "836655f87015547e733e7d9f7c760e4e24697f8bbc261bb5f3560abd4206bc36",
    "1.28.0": "2e625d2d6d3e073b5178e8e861891273d896b66d03cb1a32244fd56789f1c435",
}
# The packages of the tarball that are unpacked: libfabric with its programs and headers, and the verbs libraries that
# it is linked with. The kernel module, its configuration and the services are left out.
FABRIC = ("libfabric1-aws", "libfabric-aws-bin", "libfabric-aws-dev")
VERBS = ("libibverbs1", "ibverbs-providers", "librdmacm1", "ibverbs-utils")
CONFIGURATION = "/etc/libibverbs.d/efa.driver"


@dataclass(frozen=True, kw_only=True)
class Efa(Recipe):
    """AWS's libfabric and rdma-core in /opt/amazon, on request with AWS's NCCL plugin and Open MPI.

    - `plugin`: whether to include the NCCL plugin.
    - `mpi`: ``"4"`` to include Open MPI 4.
    - `sha256`: checksum of the tarball of a version that this recipe does not know.

    The installer's script is not run, because it requires network, a kernel and changes to the system. The tarball
    contains the packages of each distribution; those that a container needs are unpacked into the prefix. AWS's
    libfabric needs the rdma-core that it was built with, whose providers have a suffix of their own, and an image can
    have only one: layer rdma-core and Debian packages that link verbs are refused. The tarball's sha256 is checked; the
    installer's own check of signatures would need the network.
    """

    package: ClassVar[str] = "efa-installer"
    prefix: ClassVar[str] = "/opt/amazon"
    component: ClassVar[str] = "efa-installer"

    plugin: bool = False
    mpi: Literal["", "4"] = ""
    sha256: str = ""

    @property
    def programs(self) -> tuple[str, ...]:  # type: ignore[override]  # a class variable elsewhere
        return ("efa/bin", "openmpi/bin") if self.mpi else ("efa/bin",)

    @property
    def whole(self) -> str:
        """Return the version that is unpacked."""
        return self.version if self.sha256 else newest(self.version, RELEASES) or self.version

    def faults(self) -> dict[str, Refusal]:
        wrong = self.sha256 and not re.fullmatch(r"[0-9a-f]{64}", self.sha256)
        return {self.sha256: Refusal("is not a sha256: 64 hex digits")} if wrong else {}

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        if not self.sha256 and self.whole not in RELEASES:
            why = f"the sha256 of EFA installer {self.version} is not known"
            found.append(Refusal(why, f"write sha256: as in AWS's list, or take one of {', '.join(RELEASES)}"))
        number = tuple(int(part) for part in re.findall(r"\d+", self.whole)[:2])
        first = (1, 38) if env.target.arch == "amd64" else (1, 40)
        if self.plugin and number < first:
            why = f"EFA installer {self.whole} contains no NCCL plugin for {env.target.machine}"
            found.append(Refusal(why, f"take {first[0]}.{first[1]} or newer, or layer aws-ofi-nccl"))
        return tuple(found)

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        plugin = ("libnccl-net",) if self.plugin else ()
        mpi = ("libmpi",) if self.mpi else ()
        return ("libfabric", "libibverbs", "librdmacm", *plugin, *mpi)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        # without a version the newest that is known here: the matrix has newer ones as well
        return {self.component: self.version or f"<={next(iter(RELEASES))}"}

    def source(self) -> Archive:
        file = f"aws-efa-installer-{self.whole}.tar.gz"
        digest = self.sha256 or RELEASES.get(self.whole, "")
        return Archive("efa", f"vendor:aws-efa/{file}", file, digest)

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(archives=(self.source(),))

    def build(self, env: RecipeEnv) -> list[Any]:
        family, _, number = env.distribution.name.partition(":")
        packages = f"DEBS/{family.upper()}{number.replace('.', '')}/{env.target.machine}"
        wanted = [
            *FABRIC,
            *(f"rdma-core/{name}" for name in VERBS),
            *(["libnccl-ofi"] if self.plugin else []),
            *(["openmpi40-aws"] if self.mpi else []),
        ]
        triplet = f"{env.target.machine}-linux-gnu"
        efa = f"{self.prefix}/efa"
        return [
            *source(self.source()),
            comment("efa: the packages that a container needs, unpacked"),
            shell(
                commands=[
                    f"cd {folder(self.source())}",
                    f"{{ test -d {packages} || "
                    f"{{ echo 'no packages for {env.distribution.name}; there are:' DEBS/*; exit 1; }}; }}",
                    f"mkdir -p tree {efa}/lib {efa}/bin",
                    # as AWS's script writes it; other tools read the version there
                    f"echo '# EFA installer version: {self.whole}' > {self.prefix}/efa_installed_packages",
                    f"for name in {' '.join(wanted)}; do set -- {packages}/${{name}}_*.deb; "
                    'test -e "$1" || { echo "there is no package $name"; exit 1; }; '
                    'dpkg-deb -x "$1" tree || exit 1; '
                    f'dpkg-deb -W "$1" >> {self.prefix}/efa_installed_packages || exit 1; done',
                    f"cp -a tree/opt/amazon/. {self.prefix}/",
                    # the verbs libraries beside libfabric; providers remain in their folder, whose links are relative
                    f"cp -a tree/usr/lib/{triplet}/. {efa}/lib/",
                    f"cp -a tree/usr/bin/. {efa}/bin/",
                    # the plugin is in a folder of the triplet in some releases and not in others
                    f"if test -d {self.prefix}/ofi-nccl/lib/{triplet}; then "
                    f"mv {self.prefix}/ofi-nccl/lib/{triplet}/* {self.prefix}/ofi-nccl/lib/; fi",
                    f"find {self.prefix} \\( -name '*.la' -o -name '*.a' \\) -delete",
                    f"test -x {efa}/bin/fi_info && ls {efa}/lib/libibverbs/libefa-rdmav*.so",
                ]
            ),
        ]

    def runtime(self, env: RecipeEnv) -> Runtime:
        efa = f"{self.prefix}/efa"
        plugin = (f"{self.prefix}/ofi-nccl/lib",) if self.plugin else ()
        mpi = (f"{self.prefix}/openmpi/lib",) if self.mpi else ()
        hwloc = ("libhwloc15",) if self.plugin or self.mpi else ()
        return Runtime(
            debian=(*hwloc, "libnl-3-200", "libnl-route-3-200", "libudev1"),
            libraries=(f"{efa}/lib", *plugin, *mpi),
            # libibverbs searches for providers in the folder of the distribution; to a path it only appends the suffix
            # of this build
            files={CONFIGURATION: f"driver {efa}/lib/libibverbs/libefa\n"},
        )

    def verify(self, env: RecipeEnv) -> list[Check]:
        efa = f"{self.prefix}/efa"
        program = (
            "import ctypes, glob; verbs = ctypes.CDLL('libibverbs.so.1'); "
            f"providers = glob.glob('{efa}/lib/libibverbs/libefa-rdmav*.so'); "
            "[ctypes.CDLL(path) for path in providers] and print('provider'); "
            "print({line.split()[-1] for line in open('/proc/self/maps') if 'libibverbs.so' in line})"
        )
        checks = [
            Check("efa: libfabric is AWS's build", f"{efa}/bin/fi_info --version", r"(?m)^libfabric: .*amzn"),
            Check("efa: it has the EFA provider", f"{efa}/bin/fi_info -l", r"(?m)^efa:"),
            Check(
                "efa: the loader finds its libibverbs, and the EFA provider loads",
                f'python3 -c "{program}"',
                rf"provider\n\{{'{efa}/lib/libibverbs\.so\.[^']*'\}}",
            ),
            Check(
                "efa: no kernel module", "! find /usr/src /lib/modules -name 'efa*' 2>/dev/null | grep .", r"\A\s*\Z"
            ),
        ]
        if self.plugin:
            loaded = "import ctypes; print(ctypes.CDLL('libnccl-net-ofi.so'))"
            checks.append(Check("efa: its NCCL plugin loads", f'python3 -c "{loaded}"', "libnccl-net-ofi"))
        return checks
