"""The facts of a machine as plain data, for reports, for comparisons with an image and between nodes."""

from __future__ import annotations

import os
import re
import resource
import time
from typing import Any

from ..host import Host
from ..tools import docker, scontrol, short_answers
from .cpu import cpu_level, cpu_model, glibc, kernel, machine, numa_cpus, system_name
from .gpus import driver_version, has_open_module, models, module_gpus, pci_gpus, smi_report
from .network import efa_devices, ofed_version, rdma_ports
from .neuron import instance_type, neuron_devices, neuron_driver
from .place import find_place, host_name
from .slurm import known_name

SETTINGS = {  # that differ by mistake; older and newer names
    "pcie_generation_max": ("PCI/GPU Link Info/PCIe Generation/Max",),
    "power_limit": ("GPU Power Readings/Current Power Limit", "Power Readings/Power Limit"),
    "ecc": ("ECC Mode/Current",), "persistence": ("Persistence Mode",),
}  # fmt: skip
STEP, KIB_OF_GIB = 16, 1 << 20
CLOCKS = {"graphics": "Max Clocks/Graphics", "sm": "Max Clocks/SM", "memory": "Max Clocks/Memory"}


def machine_facts(host: Host) -> dict[str, Any]:
    """Return the facts; what is unknown is "", 0 or an empty list."""
    place, sign = find_place(host)
    return {
        "host": host_name(host),
        "slurm_node": known_name(host),
        "place": place,
        "place_because": sign,
        "time": int(time.time()),
        "user": "root" if os.getuid() == 0 else "user",
        "system": system_name(host),
        "kernel": kernel(host),
        "glibc": glibc(host),
        "cpu": {
            "arch": machine(host), "level": cpu_level(host), "model": cpu_model(host),
            "numa_nodes": len(numa_cpus(host)),
            "count": len(set().union(*numa_cpus(host).values())),
        },
        "limits": limit_facts(host),
        "nvidia": nvidia_facts(host),
        "network": network_facts(host),
        "neuron": {
            "driver": neuron_driver(host), "devices": len(neuron_devices(host)),
            "cores": sum(neuron_devices(host).values()),
            "instance_type": instance_type(host),
        },
        "programs": program_versions(host),
    }  # fmt: skip


def limit_facts(host: Host) -> dict[str, Any]:
    """Return the memory of the machine in steps of 16 GiB, as equal machines differ by some of their own firmware, and
    the limit of locked memory."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", host.text("/proc/meminfo"), re.MULTILINE)
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return {
        "memory_gib": -(-int(found[1]) // (STEP * KIB_OF_GIB)) * STEP if found else 0,
        "memlock": "unlimited" if soft == resource.RLIM_INFINITY else soft,
    }


def nvidia_facts(host: Host) -> dict[str, Any]:
    """Return driver and GPUs."""
    report = smi_report(host)
    by_bus = {gpu.bus.lower()[-12:]: gpu for gpu in report.gpus}
    gpus = []
    for number, model in enumerate(models(host)):
        bus = module_gpus(host)[number].bus if module_gpus(host) else report.gpus[number].bus.lower()
        more = by_bus.get(bus.lower()[-12:])
        values = {name: more.value(path) if more else "" for name, path in CLOCKS.items()}
        gpus.append(
            {
                "bus": bus, "model": model, "vbios": more.value("VBIOS Version") if more else "",
                "firmware": more.value("GSP Firmware Version") if more else "", "max_clocks": values,
                "pcie_width": more.value("PCI/GPU Link Info/Link Width/Current") if more else "",
                **{name: more.value(*paths) if more else "" for name, paths in SETTINGS.items()},
            }
        )  # fmt: skip
    return {
        "driver": driver_version(host), "cuda": report.cuda, "open_module": has_open_module(host),
        "on_bus": len(pci_gpus(host)), "gpus": gpus,
    }  # fmt: skip


def network_facts(host: Host) -> dict[str, Any]:
    """Return the RDMA ports."""
    ports = [
        {
            "port": port.name, "layer": port.layer, "state": port.state, "rate": port.rate, "firmware": port.firmware,
            "model": port.kind, "board": port.board,
        }
        for port in rdma_ports(host)
    ]  # fmt: skip
    return {
        "ports": ports, "efa": len(efa_devices(host)), "efa_driver": host.text("/sys/module/efa/version"),
        "ofed": ofed_version(host) or ofed_by_program(host),
    }  # fmt: skip


def ofed_by_program(host: Host) -> str:
    """Return the version that ofed_info prints, or ""."""
    if not rdma_ports(host) or not host.programs.find(short_answers.OFED[0]):
        return ""
    return short_answers.parse_ofed(host.output(*short_answers.OFED).text)


def program_versions(host: Host) -> dict[str, str]:
    """Return the versions of the programs that start containers and jobs, of those that were started by checks."""
    found = {"docker": "", "docker_client": "", "nvidia_container_toolkit": "", "enroot": "", "slurm": ""}
    if (output := host.programs.done.get(docker.COMMAND)) and (versions := docker.parse_docker(output.text)):
        found["docker"], found["docker_client"] = versions.engine, versions.client
    for name, command in (("nvidia_container_toolkit", short_answers.TOOLKIT), ("enroot", short_answers.ENROOT)):
        if output := host.programs.done.get(command):
            found[name] = short_answers.parse_version(output.text)
    for words, end in host.programs.done.items():
        if words[:4] == ("scontrol", "-o", "show", "node"):
            found["slurm"] = scontrol.parse_node(end.text).get("Version", "")
    return found
