"""Variables of MPI under Slurm: PMIx between Slurm and the image, and UCX under Open MPI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envbuild.core.errors import SpecError
from envbuild.launch.clients import Clients
from envbuild.launch.model import LaunchImage, Setting
from envbuild.launch.programs import has_mpi, is_nccl_test, program_of, usual_plugin
from envbuild.spec.target import Target

WITHOUT_PLUGIN = "srun --mpi=list shows the plugins; Open MPI alone starts with --as mpirun"


def pmix_plugin(clients: Clients) -> tuple[str, str]:
    """Return the value of ``srun --mpi`` and a warning; raise SpecError if Slurm has no PMIx."""
    plugins = clients.slurm.pmix
    if plugins is None:
        hint = "write slurm: {pmix: [pmix]} into site.yaml"
        return "pmix", f"whether Slurm has PMIx is not known, and MPI needs it: srun --mpi=list shows it; then {hint}"
    if not plugins:
        raise SpecError("the command starts MPI, and Slurm has no PMIx plugin", hint=WITHOUT_PLUGIN)
    return usual_plugin(plugins), ""


def check_mpi(image: LaunchImage, command: Sequence[str]) -> None:
    """Raise SpecError if a command is to start with MPI, and the image has none."""
    if not has_mpi(image):
        raise SpecError(
            f"'{program_of(command)}' is to start with MPI, and {image.name} contains no MPI",
            hint="leave out --mpi, or add openmpi to the layers of the image",
        )


def pmix_settings() -> Iterator[Setting]:
    """Yield what the PMIx of an image needs beside that of Slurm."""
    because = "Slurm passes the list of its own PMIx, and another release in the image has other components"
    yield Setting("PMIX_MCA_gds", "hash", "launch", because)
    yield Setting("PMIX_MCA_psec", "^munge", "launch", "the container does not reach munge's socket")


def open_mpi_settings(target: Target, image: LaunchImage, command: Sequence[str], nodes: int) -> Iterator[Setting]:
    """Yield what makes Open MPI use UCX on one node without InfiniBand, where it refuses UCX.

    Between nodes it keeps its own TCP: with UCX over TCP (Open MPI 5.0.7, UCX 1.18.1, Slurm 22.05.8; two ranks on each
    of two nodes) 3 of 6 jobs aborted in MPI_Finalize ("Connection reset by remote peer"), after right results."""
    if nodes > 1 or not image.has("ucx") or target.fabric in ("infiniband", "efa") or is_nccl_test(command):
        return
    because = "Open MPI uses UCX without mlx devices only with this setting"
    yield Setting("OMPI_MCA_pml", "ucx", "launch", "messages go through UCX")
    yield Setting("OMPI_MCA_opal_common_ucx_tls", "any", "launch", because)
    yield Setting("OMPI_MCA_opal_common_ucx_devices", "any", "launch", because)
    yield Setting("UCX_TLS", "self,sm,tcp", "launch", "what a node without InfiniBand has")
