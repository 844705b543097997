"""Records of rehearsals, and the page that is made of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

RECORDS = Path(__file__).parent / "records.yaml"
PAGE = Path(__file__).parents[2] / "docs" / "rehearsed.md"
HEAD = """\
# Rehearsed recipes

Generated from `tests/rehearsal/records.yaml` by `make rehearsal`. A rehearsal unpacks the real source of a version,
compares its submodules with those that the recipe fetches, lists calls of git, of the network and of GPU detection in
its build files, applies the check's pattern to the text that this version prints (from the format strings of its
source), and runs the configure stage in the unit's sandbox, with the unit's inputs and without network.

- **calls**: places in build files. They are for a reader: most are not executed, or have a switch that the recipe sets.
- **prints**: whether the pattern of the check matches; empty: the recipe has no check of a printed version.
- **configure**: passed, or why it was not run. Makefiles without a configure script: what make would run (`make -n`);
  Python packages: their metadata (`setup.py egg_info`). A passed stage is not a passed build.
"""


def read_records() -> dict[str, Any]:
    return dict(yaml.safe_load(RECORDS.read_text()) or {}) if RECORDS.is_file() else {}


def write_records(records: Mapping[str, Any]) -> None:
    RECORDS.write_text(yaml.safe_dump(dict(records), sort_keys=True, width=160))
    PAGE.write_text(page(records))


def stage(row: Mapping[str, Any]) -> str:
    return str(row.get("configure", "not run: not reached yet"))


def page(records: Mapping[str, Any]) -> str:
    """Return docs/rehearsed.md."""
    done = {key: row for key, row in records.items() if "not rehearsed" not in row}
    rest = {key: row for key, row in records.items() if "not rehearsed" in row}
    stages = Counter(re.sub(r" \(.*", "", stage(row)) for row in done.values())
    configured = stages.pop("passed", 0)
    lines = [
        HEAD,
        f"{len(records)} pairs of recipe, version and provider: {len(done)} sources were read, {configured} of them "
        f"configured; {len(rest)} were not rehearsed. The stages that were not run, by reason:",
        "",
        *(f"- {count}: {text.removeprefix('not run: ')}" for text, count in stages.most_common()),
        "",
        "## Rehearsed",
        "",
        "| pair | source | calls | prints | configure |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {key} | {'<br>'.join(row['sources'])} | {'<br>'.join(row['calls'])} | {row['prints']} | {stage(row)} |"
        for key, row in sorted(done.items())
    ]
    lines += ["", "## Not rehearsed", ""]
    reasons: dict[str, list[str]] = defaultdict(list)
    for key, row in sorted(rest.items()):
        reasons[row["not rehearsed"]].append(key)
    lines += [f"- {', '.join(keys)}: {reason}" for reason, keys in reasons.items()]
    return "\n".join(lines) + "\n"
