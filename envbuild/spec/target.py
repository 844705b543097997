"""Hardware targets: the properties of a kind of node, so that no image spec repeats them.

``envbuild/targets/NAME.yaml``, or ``targets/NAME.yaml`` of a project. Every run-time variable has a reason. `env` is
set in the image, where it overrides the job's own value under enroot. Variables that a job may change belong to
`launch`, which no command uses yet (`RESERVED`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from envbuild.core.distributions import MACHINES
from envbuild.core.errors import EngineError
from envbuild.core.yaml_nodes import Node, Scalar, Table
from envbuild.core.yaml_reader import Reader
from envbuild.spec.enroot_rules import env_value_fault, name_fault

if TYPE_CHECKING:
    from envbuild.spec.project import Project

CPUS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "armv8-a", "armv9-a")
FABRICS = ("none", "ethernet", "infiniband", "efa")
SM = r"[1-9][0-9]?\.[0-9]"
WITHOUT_SM = r"(?i)trainium|inferentia"  # accelerators without a compute capability
DRIVER = r"[0-9]{3}(\.[0-9]{1,3}){1,2}"


class Reasoned(NamedTuple):
    """A value and the reason for it."""

    value: str
    because: str


class Threshold(NamedTuple):
    """A measurement that a healthy node reaches: at least `value` of `unit`; `because` names the source of the
    figure."""

    value: float
    unit: str
    because: str


@dataclass(frozen=True, slots=True)
class Launch:
    """The start of a job on such nodes: variables that the job may change, options of srun and docker run, mounts
    (SRC or SRC:DST)."""

    env: Mapping[str, Reasoned] = field(default_factory=dict)
    srun: tuple[str, ...] = ()
    docker: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of node. `gpu` is the accelerator, `sm` its compute capability ("9.0"; empty without a GPU, and for
    accelerators that have none, Trainium); `gpus` are those of one node;
    `cpu` is the oldest microarchitecture that images must run on; `driver` the oldest NVIDIA driver ("580.65.06");
    `nics` as the fabric's tools name them. Nothing uses the `RESERVED` ones yet."""

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
    nics: tuple[str, ...] = ()
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


# for a launch command and tests on nodes: read and checked, but not used yet
RESERVED = ("nics", "thresholds", "launch")
KEYS = ("schema", *(name for name in Target.__dataclass_fields__ if name not in ("name", "driver_because")))


def load_target(name: str, project: Project) -> Target:
    """Return the target called `name`. Raises SpecError with every mistake of its file."""
    path = project.find_target(name)
    project.check_file(path)
    return read_target(path)


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
        nics=reader.texts(nodes["nics"], "nics") if "nics" in nodes else (),
        thresholds=_thresholds(reader, nodes["thresholds"]) if "thresholds" in nodes else {},
        env=_read_reasoned(reader, nodes["env"], "env") if "env" in nodes else {},
        launch=_launch(reader, nodes["launch"]) if "launch" in nodes else Launch(),
        **text,
    )
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
    if _lacks_key(nodes["driver"], "floor", "because"):
        reader.wrong(
            nodes["driver"].where,
            "'driver' needs a floor and a reason",
            'write driver: {floor: "580.65.06", because: …}',
        )
    elif floor and not re.fullmatch(DRIVER, floor):
        reader.wrong(inner["floor"].where, f"'floor' is not a driver version: '{floor}'", 'write floor: "580.65.06"')
    return floor, because


def _lacks_key(node: Node, *keys: str) -> bool:
    """Return whether one of `keys` is missing or empty there. (A value of the wrong type is reported where it is
    read.)"""
    found = {key: value for key, (_, value) in node.entries.items()} if isinstance(node, Table) else dict.fromkeys(keys)
    empty = [
        key for key, value in found.items() if isinstance(value, Scalar) and value.kind == "text" and not value.value
    ]
    return any(key not in found or (key in empty and key != "value") for key in keys)


def _read_reasoned(reader: Reader, node: Node, key: str) -> dict[str, Reasoned]:
    values: dict[str, Reasoned] = {}
    for name, (place, entry) in reader.entries(node, key).items():
        inner = reader.table(entry, ("value", "because"), name, f"variable '{name}'")
        if reason := name_fault(name):
            reader.wrong(place.where, reason)
        value = reader.text(inner["value"], name, env_value_fault) if "value" in inner else None
        because = _text(reader, inner, "because")
        if _lacks_key(entry, "value", "because"):
            reader.wrong(
                place.where,
                f"variable '{name}' needs a value and a reason",
                f'write {name}: {{value: "…", because: …}}',
            )
        elif value is not None:
            values[name] = Reasoned(value, because)
    return values


def _thresholds(reader: Reader, node: Node) -> dict[str, Threshold]:
    values: dict[str, Threshold] = {}
    for name, (place, entry) in reader.entries(node, "thresholds").items():
        inner = reader.table(entry, ("at_least", "unit", "because"), name, f"threshold '{name}'")
        number = reader.value(inner["at_least"], float, "at_least") if "at_least" in inner else None
        unit, because = _text(reader, inner, "unit"), _text(reader, inner, "because")
        if _lacks_key(entry, "at_least", "unit", "because"):
            hint = f"write {name}: {{at_least: 1.0, unit: GB/s, because: …}}"
            reader.wrong(place.where, f"threshold '{name}' needs a number, a unit and a reason", hint)
        elif number is not None:
            values[name] = Threshold(number, unit, because)
    return values


def _launch(reader: Reader, node: Node) -> Launch:
    nodes = reader.table(node, ("env", "srun", "docker", "mounts"), "launch", "'launch'")
    lists = {key: reader.texts(nodes[key], key) for key in ("srun", "docker", "mounts") if key in nodes}
    return Launch(env=_read_reasoned(reader, nodes["env"], "env") if "env" in nodes else {}, **lists)
