"""User space of InfiniBand, RoCE and EFA."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Check, DebianOrSource, RecipeEnv, Runtime, Sources, cmake

# Tags of linux-rdma/rdma-core; 56.1 is Debian 13's, 50.0 Ubuntu 24.04's, 39.0 Ubuntu 22.04's.
RELEASES = {
    "64.0": "f272237493ef309984036f7b85655e11104c61c8",
    "63.1": "1803b1b0b94e0513dccba37bf2d66c1e35331ea0",
    "62.1": "e306f7c5409b36b2a0d6517b6228219148c03a1c",
    "61.1": "cf9dd608542c9a1e58e724c546b3bf4fb62e0cd5",
    "60.2": "d1e2fa9a8c5f835914f9a1a2ec3e483c323ce85e",
    "59.2": "efcfbd1686813df8853158eb2a102aac90badaa2",
    "58.2": "1f6bd341a07825ce4d416b030d1f489e66102f20",
    "57.3": "ff161dfff4f5f7b76d13c47c92c3b9c7529abcd7",
    "56.4": "acc42ce7175fdad50c9720b5aff347d2c3952faf",
    "56.1": "45b7e6deffadbd81e6c95bb783926c051a5c0fa8",
    "55.4": "dfed6abd509bccaaa18d8a07ec2420546681b0c0",
    "54.5": "92d36a1bc4f86b4a5c7535c98eeb55d2397e39e0",
    "53.6": "04e9b24ab110d3184171bcc0afe040b221f501f8",
    "50.0": "bc6b4bc134532e952fe7f8efc251e1f89b912098",
    "47.0": "ccb120cc7b7faceca90cfa55189a1b35b0adc78d",
    "39.0": "b2fedc4b1b891afd2c26ebfd21f9e440e83c28ff",
}
DEBIAN = ("cmake", "gcc", "libc6-dev", "libnl-3-dev", "libnl-route-3-dev", "libudev-dev", "make", "pkgconf", "python3")
# Services, rules and daemons for the host's kernel modules; a container has none of what they act on.
HOST = (
    *(f"etc/{name}" for name in ("init.d", "iwpmd.conf", "modprobe.d", "rdma", "srp_daemon.conf")),
    *("lib/systemd", "lib/udev", "libexec", "share/doc", "share/perl5"),
    *(f"sbin/{name}" for name in ("ibacm", "ibsrpdm", "iwpmd", "rdma-ndd", "run_srp_daemon", "srp_daemon*", "*.pl")),
)


@dataclass(frozen=True, kw_only=True)
class RdmaCore(DebianOrSource):
    """libibverbs, librdmacm and the providers (mlx5, EFA and others), with the tools that show devices.

    - `provider`: ``debian``, the distribution's packages, or ``source``, upstream's repository, compiled in
      /opt/rdma-core, for an adapter or an EFA feature that the distribution's release does not support. Default:
      ``source`` if the spec sets `version`, else ``debian``.
    - `commit`: full hash of a `version` that this recipe does not know.

    Kernel modules, udev rules and services belong to the host: Debian's package rdma-core, which contains them and
    requires systemd, is left out. Two copies of rdma-core in one image break plugins (their private symbols differ), so
    with ``source`` no package of the distribution may link the distribution's copy.
    """

    upstream: ClassVar[str] = "rdma-core"
    repository: ClassVar[str] = "github:linux-rdma/rdma-core"
    releases: ClassVar[Mapping[str, str]] = RELEASES
    prefix: ClassVar[str] = "/opt/rdma-core"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    memory_gb: ClassVar[float] = 0.2
    cpu_minutes: ClassVar[float] = 1.3

    @property
    def package(self) -> str:
        return "" if self.builds else "libibverbs1"

    def provides(self, env: RecipeEnv) -> tuple[str, ...]:
        return ("libibverbs", "librdmacm")

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(debian=DEBIAN, git=(self.source(),)) if self.builds else Sources()

    def build(self, env: RecipeEnv) -> list[Any]:
        if not self.builds:
            return []
        return cmake(
            self.source(),
            self.prefix,
            title="rdma-core: compiled",
            options=[
                "-DCMAKE_INSTALL_LIBDIR=lib",
                # providers and their list (libibverbs.d) are found by path
                f"-DCMAKE_INSTALL_SYSCONFDIR={self.prefix}/etc",
                "-DCMAKE_INSTALL_RUNDIR=/run",
                "-DENABLE_STATIC=0",
                "-DNO_MAN_PAGES=1",  # pandoc and docutils would be needed
                "-DNO_PYVERBS=1",
            ],
            after=[
                f"rm -rf {' '.join(f'{self.prefix}/{path}' for path in HOST)}",
                # ibstat, iblinkinfo and others are for users, to inspect the fabric
                f"mv {self.prefix}/sbin/* {self.prefix}/bin/ && rmdir {self.prefix}/sbin",
            ],
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        if self.builds:
            return Runtime(debian=("libnl-3-200", "libnl-route-3-200", "libudev1"), libraries=(f"{self.prefix}/lib",))
        cm = env.distribution.package("librdmacm1")
        return Runtime(debian=("ibverbs-providers", "ibverbs-utils", "libibverbs1", cm, "rdmacm-utils"))

    def verify(self, env: RecipeEnv) -> list[Check]:
        # without a device ibv_devices always fails, so the check loads the library and the mlx5 provider
        folder = f"{self.prefix}/lib" if self.builds else "/usr/lib/*"
        program = (
            "import ctypes, glob; verbs = ctypes.CDLL('libibverbs.so.1'); "
            "print('verbs', bool(verbs.ibv_get_device_list)); "
            f"[ctypes.CDLL(path) for path in glob.glob('{folder}/libibverbs/libmlx5-rdmav*.so')] and print('mlx5')"
        )
        checks = [
            Check("rdma-core: libibverbs and its mlx5 provider load", f'python3 -c "{program}"', r"verbs True\nmlx5")
        ]
        if self.builds:
            version = re.escape(self.whole)
            checks.append(
                Check(
                    "rdma-core: the loader finds the requested version",
                    "readlink -f $(ldconfig -p | sed -n 's/.*libibverbs.so.1 .*=> //p' | head -1)",
                    rf"^{self.prefix}/lib/libibverbs\.so\.1\.[0-9]+\.{version}$",
                )
            )
        return checks
