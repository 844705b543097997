"""Files that no package provides: topologies, NCCL's settings, a host file."""

import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from envbuild.sdk import VENV, Check, Recipe, RecipeEnv, Refusal, Runtime, unknown_words


class Switch(NamedTuple):
    """One PCIe switch with the PCI domains of its GPUs and network adapters."""

    devices: tuple[str, ...]  # "gpu 0003", "nic 0103"


class Node(NamedTuple):
    """One NUMA node with its CPUs (first, last) and its switches."""

    cpus: tuple[int, int]
    switches: tuple[Switch, ...]


class Machine(NamedTuple):
    """Contents of NCCL's topology file (public format: system, cpu, pci) for one kind of virtual machine."""

    vendor: str
    family: int
    model: int
    speed: str
    nodes: tuple[Node, ...]


def _switch(*domains: str) -> Switch:
    """Return the switch of devices with these PCI domains: below 0100 a GPU, else an adapter."""
    return Switch(tuple(f"{'nic' if domain >= '0100' else 'gpu'} {domain}" for domain in domains))


# Facts of Azure/azhpc-images topology/ndv4-topo.xml and ndv5-topo.xml (8e9d055). The hypervisor hides the bus, so NCCL
# cannot detect them.
MACHINES = {
    # ND96amsr_A100_v4: each NUMA node has one switch with two GPUs and two adapters
    "azure-ndv4-topo": (
        "/opt/microsoft/ndv4-topo.xml",
        Machine(
            "AuthenticAMD",
            23,
            49,
            "16 GT/s",
            (
                Node((0, 23), (_switch("0003", "0004", "0103", "0104"),)),
                Node((24, 47), (_switch("0001", "0002", "0101", "0102"),)),
                Node((48, 71), (_switch("000d", "000e", "0107", "0108"),)),
                Node((72, 95), (_switch("000b", "000c", "0105", "0106"),)),
            ),
        ),
    ),
    # ND96isr_H100_v5: each GPU has a switch with one adapter, four of them on each NUMA node
    "azure-ndv5-topo": (
        "/opt/microsoft/ndv5-topo.xml",
        Machine(
            "GenuineIntel",
            6,
            143,
            "32.0 GT/s PCIe",
            (
                Node(
                    (0, 47),
                    (
                        _switch("0001", "0101"),
                        _switch("0002", "0102"),
                        _switch("0003", "0103"),
                        _switch("0008", "0104"),
                    ),
                ),
                Node(
                    (48, 95),
                    (
                        _switch("0009", "0105"),
                        _switch("000a", "0106"),
                        _switch("000b", "0107"),
                        _switch("000c", "0108"),
                    ),
                ),
            ),
        ),
    ),
}
# The settings of the same images (components/customizations/ndv4.sh, ndv5.sh); a job's environment has precedence.
NCCL_CONF = "/etc/nccl.conf"
SETTINGS = {
    f"azure-{name}-nccl": {
        "NCCL_IB_PCI_RELAXED_ORDERING": "1",
        "NCCL_TOPO_FILE": f"/opt/microsoft/{name}-topo.xml",
        "NCCL_IGNORE_CPU_AFFINITY": "1",
    }
    for name in ("ndv4", "ndv5")
}
HOSTFILE = "/job/hostfile"  # the default of DeepSpeed and GPT-NeoX; DLTS_HOSTFILE names another
BUILT_IN = (*MACHINES, *SETTINGS, "hostfile")
CLASSES = {"gpu": "0x030200", "nic": "0x020700", "switch": "0x060400"}
# Folders of the system and of envbuild, and files that enroot and login shells read: not for files of a spec.
CLOSED = (
    "/bin",
    "/boot",
    "/dev",
    "/etc/envbuild",
    "/etc/ld.so.conf.d",
    "/etc/profile.d",
    "/lib",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/root",
    "/usr",
    "/var/lib",
    *(
        f"/etc/{name}"
        for name in (
            "environment",
            "fstab",
            "group",
            "gshadow",
            "hosts",
            "ld.so.conf",
            "mtab",
            "passwd",
            "profile",
            "rc",
            "resolv.conf",
            "shadow",
        )
    ),
)


@dataclass(frozen=True, kw_only=True)
class Files(Recipe):
    """Files from the spec, and files that envbuild knows by name: ``files: [azure-ndv4-topo, azure-ndv4-nccl]``.

    - `known`: names of known files: Azure's NCCL topologies (azure-ndv4-topo, azure-ndv5-topo), the NCCL settings for
      them (azure-ndv4-nccl, azure-ndv5-nccl), and ``hostfile``, /job/hostfile for one node with the target's number of
      GPUs.
    - `text`: path → content; ``\\n`` starts a new line.
    - `nccl`: settings for /etc/nccl.conf.

    Contents are literal, including ``${`` and ``$(``: neither a shell nor enroot expands them. Different contents for
    one path are refused, and so are paths of the system and in the folder that a layer builds.
    """

    shorthand: ClassVar[str] = "known"
    verbatim: ClassVar[tuple[str, ...]] = ("text", "nccl")

    known: tuple[str, ...] = ()
    text: Mapping[str, str] = field(default_factory=dict)
    nccl: Mapping[str, str] = field(default_factory=dict)

    def faults(self) -> dict[str, Refusal]:
        found = unknown_words(self.known, BUILT_IN, "is not a known file")
        for path in self.text:
            if reason := path_fault(path):
                found[path] = reason
            elif path == NCCL_CONF and self.settings():
                found[path] = Refusal("is written from 'nccl' and the known files", "write its settings under nccl:")
        reason = Refusal("is not the name of a setting, such as NCCL_IB_HCA")
        return found | {name: reason for name in self.nccl if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name)}

    def settings(self) -> dict[str, str]:
        """Return the settings in /etc/nccl.conf; those of `nccl` have precedence over those of known files."""
        found: dict[str, str] = {}
        for name in self.known:
            found |= SETTINGS.get(name, {})
        return found | dict(self.nccl)

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        if "hostfile" in self.known and not env.target.gpus:
            why = f"a host file states the number of GPUs of a node, and target {env.target.name} has none"
            found.append(Refusal(why, "remove hostfile"))
        # the prefix of a recipe must contain exactly what its unit built
        for name, recipe in env.recipes.items():
            prefix = recipe.prefix if recipe.builds else ""
            found += [
                Refusal(
                    f"{path} belongs to layer '{name}', which builds {prefix}",
                    "put it into another folder of /opt, or /etc",
                )
                for path in self.text
                if prefix and within(path, prefix)
            ]
        return tuple(found)

    def contents(self, env: RecipeEnv) -> dict[str, str]:
        """Return path → text."""
        found = {path: xml(machine) for name, (path, machine) in MACHINES.items() if name in self.known}
        if settings := self.settings():
            found[NCCL_CONF] = "".join(f"{name}={value}\n" for name, value in sorted(settings.items()))
        if "hostfile" in self.known:
            found[HOSTFILE] = f"localhost slots={env.target.gpus}\n"
        # a value in a spec is one line of text
        whole = {path: text.replace("\\n", "\n").rstrip("\n") for path, text in self.text.items()}
        return found | {path: f"{text}\n" for path, text in whole.items()}

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(files=self.contents(env))

    def verify(self, env: RecipeEnv) -> list[Check]:
        return [
            Check(
                f"files: {path} has the expected content",
                f"sha256sum < '{path}'",
                f"^{hashlib.sha256(text.encode()).hexdigest()}",
            )
            for path, text in sorted(self.contents(env).items())
        ]


def path_fault(path: str) -> Refusal | None:
    """Return the reason against a file at `path`, or None."""
    if not path.startswith("/") or path != posixpath.normpath(path) or not re.fullmatch(r"[A-Za-z0-9/._+@-]+", path):
        return Refusal("is not a plain absolute path")
    if within(path, VENV):
        return Refusal(
            f"belongs to the Python packages of the image ({VENV})", "put it into another folder of /opt, or /etc"
        )
    closed = next((folder for folder in CLOSED if within(path, folder)), "")
    if not closed and any(within(folder, path) for folder in (*CLOSED, VENV)):
        return Refusal("is a folder of the system", "name a file")
    if not closed:
        return None
    return Refusal(f"belongs to the system ({closed})", "put it below /opt, /etc or another folder")


def within(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or below it."""
    return f"{path}/".startswith(f"{folder}/")


def affinity(first: int, last: int, cpus: int) -> str:
    """Return the mask of a range of CPUs as the kernel writes it: groups of eight hex digits, the highest first."""
    mask = f"{(1 << (last + 1)) - (1 << first):0{-(-cpus // 32) * 8}x}"
    return ",".join(mask[start : start + 8] for start in range(0, len(mask), 8))


def xml(machine: Machine) -> str:
    """Return NCCL's topology file of a machine."""
    cpus = max(node.cpus[1] for node in machine.nodes) + 1
    link = f'link_speed="{machine.speed}" link_width="16"'
    lines, switches = ['<system version="1">'], 0
    for number, node in enumerate(machine.nodes):
        lines.append(
            f'  <cpu numaid="{number}" affinity="{affinity(*node.cpus, cpus)}" arch="x86_64" '
            f'vendor="{machine.vendor}" familyid="{machine.family}" modelid="{machine.model}">'
        )
        for switch in node.switches:
            switches += 1  # switches are not visible, so they get addresses that no device has
            lines.append(f'    <pci busid="ffff:ff:{switches:02x}.0" class="{CLASSES["switch"]}" {link}>')
            for device in switch.devices:
                kind, domain = device.split()
                lines.append(f'      <pci busid="{domain}:00:00.0" class="{CLASSES[kind]}" {link}/>')
            lines.append("    </pci>")
        lines.append("  </cpu>")
    return "\n".join([*lines, "</system>", ""])
