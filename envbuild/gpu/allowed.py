"""The allow list of what is written about a job: no other variable or word of a command line gets into a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

PREFIXES = (
    "NCCL_", "UCX_", "UCC_", "FI_", "OMPI_", "PMIX_", "CUDA_", "NVIDIA_", "NEURON_", "SLURM_JOB_",
)  # fmt: skip
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|_KEY$|AUTH|COOKIE|USER|ACCOUNT|URI", re.IGNORECASE)
LONGEST = 1000  # characters of a value
HIDDEN = "…"


def allowed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the allow list, sorted; without those whose name is that of a secret or of a user."""
    return {name: environ[name][:LONGEST] for name in sorted(environ) if is_allowed(name)}


def is_allowed(name: str) -> bool:
    """Return whether a variable may be written."""
    return name.startswith(PREFIXES) and not SECRET.search(name)


def allowed_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command; of NAME=VALUE and --option=VALUE with another name, the name alone."""
    found: list[str] = []
    hide = False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide:
            found.append(HIDDEN)
        elif equals and (SECRET.search(name.replace("-", "_")) or not (name.startswith("-") or is_allowed(name))):
            found.append(f"{name}={HIDDEN}")
        else:
            found.append(word[:LONGEST])
        hide = not equals and name.startswith("-") and bool(SECRET.search(name.replace("-", "_")))
    return found
