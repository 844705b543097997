"""Hostile layers, documents and files of third-party images, read in processes with little memory.

Each is refused with exit code 10 and a finding, or written inside of the image. A folder of this machine that the
layers name does not change, nothing unfinished is left, and memory is bounded. ENVBUILD_ATTACK_SEED and
ENVBUILD_ATTACK_N choose other mixtures of hostile layers, and more of them."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from envbuild.core.folder_removal import discard_folder
from tests.support import foreign_images, local_registry
from tests.support.engine_fixtures import scratch
from tests.support.hostile_layers import HostileLayers, hostile_layers
from tests.support.hostile_layouts import (
    FILES,
    NAMES,
    TEXTS,
    WRONG,
    change_text,
    change_value,
    nest,
    place_name,
    write_layout,
)
from tests.support.limited_export import Job, Outcome, run_limited
from tests.support.link_chains import canary, unchanged

__all__ = ["scratch"]
pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can unpack layers outside of a user namespace"),
]

SEED = int(os.environ.get("ENVBUILD_ATTACK_SEED", "1"))
TRIALS = int(os.environ.get("ENVBUILD_ATTACK_N", "12"))
MEMORY = 256 << 20  # bytes that a process may use at most
SECONDS = 60
PYTHON = re.compile(r"object has no attribute|Traceback|not subscriptable|codec can't|Error:|<class|max_str_digits")


@pytest.fixture
def work(scratch: Path) -> Iterator[Path]:
    path = scratch / f"hostile-{os.urandom(4).hex()}"
    path.mkdir(parents=True)
    yield path
    discard_folder(path)


def layout_of(tars: Sequence[bytes], folder: Path, compression: str = "gzip") -> str:
    """Return the reference of an image of a good layer and `tars`."""
    layout = local_registry.Layout(folder)
    folder.mkdir(parents=True)
    layout.add(foreign_images.image(layout, [foreign_images.layers()[0], *tars], compression))
    return f"oci:{folder}"


def check_outcome(name: str, outcome: Outcome, codes: tuple[int, ...] = (0, 10)) -> None:
    """Check what holds for every image: a known end, in words of envbuild, with little memory."""
    where = f"{name}: {outcome}"
    assert outcome.code in codes, where
    assert bool(outcome.text) == (outcome.code != 0) and not PYTHON.search(outcome.text), where
    assert outcome.peak < MEMORY and outcome.seconds < SECONDS, where


def check_left(folder: Path) -> None:
    """Check that an export left nothing unfinished."""
    assert {path.name for path in folder.iterdir()} <= {"store", "image.sqsh"}
    assert not [*(folder / "store/tmp").iterdir()]


def test_hostile_layers_are_refused_or_written_inside(work: Path) -> None:
    outside = canary(work / "outside")
    cases = hostile_layers(str(outside))
    jobs: dict[tuple[str, str], Job] = {}
    for case in cases:
        folder = work / case.name
        source = layout_of(case.tars, folder / "layout")
        for number, tar in enumerate(case.tars):
            (folder / f"{number}.tar").write_bytes(tar)
        files = [str(folder / f"{number}.tar") for number in range(len(case.tars))]
        jobs[case.name, "export"] = Job(source, str(folder / "export"), options={"keep_owners": True})
        for kind in ("plain", "above", "memory"):
            jobs[case.name, kind] = Job(kind, str(folder / kind), files)
    with unchanged(outside):
        outcomes = dict(zip(jobs, run_limited([*jobs.values()], work), strict=True))
    for (name, kind), outcome in outcomes.items():
        check_outcome(f"{name}, {kind}", outcome)
    for case in cases:
        assert outcomes[case.name, "export"].code == (10 if case.refused else 0), case.name
        check_left(work / case.name / "export")


def test_random_mixtures_of_hostile_layers(work: Path) -> None:
    """In one layer and in several, with all compressions, packed or written directly."""
    outside = canary(work / "outside")
    cases = hostile_layers(str(outside))
    accepted = [case for case in cases if not case.refused]
    jobs: dict[str, Job] = {}
    for trial in range(TRIALS):
        draw = random.Random(f"{SEED} {trial}")
        chosen: list[HostileLayers] = draw.choices(accepted, k=draw.randint(1, 3))
        if draw.random() < 0.5:
            chosen.insert(draw.randint(0, len(chosen)), draw.choice(cases))
        tars = [tar for case in chosen for tar in case.tars]
        compression = draw.choice(["gzip", "zstd", "chunked", "none"])
        name = f"{trial} of seed {SEED}: {', '.join(case.name for case in chosen)}, {compression}"
        options = {"keep_owners": draw.random() < 0.5, "cache": draw.random() < 0.5, "sha256": draw.random() < 0.5}
        source = layout_of(tars, work / f"{trial}/layout", compression)
        jobs[name] = Job(source, str(work / f"{trial}/export"), options=options)
    with unchanged(outside):
        outcomes = dict(zip(jobs, run_limited([*jobs.values()], work), strict=True))
    for name, outcome in outcomes.items():
        check_outcome(name, outcome, (0, 7, 10))  # 7: a mark behind a link to / of another case hides the shell
    for job in jobs.values():
        check_left(Path(job.work))


def test_documents_with_wrong_values_are_refused_with_the_place(work: Path) -> None:
    jobs: dict[tuple[str, str, int], Job] = {}
    for document, places in WRONG.items():
        for keys, values in places.items():
            for number, value in enumerate(values):
                folder = work / f"{len(jobs)}"
                write_layout(folder / "layout", change_value(document, keys, value))
                jobs[document, place_name(keys), number] = Job(f"oci:{folder}/layout:x", str(folder / "export"))
    for (document, place, number), outcome in zip(jobs, run_limited([*jobs.values()], work), strict=True):
        check_outcome(f"{document}, {place}, value {number}", outcome)
        assert outcome.code == 10 and place in outcome.text, (document, place, number, outcome.text)


def test_documents_that_are_something_else_are_refused(work: Path) -> None:
    jobs: dict[str, Job] = {}
    for document in NAMES:
        for name, content in TEXTS.items():
            folder = work / f"{len(jobs)}"
            write_layout(folder / "layout", change_text(document, content))
            jobs[f"{document}, {name}"] = Job(f"oci:{folder}/layout", str(folder / "export"))
    for name, outcome in zip(jobs, run_limited([*jobs.values()], work), strict=True):
        check_outcome(name, outcome)
        assert outcome.code == 10, name


def test_files_that_are_something_else_are_refused(work: Path) -> None:
    jobs: dict[str, Job] = {}
    for name, change in FILES.items():
        layout = write_layout(work / name / "layout")
        change(layout)
        jobs[name] = Job(f"oci:{layout.path}:x", str(work / name / "export"))
    for name, outcome in zip(jobs, run_limited([*jobs.values()], work), strict=True):
        check_outcome(name, outcome)
        assert outcome.code == 10, name


def test_indexes_in_indexes_are_followed_while_they_are_few(work: Path) -> None:
    """So that the layouts above are refused because of their change, and not because of something else."""
    jobs = []
    for depth in range(4):
        layout = write_layout(work / f"{depth}/layout")
        nest(layout, depth)
        jobs.append(Job(f"oci:{layout.path}:x", str(work / f"{depth}/export")))
    assert [outcome.code for outcome in run_limited(jobs, work)] == [0, 0, 0, 0]
