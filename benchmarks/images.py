"""Measure the CPU time of resolving, planning and printing every shipped image in one process, as CI does.

    python benchmarks/images.py [RUNS]

Nothing is fetched and no lock is needed; the facts are read from the cache that a first run writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = """
import time
from pathlib import Path
began = time.process_time()
from envbuild.build.plan.containerfile import containerfile
from envbuild.build.plan.planner import make_plan
from envbuild.lock.resolve import resolve_in
from envbuild.lock.update import draft_lock
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.project import Project

project = Project.find(Path("."))
names = project.images()
for name in names:
    resolution = resolve_in(load_image_spec(name, project), project)
    containerfile(make_plan(resolution, draft_lock(resolution)), locked=False)
print(len(names), time.process_time() - began)
"""


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    command = [sys.executable, "-c", PROGRAM]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)  # byte code and the cache of the facts
    taken = []
    for _ in range(runs):
        count, seconds = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
        taken.append(float(seconds))
    print(f"{count} images printed: {min(taken):.2f} s CPU (least of {runs}; most {max(taken):.2f})")


if __name__ == "__main__":
    main()
