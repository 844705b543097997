"""Squashfs from layers: envbuild against other tools, all in one run, as ratios.

    python benchmarks/squashfs.py [--work DIR] [--mid MB] [--big oci:DIR] [--large GB]

The mid image is cut from this machine's /usr; the big one is any OCI layout with gzip layers
(``envbuild export h100-ucc --to oci -o DIR``); --large makes one of many files. DIR must be a local disk. Needs root
for enroot's stages (an overlay is mounted), mksquashfs, tar, zstd; enroot, docker-registry, skopeo, tar2sqfs, umoci,
pigz, mkfs.xfs where they are installed."""

from __future__ import annotations

import argparse
import compileall
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import layouts
import other_tools
import registries
from measure import Cost, best, machine, measure

ENVBUILD = [sys.executable, "-m", "envbuild"]
TIMES = 3  # of what is so short that another process on the machine shows
ENROOT = {"default": other_tools.ENROOT, "zstd 1, 1 MiB": other_tools.ZSTD}  # options of mksquashfs
LEVEL = ("-comp", "zstd", "-Xcompression-level", "1")


def export(source: Path | str, out: Path, store: Path, *options: str) -> Cost:
    """Run `envbuild export` of a layout, or another source, into `out`, with the packs in `store`. `out` is removed
    first, and earlier writes are flushed, so that the export does not wait for them."""
    named = source if isinstance(source, str) else f"oci:{source}"
    out.unlink(missing_ok=True)
    os.sync()
    command = [*ENVBUILD, "export", named, "--to", "squashfs", "-o", str(out), *options]
    return measure(command, {"ENVBUILD_STORE": str(store)}, watch=[store, out.parent])


def head(title: str) -> None:
    print(f"\n**{title}**\n\n| way | CPU s | wall s | peak MB | disk MB | output MB | CPU, times ours |")
    print("|---|---|---|---|---|---|---|", flush=True)


def row(name: str, cost: Cost, output: float, ours: Cost) -> None:
    print(
        f"| {name} | {cost.cpu:.2f} | {cost.wall:.2f} | {cost.memory:.0f} | {cost.disk:.0f} | {output:.0f} "
        f"| {cost.cpu / ours.cpu:.1f} |",
        flush=True,
    )


def compare(title: str, layout: Path, work: Path, levels: Sequence[str]) -> None:
    """Measure all tools on one image: cold, then with another top layer."""
    store, out = work / "store", work / "out" / "image.sqsh"
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(store, ignore_errors=True)
    plain = sum(blob.stat().st_size for blob in layouts.blobs(layout)) / 1e6
    for blob in layouts.blobs(layout):
        sha256(blob)  # read once, so that the first way does not pay for the disk
    fast = ("--level", "1")
    export(layout, out, work / "store-direct", *fast, "--no-cache")  # the first one pays for much that is read once
    shutil.rmtree(work / "store-direct")
    head(f"{title}: cold, {plain:.0f} MB of gzip layers, zstd 1")
    direct = export(layout, out, work / "store-direct", *fast, "--no-cache")
    digest = sha256(out)
    row("envbuild export --no-cache", direct, mb(out), direct)
    shutil.rmtree(work / "store-direct", ignore_errors=True)
    ours = export(layout, out, store, *fast)
    row("envbuild export (packs kept)", ours, mb(out), direct)
    assert digest == sha256(out), "with and without packs the bytes must be the same"
    limit, reading = other_tools.bound(layout, 1)
    cores = len(os.sched_getaffinity(0))
    row("bound: zstd 1 of the same bytes", Cost(limit, limit / cores, 0), mb(out), direct)
    whole = limit + reading
    row("bound: and the layers inflated and digested", Cost(whole, whole / cores, 0), mb(out), direct)
    lacking = other_tools.missing("mksquashfs", "tar", "zstd") or ("root" if os.geteuid() else "")
    stages: dict[str, Cost] = {}
    cached: dict[str, Cost] = {}
    for name, options in ENROOT.items():
        if lacking:
            print(f"| enroot's stages, {name} options | not measured: no {lacking} | | | | | |")
            continue
        stages[name], cached[name], written = other_tools.stages(layout, work / "other", options)
        row(f"enroot's stages, {name} options", stages[name], written, direct)
    if lacking := other_tools.missing("umoci", "mksquashfs"):
        print(f"| umoci unpack, mksquashfs | not measured: no {lacking} | | | | | |")
    else:
        both, made, merged, written = other_tools.umoci(layout, work / "other", LEVEL)
        row("umoci unpack, mksquashfs zstd 1", both, written, direct)
        row("mksquashfs zstd 1 of the merged tree alone", made, written, direct)
        if merged.cpu:
            row("tar of the merged tree into tar2sqfs zstd 1", merged, written, direct)
    print(f"\nOurs is {direct.cpu / limit:.2f} of the pure compression, {direct.cpu / whole:.2f} of the whole bound.")

    again = layouts.changed(layout, work / "changed", 2)
    head(f"{title}: the top layer of 30 MB changed, zstd 1, best of {TIMES}")
    warm = changed(layout, out, store, work / "again")
    row("envbuild export", warm, mb(out), warm)
    row("cp of the output", copied(out, "never"), mb(out), warm)
    row("cp of the output, and waiting for the disk as an export does", copied(out, "never", sync=True), mb(out), warm)
    for name, cost in cached.items():
        row(f"enroot's stages, {name} options, layers in its cache", cost, 0, warm)
    if levels:
        head(f"{title}: higher levels, once cold and once with another top layer")
    shares = []
    for level in levels:
        first = export(layout, out, store, "--level", level)
        row(f"zstd {level}, cold", first, mb(out), warm)
        second = export(again, out, store, "--level", level)
        row(f"zstd {level}, top layer changed", second, mb(out), warm)
        pure, _ = other_tools.bound(layout, int(level))
        row(f"bound: zstd {level} of the same bytes", Cost(pure, pure / cores, 0), mb(out), warm)
        shares.append(f"{first.cpu / pure:.2f} of the pure compression at level {level}")
    if shares:
        print(f"\nCold, ours is {', '.join(shares)}.")
    from_registry(title, layout, work / "registry", stages, cached)
    shutil.rmtree(work, ignore_errors=True)


def from_registry(title: str, layout: Path, work: Path, stages: dict[str, Cost], cached: dict[str, Cost]) -> None:
    """Measure envbuild and enroot itself from the same registry: cold, then with another top layer. `stages`, `cached`:
    the cost of enroot's stages, one by one."""
    if lacking := other_tools.missing("docker-registry", "skopeo"):
        print(f"\nfrom a registry: not measured: no {lacking}")
        return
    store, out, fast = work / "store", work / "out" / "image.sqsh", ("--level", "1")
    out.parent.mkdir(parents=True)
    absent = other_tools.missing("enroot")
    with registries.registry(work / "server") as server:
        source = server.push(layout, "first")
        head(f"{title}: cold, from a registry on this machine, zstd 1")
        direct = export(source, out, work / "store-direct", *fast, "--no-cache")
        row("envbuild export docker://… --no-cache", direct, mb(out), direct)
        shutil.rmtree(work / "store-direct", ignore_errors=True)
        row("envbuild export docker://… (packs kept)", export(source, out, store, *fast), mb(out), direct)
        itself: dict[str, Cost] = {}
        for name, options in {} if absent else ENROOT.items():
            itself[name], written = registries.enroot(source, work / "enroot" / name, options)
            row(f"enroot import, {name} options", itself[name], written, direct)
        if absent:
            print("| enroot import | not measured: enroot is not in PATH | | | | | |")
        compared("cold", itself, stages)

        head(f"{title}: the top layer of 30 MB changed, from a registry on this machine, zstd 1")

        def once(seed: int) -> tuple[Cost, str]:
            again = layouts.changed(layout, work / "again", seed)
            changed = server.push(again, f"changed{seed}")
            shutil.rmtree(again)
            return export(changed, out, store, *fast), changed

        runs = [once(seed) for seed in range(200, 200 + TIMES)]
        warm = min((cost for cost, _ in runs), key=lambda cost: cost.cpu)
        row(f"envbuild export docker://…, best of {TIMES}", warm, mb(out), warm)
        again: dict[str, Cost] = {}
        for name in itself:
            again[name], written = registries.enroot(runs[-1][1], work / "enroot" / name, ENROOT[name])
            row(f"enroot import, {name} options, the other layers in its cache", again[name], written, warm)
        compared("with the other layers in the cache", again, cached)


def compared(when: str, itself: dict[str, Cost], stages: dict[str, Cost]) -> None:
    """Print the cost of the stages, run one by one, relative to enroot itself."""
    for name in (name for name in itself if name in stages):
        share = itself[name].cpu / stages[name].cpu
        print(f"\nenroot import itself, {name} options, {when}: {share:.2f} of the CPU time of its stages.")


def changed(layout: Path, out: Path, store: Path, work: Path) -> Cost:
    """Export with the packs of all layers but the top one, which is a new one each time, to a new file."""
    seeds = itertools.count(100)

    def once() -> Cost:
        again = layouts.changed(layout, work, next(seeds))
        cost = export(again, out, store, "--level", "1")
        shutil.rmtree(work)
        return cost

    return best(TIMES, once)


def copied(out: Path, share: str, *, sync: bool = False) -> Cost:
    """Measure cp of a file to a new one; `share` is cp's --reflink."""
    copy = out.with_suffix(".copy")
    command = f"cp --reflink={share} '{out}' '{copy}'" + (f" && sync '{copy}'" if sync else "")

    def once() -> Cost:
        os.sync()
        cost = measure(["sh", "-c", command])
        copy.unlink()
        return cost

    return best(TIMES, once)


def reflink(layout: Path, work: Path) -> None:
    """Measure the changed image on a loop-mounted XFS, where extents are shared instead of copied."""
    if lacking := other_tools.missing("mkfs.xfs") or ("root" if os.geteuid() else ""):
        print(f"\nreflink: not measured: no {lacking}")
        return
    image, mount = work / "xfs.img", work / "xfs"
    mount.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(24 << 30)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True)
    try:
        out = mount / "image.sqsh"
        export(layout, out, mount / "store", "--level", "1")
        second = mount / "second.sqsh"
        head(f"{layout.name}: the top layer of 30 MB changed, on XFS with reflinks, best of {TIMES}")
        cost = changed(layout, second, mount / "store", work / "again")
        size = mb(second)
        row("envbuild export", other_tools.with_disk(cost, unshared(second)), size, cost)
        shared, plain = copied(out, "always"), copied(out, "never")
        row("cp of the output, all of it shared", shared, size, cost)
        row("cp of the output, nothing shared", other_tools.with_disk(plain, size), size, cost)
    finally:
        subprocess.run(["umount", str(mount)], check=True)
        shutil.rmtree(work, ignore_errors=True)


def unshared(path: Path) -> float:
    """Return the MB of a file's blocks that it does not share (filefrag(8)). Free space would not show it: XFS releases
    the blocks of removed files later."""
    listed = subprocess.run(["filefrag", "-v", "-b4096", str(path)], check=True, capture_output=True, text=True).stdout
    extents = re.findall(r"^ *\d+: +\d+\.\. *\d+: +\d+\.\. *\d+: +(\d+):(.*)$", listed, re.MULTILINE)
    return sum(int(length) for length, flags in extents if "shared" not in flags) * 4096 / 1e6


def large(gigabytes: int, work: Path) -> None:
    """Measure a quarter, a half and all of 300,000 files: time must be linear, memory bounded."""
    head(f"{gigabytes} GB in 300,000 generated files")
    for part in (4, 2, 1):
        layout = layouts.generated(work / "layout", 300_000 // part, gigabytes * 1000 // part)
        (work / "out").mkdir(exist_ok=True)
        out = work / "out" / "image.sqsh"
        cost = export(layout, out, work / "store", "--level", "1", "--no-cache")
        row(f"{300_000 // part} files, {gigabytes / part:g} GB", cost, mb(out), cost)
        shutil.rmtree(work, ignore_errors=True)


def sha256(path: Path) -> str:
    return subprocess.run(["sha256sum", str(path)], check=True, capture_output=True, text=True).stdout[:64]


def mb(path: Path) -> float:
    return path.stat().st_size / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="folder on a local disk; default: a temporary one")
    parser.add_argument("--mid", type=int, default=1200, metavar="MB", help="size of the image made from /usr; 0: none")
    parser.add_argument("--big", type=Path, metavar="DIR", help="an OCI layout with gzip layers")
    parser.add_argument(
        "--large", type=int, default=0, metavar="GB", help="size of the image of 300,000 files; 0: none"
    )
    parser.add_argument("--levels", default="3,9,15", help="higher levels to show")
    arguments = parser.parse_args()
    levels = arguments.levels.split(",") if arguments.levels else []
    if arguments.work:
        Path(arguments.work).mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="envbuild-bench-", dir=arguments.work))
    machine()
    # as an installation does: no row pays for it
    compileall.compile_dir(Path(__file__).resolve().parent.parent / "envbuild", quiet=1)
    try:
        if arguments.mid:
            layout = layouts.from_tree(Path("/usr"), work / "mid", arguments.mid)
            compare(f"{arguments.mid} MB", layout, work / "run", levels)
            reflink(layout, work / "xfs-mid")
        if arguments.big:
            compare(arguments.big.name, arguments.big, work / "run", levels)
            reflink(arguments.big, work / "xfs-big")
        if arguments.large:
            large(arguments.large, work / "large")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
