"""Results of checks of an image: pass, fail, or not run. A check that did not run is never a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from envbuild.core.text import human_list, printable
from envbuild.spec.recipe import VENV
from envbuild.verify.folder_set import FolderSet

OPT = "/opt/"
QUOTED = 4096  # characters of the output, or of a text of a report, in a message


class Status(StrEnum):
    """Outcome of one check."""

    PASS = "pass"
    FAIL = "fail"
    NOT_RUN = "not-run"


@dataclass(frozen=True, slots=True)
class AuditResult:
    """One check.

    `detail`: what was compared and what was found. `hint`: how to fix a failure. `tier`: one of
    `envbuild.verify.tiers.TIERS`.
    """

    name: str
    status: Status
    detail: str = ""
    tier: str = "audit"
    hint: str = ""


def judge(name: str, faults: Iterable[str], compared: str, hint: str = "") -> AuditResult:
    """Return a failure that lists the faults; without faults, a pass that states what was compared.

    Names of an image's files and packages are in both: each text is one line, with what is not shown as escapes.
    """
    found, compared = sorted(faults), printable(shorten(compared))
    if found:
        return AuditResult(name, Status.FAIL, f"{join_items(found)} ({compared})", hint=hint)
    return AuditResult(name, Status.PASS, compared)


def join_items(items: Iterable[str], limit: int = 12) -> str:
    """Return findings of a check on one line, printable: the first ones, and how many more there are."""
    found = list(items)
    return human_list((printable(shorten(item)) for item in found[:limit]), limit, total=len(found), separator="; ")


def shorten(text: str) -> str:
    """Return a text of a report with at most `QUOTED` characters."""
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}…"


def quote_output(output: str, lines: int) -> str:
    """Return the last lines of what a program of an image printed, indented: none looks like a line of envbuild."""
    last = output[-QUOTED:].strip().splitlines()[-lines:]
    return "\n".join(f"  {printable(line)}" for line in last)


def is_in_product(path: str) -> bool:
    """Return whether a path is in a folder of /opt that contains one product: not the venv."""
    return path.startswith(OPT) and not path.startswith(f"{VENV}/")


def product_folder(path: str) -> str:
    """Return ``/opt/NAME/`` of a path in it."""
    return "/".join(path.split("/")[:3]) + "/"


def own_path_test(report: Mapping[str, Any]) -> Callable[[str], bool]:
    """Return a function that returns whether a path is in the venv or a prefix: in a base image, the files that
    envbuild installed and can fix."""
    folders = FolderSet((VENV, *report["prefixes"]))
    return lambda path: bool(folders.find(path))


def split_faults(report: Mapping[str, Any], faults: Mapping[str, str], complete: bool) -> tuple[list[str], str]:
    """Return (the faults that count, a note about those of the base image).

    `complete`: there is no base image.
    """
    is_own = own_path_test(report)
    of_base = [] if complete else sorted(text for path, text in faults.items() if not is_own(path))
    counted = [text for path, text in faults.items() if complete or is_own(path)]
    return counted, f"; of the base image, not judged: {join_items(of_base, 3)}" if of_base else ""
