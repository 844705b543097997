"""Steps of a unit and the folders that they see."""

from __future__ import annotations

from dataclasses import dataclass

# Where inputs are seen in a unit: /run is a tmpfs there, so that no mount point gets into the layer.
INPUTS = "/run/envbuild"
WORK = f"{INPUTS}/work"  # a folder on disk for builds, and TMPDIR: compilers fill a tmpfs


@dataclass(frozen=True, slots=True)
class Step:
    """One command, run by ``/bin/sh -c`` as root of the unit, and the line that describes it to the user."""

    command: str
    title: str = ""
