"""rdma-core: the user space of InfiniBand and RoCE."""

from dataclasses import dataclass
from typing import ClassVar

from envbuild.recipe import Check, Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class RdmaCore(Recipe):
    """libibverbs, librdmacm and the providers (mlx5, EFA and others) from Debian, with the tools that show devices.

    The kernel half, udev rules and services belong to the host: Debian's package rdma-core, which holds those and pulls
    in systemd, stays out. One copy only: two rdma-core in one image break plugins (their private symbols differ).
    """

    package: ClassVar[str] = "libibverbs1"

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=("ibverbs-providers", "ibverbs-utils", "libibverbs1", "librdmacm1t64", "rdmacm-utils"))

    def verify(self, env: RecipeEnv) -> list[Check]:
        # without a device ibv_devices fails, also when all is well: the library and the mlx5 provider must load
        program = (
            "import ctypes, glob; verbs = ctypes.CDLL('libibverbs.so.1'); "
            "print('verbs', bool(verbs.ibv_get_device_list)); "
            "[ctypes.CDLL(path) for path in glob.glob('/usr/lib/*/libibverbs/libmlx5-rdmav*.so')] and print('mlx5')"
        )
        return [
            Check("rdma-core: libibverbs and its mlx5 provider load", f'python3 -c "{program}"', r"verbs True\nmlx5")
        ]
