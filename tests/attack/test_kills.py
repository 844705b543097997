"""Commands end at random moments, by SIGKILL and by signals that they may handle: the next run is right, with the same
bytes, and nothing of the first one is left: no process, no mount, no half-written file where others look for files.

ENVBUILD_ATTACK_SEED chooses moments and signals, ENVBUILD_ATTACK_N how many trials there are.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from envbuild.net.uv_program import uv_version
from tests.support import foreign_images, small_make
from tests.support.command import ROOT
from tests.support.debian_archive import Signer, publish, stanza
from tests.support.engine_fixtures import open_working_store, scratch
from tests.support.local_registry import Layout
from tests.support.lock_server import simple_index, wheel
from tests.support.processes import alive, descendants, end, mounts_below, with_variable
from tests.support.signals import reset_signals

__all__ = ["scratch"]
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="layers are read outside of a user namespace by root"),
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
]

SEED = int(os.environ.get("ENVBUILD_ATTACK_SEED", "1"))
TRIALS = int(os.environ.get("ENVBUILD_ATTACK_N", "4"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGHUP)
ATTEMPTS = 8  # the last comes 128 times as early as the first
LONGEST = 60.0  # seconds that a stopped command may take on a slow machine
IMAGE = "schema: 1\ndescription: x\ntarget: cpu\nbase: debian:13\nlayers: {debian-packages: [dash]}\n"


@dataclass
class Trial:
    """A folder with a store, a project and an output folder, and the commands that work there. `sums`: the sha256 of
    what each command leaves; `times`: how long it takes, in seconds."""

    folder: Path
    sums: dict[str, dict[str, str]] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store, self.out, self.project = (self.folder / name for name in ("store", "out", "project"))

    def start(self, kind: str) -> subprocess.Popen[bytes]:
        words = {
            "make": [small_make.__file__, str(self.store)],
            "export": ["-m", "envbuild", "export", f"oci:{self.folder}/layout:1", *("--to", "squashfs", "-o"), "out/"],
            "lock": ["-m", "envbuild", "lock", "mine", "--fresh"],
            "gc": ["-m", "envbuild", "store", "gc", "--all"],
        }[kind.split()[0]]
        words[-1] = str(self.out / "image.sqsh") if words[-1] == "out/" else words[-1]
        variables = {"PYTHONPATH": str(ROOT), "ENVBUILD_STORE": str(self.store), "NO_COLOR": "1"}
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.project,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=reset_signals,
        )

    def finish(self, kind: str) -> float:
        """Run a command to its end; return how long it took."""
        began = time.monotonic()
        process = self.start(kind)
        output, errors = process.communicate()
        assert process.returncode == 0, (output + errors).decode()
        return time.monotonic() - began

    def forget(self, kind: str) -> None:
        """Remove what the command made, so that it has work."""
        parts = {
            "make cold": ("units", "layers", "packs", "artifacts", "images"),
            "make warm": ("artifacts", "images"),
            "export cold": ("packs",),
        }.get(kind, ())
        for name in parts:
            for path in (self.store / name).iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for path in self.out.iterdir():
            path.unlink()
        if kind == "lock":
            shutil.rmtree(self.store / "apt", ignore_errors=True)
            (self.project / "images/mine.lock").unlink(missing_ok=True)
        if kind == "gc":
            (self.store / "artifacts/test.sqsh").unlink(missing_ok=True)  # of the image that `make` makes

    def visible(self) -> dict[str, str]:
        """Return the sha256 of each file where other programs look for files: all of them are complete."""
        folders = (self.out, self.store / "artifacts", self.project / "images")
        files = [path for folder in folders for path in sorted(folder.iterdir()) if not path.is_symlink()]
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def trial(scratch: Path, tmp_path: Path, key: Signer) -> Iterator[Trial]:
    made = Trial(tmp_path)
    open_working_store(made.store)
    made.out.mkdir()
    (made.project / "images").mkdir(parents=True)
    (made.project / "images/mine.yaml").write_text(IMAGE)
    names = ("dash", "apt", "ca-certificates", "openssl", "python3")
    usual = [stanza(name, essential=name == "dash") for name in names]
    for suite in ("trixie", "trixie-updates"):
        publish(tmp_path / "debian", suite, usual if suite == "trixie" else (), key)
    uv = wheel(tmp_path / "wheels", "uv", uv_version(), "py3-none-manylinux_2_28_x86_64")
    index = simple_index(tmp_path / "simple", [uv])
    lines = f'mirrors: {{"debian:": {tmp_path}/debian, "python:": "{index}"}}\nkeyrings: {{"debian:": {key.keyring}}}\n'
    (made.project / "site.yaml").write_text(f"schema: 1\nupstream: false\n{lines}")
    layout = Layout(tmp_path / "layout")
    layout.add(foreign_images.image(layout, foreign_images.layers()), "1")
    yield made


KINDS = ("make cold", "export cold", "lock", "gc", "make warm", "export warm")[:TRIALS]


def test_after_a_command_ended_at_any_moment_the_next_one_is_right_and_nothing_is_left(trial: Trial) -> None:
    chance = random.Random(SEED)
    for kind in (name for name in KINDS if name != "gc"):
        trial.forget(kind)
        trial.times[kind] = trial.finish(kind)
        trial.sums[kind] = trial.visible()
    trial.times["gc"] = trial.finish("gc")
    ended_before, longest = 0, 0.0
    for number in range(TRIALS):
        kind, name = KINDS[number % len(KINDS)], SIGNALS[(number + number // len(KINDS)) % len(SIGNALS)]
        moment = chance.uniform(0.3, 1.0)
        for attempt in range(ATTEMPTS):
            where = f"trial {number}.{attempt} of seed {SEED}: {name.name} to {kind}"
            code, seconds = end_at(trial, kind, name, trial.times[kind] * moment / 2**attempt, where)
            check_the_next(trial, kind, where)
            longest = max(longest, seconds)
            if code:
                break
            ended_before += 1  # it was faster than when it was measured: again, earlier
        assert code, f"{where}: none of {ATTEMPTS} signals came before the end"
    print(f"{TRIALS} commands were ended, {ended_before} more had ended before; the longest end took {longest:.1f} s")


def end_at(trial: Trial, kind: str, name: signal.Signals, moment: float, where: str) -> tuple[int, float]:
    """Start a command and send it a signal after `moment` seconds, and check that nothing of it is left.

    Return its exit status, 0 if it had ended before the signal, and how many seconds its end took."""
    trial.forget(kind)
    process = trial.start(kind)
    time.sleep(moment)
    family = descendants(process.pid)
    process.send_signal(name)
    began = time.monotonic()
    output, errors = process.communicate(timeout=LONGEST)
    seconds = time.monotonic() - began
    codes = (0, -name) if name == signal.SIGKILL else (0, 128 + name, -name)  # -name: before envbuild takes it
    assert process.returncode in codes, (where, output + errors)
    assert b"Traceback" not in errors, (where, errors)
    assert end(lambda: alive(family)) == [], where
    assert end(lambda: with_variable(f"ENVBUILD_STORE={trial.store}")) == [], where
    assert mounts_below(trial.folder) == [], where
    complete = {path: digest for sums in trial.sums.values() for path, digest in sums.items()}
    half = {path: digest for path, digest in trial.visible().items() if complete.get(path) != digest}
    assert half == {}, where
    return process.returncode, seconds


def check_the_next(trial: Trial, kind: str, where: str) -> None:
    """Run the command again, and check what it leaves."""
    trial.finish(kind)
    if kind == "gc":
        trial.finish("make cold")
        kind = "make cold"
    expected = {path: digest for path, digest in trial.sums[kind].items() if path in trial.visible()}
    assert {path: trial.visible()[path] for path in trial.sums[kind]} == trial.sums[kind] == expected, where
    assert list((trial.store / "tmp").iterdir()) == [], where
