"""Statements of a site about starting jobs: its Slurm, its clients, and its kinds of nodes.

Versions of clients decide which options a start line may have. Names of network devices differ from site to site, so
that they are here and not in targets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

from envbuild.core.reasoned import Reasoned, read_reasoned
from envbuild.core.yaml_nodes import Node, Scalar
from envbuild.core.yaml_reader import Reader
from envbuild.net.numa import Numa, read_numa

VERSION = r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}"
DRIVER = r"[0-9]{3}(\.[0-9]{1,3}){1,2}"
RESOURCE = r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"  # of Kubernetes
DEVICE = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,255}"
OPTION = r"--[a-z][a-z0-9-]*(=.+)?"
OF_THE_RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")
PMIX = r"pmix(_v[0-9]{1,2})?"


@dataclass(frozen=True, slots=True)
class Slurm:
    """Slurm and its clients on a site; empty: not stated. `pmix`: PMIx plugins that ``srun --mpi=list`` lists (None:
    not stated). `account`, `qos`, `reservation`: of jobs. `pytorch_hook`: whether enroot's hook 50-slurm-pytorch.sh is
    installed, which exports MASTER_ADDR, MASTER_PORT and WORLD_SIZE."""

    version: str = ""
    pyxis: str = ""
    enroot: str = ""
    pmix: tuple[str, ...] | None = None
    account: str = ""
    qos: str = ""
    reservation: str = ""
    pytorch_hook: bool = False


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of a site for its nodes, for all targets or for one.

    `partition` of Slurm; `driver` that its hosts have, in place of the target's floor; `nics` and `interface`: names of
    the devices of the fabric, and of the interface that all nodes share; `rdma`: the resource of Kubernetes for these
    devices (``rdma/ib``); `mounts` SRC or SRC:DST; `numa` as of a target; `env`: variables of jobs, those without a
    reason may not replace others; `job`, `step`: options of sbatch and of srun.
    """

    partition: str = ""
    driver: str = ""
    nics: tuple[str, ...] = ()
    interface: str = ""
    rdma: str = ""
    mounts: tuple[str, ...] = ()
    numa: Numa | None = None
    env: Mapping[str, Reasoned] = field(default_factory=dict)
    job: tuple[str, ...] = ()
    step: tuple[str, ...] = ()


NODE_KEYS = tuple(item.name for item in fields(NodeSettings))
SLURM_KEYS = tuple(item.name for item in fields(Slurm))


def merge_settings(whole: NodeSettings, own: NodeSettings) -> NodeSettings:
    """Return the settings of one target: `own`, and what it leaves out of those for all; variables are added."""
    given = {name: value for name in NODE_KEYS if (value := getattr(own, name))}
    return replace(whole, **{**given, "env": {**whole.env, **own.env}})


def read_slurm(reader: Reader, node: Node) -> Slurm:
    """Return the ``slurm`` of a site file; report mistakes."""
    entries = reader.table(node, SLURM_KEYS, "slurm", "'slurm'")
    texts = {
        name: reader.text(entries[name], name, _version_fault if name in ("version", "pyxis", "enroot") else word_fault)
        or ""
        for name in SLURM_KEYS
        if name in entries and name not in ("pmix", "pytorch_hook")
    }
    hook = reader.value(entries["pytorch_hook"], bool, "pytorch_hook") if "pytorch_hook" in entries else False
    pmix = reader.texts(entries["pmix"], "pmix", _pmix_fault) if "pmix" in entries else None
    return Slurm(pmix=pmix, pytorch_hook=bool(hook), **texts)


def read_node_settings(reader: Reader, entries: Mapping[str, Node]) -> NodeSettings:
    """Return the settings of nodes among the `entries` of a table; report mistakes."""

    def text(key: str, fault: Callable[[str], str] = word_fault) -> str:
        return (reader.text(entries[key], key, fault) or "") if key in entries else ""

    def texts(key: str, fault: Callable[[str], str]) -> tuple[str, ...]:
        return reader.texts(entries[key], key, fault) if key in entries else ()

    return NodeSettings(
        partition=text("partition", _partition_fault),
        driver=text("driver", _driver_fault),
        nics=texts("nics", device_fault),
        interface=text("interface", device_fault),
        rdma=text("rdma", _resource_fault),
        mounts=texts("mounts", mount_fault),
        numa=read_numa(reader, entries["numa"]) if "numa" in entries else None,
        env=read_reasoned(reader, entries["env"], "env", job_variable_fault, plain=True) if "env" in entries else {},
        job=texts("job", option_fault),
        step=texts("step", option_fault),
    )


def read_target_settings(reader: Reader, node: Node) -> dict[str, NodeSettings]:
    """Return target → its settings; report mistakes."""
    return {
        name: read_node_settings(reader, reader.table(value, NODE_KEYS, name, f"the nodes of target '{name}'"))
        for name, (_, value) in reader.entries(node, "targets").items()
        if not (isinstance(value, Scalar) and value.kind == "null")
    }


def word_fault(value: str) -> str:
    """Return what is wrong with a name of Slurm's (a partition, an account, a reservation), or ""."""
    return "" if re.fullmatch(r"[^\s,;\"'\\]{1,128}", value) else f"must be one name without blanks, not '{value[:60]}'"


def _partition_fault(value: str) -> str:
    return next(filter(None, map(word_fault, value.split(","))), "")


def device_fault(value: str) -> str:
    """Return what is wrong with the name of a network device, or ""."""
    return (
        ""
        if re.fullmatch(DEVICE, value)
        else f"must be the name of a network device (mlx5_0, eth0), not '{value[:60]}'"
    )


def _resource_fault(value: str) -> str:
    """Return what is wrong with the name of a resource of Kubernetes, or ""."""
    return "" if re.fullmatch(RESOURCE, value) else f"must be a resource of Kubernetes (rdma/ib), not '{value[:60]}'"


def mount_fault(value: str) -> str:
    """Return what is wrong with a mount of a container, or ""."""
    parts = value.split(":")
    if "," in value or not all(part.startswith("/") for part in parts[:2]) or len(parts) > 3:
        return f"must be a mount (/SRC, /SRC:/DST or /SRC:/DST:ro, without commas), not '{value[:60]}'"
    return ""


def option_fault(value: str) -> str:
    """Return what is wrong with an option of sbatch or srun, or ""."""
    return "" if re.fullmatch(OPTION, value) else f"must be an option (--NAME or --NAME=VALUE), not '{value[:60]}'"


def _version_fault(value: str) -> str:
    return "" if re.fullmatch(VERSION, value) else f"must be a version (\"23.11.4\"), not '{value[:60]}'"


def _driver_fault(value: str) -> str:
    return "" if re.fullmatch(DRIVER, value) else f"must be a driver version (\"580.65.06\"), not '{value[:60]}'"


def job_variable_fault(name: str) -> str:
    """Return what is wrong with the name of a variable that a target, a site or a user sets for a job, or ""."""
    if not re.fullmatch(VARIABLE, name):
        return f"'{name[:60]}' is not a variable name: use letters, digits and '_'"
    if name in OF_THE_RANKS or name.startswith("SLURM_"):
        return f"'{name}' has another value on each rank or in each job: the launch or Slurm sets it"
    return ""


def _pmix_fault(value: str) -> str:
    return "" if re.fullmatch(PMIX, value) else f"must be a PMIx plugin (pmix, pmix_v4), not '{value[:60]}'"
