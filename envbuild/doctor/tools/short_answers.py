"""Programs that print a version or a short list."""

from __future__ import annotations

import re

TOOLKIT = ("nvidia-ctk", "--version")
ENROOT = ("enroot", "version")
OFED = ("ofed_info", "-s")
SRUN_HELP = ("srun", "--help")
SRUN_MPI = ("srun", "--mpi=list")


def parse_version(text: str) -> str:
    """Return the first version in a text: ``NVIDIA Container Toolkit CLI version 1.17.8``."""
    found = re.search(r"\d+(?:\.\d+)+(?:[-.]\w+)*", text)
    return found[0] if found else ""


def parse_ofed(text: str) -> str:
    """Return the version of an OFED: ``MLNX_OFED_LINUX-5.8-1.1.2.1:``, ``OFED-internal-24.10-0.7.0:``."""
    found = re.search(r"^\S*?-?(\d+\.\d+-[\d.]+):?\s*$", text, re.MULTILINE)
    return found[1] if found else ""


def parse_srun_help(text: str) -> tuple[set[str], bool]:
    """Return the options of srun, and whether the text has its last section."""
    options = set(re.findall(r"(--[a-z][a-z-]+)", text))
    return options, "--usage" in options and "--help" in options


def parse_mpi_list(text: str) -> list[str]:
    """Return the MPI plugins of ``srun --mpi=list``."""
    found: list[str] = []
    for line in text.splitlines():
        name, colon, rest = line.strip().rpartition(":")
        if "version" in name and colon:
            found += [word.strip() for word in rest.split(",") if word.strip()]
        elif re.fullmatch(r"(?:srun: )?[a-z]\w*", line.strip()):
            found.append(line.strip())
    return found
