"""srun starts MPI programs with PMIx."""

from __future__ import annotations

from collections.abc import Iterator

from ..host import Host
from ..model import MINOR, Need, Result, failed, not_run, passed
from ..tools.short_answers import SRUN_MPI, parse_mpi_list

GROUP = "Slurm"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Search PMIx among the plugins."""
    if not host.programs.find("srun"):
        yield not_run("srun is not installed")
        return
    output = host.output(*SRUN_MPI)
    plugins = parse_mpi_list(output.text + "\n" + output.errors)
    if output.fault or (output.code and not plugins):
        yield not_run(output.failure("srun --mpi=list"))
    elif not plugins:
        yield not_run("srun --mpi=list prints no plugin")
    elif not any(name.startswith("pmix") for name in plugins):
        yield failed(
            f"no PMIx; there are {', '.join(plugins)}",
            MINOR,
            "install Slurm's PMIx plugin: apt-get install libpmix2, or build Slurm --with-pmix",
        )
    else:
        yield passed(", ".join(name for name in plugins if name.startswith("pmix")))
