"""GPUs of several nodes are one NVLink domain: one clique, and a channel to export memory (GB200 NVL72)."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import smi_fault, smi_report
from ..facts.place import is_container, job_id
from ..host import Host
from ..model import ADMINISTRATOR, Need, Result, failed, not_applicable, not_run, passed

GROUP = "GPU"
CHANNELS = "/dev/nvidia-caps-imex-channels"
ZERO = ("", "0", "00000000-0000-0000-0000-000000000000")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare clique and cluster of the GPUs, and search the channel."""
    if fault := smi_fault(host):
        yield not_run(fault)
        return
    gpus = smi_report(host).gpus
    if need.imex and any(gpu.value("Fabric/State") not in ("", "Completed") for gpu in gpus):
        yield not_run("a GPU is not registered in its fabric, which comes before the domain")
        return
    cliques = {(gpu.value("Fabric/ClusterUUID"), gpu.value("Fabric/CliqueId")) for gpu in gpus}
    if not need.imex and all(cluster in ZERO for cluster, _ in cliques):
        yield not_applicable("these GPUs are not part of a domain of several nodes")
    elif len(cliques) > 1 or any(cluster in ZERO or clique in ZERO for cluster, clique in cliques):
        yield failed(
            "the GPUs are not in one clique of a cluster",
            ADMINISTRATOR,
            "nvidia-smi -q -d FABRIC; the log of the fabric manager on the switch trays about this node",
        )
    elif not host.names(CHANNELS) and not (job_id(host) or is_container(host)) and has_driver_part(host):
        # slurmd (SwitchType=switch/nvidia_imex, imex_device.c) empties the folder, and makes the channel of a job in
        # the mount namespace of that job; Kubernetes makes those of a pod
        yield not_applicable(
            f"clique {next(iter(cliques))[1]}; channels are made for each job: none is here outside of one"
        )
    elif not host.names(CHANNELS):
        fix = "options nvidia NVreg_CreateImexChannel0=1 in /etc/modprobe.d; in a container: NVIDIA_IMEX_CHANNELS=0"
        yield failed(f"{CHANNELS} has no channel", ADMINISTRATOR, fix)
    else:
        yield passed(f"clique {next(iter(cliques))[1]}, {len(host.names(CHANNELS))} channels")


def has_driver_part(host: Host) -> bool:
    """Return whether the driver can make channels."""
    return host.has(CHANNELS) or "nvidia-caps-imex-channels" in host.text("/proc/devices")
