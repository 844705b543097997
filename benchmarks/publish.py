"""Compare publishing and pulling with skopeo, curl, sha256sum, cp and `enroot import`, in one run, through a local
registry.

    python benchmarks/publish.py NAME CHANGED
    python benchmarks/publish.py --pulls SOURCE CHANGED

Both are images of the project in the current folder, built in this store; CHANGED differs from NAME in one layer. The
figures that count are ratios: they hold on any machine. enroot is measured where it is in PATH. With --pulls,
pulls alone are measured; an image is then what `publish` takes, such as oci:DIR:TAG, and a small one is enough.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from limited_line import limited
from measure import Cost, machine, measure
from registries import Registry, enroot, registry

ENVBUILD = [sys.executable, "-m", "envbuild"]
SKOPEO = ["skopeo", "copy", "-q", "--insecure-policy", "--dest-tls-verify=false"]
ENROOT_OPTIONS = {"default": (), "zstd 1 with 1 MiB blocks": ("-comp", "zstd", "-Xcompression-level", "1", "-b", "1M")}
MB = 1e6
GIGABIT = 125e6  # bytes per second
ROUNDS = 3


def row(name: str, cost: Cost, other: Cost | None = None, note: str = "") -> None:
    ratio = f"{cost.cpu / other.cpu:.2f} | {cost.wall / other.wall:.2f}" if other else " | "
    print(f"| {name} | {cost.cpu:.2f} | {cost.wall:.2f} | {ratio} | {note} |", flush=True)


def answer(arguments: Sequence[str], store: Path | None = None) -> tuple[Cost, Any]:
    """Return the cost of a command of envbuild and its answer."""
    env = {"ENVBUILD_STORE": str(store)} if store else {}
    with tempfile.NamedTemporaryFile() as out:
        words = " ".join([*ENVBUILD, *arguments, "--json"])
        cost = measure(["sh", "-c", f"{words} > {out.name}"], env)
        return cost, json.loads(Path(out.name).read_text())


def downloads(place: Path, there: Registry, name: str, digests: Sequence[str]) -> tuple[Cost, Cost, Cost]:
    """Measure plain downloads of blobs, one after another: as curl leaves them to the page cache, until they are on the
    disk as a pulled file is, and with their digests computed."""
    out = place / "plain"
    out.mkdir(exist_ok=True)
    urls = [(out / digest, f"http://{there.host}/v2/bench/{name}/blobs/sha256:{digest}") for digest in digests]
    words = ["-sf", *(word for path, url in urls for word in ("-o", str(path), url))]
    plain = measure(["curl", *words])
    shutil.rmtree(out)
    out.mkdir()
    subprocess.run(["sync", "-f", str(place)], check=True)
    synced = measure(["sh", "-ec", 'out=$1; shift; curl "$@"; sync "$out"/*', "sh", str(out), *words])
    shutil.rmtree(out)
    out.mkdir()
    subprocess.run(["sync", "-f", str(place)], check=True)
    lines = [f"curl -sf {url} | tee {path} | sha256sum" for path, url in urls]
    digested = measure(["bash", "-o", "pipefail", "-ec", "\n".join(lines)])
    shutil.rmtree(out)
    return plain, synced, digested


def cold_pulls(place: Path, there: Registry, name: str) -> Any:
    """Measure pulls into empty stores, in turn with plain downloads; return the answer of one, whose store is "b"."""
    _, made = answer(["pull", f"{there.host}/bench/{name}:1"], place / "b")
    digests = [path.name for path in (place / "b/blobs/sha256").iterdir()]
    for rate in (None, GIGABIT):
        with limited(there, rate) if rate else nullcontext(there) as served:
            rounds = []
            for _ in range(ROUNDS):
                subprocess.run(["sync", "-f", str(place)], check=True)
                others = downloads(place, served, name, digests)
                subprocess.run(["sync", "-f", str(place)], check=True)
                rounds.append((*others, answer(["pull", f"{served.host}/bench/{name}:1"], place / "c")[0]))
                shutil.rmtree(place / "c")
            plain, synced, digested, cold = (median(costs) for costs in zip(*rounds, strict=True))
        line = "1 Gbit/s" if rate else "no limit"
        row(f"curl of the same blobs, {line}", plain)
        row(f"curl and sync of the same blobs, {line}", synced, plain)
        row(f"curl, tee, sha256sum of each, {line}", digested, plain)
        row(f"pull, cold, {line}", cold, plain, f"{made['fetched_bytes'] / MB:.0f} MB fetched; wall ≤ 1.2 to curl")
        row("the same, to curl and sync", cold, synced, "both are on the disk")
        row("the same, to curl, tee, sha256sum", cold, digested)
    return made


def median(costs: Sequence[Cost]) -> Cost:
    """Return the medians of CPU and of wall time."""
    return Cost(*(statistics.median(getattr(cost, key) for cost in costs) for key in ("cpu", "wall", "memory")))


def pulls(place: Path, there: Registry, name: str, changed: str, *, layers: bool = True) -> None:
    """Measure pulls into an empty store, and into one that has the old image."""
    row("start of a command", measure([*ENVBUILD, "pull", "--help"]))
    made = cold_pulls(place, there, name)
    again, _ = answer(["pull", f"{there.host}/bench/{name}:1", "-o", str(place / "again.sqsh")], place / "b")
    file = Path(made["path"])
    both = measure(["sh", "-c", f"sha256sum {file} && cp {file} {place}/copy && sync {place}/copy"])
    row("sha256sum and cp of the file", both)
    row("pull, every pack in the store", again, both, "CPU ≤ 1.2, without the start of the command")
    new, made = answer(["pull", f"{there.host}/bench/{changed}:2"], place / "b")
    row("pull after a change", new, both, f"{made['fetched_bytes'] / MB:.1f} MB fetched")
    if layers and shutil.which("enroot"):
        for form, options in ENROOT_OPTIONS.items():
            imports(place, there, name, changed, new, form, options)


def imports(
    place: Path, there: Registry, name: str, changed: str, pulled: Cost, form: str, options: Sequence[str]
) -> None:
    """Measure `enroot import` of the changed image, whose other layers are in its cache, and compare it with a pull.

    enroot's first request names no format, and docker-registry answers it for Docker's own alone."""
    references = []
    for image, tag in ((name, "1"), (changed, "2")):
        source, copy = f"docker://{there.host}/bench/{image}:{tag}", f"{there.host}/enroot/{image}:1"
        command = [*SKOPEO, "--src-tls-verify=false", "--format", "v2s2", source, f"docker://{copy}"]
        subprocess.run(command, check=True)
        references.append(f"docker://{there.host}#enroot/{image}:1")
    work = place / f"enroot-{form.split()[0]}"
    enroot(references[0], work, options)
    warm, _ = enroot(references[1], work, options)
    row(f"enroot import after a change, {form}", warm, pulled, "to pull after a change: CPU ≥ 15")
    shutil.rmtree(work)


def same_bytes(place: Path, name: str) -> None:
    """Measure a push of blobs that are ready, with the squashfs artifact, by skopeo and by `publish`."""
    folder = place / "shared"
    answer(["publish", name, "--to", f"oci:{folder}:1"])
    listed = json.loads((folder / "index.json").read_text())["manifests"]
    names = [str((item.get("annotations") or {}).get("org.opencontainers.image.ref.name", "")) for item in listed]
    artifacts = next(found for found in names if found.startswith("sha256-"))
    with registry(place / "registry-skopeo") as there:
        image = measure([*SKOPEO, f"oci:{folder}:1", f"docker://{there.host}/bench/{name}:1"])
        both = image + measure([*SKOPEO, "--all", f"oci:{folder}:{artifacts}", f"docker://{there.host}/bench/{name}:2"])
    row("skopeo copy of an image and its artifact, from a folder", both)
    with registry(place / "registry-publish") as there:
        cost, made = answer(["publish", f"oci:{folder}:1", "--to", f"{there.host}/bench/{name}:1"])
    row("publish of that image: the same bytes", cost, both, f"{made['sent_bytes'] / MB:.0f} MB sent; CPU, wall ≤ 1.15")
    for path in (folder, place / "registry-skopeo", place / "registry-publish"):
        shutil.rmtree(path)


def publishes(place: Path, there: Registry, name: str, changed: str) -> None:
    """Measure publishes of an image, of the same again, and of the changed one."""
    first, made = answer(["publish", name, "--to", f"{there.host}/bench/{name}:1"])
    layout = place / "layout"
    subprocess.run([*ENVBUILD, "export", name, "--to", "oci", "-o", str(layout)], check=True, capture_output=True)
    copied = measure([*SKOPEO, f"oci:{layout}", f"docker://{there.host}/bench/skopeo:1"])
    size = sum(path.stat().st_size for path in (layout / "blobs/sha256").iterdir())
    row(f"skopeo copy of the layout, {size / MB:.0f} MB", copied)
    row("publish: compress, check, send", first, copied, f"{made['sent_bytes'] / MB:.0f} MB sent")
    again, made = answer(["publish", name, "--to", f"{there.host}/bench/{name}:1"])
    row("publish again", again, copied, f"{made['sent_bytes'] / MB:.1f} MB sent")
    new, made = answer(["publish", changed, "--to", f"{there.host}/bench/{changed}:2"])
    row("publish after a change", new, copied, f"{made['sent_bytes'] / MB:.1f} MB sent")


def options(place: Path, name: str, changed: str, *words: str) -> None:
    """Measure publishes with an option to a registry that has nothing, and after a change; then a pull of that."""
    text = " ".join(words)
    with registry(place / "registry-option") as there:
        only, made = answer(["publish", name, "--to", f"{there.host}/bench/{name}:1", *words])
        row(f"publish {text}", only, None, f"{made['sent_bytes'] / MB:.1f} MB sent")
        answer(["pull", f"{there.host}/bench/{name}:1"], place / "option")
        new, made = answer(["publish", changed, "--to", f"{there.host}/bench/{changed}:2", *words])
        row(f"publish {text} after a change", new, only, f"{made['sent_bytes'] / MB:.1f} MB sent")
        pulled, made = answer(["pull", f"{there.host}/bench/{changed}:2"], place / "option")
        row("pull after that change", pulled, None, f"{made['fetched_bytes'] / MB:.1f} MB fetched")
    shutil.rmtree(place / "registry-option")
    shutil.rmtree(place / "option")


def only_pulls(place: Path, name: str, changed: str) -> None:
    """Measure pulls of two images that are published without their layers."""
    with registry(place / "registry") as there:
        for source, tag in ((name, "1"), (changed, "2")):
            answer(["publish", source, "--to", f"{there.host}/bench/image:{tag}", "--squashfs-only"])
        pulls(place, there, "image", "image", layers=False)


def main() -> None:
    *only, name, changed = sys.argv[1:]
    compileall.compile_dir(Path(__file__).resolve().parent.parent / "envbuild", quiet=1)
    machine()
    print("\n| what | CPU s | wall s | CPU ratio | wall ratio | note |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        place = Path(folder)
        if only == ["--pulls"]:
            only_pulls(place, name, changed)
            return
        same_bytes(place, name)
        options(place, name, changed, "--squashfs-only")
        options(place, name, changed, "--compression", "zstd")
        with registry(place / "registry") as there:
            publishes(place, there, name, changed)
            pulls(place, there, name, changed)


if __name__ == "__main__":
    main()
