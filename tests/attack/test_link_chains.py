"""Random chains of links against everything that follows links of an archive or an image.

Up to 40 links lead to a place inside; more are refused. A folder of this machine with the same path as the end of the
chain does not change. ENVBUILD_ATTACK_SEED and ENVBUILD_ATTACK_N choose other chains, and more of them."""

from __future__ import annotations

import os
import random
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envbuild.build.engines import deb
from envbuild.build.engines.safe_extract import extract_tar
from envbuild.core.bombs import UnpackedFiles
from envbuild.core.errors import EnvbuildError
from envbuild.core.link_walk import LINKS
from envbuild.core.rooted_tree import RootedTree
from envbuild.core.store.store import Store
from envbuild.core.userns.removal import remove_tree
from envbuild.export.enroot_repair import repair
from envbuild.lock.base_image.file_tree import ImageTree
from envbuild.oci.config import ImageConfig
from envbuild.oci.layers.apply import apply_layers
from envbuild.oci.layers.upper_tree import apply_tar
from envbuild.oci.tar.decompress import convert_layer_errors
from envbuild.squashfs.read.tree import SquashTree
from envbuild.squashfs.write.merge import merge_packs
from tests.support import local_registry, packs
from tests.support import tiny_root as kit
from tests.support.captured_run import run_captured
from tests.support.engine_fixtures import open_working_store, scratch
from tests.support.link_chains import STYLES, TOO_MANY, canary, chain, plant, unchanged
from tests.support.squashfs_image import write_image

__all__ = ["scratch"]

SEED = int(os.environ.get("ENVBUILD_ATTACK_SEED", "1"))
TRIALS = int(os.environ.get("ENVBUILD_ATTACK_N", "8"))
Links = dict[str, str]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
CHAINS = [
    (length, style)
    for number in range(TRIALS)
    for draw in [random.Random(f"{SEED} {number}")]
    for length, style in [
        (draw.choice([LINKS, LINKS + 1, draw.randint(1, LINKS), draw.randint(LINKS + 1, 200)]), draw.choice(STYLES))
    ]
]


@pytest.fixture
def outside(scratch: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=scratch))
    yield canary(folder / "outside")
    shutil.rmtree(folder)


def layer(links: Links) -> bytes:
    """Return a layer with links, and then a file behind them."""
    return local_registry.tar(
        *(local_registry.symlink(name, target) for name, target in links.items()),
        local_registry.file("z0/new/file", b"x"),
    )


def packages(links: Links, root: Path, work: Path) -> Path:
    entries = [(kit.entry(f"./{name}", tarfile.SYMTYPE, link=target), b"") for name, target in links.items()]
    (work / "x.deb").write_bytes(kit.make_deb("Package: x\n", [*entries, (kit.entry("./z0/new/file"), b"x")]))
    deb.unpack_packages([work / "x.deb"], root)
    return root


def layers_on_disk(links: Links, root: Path, work: Path) -> Path:
    (work / "layer.tar").write_bytes(layer(links))
    apply_layers([work / "layer.tar"], root)
    return root


def places(links: Links, root: Path, work: Path) -> Path:
    plant(root, links)
    with RootedTree(root) as tree, tree.open_file("z0/new/file"):
        return root


@pytest.mark.slow_unit
@pytest.mark.unit
@as_root
@pytest.mark.parametrize("unpack", [packages, layers_on_disk, places], ids=lambda unpack: unpack.__name__)
@pytest.mark.parametrize(("length", "style"), CHAINS)
def test_trees_on_disk(
    unpack: Callable[[Links, Path, Path], Path], outside: Path, tmp_path: Path, length: int, style: str
) -> None:
    (tmp_path / "root").mkdir()
    with unchanged(outside):
        if length > LINKS:
            with pytest.raises((EnvbuildError, OSError), match=TOO_MANY):
                unpack(chain(length, str(outside), style), tmp_path / "root", tmp_path)
        else:
            root = unpack(chain(length, str(outside), style), tmp_path / "root", tmp_path)
            assert (root / str(outside).lstrip("/") / "new/file").is_file()


@pytest.mark.slow_unit
@pytest.mark.unit
@as_root
@pytest.mark.parametrize(("length", "style"), CHAINS)
def test_layers_of_buildah_and_archives_follow_nothing_out(
    outside: Path, tmp_path: Path, length: int, style: str
) -> None:
    """A layer above others is refused where it goes through any link, and an archive where a link is absolute."""
    links = chain(length, str(outside), style)
    (tmp_path / "tree").mkdir()
    (tmp_path / "layer.tar").write_bytes(layer(links))
    with unchanged(outside):
        with (tmp_path / "layer.tar").open("rb") as file, pytest.raises(EnvbuildError, match="not a folder in it"):
            apply_tar(file, tmp_path / "tree", [])
        with tarfile.open(tmp_path / "layer.tar") as tar, pytest.raises(tarfile.TarError):
            extract_tar(tar, tmp_path / "source", UnpackedFiles(1))


@pytest.mark.unit
@pytest.mark.parametrize(("length", "style"), CHAINS)
def test_trees_in_memory(outside: Path, tmp_path: Path, length: int, style: str) -> None:
    """The tree of a base image, that of an export with its repairs, and a squashfs file as it is read."""
    links, inner = chain(length, str(outside), style), str(outside).lstrip("/").encode()
    tree = ImageTree()
    (tmp_path / "layer.tar").write_bytes(layer(links))
    members = [packs.symlink(name.encode(), target.encode()) for name, target in links.items()]
    below = [*members, packs.file(inner + b"/secret", b"inside")]
    made = packs.packs(tmp_path, below)
    write_image(made, tmp_path / "image.sqsh", epoch=0)
    with unchanged(outside), SquashTree(tmp_path / "image.sqsh") as squash:
        if length > LINKS:
            refused = pytest.raises(EnvbuildError, match=TOO_MANY)
            with (tmp_path / "layer.tar").open("rb") as file, refused, convert_layer_errors("a layer"):
                tree.apply(file)
            assert tree.find("z0") is tree.find("z0/secret") is None
            assert squash.lookup(b"z0/secret") is squash.lookup(b"z0") is None
            assert merge_packs(made).lookup(b"z0/secret") is None
            with pytest.raises(EnvbuildError, match=TOO_MANY):
                merge_packs([*made, packs.pack(tmp_path / "more", [packs.file(b"z0/new/file")])])
        else:
            with (tmp_path / "layer.tar").open("rb") as file:
                tree.apply(file)
            assert tree.find("z0/new/file") == (f"{outside}/new/file", None)
            assert squash.read(b"z0/secret") == b"inside"
            merged = merge_packs([*made, packs.pack(tmp_path / "more", [packs.file(b"z0/new/file")])])
            assert inner + b"/new/file" in packs.paths(merged)
            assert merged.lookup(b"z0/secret") is merged.lookup(inner + b"/secret")


@pytest.mark.unit
@pytest.mark.parametrize(("length", "style"), CHAINS)
def test_repairs_for_enroot(outside: Path, tmp_path: Path, length: int, style: str) -> None:
    """Folders that the configuration of an image names are made inside, or the image is refused."""
    links = chain(length, str(outside), style)
    merged = packs.tree(tmp_path, *(packs.symlink(name.encode(), target.encode()) for name, target in links.items()))
    config = ImageConfig(workdir="/z0/work", volumes=("/z0/data",), env={"HOME": "/z0/home"})
    with unchanged(outside):
        added = packs.pack(tmp_path / "added", repair(config, merged, 0).extra)
        if length > LINKS:
            with pytest.raises(EnvbuildError, match=TOO_MANY):
                merged.apply(added)
        else:
            merged.apply(added)
            inner = str(outside).lstrip("/").encode() + b"/"
            found = [path.removeprefix(inner) for path in packs.paths(merged) if path.startswith(inner)]
            assert found == [b"", b"data/", b"home/", b"work/"]


@pytest.fixture(scope="module")
def built(scratch: Path) -> Iterator[tuple[Store, Path]]:
    """Yield a store, and the tree of the tiny root in it."""
    path = Path(tempfile.mkdtemp(dir=scratch))
    path.chmod(0o755)
    store = open_working_store(path)
    yield store, store.layer_tree(kit.build(store).layers[0].diff_id)
    remove_tree(path)


@pytest.mark.engine
@pytest.mark.parametrize(("length", "style"), CHAINS)
def test_boxes(built: tuple[Store, Path], outside: Path, tmp_path: Path, length: int, style: str) -> None:
    """A mount point of the user's choice, and one of the image's."""
    store, tree = built
    (tmp_path / "own").touch()
    for name, place in (("bind", "/z0/bound"), ("hosts", "/etc/hosts")):
        over = tmp_path / name
        over.mkdir()
        links = chain(length, str(outside), style)
        plant(over, links if name == "bind" else {**links, "etc/hosts": "../z0/made/hosts"})
        binds = [(str(tmp_path / "own"), place)] if name == "bind" else []
        argv = ["/usr/bin/test", "-f", f"{outside}/bound" if name == "bind" else f"{outside}/made/hosts"]
        with unchanged(outside):
            if length + (name == "hosts") > LINKS:
                with pytest.raises(EnvbuildError, match=TOO_MANY):
                    run_captured([tree, over], argv, env={}, store=store, binds=binds)
            else:
                assert run_captured([tree, over], argv, env={}, store=store, binds=binds)[0] == 0
