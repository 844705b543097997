"""A node of a cluster as files: /proc, /sys and /dev of two GPUs and two InfiniBand ports, and its programs.

The programs are shell scripts that print the texts of tests/doctor/texts: the real ones need the devices."""

from __future__ import annotations

import os
import re
from pathlib import Path

from envbuild.doctor.examination import Examination, examine
from envbuild.doctor.host import Host
from envbuild.doctor.model import Need, Result

TEXTS = Path(__file__).parents[1] / "doctor" / "texts"
FLAGS = (
    "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave "
    "avx512f avx512bw avx512cd avx512dq avx512vl"
)
NEED = Need(
    source="h100x2", arch="amd64", cpu="x86-64-v3", gpu="H100 80GB HBM3", gpus=2, nvidia=True, driver="580.65.06",
    fabric="infiniband", nics=2, rate=400, layer="InfiniBand",
)  # fmt: skip


class Node:
    """A node below a folder."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin = folder / "root", folder / "bin"
        self.bin.mkdir(parents=True)
        self.write("proc/sys/kernel/arch", "x86_64")
        self.write("proc/sys/kernel/osrelease", "6.8.0-31-generic")
        self.write("proc/sys/kernel/hostname", "n1")
        self.write("proc/cpuinfo", f"model name\t: CPU\nflags\t\t: {FLAGS}\n")
        self.write("proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\n")
        self.write("proc/1/comm", "systemd")
        self.write("proc/77/comm", "slurmd")
        self.write("proc/77/status", "Name:\tslurmd\nUid:\t0\t0\t0\t0\n")
        self.write("proc/77/limits", "Max locked memory         unlimited            unlimited            bytes\n")
        for kind, number in (("user", 4026531837), ("pid", 4026531836)):
            self.link(f"proc/self/ns/{kind}", f"{kind}:[{number}]")

    def write(self, path: str, text: str) -> None:
        """Write a file of the node."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def link(self, path: str, target: str) -> None:
        """Make a link of the node."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def program(self, name: str, body: str) -> None:
        """Install a program: the lines of a shell script."""
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)

    def prints(self, name: str, text: str) -> None:
        """Install a program that prints a text of tests/doctor/texts."""
        self.program(name, f"cat {TEXTS / text}")

    def add_gpus(self, version: str = "580.95.05", model: str = "NVIDIA H100 80GB HBM3") -> None:
        """Add two GPUs with their driver and nvidia-smi."""
        self.write("sys/module/nvidia/version", version)
        self.write(
            "proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release"
        )
        for minor, slot in enumerate(("0000:1b:00.0", "0000:43:00.0")):
            for name, value in (("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x2330")):
                self.write(f"sys/bus/pci/devices/{slot}/{name}", value)
            self.write_gpu(slot, minor, model)
            self.write(f"dev/nvidia{minor}", "")
        for name in ("nvidiactl", "nvidia-uvm"):
            self.write(f"dev/{name}", "")
        self.write("dev/kmsg", "6,1,100,-;Linux version 6.8.0\n")
        self.program(
            "nvidia-smi",
            f'case "$1" in topo) cat {TEXTS}/topo.tabs.txt ;; *) cat {TEXTS}/nvidia-smi-q.h100.txt ;; esac',
        )

    def change_smi(self, pattern: str, replacement: str, gpu: int = 0) -> None:
        """Replace a pattern in what nvidia-smi prints about one GPU; the changes before remain."""
        file = self.root.parent / "smi.txt"
        text = file.read_text() if file.exists() else (TEXTS / "nvidia-smi-q.h100.txt").read_text()
        head, *gpus = re.split(r"(?m)^(?=GPU 0)", text)
        changed = re.sub(f"(?m){pattern}", replacement, gpus[gpu])
        assert changed != gpus[gpu], pattern
        gpus[gpu] = changed
        file.write_text(head + "".join(gpus))
        self.program("nvidia-smi", f'case "$1" in topo) cat {TEXTS}/topo.tabs.txt ;; *) cat {file} ;; esac')

    def write_gpu(self, slot: str, minor: int, model: str) -> None:
        """Write what the kernel module states about a GPU."""
        lines = [f"Model: \t\t {model}", f"GPU UUID: \t GPU-{minor}", f"Device Minor: \t {minor}", "GPU Excluded:\t No"]
        self.write(f"proc/driver/nvidia/gpus/{slot}/information", "\n".join(lines))

    def add_ports(self, layer: str = "InfiniBand") -> None:
        """Add two network ports with the files of libibverbs."""
        for number in range(2):
            self.write_port(f"mlx5_{number}", layer=layer)
            self.write(f"dev/infiniband/uverbs{number}", "")
        self.write("sys/module/nvidia_peermem/version", "580.95.05")

    def write_port(
        self, device: str, *, state: str = "4: ACTIVE", physical: str = "5: LinkUp", rate: str = "400 Gb/sec (4X NDR)",
        layer: str = "InfiniBand", firmware: str = "28.41.1000", board: str = "MT_0000000891",
    ) -> None:  # fmt: skip
        """Write what the kernel states about a port."""
        place = f"sys/class/infiniband/{device}"
        self.write(f"{place}/fw_ver", firmware)
        self.write(f"{place}/hca_type", "MT4129")
        self.write(f"{place}/board_id", board)
        values = {
            "state": state,
            "phys_state": physical,
            "rate": rate,
            "link_layer": layer,
            "counters/symbol_error": "7",
        }
        for name, value in values.items():
            self.write(f"{place}/ports/1/{name}", value)

    def add_slurm(self) -> None:
        """Install scontrol, srun and enroot."""
        self.prints("scontrol", "scontrol.line.txt")
        self.program(
            "srun", f'case "$1" in --mpi=list) printf "\\tnone\\n\\tpmix\\n" ;; *) cat {TEXTS}/srun-help.txt ;; esac'
        )
        self.program("enroot", "echo 3.5.0")
        self.program("nvidia-ctk", "echo NVIDIA Container Toolkit CLI version 1.17.8")
        self.program("nvidia-container-cli", "echo cli-version: 1.17.8")
        for name in ("98-nvidia.sh", "99-mellanox.sh"):
            self.write(f"etc/enroot/hooks.d/{name}", "")

    def enter_container(self) -> None:
        """Make the node the inside of a container: another user namespace."""
        (self.root / "proc/self/ns/user").unlink()
        self.link("proc/self/ns/user", "user:[4026532575]")

    def host(self, limit: float = 10.0, **environ: str) -> Host:
        """Return the node as checks see it."""
        return Host(str(self.root), {"PATH": self.bin_path(), **environ}, limit)

    def examine(self, need: Need = NEED, limit: float = 10.0, **environ: str) -> Examination:
        """Return a pass over the node."""
        return examine(self.host(limit, **environ), need)

    def bin_path(self) -> str:
        """Return a PATH with the programs of the node, and of this machine cat, sleep and sh alone."""
        for name in ("cat", "sleep", "sh", "printf"):
            if not (self.bin / name).exists():
                (self.bin / name).symlink_to(f"/bin/{name}" if os.path.exists(f"/bin/{name}") else f"/usr/bin/{name}")  # noqa: PTH110
        return str(self.bin)


def result_of(found: Examination, check: str) -> Result:
    """Return the one result of a check."""
    (result,) = [result for result in found.results if result.check == check]
    return result
