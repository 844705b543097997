"""The disk of the store or of the output is full at any moment of an export or a make: exit code 5 or 8, nothing half
done is left, and with more space the next run writes the right file.

ENVBUILD_ATTACK_SEED chooses how much is free, ENVBUILD_ATTACK_N how many trials there are."""

from __future__ import annotations

import gc
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.build.engines.embedded.engine import Embedded
from envbuild.build.plan.units import Plan
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError, EnvbuildError, PublishError
from envbuild.core.store.store import Store
from envbuild.lock.base_image.lock_base import lock_base
from envbuild.lock.lockfile import write_lock
from envbuild.lock.model import Lock
from envbuild.make import build_and_write
from envbuild.net.download import Transfer
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support import foreign_images, published
from tests.support.engine_fixtures import open_working_store, scratch
from tests.support.fetching import deb, run, site
from tests.support.local_registry import Layout, file, system, tar
from tests.support.ready_image import ready_image
from tests.support.stored_inputs import lock
from tests.support.tiny_root import plan, unit

__all__ = ["scratch"]
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system"),
]

SEED = int(os.environ.get("ENVBUILD_ATTACK_SEED", "1"))
TRIALS = int(os.environ.get("ENVBUILD_ATTACK_N", "3"))
Write = Callable[[], str]  # write an image; return its sha256


@pytest.fixture
def small(scratch: Path) -> Iterator[Path]:
    """Yield the folder of a small file system."""
    path = scratch / f"small-{os.urandom(4).hex()}"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(path)], check=True)
    yield path
    gc.collect()  # packs have open files there
    subprocess.run(["umount", str(path)], check=True)


def used(folder: Path) -> int:
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def leave(folder: Path, free: int) -> Path:
    """Fill a file system until `free` bytes are left; return the file that does it."""
    filler = folder / "filler"
    status = os.statvfs(folder)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(status.f_bavail * status.f_frsize - free, 1))
    return filler


def fail_at_any_moment(write: Write, reset: Callable[[], object], check: Callable[[], object], small: Path) -> None:
    """Run `write` with too little space, and then with enough. `reset` removes what was written before; `check` finds
    what a failure left."""
    reset()
    gc.collect()  # files that are removed, and open, take space
    before = used(small)
    expected = write()
    needed = used(small) - before
    failed = 0
    for trial in range(TRIALS):
        reset()
        gc.collect()
        free = random.Random(f"{SEED} {trial}").randrange(needed)
        where = f"trial {trial} of seed {SEED}: {free} of {needed} bytes are free"
        filler = leave(small, free)
        try:
            assert write() == expected, where
        except (EngineError, PublishError) as error:
            assert "No space left" in str(error) and error.hint, where
            failed += 1
        except EnvbuildError as error:
            raise AssertionError(where) from error
        check()
        filler.unlink()
        assert write() == expected, where
        check()
    assert failed


def check_store(root: Path) -> None:
    """Check that nothing unfinished is in a store."""
    assert not [*(root / "tmp").iterdir()]
    assert not [path for name in ("packs", "artifacts", "blobs") for path in (root / name).rglob(".*")]


def check_outputs(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} <= {"image.sqsh", "filler"}


def layout(folder: Path) -> str:
    made = Layout(folder)
    folder.mkdir(parents=True)
    made.add(foreign_images.image(made, foreign_images.layers()))
    return f"oci:{folder}"


def test_exports_on_a_full_store(small: Path, tmp_path: Path) -> None:
    """The packs of the layers are in the store, the file is elsewhere."""
    source, root, out = layout(tmp_path / "layout"), small / "store", tmp_path / "image.sqsh"
    fail_at_any_moment(
        lambda: foreign_images.made(source, foreign_images.workspace(root), out).artifact.sha256,
        lambda: (shutil.rmtree(root, ignore_errors=True), Store.open(root)),
        lambda: (check_store(root), not out.exists() or out.unlink()),
        small,
    )


@pytest.mark.parametrize("inside", [True, False])
def test_pulls_on_a_full_store(small: Path, tmp_path: Path, inside: bool) -> None:
    """The file is written in the store, or elsewhere."""
    parts, artifacts, _ = published.built(tmp_path / "a", foreign_images.layers())
    published.publish_folder(parts, artifacts, tmp_path / "shared", "1")
    root, out = small / "store", None if inside else tmp_path / "image.sqsh"
    fail_at_any_moment(
        lambda: str(published.pull(f"oci:{tmp_path}/shared:1", root, out)["sha256"]),
        lambda: (shutil.rmtree(root, ignore_errors=True), Store.open(root)),
        lambda: (check_store(root), not (out and out.exists()) or out.unlink()),
        small,
    )


def mirror_with(folder: Path, count: int, known: bool) -> Lock:
    """Write packages that do not compress into a mirror; return their lock. `known`: it has their sizes."""
    entries = []
    for number in range(count):
        content, path = foreign_images.noise(3_000_000 + number, number), f"pool/main/p/p/p{number}_1.0_all.deb"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        entry = deb(content, f"p{number}", path)
        entries.append(entry if known else replace(entry, size=0))
    return lock(*entries)


@pytest.mark.parametrize("known", [True, False])
def test_fetches_on_a_full_store(small: Path, tmp_path: Path, known: bool) -> None:
    """If the lock has the sizes, nothing is downloaded that does not fit."""
    root, wanted = small / "store", mirror_with(tmp_path / "mirror", 5, known)

    def write() -> str:
        store = Store.open(root)
        run(wanted, store, site(store, str(tmp_path / "mirror")))
        return "fetched"

    def check() -> None:
        check_store(root)
        left = [*(root / "partial").glob("*")]
        assert not (known and left)
        assert all((root / "blobs/sha256" / entry.sha256).is_file() for entry in wanted.debian.values()) or (
            (small / "filler").exists()
        )

    fail_at_any_moment(write, lambda: shutil.rmtree(root, ignore_errors=True), check, small)


def test_locks_of_a_base_image_on_a_full_store(small: Path, tmp_path: Path) -> None:
    root, own = small / "store", Layout(tmp_path / "mirror/some/base")
    contents = [system(), tar(file("opt/noise", foreign_images.noise(9_000_000)))]
    own.add(own.image(contents), "1")

    def write() -> str:
        store = Store.open(root)
        at = Site(root, mirrors={"oci:docker.io/": (str(tmp_path / "mirror"),)})
        transport = Transport(at.network())
        parts = (at, transport, Transfer(transport, store, pause=0.01), store, SilentReporter())
        options = {"previous": None, "distribution": "debian:13", "python": "3.13"}
        return lock_base("docker.io/some/base:1", "amd64", *parts, **options).image.digest  # type: ignore[arg-type]

    fail_at_any_moment(write, lambda: shutil.rmtree(root, ignore_errors=True), lambda: check_store(root), small)


def test_a_lock_on_a_full_disk_names_its_folder_and_leaves_the_old_one(small: Path) -> None:
    path = small / "images/demo.lock"
    path.parent.mkdir()
    write_lock(lock(), path)
    before, filler = path.read_bytes(), leave(small, 0)
    with pytest.raises(EngineError, match="No space left") as caught:
        write_lock(lock(deb(b"x")), path)
    assert caught.value.exit_code == 5 and caught.value.where == str(path) and str(path.parent) in caught.value.hint
    assert path.read_bytes() == before and [*path.parent.iterdir()] == [path]
    filler.unlink()
    write_lock(lock(deb(b"x")), path)


@pytest.mark.parametrize("cache", [True, False])
def test_exports_to_a_full_output(small: Path, tmp_path: Path, cache: bool) -> None:
    """From packs, and directly into the file."""
    source, at, out = layout(tmp_path / "layout"), foreign_images.workspace(tmp_path / "store"), small / "image.sqsh"
    fail_at_any_moment(
        lambda: foreign_images.made(source, at, out, cache=cache).artifact.sha256,
        lambda: out.unlink(missing_ok=True),
        lambda: (check_outputs(small), check_store(tmp_path / "store")),
        small,
    )


def test_makes_on_a_full_store(small: Path) -> None:
    """Layers, packs and the file are in the store."""
    open_working_store(small / "tried")  # an overlay on tmpfs needs its user attributes
    root = small / "store"
    one = unit("one", "mkdir -p /opt/x && cp /usr/bin/* /opt/x")
    units = one, unit("two", "echo 2 > /opt/two", lowers=("base", "one"))
    plans: list[Plan] = []

    def write() -> str:
        at = foreign_images.workspace(root)
        return str(build_and_write(ready_image(Embedded(), plans[-1], lock()), at)[1].sha256)

    def reset() -> None:
        shutil.rmtree(root, ignore_errors=True)
        plans.append(plan(Store.open(root), *units))  # which needs its inputs in the store

    fail_at_any_moment(write, reset, lambda: check_store(root), small)
