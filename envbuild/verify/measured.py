"""Evidence of GPU checks: two verdicts of each measurement, its file in the store, and the change since the last one.

measured/<lock 12>/<target>-<tier>-<date>.json in the user's part of the store: documents of `envbuild.gpu.sealed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.core.errors import VerifyError
from envbuild.core.regular_file import NotRegularError, TooLargeError, read_bounded
from envbuild.core.store.store import Store, write_json
from envbuild.core.text import printable
from envbuild.gpu.model import FAIL, PASS, Figure, Outcome
from envbuild.gpu.sealed import LARGEST, RefusedError, read_document
from envbuild.spec.target import Target
from envbuild.verify.floor import find_floor
from envbuild.verify.results import AuditResult, Status

FOLDER = "measured"


@dataclass(frozen=True, slots=True)
class Measured:
    """A document and its results."""

    document: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]

    @property
    def figures(self) -> dict[str, Figure]:
        """Return name of the check → its first figure."""
        return {outcome.name: outcome.figures[0] for outcome in self.outcomes if outcome.figures}


def read_evidence(path: Path) -> Measured:
    """Return the evidence of a file. Raises VerifyError with the reason why it is refused."""
    hint = "copy the file again, or write it again with the program of make gpu-evidence"
    try:
        text = read_bounded(path, LARGEST).decode()
        document, outcomes = read_document(text)
    except FileNotFoundError:
        raise VerifyError(f"{path} does not exist", hint="envbuild verify --read FILE") from None
    except (NotRegularError, TooLargeError, OSError) as error:
        raise VerifyError(f"the evidence cannot be read: {error}", hint, str(path)) from None
    except UnicodeDecodeError:
        raise VerifyError("the evidence is refused: it is not text", hint, str(path)) from None
    except RefusedError as error:
        raise VerifyError(f"the evidence is refused: {printable(error)}", hint, str(path)) from None
    return Measured(document, outcomes)


def check_image(measured: Measured, lock: str, target: str, path: Path) -> None:
    """Raise VerifyError for evidence of another lock or target."""
    document = measured.document
    if document["lock"] != lock:
        raise VerifyError(
            f"the evidence is of another lock: {printable(document['lock'])[:40]}…, and the image has {lock[:40]}…",
            hint="write it again with the program of make gpu-evidence for this lock",
            where=str(path),
        )
    if document["target"] != target:
        raise VerifyError(
            f"the evidence is of target '{printable(document['target'])}', not '{printable(target)}'",
            hint="write it again with the program of make gpu-evidence for this image",
            where=str(path),
        )


def audit_results(outcomes: Sequence[Outcome], target: Target) -> Iterator[AuditResult]:
    """Yield for each check whether it ran correctly, and for each figure with a floor whether it reaches it."""
    for outcome in outcomes:
        status = Status(outcome.status)
        yield AuditResult(outcome.name, status, outcome.detail, outcome.tier, outcome.hint)
        for figure in outcome.figures if status == Status.PASS else ():
            if figure.test:
                yield floor_result(outcome, figure, target)


def floor_result(outcome: Outcome, figure: Figure, target: Target) -> AuditResult:
    """Return whether a figure reaches its floor; without a floor, the comparison did not run."""
    name = f"{outcome.name}: reaches the floor"
    floor = find_floor(target, figure.test, figure.nodes, figure.algorithm)
    if floor is None:
        reason = f"no floor is known for {figure.test} of these nodes ({figure.value:g} {figure.unit} measured)"
        return AuditResult(name, Status.NOT_RUN, reason, outcome.tier)
    found = f"{figure.value:g} {figure.unit}"
    if floor.unit != figure.unit or (floor.size and figure.size < floor.size):
        reason = f"{found} with {figure.size} bytes, and the floor is for {floor.size} bytes and more, in {floor.unit}"
        return AuditResult(name, Status.NOT_RUN, reason, outcome.tier)
    status = Status.PASS if figure.value >= floor.at_least else Status.FAIL
    hint = "" if status == Status.PASS else "envbuild doctor on each node; the transport is in the evidence"
    return AuditResult(name, status, f"{found}; {floor}", outcome.tier, hint)


def store_evidence(measured: Measured, store: Store) -> Path:
    """Write evidence into the store; return its file."""
    document = measured.document
    folder: Path = store.own_folder(FOLDER) / str(document["lock"]).rpartition(":")[2][:12]
    folder.mkdir(mode=0o700, exist_ok=True)
    date = document["date"].replace(":", "")
    path = folder / f"{document['target']}-{document['tier']}-{date}.json"
    write_json(path, document)
    return path


def last_evidence(measured: Measured, store: Store) -> Measured | None:
    """Return the newest older evidence of the same image, target and tier, of any lock."""
    own = measured.document
    keys = ("image", "target", "tier")
    found = []
    for path in sorted((store.own / FOLDER).glob(f"*/*-{own['tier']}-*.json")):
        try:
            other = Measured(*read_document(read_bounded(path, LARGEST).decode()))
        except (RefusedError, NotRegularError, TooLargeError, OSError, UnicodeDecodeError):
            continue  # a file that another program left there proves nothing
        same = all(other.document[key] == own[key] for key in keys)
        if same and other.document["date"] < own["date"]:
            found.append(other)
    return max(found, key=lambda item: str(item.document["date"]), default=None)


def change_lines(measured: Measured, before: Measured | None) -> list[str]:
    """Return the changes of figures and results since the last evidence."""
    if before is None:
        return []
    date = before.document["date"]
    lines = []
    old = before.figures
    for name, figure in measured.figures.items():
        other = old.get(name)
        if other and other.value and (other.unit, other.size, other.ranks) == (figure.unit, figure.size, figure.ranks):
            share = (figure.value - other.value) / other.value * 100
            lines.append(f"{name}: {other.value:g} -> {figure.value:g} {figure.unit}, {share:+.1f} % since {date}")
    states = {outcome.name: outcome.status for outcome in before.outcomes}
    for outcome in measured.outcomes:
        if states.get(outcome.name) in (PASS, FAIL) and states[outcome.name] != outcome.status:
            lines.append(f"{outcome.name}: {states[outcome.name]} -> {outcome.status} since {date}")
    return lines
