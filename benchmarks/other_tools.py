"""Other tools that do the same from an OCI layout with gzip layers: enroot's stages, umoci, mksquashfs, tar2sqfs.

`stages` runs what enroot 4.1.2 runs (src/docker.sh, docker::_download and docker::import; src/runtime.sh), one by one:
sha256sum, gunzip and ``zstd -1`` into its layer cache; ``tar`` of every layer; whiteouts; mksquashfs on an overlay of
them with enroot's options. Where enroot is installed, `registries.enroot` runs enroot itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import layouts
from measure import Cost, measure, size

ENROOT = ("-comp", "lzo", "-noD", "-exit-on-error")  # enroot.in, ENROOT_SQUASH_OPTIONS
ZSTD = ("-comp", "zstd", "-Xcompression-level", "1", "-b", "1M", "-exit-on-error")

# One layer of an OCI layout → enroot's cache. It uses pigz where it is installed.
DOWNLOAD = """
set -e -o pipefail
gunzip=$(command -v pigz || command -v gzip)
for blob in "$@"; do
    sha256sum "$blob" > /dev/null
    "$gunzip" -d -f -c < "$blob" | zstd -q -1 -f -o "$0/$(basename "$blob")"
done
"""
# The cache → one folder a layer, as common::fixperms and docker::_prepare_layers do it.
EXTRACT = """
set -e -o pipefail
number=0
for blob in "$@"; do
    number=$((number + 1))
    mkdir -p "$0/layers/$number"
    zstd -q -d -c "$0/cache/$(basename "$blob")" | tar -C "$0/layers/$number" --warning=no-timestamp --anchored \
        --exclude='dev/*' --exclude='./dev/*' --numeric-owner -pxf -
    find "$0/layers/$number" \\( -type f -a ! -perm -u+r -exec chmod u+r {} + \\) -o \
        \\( -type d -a ! -perm -u+w -exec chmod u+w {} + \\)
    find "$0/layers/$number" -name '.wh.*' | while IFS= read -r mark; do
        name=$(basename "$mark"); rm "$mark"
        if [ "$name" = .wh..wh..opq ]; then setfattr -n trusted.overlay.opaque -v y "$(dirname "$mark")"
        else mknod "$(dirname "$mark")/${name#.wh.}" c 0 0; fi
    done
done
"""
SQUASH = """
set -e
mkdir -p "$0/merged"
mount -t overlay overlay -o ro,lowerdir="$1" "$0/merged"
trap 'umount "$0/merged"' EXIT
shift
mksquashfs "$0/merged" "$0/out.sqsh" -no-progress -all-root -noappend "$@" > /dev/null
"""


def stages(layout: Path, work: Path, options: Sequence[str]) -> tuple[Cost, Cost, float]:
    """Return the cost with an empty cache and with every layer in it, and MB of the output. `work` is emptied."""
    shutil.rmtree(work, ignore_errors=True)
    (work / "cache").mkdir(parents=True)
    layers = [str(blob) for blob in layouts.blobs(layout)]
    download = measure(["bash", "-c", DOWNLOAD, str(work / "cache"), *layers])
    extract = measure(["bash", "-c", EXTRACT, str(work), *layers])
    lowers = ":".join(str(work / "layers" / str(number)) for number in range(len(layers), 0, -1))
    squash = measure(["bash", "-c", SQUASH, str(work), lowers, *options])
    disk = size(work)
    written = (work / "out.sqsh").stat().st_size / 1e6
    clean = measure(["rm", "-rf", str(work / "layers"), str(work / "merged")])
    warm = extract + squash + clean
    shutil.rmtree(work)
    return with_disk(download + warm, disk), with_disk(warm, disk), written


def with_disk(cost: Cost, disk: float) -> Cost:
    return Cost(cost.cpu, cost.wall, cost.memory, disk)


def umoci(layout: Path, work: Path, squash: Sequence[str]) -> tuple[Cost, Cost, Cost, float]:
    """Return the cost of umoci unpack and mksquashfs, mksquashfs of that tree alone, tar of the tree into tar2sqfs; and
    MB of the output."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    unpack = measure(["umoci", "unpack", "--image", f"{layout}:{layouts.tag(layout)}", str(work / "bundle")])
    tree, out = work / "bundle" / "rootfs", work / "out.sqsh"
    made = measure(["mksquashfs", str(tree), str(out), "-no-progress", "-noappend", "-all-root", *squash])
    disk, written = size(work), out.stat().st_size / 1e6
    out.unlink()
    level = squash[squash.index("-Xcompression-level") + 1]
    stream = f"tar -C '{tree}' -cf - . | tar2sqfs -q -f -c zstd -X level={level} '{out}'"
    merged = measure(["sh", "-c", stream]) if shutil.which("tar2sqfs") else Cost(0, 0, 0)
    shutil.rmtree(work)
    return with_disk(unpack + made, disk), made, merged, written


def missing(*tools: str) -> str:
    """Return the tools that are not installed, for the row."""
    return ", ".join(tool for tool in tools if not shutil.which(tool))


def bound(layout: Path, level: int, block: int = 131072) -> tuple[float, float]:
    """Return the CPU seconds of compressing the same bytes in the same blocks on as many threads as there are cores;
    and the minimum for gzip layers: inflating them (isal), and the digests of blob and content."""
    command = [sys.executable, __file__, str(layout), str(level), str(block)]
    spent = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(spent[0]), float(spent[1])


def compress_only(layout: Path, level: int, block: int) -> None:
    """Print what `bound` reads."""
    import hashlib
    import resource
    from concurrent.futures import ThreadPoolExecutor

    import zstandard
    from isal import igzip

    compressing = reading = 0.0
    jobs = len(os.sched_getaffinity(0))

    def one(piece: bytes) -> int:
        packer = zstandard.ZstdCompressor(level=level, write_checksum=False)
        return sum(len(packer.compress(piece[at : at + block])) for at in range(0, len(piece), block))

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    with ThreadPoolExecutor(jobs) as pool:
        for path in layouts.blobs(layout):
            began = spent()
            with path.open("rb") as file:
                hashlib.file_digest(file, "sha256")
            digest = hashlib.sha256()
            with igzip.open(path, "rb") as stream:
                while pieces := [piece for piece in (stream.read(1 << 20) for _ in range(jobs * 16)) if piece]:
                    for piece in pieces:
                        digest.update(piece)
                    reading += spent() - began
                    began = spent()
                    list(pool.map(one, pieces))
                    compressing += spent() - began
                    began = spent()
    print(compressing, reading)


if __name__ == "__main__":
    compress_only(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
