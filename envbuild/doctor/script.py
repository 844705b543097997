"""The doctor as one file: a Python program for nodes that have nothing but Python >= 3.8."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from .checks import check_names
from .model import Need
from .program_text import package_sources, program_text

PACKAGE = "envbuild_doctor"
LEFT_OUT = ("script.py", "program_text.py", "outliers.py")  # what only envbuild itself needs

TITLE = """envbuild doctor {version}: the facts of this node, and what it lacks{target}.

One file for Python >= 3.8, without packages. Written by `envbuild doctor --print-script`.

    python3 THIS_FILE [--json] [--ctrf] [--as nhc|healthcheck] [--without CHECK] [--log FILE]

It changes nothing. Exit codes: 0 no failure but minor ones, 2 usage, 5 /proc or /sys cannot be read, 7 failures."""


def single_file(need: Need, version: str) -> str:
    """Return the program. `need`: what it compares the node with."""
    target = f" for {need.source}" if need.source else ""
    return program_text(
        TITLE.format(version=version, target=target),
        {"VERSION": version, "NEED": asdict(need), "CHECKS": check_names()},
        package_sources(Path(__file__).parent, PACKAGE, LEFT_OUT),
        f"{PACKAGE}.main",
        "NEED, VERSION",
    )
