"""Evidence of GPU checks: its file in the store, and the change since the last one.

measured/<lock 12>/<target>-<tier>-<date>.json in the user's part of the store: documents of `envbuild.gpu.sealed`.
measured/file-<sha256>/ has those that were measured with a squashfs file: that may state any lock, and is the image of
none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from envbuild.core.errors import VerifyError
from envbuild.core.ownership import is_own_file
from envbuild.core.regular_file import NotRegularError, TooLargeError, read_bounded
from envbuild.core.store.store import Store, write_json
from envbuild.core.text import printable
from envbuild.gpu.model import FAIL, PASS, Figure, Outcome
from envbuild.gpu.sealed import LARGEST, RefusedError, read_document
from envbuild.verify.tiers import MEASURED

FOLDER = "measured"
CLOCKS = 600  # seconds that clocks of nodes may differ
OF_FILE = "file-"


@dataclass(frozen=True, slots=True)
class Measured:
    """A document and its results. `of_file`: they were measured with a squashfs file, not with an image by its name."""

    document: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]
    of_file: bool = False

    @property
    def tier(self) -> str:
        return str(self.document["tier"])

    @property
    def figures(self) -> dict[str, Figure]:
        """Return name of the check → its first figure."""
        return {outcome.name: outcome.figures[0] for outcome in self.outcomes if outcome.figures}


def read_measured(path: Path) -> Measured:
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
    """Raise VerifyError for evidence of another lock or target, or of a time to come: the latest date counts, so that
    it would hide what is measured until then."""
    document = measured.document
    latest = datetime.fromtimestamp(time.time() + CLOCKS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if document["date"] > latest:
        raise VerifyError(
            f"the evidence has the date {document['date']}, which is in the future",
            hint="set the clock of the node (timedatectl), and write it again with the program of make gpu-evidence",
            where=str(path),
        )
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


def store_evidence(measured: Measured, store: Store, sha256: str = "") -> Path:
    """Write evidence into the store; return its file. `sha256`: of the squashfs file that was named."""
    document = measured.document
    folder: Path = store.own_folder(FOLDER) / measured_folder(document["lock"], sha256)
    folder.mkdir(mode=0o700, exist_ok=True)
    date = document["date"].replace(":", "")
    path = folder / f"{document['target']}-{document['tier']}-{date}.json"
    write_json(path, document)
    return path


def measured_folder(lock: str, sha256: str = "") -> str:
    """Return the name of the folder with the evidence of a lock, or of a squashfs file."""
    return f"{OF_FILE}{sha256}" if sha256 else lock.rpartition(":")[2][:12]


def last_evidence(measured: Measured, store: Store, sha256: str = "") -> Measured | None:
    """Return the newest older evidence of the same image, target and tier, of any lock; or of a squashfs file."""
    own = measured.document
    folder = measured_folder("", sha256) if sha256 else "*"
    found = stored_measurements(store, folder, own["tier"], image=own["image"], target=own["target"])
    return newest(one for one in found if one.document["date"] < own["date"])


def find_measured(image: str, lock: str, target: str, store: Store, sha256: str = "") -> tuple[Measured, ...]:
    """Return the newest evidence of each tier that this user has of an image, of exactly this lock and target.

    sha256: of its squashfs file, by which that was measured, too."""
    of = {"image": image, "lock": lock, "target": target}
    folders = [measured_folder(lock), *([measured_folder(lock, sha256)] if sha256 else [])]
    found = (
        newest(one for folder in folders for one in stored_measurements(store, folder, tier, **of)) for tier in MEASURED
    )
    return tuple(one for one in found if one)


def has_file_evidence(store: Store) -> bool:
    """Return whether this user has evidence that was measured with a squashfs file, of any."""
    return any((store.own / FOLDER).glob(f"{OF_FILE}*"))


def stored_measurements(store: Store, folder: str, tier: str, **values: str) -> Iterator[Measured]:
    """Yield the evidence of a tier in folders of `measured` whose document has these values."""
    for path in sorted((store.own / FOLDER).glob(f"{folder}/*-{tier}-*.json")):
        of_file = path.parent.name.startswith(OF_FILE)
        if not is_own_file(path) or of_file != folder.startswith(OF_FILE):
            continue
        try:
            found = Measured(*read_document(read_bounded(path, LARGEST).decode()), of_file)
        except (RefusedError, NotRegularError, TooLargeError, OSError, UnicodeDecodeError):
            continue  # a file that another program left there proves nothing
        if found.tier == tier and all(found.document[key] == value for key, value in values.items()):
            yield found


def newest(found: Iterable[Measured]) -> Measured | None:
    """Return the evidence with the latest date."""
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
