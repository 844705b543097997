"""MPI for Python."""

from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Check, Recipe, RecipeEnv, Sources, python_wheel

# Open MPI uses its UCX layer only over InfiniBand devices unless these options allow all (opal_common_ucx). A machine
# without a fabric has shared memory and TCP.
UCX_ANYWHERE = "--mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any"


@dataclass(frozen=True, kw_only=True)
class Mpi4py(Recipe):
    """mpi4py compiled from its source distribution against the image's own MPI.

    The wheels on the index use any MPI that they find.
    """

    package: ClassVar[str] = "mpi4py"
    after: ClassVar[tuple[str, ...]] = ("openmpi",)
    requires: ClassVar[tuple[str, ...]] = ("openmpi",)
    wheel: ClassVar[bool] = True

    def sources(self, env: RecipeEnv) -> Sources:
        development: tuple[str, ...] = env.recipes["openmpi"].development(env)
        return Sources(
            debian=("gcc", "libc6-dev", *development, "python3-dev"),
            python=(env.setuptools, "cython>=3.1"),
            sdists=(f"mpi4py=={self.version}" if self.version else "mpi4py",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        mpi = env.recipes["openmpi"]
        return python_wheel("mpi4py", environment={"MPICC": mpi.mpicc(env), **mpi.link_path(env)})

    def extensions(self) -> tuple[str, ...]:
        return ("mpi4py.MPI",)

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = "from mpi4py import MPI; c = MPI.COMM_WORLD; print('sum', c.allreduce(c.rank + 1))"
        over = f"{UCX_ANYWHERE} " if env.has("ucx") else ""
        # pml ucx does not start without a working transport: on a machine without a fabric, shared memory and TCP
        command = f'UCX_TLS=self,sm,tcp mpirun --oversubscribe {over}-n 2 /opt/venv/bin/python -c "{program}"'
        return [Check("mpi4py: two-rank all-reduce" + (" over UCX" if over else ""), command, r"sum 3\n(?s:.*)sum 3")]
