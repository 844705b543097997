"""The checks of one node as one file to copy by hand: the program, and programs of the image with their libraries.

It is a zip file that Python runs (``python3 FILE``). Not in it: the C library, which the machine has; the driver's
libraries; PyTorch and the extensions that are compiled for it, which are used where the machine's own Python has them;
and what needs MPI, whose files are searched in the folder that it was built for.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild import __version__
from envbuild.core.errors import PublishError
from envbuild.core.store.json_files import write_atomic
from envbuild.core.text import amount
from envbuild.gpu.bench import NCCL_TESTS
from envbuild.gpu.main import MODULES
from envbuild.gpu.model import GPU, Job
from envbuild.gpu.script import single_file
from envbuild.launch.gpu_tiers import make_job
from envbuild.launch.image_sources import find_image
from envbuild.spec.target import load_target
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.read.tree import SquashTree
from envbuild.verify.contents.squashfs_path import find_squashfs_file
from envbuild.verify.gpu_image import read_gpu_image
from envbuild.verify.open_image import OpenImage, open_image

LIMIT = 64_000_000  # bytes of the file
UNPACKED = 768 << 20  # bytes of all programs and libraries, which are in memory: NCCL alone has up to 0.4 GB
PROGRAMS = ("/opt/nvbandwidth/bin/nvbandwidth", f"{NCCL_TESTS}/all_reduce_perf")
# What every machine with this architecture and a driver has.
OF_THE_MACHINE = re.compile(
    r"(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libutil|libgcc_s|libstdc\+\+|libcuda|libnvidia-ml)[.-]\S*"
)
LINKED = re.compile(r"\s+(\S+) => (/\S+) \(0x")
UNRESOLVED = re.compile(r"\s+(\S+) => not found")
NOT_FOUND = 127  # exit code of env for a program that is missing
OF_MPI = re.compile(r"libmpi\b")
TOO_LARGE = f"with its libraries the file is larger than {amount(LIMIT)}"
STAMP = (1980, 1, 1, 0, 0, 0)  # the same content has the same bytes


class LeftOutError(Exception):
    """The reason why a program is not packed."""


@dataclass(frozen=True, slots=True)
class Package:
    """A written file. `packed`: programs of the image in it; `left_out`: the others, each with the reason."""

    path: Path
    size: int
    packed: tuple[str, ...]
    left_out: tuple[str, ...]


def write_package(name: str, out: Path, workspace: Workspace) -> Package:
    """Write the file of an image that is built, or of a squashfs file. Raises as `load_built_image`, PublishError."""
    from envbuild.export.built_image import load_built_image

    own = read_gpu_image(name, workspace)
    file = find_squashfs_file(name) or Path(load_built_image(name, workspace).record.artifact)
    image = find_image(name, workspace)
    job = make_job(own, load_target(image.target, workspace.project), GPU, image.layers, image.versions)
    files: dict[str, bytes] = {}
    packed, left_out, size, unpacked = [], [], 0, 0
    with open_image(file, {}, workspace, f"pack {image.name}") as run, SquashTree(file) as tree:
        for program in PROGRAMS:
            title = program.rpartition("/")[2]
            try:
                more = program_files(program, run, tree, files, UNPACKED - unpacked)
            except LeftOutError as reason:
                left_out.append(f"{title}: {reason}")
                continue
            took = sum(len(zlib.compress(content, 9)) for content in more.values())
            if size + took > LIMIT:
                left_out.append(f"{title}: {TOO_LARGE}")
                continue
            files |= more
            size += took
            unpacked += sum(map(len, more.values()))
            packed.append(title)
    data = package_bytes(job, files)
    if len(data) > LIMIT:
        raise PublishError(f"{out} has {amount(len(data))}, and {amount(LIMIT)} are allowed", hint="report this")
    try:
        write_atomic(out, lambda target: target.write(data), 0o755)
    except OSError as error:
        raise PublishError(
            f"{out} cannot be written: {error.strerror}", hint="name a file in a folder of yours"
        ) from None
    return Package(out, len(data), tuple(packed), tuple(left_out))


def program_files(
    program: str, run: OpenImage, tree: SquashTree, known: Mapping[str, bytes], left: int
) -> dict[str, bytes]:
    """Return the files of a program and of its libraries by name, but those that are `known`; at most `left` bytes.
    Raises LeftOutError."""
    if tree.lookup(program.encode()) is None:
        raise LeftOutError("not in the image")
    code, linked = run(["/usr/bin/env", "ldd", program])
    if code == NOT_FOUND:
        raise LeftOutError("the image has no ldd, which lists its libraries")
    if missing := missing_libraries(linked):
        raise LeftOutError(f"the image does not have {', '.join(missing)}")
    paths = library_paths(linked)
    if any(OF_MPI.match(path.rpartition("/")[2]) for path in paths):
        raise LeftOutError("it is linked with MPI")
    return read_group(tree, (program, *paths), known, left)


def read_group(tree: SquashTree, paths: Sequence[str], known: Mapping[str, bytes], left: int) -> dict[str, bytes]:
    """Return name → bytes of the files that are not `known`. The image states which libraries a program has, and how
    large they are: raises LeftOutError if they have more than `left` bytes together, or if one is not a file."""
    group: dict[str, bytes] = {}
    for path in paths:
        name = path.rpartition("/")[2]
        if name in known or name in group:
            continue
        inode = tree.lookup(path.encode())
        left -= inode.size if inode else 0
        if left < 0:
            raise LeftOutError(TOO_LARGE)
        content = tree.read(path.encode(), UNPACKED)
        if content is None:
            raise LeftOutError(f"{path} is not a file")
        group[name] = content
    return group


def missing_libraries(linked: str) -> tuple[str, ...]:
    """Return the libraries that ``ldd`` does not find, without those of every machine."""
    found = [match[1] for line in linked.splitlines() if (match := UNRESOLVED.match(line))]
    return tuple(name for name in found if not OF_THE_MACHINE.fullmatch(name))


def library_paths(linked: str) -> tuple[str, ...]:
    """Return the libraries that ``ldd`` lists, without those of every machine."""
    found = [(match[1], match[2]) for line in linked.splitlines() if (match := LINKED.match(line))]
    return tuple(path for name, path in found if not OF_THE_MACHINE.fullmatch(name))


def package_bytes(job: Job, files: dict[str, bytes]) -> bytes:
    """Return the bytes of the file: the same job and files have the same bytes."""
    buffer = io.BytesIO()
    buffer.write(b"#!/usr/bin/env python3\n")
    members: Sequence[tuple[str, bytes]] = [
        ("__main__.py", single_file(job, __version__).encode()),
        *((f"{MODULES}{name}", files[name]) for name in sorted(files)),
    ]
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr(zipfile.ZipInfo(MODULES, STAMP), b"")  # also without files it is a package
        for name, content in members:
            info = zipfile.ZipInfo(name, STAMP)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return buffer.getvalue()
