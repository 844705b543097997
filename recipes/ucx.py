"""UCX: the communication layer below MPI and UCC."""

from dataclasses import dataclass
from typing import ClassVar

from envbuild.recipe import Check, Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Ucx(Recipe):
    """UCX from Debian: verbs and mlx5, shared memory, TCP; no CUDA support."""

    package: ClassVar[str] = "libucx0"
    after: ClassVar[tuple[str, ...]] = ("rdma-core",)

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=("libucx0", "ucx-utils"))

    def verify(self, env: RecipeEnv) -> list[Check]:
        return [
            Check("ucx: shared memory and TCP transports", "ucx_info -d", r"Transport: tcp"),
            Check("ucx: InfiniBand module", "ucx_info -c -f", r"UCX_RC_MLX5_"),
        ]
