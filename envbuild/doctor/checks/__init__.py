"""Checks of a machine: one file, one check.

A file has `GROUP`, one of `GROUPS`, and `check(host, need)`, a generator of results; it needs no registration. A check
that does not apply to a machine yields one result that did not run, with the reason. Nothing that a check reads raises
an error: a file that is missing has no text (`envbuild.doctor.host`)."""

from __future__ import annotations

import pkgutil

GROUPS = ("machine", "limits", "GPU", "network", "Neuron", "containers", "Slurm", "storage")


def check_names() -> list[str]:
    """Return the names of the checks."""
    single_file = getattr(
        globals().get("__loader__"), "check_names", None
    )  # of the script that `envbuild.doctor.script` writes
    return list(single_file()) if single_file else sorted(module.name for module in pkgutil.iter_modules(__path__))
