"""The node has the Neuron devices of the target, and the kernel module drives them."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import AMAZON, pci_devices
from ..facts.neuron import FOLDER, instance_type, neuron_command, neuron_devices, neuron_driver
from ..facts.packages import install_command
from ..facts.place import device_hint, is_container
from ..host import Host
from ..model import ADMINISTRATOR, HARDWARE, USER, Need, Result, failed, not_applicable, not_run, passed
from ..tools.neuron_ls import parse_neuron

GROUP = "Neuron"
# PCI numbers: Inf1, Trn1, Inf2, Trn2, Trn3 (AWS Neuron driver, neuron_device.h)
NEURON_DEVICES = ("7064", "7065", "7066", "7067", "7164", "7264", "7364", "7564")


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the kernel's devices with the target's and neuron-ls."""
    devices, driver = neuron_devices(host), neuron_driver(host)
    if not devices and not driver and not need.neuron:
        yield not_applicable("there is no Neuron device")
        return
    on_bus = sum(device.vendor == AMAZON and device.device in NEURON_DEVICES for device in pci_devices(host))
    if not driver and not on_bus and pci_devices(host):
        yield failed(
            f"no Neuron device on the PCI bus, and {need.source} has {need.gpus}", USER, "use a node of that target"
        )
        return
    if not driver:
        yield failed(
            "the Neuron driver is not loaded",
            ADMINISTRATOR,
            f"{install_command(host, 'aws-neuronx-dkms')}; modprobe neuron",
        )
        return
    wanted = need.gpus if need.neuron else len(devices)
    if len(devices) < max(wanted, 1):
        yield failed(
            f"{len(devices)} Neuron devices, and {need.source or 'a node'} has {max(wanted, 1)}",
            ADMINISTRATOR,
            "use an instance of that type",
            drains=False,  # smaller instances have fewer
        )
        return
    errors = []
    for name in devices:
        for kind in ("mem_ecc_uncorrected", "sram_ecc_uncorrected"):
            count = host.number(f"{FOLDER}/{name}/stats/hardware/{kind}/total") or host.number(
                f"{FOLDER}/{name}/stats/hardware/{kind}"
            )
            errors += [f"{name} {kind} {count}"] if count else []
    if errors:
        yield failed(
            f"uncorrectable errors: {', '.join(errors)}",
            HARDWARE,
            "stop and start the instance: it gets other hardware",
        )
        return
    missing = [name for name in devices if not host.has(f"/dev/{name}")]
    if missing:
        yield failed(
            f"no device file: {', '.join(missing[:4])}",
            USER if is_container(host) else ADMINISTRATOR,
            device_hint(host, "/dev/neuron0") + " …" if is_container(host) else "rmmod neuron; modprobe neuron",
        )
        return
    command = neuron_command(host)
    if not host.programs.find(command[0]):
        yield not_run(
            f"{len(devices)} devices, driver {driver}; neuron-ls is not installed",
            "export PATH=$PATH:/opt/aws/neuron/bin",
        )
        return
    output = host.output(*command)
    rows = parse_neuron(output.text)
    if output.fault or rows is None:
        yield not_run(output.fault or "the output of neuron-ls is truncated")
    elif len(rows) != len(devices):
        yield failed(
            f"neuron-ls finds {len(rows)} of {len(devices)} devices", ADMINISTRATOR, "rmmod neuron; modprobe neuron"
        )
    else:
        cores = sum(row.cores for row in rows)
        yield passed(f"{len(rows)} devices, {cores} cores, driver {driver} {instance_type(host)}".strip())
