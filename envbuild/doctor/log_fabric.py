"""Signs of a log as the fabric of the target decides: what is a fault on InfiniBand is normal with EFA or Ethernet."""

from __future__ import annotations

from .log_signs import Sign
from .model import USER, Need

EFA, ETHERNET = "efa", "ethernet"
PLUGIN = "aws-ofi-nccl"  # NCCL's way to EFA
# NCCL takes devices whose link layer is InfiniBand or Ethernet; that of EFA is neither (NVIDIA/nccl, net_ib)
NO_DEVICE, NO_PLUGIN, NO_EFA, TCP_ALONE = "no-device", "plugin-missing", "efa-not-found", "ucx-tcp-alone"
NAME_TARGET = "envbuild doctor TARGET --log FILE"


def sign_on_fabric(sign: Sign, need: Need) -> Sign | None:
    """Return a sign as it is judged on the fabric of a target; None where its line is normal."""
    if need.fabric == EFA:
        return sign_with_efa(sign, need)
    if need.source and sign.name == NO_EFA:
        return None
    if need.fabric == ETHERNET and sign.name in (NO_DEVICE, NO_PLUGIN, TCP_ALONE):
        return None
    if sign.name == NO_DEVICE and not need.source:
        return sign._replace(fix=f"with EFA the line is normal: {NAME_TARGET}; with InfiniBand, {sign.fix}")
    return sign


def sign_with_efa(sign: Sign, need: Need) -> Sign | None:
    """Return a sign as it is judged with EFA. MELLANOX_VISIBLE_DEVICES, which InfiniBand needs, hides its devices."""
    doctor = f"in the job's container: envbuild doctor {need.source}".rstrip()
    if sign.name == NO_DEVICE:
        return None
    if sign.name == NO_PLUGIN:
        meaning = f"NCCL finds no network plugin, and without {PLUGIN} it does not use EFA"
        fix = f"use an image with layer {PLUGIN}; unset NCCL_NET_PLUGIN; {doctor}"
        return sign._replace(meaning=meaning, severity=USER, fix=fix)
    if sign.name == NO_EFA:
        return sign._replace(fix=f"{doctor}; mount /dev/infiniband; ulimit -l unlimited")
    if sign.name == "forced-network-missing":
        fix = f"use an image with layer {PLUGIN}; NCCL_NET_PLUGIN must not name another plugin; {doctor}"
        return sign._replace(fix=fix)
    return sign


def forced_network(need: Need) -> str:
    """Return the setting with which a job fails, instead of falling back to TCP."""
    names = {EFA: "NCCL_NET=Libfabric", "infiniband": "NCCL_NET=IB"}
    return names.get(need.fabric, "NCCL_NET=IB, or Libfabric for EFA,")


def direct_command(need: Need) -> str:
    """Return the command that makes GPUDirect RDMA possible on the fabric of a target."""
    return f"modprobe {'efa_nv_peermem' if need.fabric == EFA else 'nvidia-peermem'} (as root)"
