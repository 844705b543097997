"""On a board every pair of GPUs has the same number of NVLinks; cards may have bridges between some."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import driver_version, is_board, is_divided, models, smi_report, topology
from ..host import Host
from ..model import HARDWARE, MINOR, Need, Result, failed, not_applicable, not_run, passed
from ..tools.nvidia_smi import Gpu
from .fabric_manager import nvswitches

GROUP = "GPU"
# links of a GPU, from NVIDIA's data sheets: its bandwidth over that of a link, 900/50, 400/50, 1800/100, 600/50 GB/s
FULL = (("h100", 18), ("h200", 18), ("h800", 8), ("b200", 18), ("b300", 18), ("a100", 12))  # of boards with NVSwitch
BRIDGED = 4  # cards: bridges connect two of them, so that some pairs have no link
MESHES = ("v100", "p100")  # boards whose pairs have one link or two
WITHOUT_SWITCH = 3  # a board of four GPUs without NVSwitch divides the links of each among the three others


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the pairs with each other and with the board's number."""
    names = models(host)
    if not driver_version(host) or len(names) < 2:
        yield not_applicable("there are not two NVIDIA GPUs")
        return
    matrix, fault = topology(host)
    if fault:
        yield not_run(fault)
        return
    report = smi_report(host)
    divided = {f"GPU{number}" for number, gpu in enumerate(report.gpus) if is_divided(gpu) and not report.silent}
    links = {pair: number for pair, number in matrix.nvlinks().items() if not divided & set(pair)}
    if not links and divided:
        yield not_applicable("the GPUs are divided (MIG), and use no NVLink")
        return
    counts = set(links.values())
    model = names[0].lower()
    wanted = next((number for name, number in FULL if name in model and is_board(model)), 0)
    whole = [gpu for gpu in report.gpus if not is_divided(gpu)]
    switched = all(gpu.value("Fabric/State") == "Completed" for gpu in whole or [Gpu("")])
    meshed = all(links.values()) and len(names) >= BRIDGED and not any(name in model for name in MESHES)
    if len(counts) > 1 and not wanted and not switched and not meshed:  # bridges, or the mesh of a board with V100
        linked = [number for number in links.values() if number]
        few, most = min(linked), max(linked)
        yield passed(
            f"{few if few == most else f'{few} to {most}'} NVLinks between {len(linked)} of {len(links)} pairs"
        )
    elif len(counts) > 1:
        most = max(counts)
        fewer = [f"{one}-{two}: {number}" for (one, two), number in links.items() if number != most]
        fix = "nvidia-smi nvlink --status; drain the node, then reboot; again: replace the GPU or its board"
        yield failed(f"{most} NVLinks between most pairs, but {', '.join(fewer[:6])}", HARDWARE, fix)
    elif counts == {0} and not wanted:
        yield not_applicable("these GPUs have no NVLink between them")
    elif counts == {0} and not any(gpu.value("Fabric/State") for gpu in whole) and not nvswitches(host):
        fix = (
            "none, if it is a virtual machine with some of a board's GPUs; its host: a partition of the fabric manager"
        )
        yield failed("no NVLink, no NVSwitch and no fabric: the GPUs have no NVLink partition", MINOR, fix)
    elif wanted and not counts <= {wanted, wanted // WITHOUT_SWITCH}:
        fix = "nvidia-smi nvlink --status; systemctl status nvidia-fabricmanager"
        yield failed(f"{counts.pop()} NVLinks between each pair, and {names[0]} has {wanted}", HARDWARE, fix)
    else:
        yield passed(f"{counts.pop()} NVLinks between each of {len(links)} pairs")
