"""Launch profile of a target: how jobs are started on such nodes, and what a healthy node reaches.

Variables and options that follow from the hardware are here, each with its reason. What a site decides (partition,
names of devices) is in `envbuild.net.slurm_site`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from envbuild.core.reasoned import Reasoned, lacks_key, read_reasoned
from envbuild.core.yaml_nodes import Node
from envbuild.core.yaml_reader import Reader, did_you_mean, short
from envbuild.net.slurm_site import device_fault, job_variable_fault, mount_fault, option_fault
from envbuild.spec.enroot_rules import env_value_fault

LAYERS = ("InfiniBand", "Ethernet", "EFA")  # as /sys/class/infiniband/*/ports/*/link_layer names them; EFA has none
# Measurements that a launch compares benchmarks with (`envbuild.launch.expectations`).
THRESHOLDS = (
    "host_device_bandwidth",
    "node_allreduce_busbw",
    "two_node_allreduce_busbw",
    "ib_write_bandwidth_gdr",
    "ib_loopback_allreduce_busbw",
)


class Threshold(NamedTuple):
    """A measurement that a healthy node reaches: at least `value` of `unit`; `because` names the source of the
    figure."""

    value: float
    unit: str
    because: str


@dataclass(frozen=True, slots=True)
class Nics:
    """The devices of the fabric in one node: how many, of `rate` Gb/s each, with this link layer. `names` and
    `interface` (which all nodes share) only for machines that are the same everywhere, as a cloud's: a site replaces
    them."""

    count: int
    rate: int
    layer: str
    names: tuple[str, ...] = ()
    interface: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """The start of a job on such nodes.

    env: variables that the job may change. needs: variables that a site or a job must set → the reason.
    host_steps: commands that root runs once on each node → the reason.
    tasks_per_node: default: one for each GPU. cpus_per_task: where the NUMA nodes are not known.
    port: MASTER_PORT, where one is required; 0: from the job's number. workers: that torchrun starts on a node; 0: one
    for each GPU.
    compile: words before the command of a first step that compiles. job, step: options of sbatch and of srun.
    docker: options of docker run. mounts: SRC or SRC:DST.
    """

    env: Mapping[str, Reasoned] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    host_steps: Mapping[str, str] = field(default_factory=dict)
    tasks_per_node: int = 0
    cpus_per_task: int = 0
    port: int = 0
    workers: int = 0
    compile: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    step: tuple[str, ...] = ()
    docker: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()


LAUNCH_KEYS = tuple(item.name for item in fields(Launch))
NUMBERS = {"tasks_per_node": 1024, "cpus_per_task": 1024, "port": 65535, "workers": 1024}
COMPUTED = ("--cpu-bind", "--cpus-per-task", "--ntasks-per-node", "--gpus-per-node", "--nodes")
LISTS = {"compile": None, "job": option_fault, "step": option_fault, "docker": None, "mounts": mount_fault}


def read_launch(reader: Reader, node: Node) -> Launch:
    """Return the ``launch`` of a target; report mistakes."""
    nodes = reader.table(node, LAUNCH_KEYS, "launch", "'launch'")
    values: dict[str, Any] = {
        key: reader.texts(nodes[key], key, fault) if fault else reader.texts(nodes[key], key)
        for key, fault in LISTS.items()
        if key in nodes
    }
    values |= {key: read_count(reader, nodes[key], key, limit) for key, limit in NUMBERS.items() if key in nodes}
    for option in (*values.get("job", ()), *values.get("step", ())):
        name = option.partition("=")[0]
        if name in COMPUTED and option != "--cpu-bind=none":
            reader.wrong(
                node.where,
                f"'{name}' is computed: it is not an option of a target",
                "write numa: {nodes: …, cpus: …, gpus: […]}, or tasks_per_node and cpus_per_task below launch",
            )
    env = read_reasoned(reader, nodes["env"], "env", job_variable_fault, env_value_fault) if "env" in nodes else {}
    values |= {key: reader.text_map(nodes[key], key) for key in ("needs", "host_steps") if key in nodes}
    return Launch(env=env, **values)


def read_nics(reader: Reader, node: Node) -> Nics | None:
    """Return the ``nics`` of a target; report mistakes."""
    entries = reader.table(node, ("count", "rate", "layer", "names", "interface"), "nics", "'nics'")
    if not {"count", "rate", "layer"} <= set(entries):
        hint = "write nics: {count: 8, rate: 400, layer: InfiniBand}; names of devices belong to site.yaml"
        reader.wrong(node.where, "'nics' needs count, rate and layer", hint)
        return None
    count = read_count(reader, entries["count"], "count", 256)
    rate = read_count(reader, entries["rate"], "rate", 10000)
    layer = reader.choice(entries["layer"], "layer", LAYERS) or ""
    names = reader.texts(entries["names"], "names", device_fault) if "names" in entries else ()
    interface = (reader.text(entries["interface"], "interface", device_fault) or "") if "interface" in entries else ""
    if names and count and len(names) != count:
        hint = "list the devices of the fabric alone"
        reader.wrong(entries["names"].where, f"'names' lists {len(names)} devices, and 'count' is {count}", hint)
    return Nics(count, rate, layer, names, interface)


def read_thresholds(reader: Reader, node: Node) -> dict[str, Threshold]:
    """Return the ``thresholds`` of a target; report mistakes."""
    values: dict[str, Threshold] = {}
    for name, (place, entry) in reader.entries(node, "thresholds").items():
        if name not in THRESHOLDS:
            message = f"'{short(name)}' is not a measurement"
            reader.wrong(place.where, message, did_you_mean(name, THRESHOLDS, "the measurements are"))
        inner = reader.table(entry, ("at_least", "unit", "because"), name, f"threshold '{name}'")
        number = reader.value(inner["at_least"], float, "at_least") if "at_least" in inner else None
        unit, because = ((reader.text(inner[key], key) or "") if key in inner else "" for key in ("unit", "because"))
        if lacks_key(entry, "at_least", "unit", "because"):
            hint = f"write {name}: {{at_least: 1.0, unit: GB/s, because: …}}"
            reader.wrong(place.where, f"threshold '{name}' needs a number, a unit and a reason", hint)
        elif number is not None and number <= 0:
            reader.wrong(inner["at_least"].where, f"'at_least' must be more than 0, not {number:g}")
        elif number is not None:
            values[name] = Threshold(number, unit, because)
    return values


def read_count(reader: Reader, node: Node, key: str, limit: int) -> int:
    """Return a number from 1 to `limit`; 0 after a mistake."""
    value = reader.value(node, int, key)
    if value is not None and not 0 < value <= limit:
        reader.wrong(node.where, f"'{key}' must be between 1 and {limit}, not {value}")
        return 0
    return value or 0
