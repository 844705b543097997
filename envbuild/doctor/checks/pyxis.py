"""srun starts containers: pyxis adds its options."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.place import is_container
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..tools.short_answers import ENROOT, SRUN_HELP, parse_srun_help
from ..tools.slurm_fault import slurm_fault

GROUP = "Slurm"
SINCE = (("--container-unshare", "0.24"), ("--container-env", "0.15"))  # options, newest first


def check(host: Host, need: Need) -> Iterator[Result]:
    """Search the options in the help of srun."""
    if is_container(host) and not host.programs.find("srun"):
        yield not_applicable("srun is outside of this container")
        return
    if not host.programs.find("srun"):
        yield not_applicable("srun is not installed")
        return
    output = host.output(*SRUN_HELP)
    options, complete = parse_srun_help(output.text)
    if fault := slurm_fault(output, "srun --help"):
        yield not_run(fault.detail, fault.fix)
    elif not complete:
        yield not_run("the help of srun is truncated")
    elif "--container-image" not in options and not host.programs.find(ENROOT[0]):
        yield not_applicable("neither pyxis nor enroot is installed: jobs have other containers, or none")
    elif "--container-image" not in options:
        fix = "install pyxis, build it again after an update of Slurm, and name it in /etc/slurm/plugstack.conf"
        fix = f"none, if jobs start enroot themselves; else {fix}"
        yield failed("srun has no option --container-image", MINOR, fix)
    else:
        version = next((f"at least {number}" for option, number in SINCE if option in options), "older than 0.15")
        yield passed(f"version {version}, by its options")


def has_pyxis(host: Host) -> bool:
    """Return whether srun states the options of pyxis."""
    return "--container-image" in parse_srun_help(host.output(*SRUN_HELP).text)[0]
