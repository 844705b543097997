"""What may stand in an image's environment.

The rules are those of enroot, the strictest reader: it writes ``config.Env`` line by line into /etc/environment without
quoting, drops names that it does not like, expands ``${NAME}`` from the job, and strips a pair of surrounding quotes.
Refusing such values when a spec is read beats a job that starts with another value than the image was verified with.
"""

from __future__ import annotations

QUOTES = ("'", '"')

# Who reads a text of a spec → (what it would expand, what then happens). Every other text is literal.
EXPANDED: dict[str, tuple[tuple[str, ...], str]] = {
    # /etc/environment: enroot replaces ${NAME}, and has no escape for it; $NAME, $(…) and backticks it leaves alone
    "environment": (("${",), ": enroot would replace it by a variable of the job, or by nothing"),
    # an option that a recipe may put into a command: recipes quote, and this is the second line of defence
    "command": (("${", "$(", "`"), ", which a shell would expand: nothing from a spec may reach a shell unquoted"),
    # the content of a file: it is copied, and neither a shell nor enroot reads it on the way
    "file": ((), ""),
}

# Under enroot the image's value beats the job's, even for what Slurm and the launcher set for each rank.
OF_THE_JOB = ("SLURM_", "PMI_", "PMIX_", "OMPI_COMM_")
OF_THE_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TUNABLE = ("NCCL_", "UCX_", "UCC_")


def name_fault(name: str) -> str:
    """What is wrong with the name of a variable, or ""."""
    if not (name.isascii() and name.isidentifier()):
        return f"'{name}' cannot be the name of a variable: letters, digits and '_', not beginning with a digit"
    if name.startswith("ENROOT_"):
        return f"'{name}' would never arrive: enroot drops every ENROOT_ variable of an image"
    if name == "HOME":
        return "'HOME' belongs to the job: a home that is missing in the image keeps the container from starting"
    if name.startswith(OF_THE_JOB) or name in OF_THE_RANK:
        return f"'{name}' belongs to the job: an image's value would hide it on every rank"
    return ""


def expanded(text: str, reader: str) -> str:
    """What is wrong with a text for that reader of `EXPANDED`, or "".

    The one rule for texts of a spec: they are literal and arrive as they were written; refused is what their reader
    would expand all the same.
    """
    marks, because = EXPANDED[reader]
    found = next((mark for mark in marks if mark in text), "")
    return f"holds {found}{because}" if found else ""


def env_guard(value: str) -> str:
    """What is wrong with the value of a variable, or "". (A line end is refused for every text.)"""
    if reason := expanded(value, "environment"):
        return reason
    bare = value.rstrip()
    if len(bare) >= 2 and bare[0] in QUOTES and bare[-1] in QUOTES:
        return "begins and ends with a quote: enroot would strip both"
    return ""
