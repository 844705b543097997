"""Each GPU has its full PCIe width, and under load its generation; nothing slows its clock down.

Width and generation are also compared with those of the other GPUs of one model: a link that came up narrow or slow
states that as its maximum. Boards have one link for all; cards may be in slots of several kinds."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.gpus import is_board, smi_fault, smi_report
from ..facts.pcie import SPEEDS, link_speed
from ..host import Host
from ..model import HARDWARE, MINOR, Need, Result, failed, not_run, passed
from ..tools.nvidia_smi import Gpu

GROUP = "GPU"
WIDTH, GENERATION = "PCI/GPU Link Info/Link Width", "PCI/GPU Link Info/PCIe Generation"
SLOW = (
    "Clocks Event Reasons/HW Slowdown", "Clocks Throttle Reasons/HW Slowdown",  # newer and older name
    "Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown", "Clocks Event Reasons/HW Slowdown/HW Power Brake Slowdown",
)  # fmt: skip
IDLE = ("Clocks Event Reasons/Idle", "Clocks Throttle Reasons/Idle")
WARM = ("Clocks Event Reasons/SW Thermal Slowdown", "Clocks Throttle Reasons/SW Thermal Slowdown")
RESEAT = "drain the node; reseat the GPU or its riser"


def check(host: Host, need: Need) -> Iterator[Result]:
    """Compare the links with their maximum and with each other."""
    if fault := smi_fault(host):
        yield not_run(fault)
        return
    gpus = smi_report(host).gpus
    pairs = [(gpu.bus, gpu.value(f"{WIDTH}/Current"), gpu.value(f"{WIDTH}/Max")) for gpu in gpus]
    narrow = [f"{bus}: {now} of {most}" for bus, now, most in pairs if now and most and now != most]
    weak = [*below_others(gpus, WIDTH, "width"), *below_others(gpus, GENERATION, "generation")]
    slow = [gpu.bus for gpu in gpus if any(gpu.value(key).lower() == "active" for key in SLOW)]
    warm = [gpu.bus for gpu in gpus if any(gpu.value(key).lower() == "active" for key in WARM)]
    if narrow:
        yield failed(f"PCIe width: {', '.join(narrow)}", *slot_repair(gpus))
    elif weak:
        yield failed(f"PCIe {', '.join(weak)}", *slot_repair(gpus))
    elif down := slow_links(host, gpus):
        yield failed(f"PCIe generation under load: {', '.join(down)}", HARDWARE, RESEAT)
    elif slow:
        yield failed(
            f"the hardware slows the clock down{at_rest(gpus, slow)}: {', '.join(slow)}",
            MINOR,  # of one moment: full load or a change of the clock can do it (nvidia-smi(1), clocks event reasons)
            "ask again: nvidia-smi -q -d PERFORMANCE; if it remains: air, fans, coolant, power supplies: ipmitool sdr",
        )
    elif warm:
        fix = "air, fans, coolant; nvidia-smi -q -d TEMPERATURE"
        yield failed(f"above the target temperature, and slower for it: {', '.join(warm)}", MINOR, fix)
    elif not all(now and most for _, now, most in pairs):
        yield not_run("nvidia-smi does not state the PCIe width")
    else:
        widths = "/".join(sorted({now for _, now, _ in pairs}))
        yield passed(f"width {widths}" + generations(gpus))


def at_rest(gpus: tuple[Gpu, ...], slow: list[str]) -> str:
    """Return that GPUs which are slowed down are idle: no load explains it, but heat or the power supply."""
    idle = [gpu.bus for gpu in gpus if gpu.value(*IDLE).lower() == "active"]
    return " of idle GPUs" if set(slow) <= set(idle) else ""


def slot_repair(gpus: tuple[Gpu, ...]) -> tuple[str, str]:
    """Return the severity of a narrow or slow link, and what repairs it: a card may be in a slot with fewer lanes, and
    its largest width is that of the GPU."""
    if any(is_board(gpu.value("Product Name")) for gpu in gpus):
        return HARDWARE, RESEAT
    return MINOR, f"none, if the slot has no more lanes; another slot; {RESEAT}"


def below_others(gpus: tuple[Gpu, ...], key: str, name: str) -> list[str]:
    """Return the GPUs whose largest width or generation is below that of other GPUs of their model."""
    found = []
    for gpu in gpus:
        alike = [number_of(one, key) for one in gpus if one.value("Product Name") == gpu.value("Product Name")]
        own = number_of(gpu, key)
        if 0 < own < max(alike):
            found.append(f"{name} {own} of {max(alike)}: {gpu.bus}")
    return found


def number_of(gpu: Gpu, key: str) -> int:
    """Return a largest width or generation; 0: not stated."""
    text = gpu.value(f"{key}/Max").rstrip("x")
    return int(text) if text.isdigit() else 0


def slow_links(host: Host, gpus: tuple[Gpu, ...]) -> list[str]:
    """Return the GPUs under load (P0) whose link is slow while those of all others under load are not. The link of an
    idle GPU is slow. /sys is read after nvidia-smi: a GPU that only now started has its full speed there."""
    busy = [gpu for gpu in gpus if gpu.value("Performance State") == "P0" and number_of(gpu, GENERATION)]
    now = {gpu.bus: gpu.value(f"{GENERATION}/Current") for gpu in busy}
    slow = [gpu for gpu in busy if now[gpu.bus].isdigit() and int(now[gpu.bus]) < number_of(gpu, GENERATION)]
    if not slow or 2 * len(slow) > len(busy):
        return []
    rows = [(gpu, link_speed(host, gpu.bus.lower()[-12:]), number_of(gpu, GENERATION)) for gpu in slow]
    return [f"{now[gpu.bus]} of {most}: {gpu.bus}" for gpu, speed, most in rows if 0 < speed < SPEEDS.get(most, 0)]


def generations(gpus: tuple[Gpu, ...]) -> str:
    """Return the generation of the links, with what the GPUs can where the machine cannot."""
    most = {number_of(gpu, GENERATION) for gpu in gpus} - {0}
    device = {gpu.value(f"{GENERATION}/Device Max") for gpu in gpus} - {"", *map(str, most)}
    text = f", generation {'/'.join(map(str, sorted(most)))}" if most else ""
    return f"{text} of this machine, {'/'.join(sorted(device))} of the GPU" if text and device else text
