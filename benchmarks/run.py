"""Measure what docs/benchmarks.md quotes: CPU seconds (user + system of the whole process tree), wall seconds,
memory of the largest process.

    python benchmarks/run.py [--only NAME]

Rows that compare do both ways in this one run, from the same local inputs, so the ratio holds on any machine. The cold
build of the quickstart image is compared with buildah on the Containerfile that envbuild prints.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Cost, best, machine, measure

ENVBUILD = [sys.executable, "-m", "envbuild"]
IMAGE = "cpu-ucx"


def head() -> None:
    print("\n| what | CPU s | wall s | peak MB | note |\n|---|---|---|---|---|")


def row(name: str, cost: Cost, note: str = "") -> None:
    print(f"| {name} | {cost.cpu:.2f} | {cost.wall:.2f} | {cost.memory:.0f} | {note} |", flush=True)


def startup() -> None:
    row("`envbuild --help`", best(5, lambda: measure([*ENVBUILD, "--help"])), "must be ≤ 0.15 s of CPU")


def fill(store: Path) -> None:
    """Fetch every input of the image into `store` (not measured)."""
    with tempfile.TemporaryDirectory() as context:
        env = {"ENVBUILD_STORE": str(store)}
        measure([*ENVBUILD, "compile", IMAGE, "--context", f"{context}/c"], env)


def cold(work: Path) -> None:
    """Build the quickstart image from its inputs: envbuild's engine against buildah on the printed Containerfile."""
    inputs = work / "inputs"
    fill(inputs)
    env = {"ENVBUILD_STORE": str(inputs)}
    ours = measure([*ENVBUILD, "make", IMAGE, "--no-verify"], env)
    row(f"cold `make {IMAGE}`: layers, packs, squashfs", ours, "inputs in the store")
    row(
        "the same again (no-op)",
        best(5, lambda: measure([*ENVBUILD, "make", IMAGE, "--no-verify"], env)),
        "must be ≤ 0.3 s of CPU",
    )
    if not shutil.which("buildah"):
        print("| buildah on the printed Containerfile | not measured | | | buildah is not installed |")
        return
    context = work / "context"
    measure([*ENVBUILD, "compile", IMAGE, "--context", str(context)], env)
    storage = ["buildah", "--root", str(work / "buildah"), "--runroot", str(work / "run"), "--storage-driver", driver()]
    build = [
        *storage,
        "build",
        "--isolation",
        "chroot",
        "--layers",
        "-t",
        IMAGE,
        "-f",
        str(context / "Containerfile"),
        str(context),
    ]
    theirs = measure(build)
    row("buildah: image in its own storage", theirs, f"{version()}, {driver()}; no squashfs, no lock check")
    push = measure([*storage, "push", IMAGE, f"oci:{work / 'oci'}:{IMAGE}"])
    row(
        "buildah: and pushed to an OCI layout",
        Cost(theirs.cpu + push.cpu, theirs.wall + push.wall, max(theirs.memory, push.memory)),
        "comparable output",
    )
    print(
        f"\nCPU, envbuild / buildah: {ours.cpu / theirs.cpu:.2f} (with push {ours.cpu / (theirs.cpu + push.cpu):.2f}); "
        f"wall {ours.wall / theirs.wall:.2f} (with push {ours.wall / (theirs.wall + push.wall):.2f})"
    )
    subprocess.run([*storage, "rmi", "--all", "--force"], capture_output=True, check=False)


def driver() -> str:
    return "overlay" if os.geteuid() == 0 else "vfs"


def version() -> str:
    return (
        subprocess.run(["buildah", "--version"], capture_output=True, text=True, check=True)
        .stdout.split(" (")[0]
        .strip()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["startup", "cold"])
    parser.add_argument("--work", type=Path, help="folder for stores (a local disk); default: a temporary one")
    arguments = parser.parse_args()
    machine()
    head()
    if arguments.only in (None, "startup"):
        startup()
    if arguments.only in (None, "cold"):
        work = Path(tempfile.mkdtemp(prefix="envbuild-bench-", dir=arguments.work))
        try:
            cold(work)
        finally:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
