"""Hardware targets: the properties of a kind of node, so that no image spec repeats them.

``envbuild/targets/NAME.yaml``, or ``targets/NAME.yaml`` of a project. Every run-time variable has a reason. `env` is
set in the image, where it overrides the job's own value under enroot. Variables that a job may change belong to
`launch` (`envbuild.spec.launch_profile`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.distributions import MACHINES
from envbuild.core.errors import EngineError
from envbuild.core.reasoned import Reasoned, lacks_key, read_reasoned
from envbuild.core.yaml_nodes import Node
from envbuild.core.yaml_reader import Reader
from envbuild.net.numa import Numa, read_numa
from envbuild.net.slurm_site import DRIVER
from envbuild.spec.enroot_rules import env_value_fault, name_fault
from envbuild.spec.launch_profile import (
    Launch,
    Nics,
    Threshold,
    read_count,
    read_launch,
    read_nics,
    read_thresholds,
)

if TYPE_CHECKING:
    from envbuild.spec.project import Project

CPUS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "armv8-a", "armv9-a")
FABRICS = ("none", "ethernet", "infiniband", "efa")
SM = r"[1-9][0-9]?\.[0-9]"
WITHOUT_SM = r"(?i)trainium|inferentia"  # accelerators without a compute capability
LAYER_OF = {"infiniband": "InfiniBand", "ethernet": "Ethernet", "efa": "EFA"}
SITE_DRIVER = "the driver that site.yaml states for these nodes"


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of node. `gpu` is the accelerator, `sm` its compute capability ("9.0"; empty without a GPU, and for
    accelerators that have none, Trainium); `gpus` are those of one node;
    `cpu` is the oldest microarchitecture that images must run on; `driver` the oldest NVIDIA driver ("580.65.06"), or
    the one that a site states; `efa` the number of EFA devices; `imex`: whether GPUs of several nodes are one NVLink
    domain."""

    name: str
    description: str = ""
    gpu: str = ""
    sm: str = ""
    gpus: int = 0
    arch: str = "amd64"
    cpu: str = "x86-64-v2"
    fabric: str = "none"
    driver: str = ""
    driver_because: str = ""
    nics: Nics | None = None
    numa: Numa | None = None
    efa: int = 0
    imex: bool = False
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    env: Mapping[str, Reasoned] = field(default_factory=dict)
    launch: Launch = field(default_factory=Launch)

    @property
    def sm_arch(self) -> str:
        """ "90", as in sm_90; empty without a GPU."""
        return self.sm.replace(".", "")

    @property
    def cuda_arch_list(self) -> str:
        """ "9.0", the value for TORCH_CUDA_ARCH_LIST; empty without a GPU."""
        return self.sm

    @property
    def gencode(self) -> str:
        """nvcc's option for this GPU alone, machine code without PTX; empty without a GPU."""
        return f"-gencode=arch=compute_{self.sm_arch},code=sm_{self.sm_arch}" if self.sm else ""

    @property
    def machine(self) -> str:
        """ "x86_64" or "aarch64"."""
        return MACHINES[self.arch]


KEYS = ("schema", *(name for name in Target.__dataclass_fields__ if name not in ("name", "driver_because")))


def load_target(name: str, project: Project) -> Target:
    """Return the target called `name`. Raises SpecError with every mistake of its file."""
    path = project.find_target(name)
    project.check_file(path)
    target = read_target(path)
    driver = project.driver_of(name)
    return replace(target, driver=driver, driver_because=SITE_DRIVER) if driver and target.sm else target


def read_target(path: Path) -> Target:
    """Return the target of one file, named as the file is. Raises SpecError."""
    reader = Reader()
    top = reader.load(path)
    reader.schema(top, "target")
    nodes = reader.table(top, KEYS, "target", "a target")
    text = {key: _text(reader, nodes, key) for key in ("description", "gpu", "sm")}
    gpus = reader.value(nodes["gpus"], int, "gpus") if "gpus" in nodes else 0
    if text["sm"] and not re.fullmatch(SM, text["sm"]):
        reader.wrong(nodes["sm"].where, f"'sm' must be a compute capability, not '{text['sm']}'", 'write sm: "9.0"')
    together = {"gpu", "gpus"} if text["gpu"] and re.search(WITHOUT_SM, text["gpu"]) else {"gpu", "sm", "gpus"}
    if {"gpu", "sm", "gpus"} & set(nodes) not in (set(), together) or (gpus is not None and gpus < ("gpus" in nodes)):
        what = "'gpu' and 'gpus'" if "sm" not in together else "'gpu', 'sm' and 'gpus'"
        hint = f"write all {len(together)}, or none for nodes without an accelerator"
        reader.wrong(top.where, f"{what} must be used together", hint)
    driver, driver_because = _driver(reader, nodes)
    target = Target(
        name=path.stem,
        gpus=gpus or 0,
        arch=_choice(reader, nodes, "arch", tuple(MACHINES)),
        cpu=_choice(reader, nodes, "cpu", CPUS),
        fabric=_choice(reader, nodes, "fabric", FABRICS),
        driver=driver,
        driver_because=driver_because,
        nics=read_nics(reader, nodes["nics"]) if "nics" in nodes else None,
        numa=read_numa(reader, nodes["numa"], gpus or 0) if "numa" in nodes else None,
        efa=read_count(reader, nodes["efa"], "efa", 256) if "efa" in nodes else 0,
        imex=bool(reader.value(nodes["imex"], bool, "imex")) if "imex" in nodes else False,
        thresholds=read_thresholds(reader, nodes["thresholds"]) if "thresholds" in nodes else {},
        env=read_reasoned(reader, nodes["env"], "env", name_fault, env_value_fault) if "env" in nodes else {},
        launch=read_launch(reader, nodes["launch"]) if "launch" in nodes else Launch(),
        **text,
    )
    _check_fabric(reader, nodes, target)
    reader.finish()
    return target


def check_machine(target: Target) -> None:
    """Raise EngineError if this machine cannot run programs of the target's CPU architecture. It is called before
    anything is downloaded. An emulator registered with the kernel (binfmt_misc) is enough, but slow."""
    import platform

    emulator = Path(f"/proc/sys/fs/binfmt_misc/qemu-{target.machine}")
    if platform.machine() != target.machine and not emulator.exists():
        raise EngineError(
            f"target '{target.name}' needs a CPU of {target.machine}, and this machine has {platform.machine()}",
            hint=f"export the inputs here (envbuild fetch NAME --to DIR), and build on a machine with {target.machine}",
        )


def _check_fabric(reader: Reader, nodes: Mapping[str, Node], target: Target) -> None:
    """Report what contradicts the fabric or the NUMA nodes."""
    if target.nics and target.nics.layer and target.nics.layer != LAYER_OF.get(target.fabric):
        message = f"link layer {target.nics.layer} contradicts fabric '{target.fabric}'"
        fabric = next(name for name, layer in LAYER_OF.items() if layer == target.nics.layer)
        own = LAYER_OF.get(target.fabric)
        reader.wrong(nodes["nics"].where, message, f"write layer: {own}" if own else f"write fabric: {fabric}")
    if target.efa and target.fabric != "efa":
        reader.wrong(nodes["efa"].where, f"'efa' contradicts fabric '{target.fabric}'", "write fabric: efa")
    if "MELLANOX_VISIBLE_DEVICES" in target.env and target.fabric == "efa":
        # enroot's hook 99-mellanox.sh mounts an empty folder over /sys/class/infiniband and links mlx4 and mlx5 alone
        message = "'MELLANOX_VISIBLE_DEVICES' hides EFA devices: enroot's InfiniBand hook shows mlx4 and mlx5 alone"
        reader.wrong(nodes["env"].where, message, "remove it")
    if target.numa and target.launch.cpus_per_task:
        message = "'cpus_per_task' is computed from 'numa'"
        reader.wrong(nodes["launch"].where, message, "remove cpus_per_task")


def _text(reader: Reader, nodes: Mapping[str, Node], key: str) -> str:
    return (reader.text(nodes[key], key, folded=key == "description") or "") if key in nodes else ""


def _choice(reader: Reader, nodes: Mapping[str, Node], key: str, choices: tuple[str, ...]) -> str:
    default = str(Target.__dataclass_fields__[key].default)
    return (reader.choice(nodes[key], key, choices) or default) if key in nodes else default


def _driver(reader: Reader, nodes: Mapping[str, Node]) -> tuple[str, str]:
    if "driver" not in nodes:
        return "", ""
    inner = reader.table(nodes["driver"], ("floor", "because"), "driver", "'driver'")
    floor, because = _text(reader, inner, "floor"), _text(reader, inner, "because")
    if lacks_key(nodes["driver"], "floor", "because"):
        reader.wrong(
            nodes["driver"].where,
            "'driver' needs a floor and a reason",
            'write driver: {floor: "580.65.06", because: …}',
        )
    elif floor and not re.fullmatch(DRIVER, floor):
        reader.wrong(inner["floor"].where, f"'floor' is not a driver version: '{floor}'", 'write floor: "580.65.06"')
    return floor, because
