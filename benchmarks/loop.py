"""Measure the waits of a user between an edit of a spec and a verified image: each step, beside an older envbuild.

    python benchmarks/loop.py NAME [PYTHON]

NAME is an image of the project in the current folder. The edit adds one pure-Python package. PYTHON runs the older
envbuild (FOLDER/.venv/bin/python); without it there is no comparison. Both use the store of the site, where NAME is
built first. Only root can drop the page cache: without root the step that is called cold is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from measure import Cost, machine, measure

CACHES = Path("/proc/sys/vm/drop_caches")
# Small, and each step takes its own: what one envbuild built, the other must not find.
EDITS = (
    {"lock": "einops", "live": "termcolor", "all": "tabulate"},
    {"lock": "toolz", "live": "inflection", "all": "parso"},
)


@dataclass
class Loop:
    """One envbuild in a project of its own. `image`: the spec that is edited, a copy of NAME."""

    python: str
    folder: Path
    image: str
    edits: dict[str, str]

    def command(self, *words: str) -> list[str]:
        return [self.python, "-m", "envbuild", *words]

    def knows(self, *words: str) -> bool:
        """Return whether this envbuild has a command with such options."""
        helped = subprocess.run(self.command(words[0], "--help"), capture_output=True, text=True, check=False).stdout
        return all(word in helped for word in words[1:])

    def run(self, *words: str) -> Cost:
        return measure(self.command(*words), cwd=self.folder)

    def edit(self, step: str) -> None:
        """Add the package of a step to the spec, which has no python-packages."""
        path = self.folder / f"images/{self.image}.yaml"
        lines = [line for line in path.read_text().splitlines() if not line.startswith("  python-packages:")]
        path.write_text("\n".join([*lines, f"  python-packages: [{self.edits[step]}]"]) + "\n")

    def artifact(self) -> Path:
        answer = subprocess.run(
            self.command("make", self.image, "--no-verify", "--json"), cwd=self.folder, capture_output=True, check=True
        )
        return Path(json.loads(answer.stdout)["images"][0]["artifact"])


def unchanged_lock(loop: Loop) -> Cost:
    return loop.run("lock", loop.image)


def lock(loop: Loop) -> Cost:
    loop.edit("lock")
    return loop.run("lock", loop.image)


def make(loop: Loop) -> Cost:
    return loop.run("make", loop.image, "--no-verify")


def copy(loop: Loop) -> Cost:
    target = loop.artifact().with_name("copy-of-the-benchmark")
    try:
        return measure(["cp", "--reflink=auto", str(loop.artifact()), str(target)])
    finally:
        target.unlink(missing_ok=True)


def verify_cold(loop: Loop) -> Cost:
    os.sync()
    CACHES.write_text("3")
    return loop.run("verify", loop.image)


def verify_warm(loop: Loop) -> Cost:
    return loop.run("verify", loop.image)


def live(loop: Loop) -> Cost:
    loop.edit("live")
    if loop.knows("run", "--live"):
        return loop.run("run", loop.image, "--live", "--", "true")
    made = loop.run("lock", loop.image) + loop.run("make", loop.image, "--no-verify")
    return made + loop.run("run", loop.image, "--", "true")


def all_steps(loop: Loop) -> Cost:
    loop.edit("all")
    if loop.knows("make", "--lock"):
        return loop.run("make", loop.image, "--lock")
    return loop.run("lock", loop.image) + loop.run("make", loop.image)


STEPS: dict[str, Callable[[Loop], Cost]] = {
    "lock, nothing changed": unchanged_lock,
    "lock, one Python package more": lock,
    "make --no-verify after it": make,
    "cp of the file": copy,
    "verify, cold": verify_cold,
    "verify, again": verify_warm,
    "edit → run --live": live,
    "edit → verified squashfs": all_steps,
}


def prepare(name: str, python: str, number: int, place: Path) -> Loop:
    """Return a project with a copy of the image, locked and built."""
    folder, here = place / str(number), Path.cwd()
    (folder / "images").mkdir(parents=True)
    loop = Loop(python, folder, f"{name}-{number}", EDITS[number])
    spec = (here / f"images/{name}.yaml").read_text()
    if "python-packages:" in spec:
        raise SystemExit(f"{name} has python-packages: name an image without")
    (folder / f"images/{loop.image}.yaml").write_text(spec)
    for kind in ("recipes", "facts", "targets"):
        if (here / kind).is_dir():
            shutil.copytree(here / kind, folder / kind)
    if (here / "site.yaml").is_file():
        shutil.copy(here / "site.yaml", folder)
    loop.run("lock", loop.image)
    loop.run("make", loop.image)
    return loop


def main(name: str, pythons: Sequence[str]) -> None:
    machine()
    with tempfile.TemporaryDirectory() as folder:
        loops = [prepare(name, python, number, Path(folder)) for number, python in zip(count(), pythons, strict=False)]
        older = " | before: CPU s | wall s | ratio of CPU | of wall" if len(loops) > 1 else ""
        print(f"| step | CPU s | wall s | MB{older} |\n{'|---' * (8 if older else 4)}|")
        for title, step in STEPS.items():
            if step is verify_cold and not os.access(CACHES, os.W_OK):
                continue
            now, *before = [step(loop) for loop in loops]
            line = f"| {title} | {now.cpu:.1f} | {now.wall:.1f} | {now.memory:.0f} |"
            for cost in before:
                ratio = f"{now.cpu / max(cost.cpu, 0.01):.2f} | {now.wall / max(cost.wall, 0.01):.2f}"
                line += f" {cost.cpu:.1f} | {cost.wall:.1f} | {ratio} |"
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [sys.executable, *sys.argv[2:3]])
