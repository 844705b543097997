"""The CPU of a node with accelerators runs at its full frequency: launches of kernels and of transfers wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..facts.gpus import pci_gpus
from ..facts.neuron import neuron_devices
from ..facts.place import is_container
from ..host import Host
from ..model import MINOR, Need, Result, failed, not_applicable, passed

GROUP = "machine"
FOLDER = "/sys/devices/system/cpu"
# With intel_pstate and amd_pstate "powersave" is the usual governor: the preference decides (kernel, intel_pstate.rst)
SAVING = ("powersave", "conservative")
PREFERENCES = ("balance_power", "power")
FIX = "as root: cpupower frequency-set -g performance, or tuned-adm profile throughput-performance"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Read the governor and the preference of each CPU."""
    if not pci_gpus(host) and not neuron_devices(host):
        yield not_applicable("there is no accelerator")
        return
    names = [name for name in host.names(FOLDER) if name.startswith("cpu") and name[3:].isdecimal()]
    governors = Counter(host.text(f"{FOLDER}/{name}/cpufreq/scaling_governor") for name in names)
    wishes = Counter(host.text(f"{FOLDER}/{name}/cpufreq/energy_performance_preference") for name in names)
    del governors[""], wishes[""]
    if not governors:
        yield not_applicable("the kernel does not set the frequency: a virtual machine, or the firmware does")
        return
    saving = [name for name in wishes if name in PREFERENCES]
    if not wishes:
        saving = [name for name in governors if name in SAVING]
    if saving:
        yield failed(
            f"CPUs save power: {', '.join(saving)}", MINOR, f"on the host, {FIX}" if is_container(host) else FIX
        )
    else:
        yield passed(", ".join([*governors, *wishes]))
