"""Open MPI."""

from dataclasses import dataclass
from typing import ClassVar

from envbuild.recipe import Check, Recipe, RecipeEnv, Runtime


@dataclass(frozen=True, kw_only=True)
class Openmpi(Recipe):
    """Open MPI from Debian, with its UCX point-to-point layer."""

    package: ClassVar[str] = "openmpi-bin"
    after: ClassVar[tuple[str, ...]] = ("ucx", "rdma-core")

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(
            debian=("libopenmpi40", "openmpi-bin", "openssh-client"),
            # a container's root is the only user that a build or a test has; jobs run as the submitting user
            env={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        )

    def verify(self, env: RecipeEnv) -> list[Check]:
        checks = [Check("openmpi: two ranks start", "mpirun --oversubscribe -n 2 hostname", r"(?s)\n.+")]
        if env.has("ucx"):
            checks.append(Check("openmpi: UCX point-to-point layer", "ompi_info --parsable", r"mca:pml:ucx"))
        return checks
