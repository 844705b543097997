"""Leases: names of a squashfs file for as long as a job step uses it.

``leases/JOB.STEP.HOST/FILE`` is a hard link to the file in artifacts/: it takes no space, and neither a newer file of
the same name nor `envbuild.core.store.gc` changes what a running job reads. The end of the step removes it. A step that
was killed may leave its lease (pyxis calls the importer from slurmstepd, which SIGKILL ends, too), so that old ones are
removed with the next."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import EngineError, SpecError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.store.store import Store

FOLDER = "leases"
LONGEST = 30 * 24 * 3600.0  # seconds: longer than the longest job of most clusters
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class JobStep:
    """A step of a job on one host.

    It does not name a node of Slurm: pyxis releases at the end of a task with the environment in which srun was typed.
    SLURMD_NODENAME in it is the first node of a batch job on all of them, and outside of a job there is none (pyxis
    0.24, Slurm 22.05)."""

    job: str
    step: str
    host: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> JobStep | None:
        """Return the step that an environment describes, on this host; None outside of a job. Raises SpecError for an
        impossible one."""
        job, step = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", "")
        if not job or not step:
            return None
        found = cls(job, step, os.uname().nodename)
        if not NAME.fullmatch(str(found)):
            raise SpecError(f"'{str(found)[:200]}' is not a step of a job", hint="unset SLURM_JOB_ID SLURM_STEP_ID")
        return found

    def __str__(self) -> str:
        return f"{self.job}.{self.step}.{self.host}"


def lease_file(store: Store, file: Path, step: JobStep) -> Path:
    """Return another name of `file`, an artifact of the store, which remains until `release_step`.

    Raises EngineError."""
    folder = store.own_folder(FOLDER)
    folder.mkdir(mode=0o700, exist_ok=True)
    discard_old(store, time.time() - LONGEST)
    place = folder / str(step) / file.name
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.unlink(missing_ok=True)
    try:
        os.link(file, place)
    except OSError as error:
        raise EngineError(
            f"{file} cannot have another name: {os.strerror(error.errno or 0)}",
            hint="write the folder of a local disk as `store` of the site that the importer uses",
        ) from None
    return place


def release_step(store: Store, step: JobStep) -> None:
    """Remove the leases of a step on its host, if it has some.

    What has such a file open, as squashfuse has, still reads it."""
    lease = store.own / FOLDER / str(step)
    if lease.is_dir():
        discard_folder(lease)


def discard_old(store: Store, before: float) -> None:
    """Remove the leases that were made before a time (seconds since 1970)."""
    folder = store.own / FOLDER
    with contextlib.suppress(FileNotFoundError):
        for path in () if store.is_outside(folder) else folder.iterdir():
            if path.lstat().st_mtime < before:
                discard_folder(path)
