"""Time limits of Slurm, in the forms that sbatch reads (man sbatch, --time)."""

from __future__ import annotations

import re

from envbuild.core.errors import Finding
from envbuild.core.yaml_reader import short

# minutes, minutes:seconds, hours:minutes:seconds; days-hours, days-hours:minutes, days-hours:minutes:seconds
FORMS = r"\d{1,9}(:\d{1,9}){0,2}|\d{1,9}-\d{1,9}(:\d{1,9}){0,2}|UNLIMITED|INFINITE"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
HINT = "type HH:MM:SS or DAYS-HH:MM:SS: --time "
EXAMPLE = "04:00:00"


def time_faults(text: str) -> list[Finding]:
    """Return the finding for a time limit that Slurm does not read; an empty one is the default of the partition."""
    if not text or re.fullmatch(FORMS, text, re.IGNORECASE):
        return []
    return [Finding(f"--time {short(text)} is not a time limit of Slurm", hint=HINT + (as_slurm(text) or EXAMPLE))]


def as_slurm(text: str) -> str:
    """Return a time with units, such as 4h or 1d12h, as Slurm reads it; empty for another text."""
    parts = re.findall(r"(\d{1,6})\s*([smhd])(?![a-z])", text.lower())
    if not parts or re.sub(r"\d{1,6}\s*[smhd]|\s", "", text.lower()):
        return ""
    minutes, seconds = divmod(sum(int(number) * UNITS[unit] for number, unit in parts), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hours:02}:{minutes:02}:{seconds:02}"
