"""`publish` and `pull` end at random moments, by SIGKILL: nothing half done is visible, and the next run resumes.

ENVBUILD_ATTACK_SEED chooses the moments, ENVBUILD_ATTACK_N how many trials each test has.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.digest import file_digest
from envbuild.oci.sources.platform import Platform
from envbuild.publish.find_squashfs import find_squashfs
from envbuild.publish.remote_image import open_remote
from tests.support import foreign_images
from tests.support.command import ROOT
from tests.support.local_registry import Layout, Server, file, skopeo, tar
from tests.support.processes import alive, descendants, end
from tests.support.registry_fixtures import no_logins as no_logins
from tests.support.registry_fixtures import registry as registry

pytestmark = pytest.mark.registry

SEED = int(os.environ.get("ENVBUILD_ATTACK_SEED", "1"))
TRIALS = int(os.environ.get("ENVBUILD_ATTACK_N", "4"))
ATTEMPTS = 8  # the last comes 128 times as early as the first


@dataclass
class Trial:
    """A folder with an image as a layout and a store that has its packs. `times`: how long the whole command takes."""

    folder: Path
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    sha256: str = ""

    def command(self, store: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "envbuild", *words, "--json"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "ENVBUILD_STORE": str(self.folder / store), "NO_COLOR": "1"},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, store: str, *words: str, code: int = 0) -> Any:
        """Run a command to its end; return its answer."""
        process = self.command(store, *words)
        output, errors = process.communicate()
        assert process.returncode == code, errors
        return json.loads(output)

    def kill(
        self,
        store: str,
        words: list[str],
        longest: float,
        has_begun: Callable[[], bool],
        reset: Callable[[], object],
    ) -> None:
        """Kill a command at a random moment of the `longest` seconds that it takes, every second time after its
        transfers have begun; one that had ended by then again, earlier. `reset` takes its work back."""
        start, moment = self.chance.choice((False, True)), self.chance.uniform(0, longest)
        for attempt in range(ATTEMPTS):
            process = self.command(store, *words)
            while start and not has_begun() and process.poll() is None:
                time.sleep(0.005)
            time.sleep(moment / 2**attempt / (4 if start else 1))
            family = descendants(process.pid)
            process.kill()
            _, errors = process.communicate()
            assert end(partial(alive, family)) == [] and "Traceback" not in errors
            if process.returncode:
                return
            reset()
        raise AssertionError(f"none of {ATTEMPTS} signals came before the end of {words}")


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path)
    layout = Layout(tmp_path / "layout")
    more = [tar(file(f"more-{number}", foreign_images.noise(3_000_000, number + 9))) for number in range(7)]
    layout.add(foreign_images.image(layout, [*foreign_images.layers(), *more], compression="none"), "1")
    made.finish("a", "export", "oci:layout:1", "--to", "squashfs", "-o", "image.sqsh")
    made.sha256 = file_digest(tmp_path / "image.sqsh")
    yield made


def left(store: Path) -> list[Path]:
    """Return what is unfinished in a store."""
    return [path for name in ("tmp", "partial") if (store / name).is_dir() for path in (store / name).iterdir()]


@pytest.mark.parametrize("place", ["registry", "folder"])
def test_a_publish_that_was_killed_shows_no_part_and_the_next_one_resumes(
    trial: Trial, registry: Server, place: str
) -> None:
    at = trial.folder / "shared" if place == "folder" else registry.root / "docker/registry/v2/repositories"

    def name(number: int | str) -> str:
        return f"oci:{at}/app-{number}:1" if place == "folder" else f"{registry.host}/app-{number}:1"

    def forget() -> None:
        """Let the next publish send all blobs: the registry takes none from another repository."""
        for record in (trial.folder / "a").rglob("published/*.json"):
            record.unlink()

    began = time.monotonic()
    whole = trial.finish("a", "publish", "oci:layout:1", "--to", name("first"))
    longest, half, resumed = time.monotonic() - began, 0, 0
    for number in range(TRIALS):
        where, names = f"trial {number} of seed {SEED}", [f"{number}-{attempt}" for attempt in range(ATTEMPTS + 1)]
        words = ["publish", "oci:layout:1", "--to", name(names[0])]

        def reset() -> None:
            names.pop(0)  # noqa: B023
            words[-1] = name(names[0])  # noqa: B023
            forget()

        forget()
        trial.kill("a", words, longest, lambda: (at / f"app-{names[0]}").is_dir(), reset)  # noqa: B023
        there = words[-1]
        seen = trial.command("b", "pull", there, "-o", "seen.sqsh")
        output, errors = seen.communicate()
        assert seen.returncode in (0, 10), (where, errors)
        if not seen.returncode:  # the tag was written, so all is there
            assert json.loads(output)["sha256"] == trial.sha256, where
        forget()
        made = trial.finish("a", *words)
        expected = whole["digest"], whole["squashfs"], trial.sha256
        assert (made["digest"], made["squashfs"], made["sha256"]) == expected, where
        assert trial.finish("b", "pull", there, "-o", "seen.sqsh")["sha256"] == trial.sha256, where
        half += bool(seen.returncode)
        resumed += made["sent_bytes"] < whole["sent_bytes"]
        options = [] if place == "folder" else ["--src-tls-verify=false"]
        source = there if place == "folder" else f"docker://{there}"
        skopeo("copy", *options, source, f"dir:{trial.folder}/copy")  # other programs read each layer
        assert left(trial.folder / "a") == [], where
    print(f"{TRIALS} publishes were killed: {half} before their tag, {resumed} had sent blobs that were not sent again")


def test_a_pull_that_was_killed_shows_no_part_and_the_next_one_resumes(trial: Trial, registry: Server) -> None:
    name = f"{registry.host}/app:1"
    trial.finish("a", "publish", "oci:layout:1", "--to", name)
    began = time.monotonic()
    whole = trial.finish("first", "pull", name)
    longest, resumed = time.monotonic() - began, 0
    image = open_remote(f"docker://{name}", foreign_images.workspace(trial.folder / "reader").site)
    assert image
    found = find_squashfs(image, image.find(Platform.of("")))
    assert found  # its list of packs is not counted as fetched: it is read before
    for number in range(TRIALS):
        store, where = trial.folder / f"b{number}", f"trial {number} of seed {SEED}"
        words, out = ["pull", name], store / "artifacts"
        if number % 2:
            out = trial.folder / f"out{number}"
            out.mkdir()
            words += ["-o", f"{out}/app.sqsh"]

        def reset() -> None:
            for path in [*out.glob("*"), *store.glob("blobs/sha256/*")]:  # noqa: B023
                path.unlink()

        trial.kill(store.name, words, longest, lambda: (store / "partial").is_dir(), reset)  # noqa: B023
        assert all(file_digest(path) == trial.sha256 for path in out.glob("*.sqsh") if not path.is_symlink()), where
        stored = [path for path in store.glob("blobs/sha256/*") if path.name != found.description]
        assert all(file_digest(path) == path.name for path in stored), where
        made = trial.finish(store.name, *words)
        assert made["sha256"] == file_digest(Path(made["path"])) == trial.sha256, where
        assert made["fetched_bytes"] + sum(path.stat().st_size for path in stored) == whole["fetched_bytes"], where
        assert left(store) == [] and {path.suffix for path in out.iterdir()} == {".sqsh"}, where
        resumed += bool(stored)
    print(f"{TRIALS} pulls were killed: {resumed} had stored blobs that were not fetched again")
