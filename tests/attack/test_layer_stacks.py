"""Random stacks of layers, exported and unpacked, are the trees that umoci unpacks of the same layers.

umoci is another implementation of the layers of OCI's image spec (layer.md). It takes the marks of a layer before its
other entries: it applies entries in their order, and for the spec that order has no meaning. What is not compared:
the times of the root, and of folders that umoci itself changed; and mode, owner and attributes of a folder that a layer
implies without an entry, if it is root's, with mode 755: umoci lets such a folder inherit from a setgid folder.
ENVBUILD_ATTACK_SEED and ENVBUILD_ATTACK_N choose other stacks, and more of them."""

from __future__ import annotations

import io
import os
import posixpath
import random
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.oci.layers.apply import apply_layers
from envbuild.oci.layers.scan import make_canonical, scan
from envbuild.oci.layers.upper_tree import apply_tar
from envbuild.squashfs.pack.format import PackFormat
from tests.support import foreign_images
from tests.support.engine_fixtures import scratch
from tests.support.layer_stacks import Stack, StackMaker
from tests.support.local_registry import Layout
from tests.support.tree_listing import Listing, list_tree

__all__ = ["scratch"]
pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices and other owners"),
    pytest.mark.skipif(not shutil.which("umoci"), reason="umoci is not installed"),
]

SEED = int(os.environ.get("ENVBUILD_ATTACK_SEED", "1"))
TRIALS = int(os.environ.get("ENVBUILD_ATTACK_N", "12"))
CODECS = [PackFormat("zstd", 3), PackFormat("lz4", 0), PackFormat("gzip", 6), PackFormat("none", 0)]
CONFIG = {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"]}
LATE = 1 << 40  # seconds: no time is clamped


@pytest.fixture
def work(scratch: Path) -> Iterator[Path]:
    path = scratch / f"stacks-{os.urandom(4).hex()}"
    path.mkdir(parents=True)
    yield path
    shutil.rmtree(path)


def unpack_with_umoci(stack: Stack, work: Path) -> Listing:
    """Return the tree that umoci makes."""
    layout = Layout(work / "reference")
    layout.path.mkdir()
    layout.add(foreign_images.image(layout, stack.marks_first, "none", config=CONFIG), "x")
    command = ["umoci", "unpack", "--image", f"{layout.path}:x", str(work / "bundle")]
    subprocess.run(command, check=True, capture_output=True)
    return list_tree(work / "bundle/rootfs")


def differences(found: Listing, reference: Listing, stack: Stack, began: float) -> list[tuple[object, ...]]:
    """Return (path, what, value, value of the reference) for everything that must be equal and is not."""
    implied = {os.fsencode(path) for path in stack.implied}
    lines: list[tuple[object, ...]] = [
        (path, "only in one", path in found, path in reference) for path in sorted(found.keys() ^ reference.keys())
    ]
    for path in sorted(found.keys() & reference.keys()):
        one, two = found[path], reference[path]
        skipped = set()
        if stat.S_ISDIR(int(str(one["mode"]), 8)):
            if not path or int(str(two["time"])) >= int(began):
                skipped.add("time")
            if path in implied and (one["mode"], one["owner"]) == (oct(stat.S_IFDIR | 0o755), (0, 0)):
                skipped |= {"mode", "owner", "time"}
        if one["target"] and leads_to(path, one) == leads_to(path, two):
            skipped |= {"target", "name"}
        lines += [(path, key, one[key], two.get(key)) for key in one if key not in skipped and one[key] != two.get(key)]
    return lines


def leads_to(path: bytes, link: dict[str, object]) -> bytes:
    """Return the path that a link names in its tree: an export writes some links relative (`export/host_links.py`)."""
    return posixpath.normpath(posixpath.join(b"/", posixpath.dirname(path), bytes(link["target"])))  # type: ignore[call-overload]


@pytest.mark.parametrize("number", range(TRIALS))
def test_the_export_of_a_stack_is_what_umoci_unpacks(work: Path, number: int) -> None:
    draw = random.Random(f"{SEED} {number}")
    began = time.time()
    stack = StackMaker(f"{SEED} {number}").make()
    layout = Layout(work / "layout")
    layout.path.mkdir()
    compression = draw.choice(["gzip", "zstd", "chunked", "none"])
    layout.add(foreign_images.image(layout, stack.tars, compression, config=CONFIG), "x")
    foreign_images.made(
        f"oci:{layout.path}:x",
        foreign_images.workspace(work / "store"),
        work / "image.sqsh",
        keep_owners=True,
        keep_dev=draw.random() < 0.5,
        cache=draw.random() < 0.5,
        sha256=draw.random() < 0.5,
        form=draw.choice(CODECS),
    )
    command = ["unsquashfs", "-quiet", "-no-progress", "-d", str(work / "tree"), str(work / "image.sqsh")]
    subprocess.run(command, check=True, capture_output=True)
    reference = unpack_with_umoci(stack, work)
    found = {  # of /etc the export has files of its own
        path: entry for path, entry in list_tree(work / "tree").items() if path == b"etc" or path[:4] != b"etc/"
    }
    assert not differences(found, reference, stack, began), f"stack {number} of seed {SEED}"


@contextmanager
def mounted(trees: Sequence[Path], at: Path) -> Iterator[Path]:
    """Mount trees as an overlay, top last."""
    at.mkdir()
    lowers = ":".join(str(tree.relative_to(at.parent)) for tree in reversed(trees))
    command = ["mount", "-t", "overlay", "overlay", "-o", f"userxattr,lowerdir={lowers}", str(at)]
    subprocess.run(command, check=True, capture_output=True, cwd=at.parent)
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def unpack_over_each_other(tars: Sequence[bytes], work: Path) -> list[Path]:
    """Unpack each layer into a tree of its own, as those of buildah; make it a layer that can be mounted."""
    trees: list[Path] = []
    for number, tar in enumerate(tars):
        tree = work / f"layer-{number}"
        tree.mkdir()
        apply_tar(io.BytesIO(tar), tree, trees)
        make_canonical(scan(tree, trees, epoch=LATE))
        trees.append(tree)
    return trees


@pytest.mark.parametrize("marks_first", [True, False])
@pytest.mark.parametrize("number", range(TRIALS))
def test_stacks_unpacked_into_trees_are_what_umoci_unpacks(work: Path, number: int, marks_first: bool) -> None:
    """All layers in one tree, and each in a tree above the others. A layer whose marks come after its entries may be
    refused, because entries may need what a later mark of it removes."""
    began = time.time()
    stack = StackMaker(f"{SEED} {number}", plain=True).make()
    tars = stack.marks_first if marks_first else stack.tars
    reference = unpack_with_umoci(stack, work)
    for number_of_tar, tar in enumerate(tars):
        (work / f"{number_of_tar}.tar").write_bytes(tar)
    (work / "tree").mkdir()
    where = f"stack {number} of seed {SEED}"
    try:
        apply_layers([work / f"{number_of_tar}.tar" for number_of_tar in range(len(tars))], work / "tree")
        assert not differences(list_tree(work / "tree"), reference, stack, began), where
        with mounted(unpack_over_each_other(tars, work), work / "mounted") as tree:
            assert not differences(list_tree(tree), reference, stack, began), where
    except InputError:
        assert not marks_first, where
