"""srun starts MPI programs with PMIx."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.packages import install_command
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..tools.short_answers import SRUN_MPI, parse_mpi_list
from ..tools.slurm_fault import slurm_fault

GROUP = "Slurm"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Search PMIx among the plugins."""
    if not host.programs.find("srun"):
        yield not_applicable("srun is not installed")
        return
    output = host.output(*SRUN_MPI)
    plugins = parse_mpi_list(output.text + "\n" + output.errors)
    fault = slurm_fault(output, "srun --mpi=list")
    if fault and (output.fault or fault.cause or not plugins):
        yield not_run(fault.detail, fault.fix)
    elif not plugins:
        yield not_run("srun --mpi=list prints no plugin")
    elif not any(name.startswith("pmix") for name in plugins):
        yield failed(
            f"no PMIx; there are {', '.join(plugins)}",
            MINOR,
            f"Slurm's PMIx plugin: {install_command(host, 'libpmix2', 'pmix')}, and Slurm built --with-pmix",
        )
    else:
        yield passed(", ".join(name for name in plugins if name.startswith("pmix")))
