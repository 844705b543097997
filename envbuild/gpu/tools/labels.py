"""Labels before each line of a job's output: of ``srun --label`` and of ``mpirun --tag-output``."""

from __future__ import annotations

import re
from collections.abc import Iterator

LABEL = re.compile(r"^(?:\[\d+,\d+\](?:\[[^\]]*\])?<std\w+>:\s?|\s*\d+: ?)")


def unlabelled_lines(text: str) -> Iterator[str]:
    """Yield the lines without their labels."""
    for line in text.splitlines():
        yield LABEL.sub("", line, count=1)
