"""A network device can read the memory of a GPU: nvidia-peermem, or DMA buffers of the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.cpu import is_older, kernel
from ..facts.gpus import driver_version, has_open_module
from ..facts.network import rdma_ports
from ..host import Host
from ..model import ADMINISTRATOR, Need, Result, failed, not_run, passed

GROUP = "network"
PEERMEM = ("/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version")  # as NCCL and UCX do
DMABUF = "5.12"  # kernel


def check(host: Host, need: Need) -> Iterator[Result]:
    """Search either way."""
    if not driver_version(host) or not rdma_ports(host):
        yield not_run("it needs an NVIDIA driver and an RDMA device")
        return
    found = next((path for path in PEERMEM if host.has(path)), "")
    dmabuf = has_open_module(host) and bool(kernel(host)) and not is_older(kernel(host), DMABUF)
    if found:
        yield passed(f"{found.split('/')[3]} is loaded" if "module" in found else "nv_mem is loaded")
    elif dmabuf:
        yield passed("DMA buffers: open kernel module, kernel >= 5.12")
    else:
        fix = "modprobe nvidia-peermem, after the RDMA drivers; or install the open kernel module"
        yield failed(
            "neither nvidia-peermem nor DMA buffers: data is copied through the host's memory", ADMINISTRATOR, fix
        )
