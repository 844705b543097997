"""A base made of an image's layers: the tree that other programs make of them, and the same for every user."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from envbuild.build.engines.base import BuildOptions, build_units
from envbuild.build.engines.build_context import write_context
from envbuild.build.engines.buildah.engine import Buildah
from envbuild.build.engines.embedded.engine import Embedded
from envbuild.build.plan.units import Input, Plan, Unit
from envbuild.build.reproducibility import rebuild_and_compare
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EnvbuildError, InputError
from envbuild.core.store.store import LayerRecord, Store
from envbuild.net.unit_caches import UNKNOWN
from envbuild.oci.layers.layer import write_layer_tar
from tests.support import base_layers
from tests.support import tiny_root as kit
from tests.support.local_registry import LAYER, Layout
from tests.support.programs import import_path

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="reading layers with their owners needs root"),
]


@pytest.fixture
def tiny(scratch: Path) -> Path:
    return scratch / "tiny.deb"


def build(store: Store, plan: Plan, **options: Any) -> tuple[LayerRecord, ...]:
    return Embedded(packs=()).build(plan, store, SilentReporter(), BuildOptions(**options)).layers


def tree(root: Path, *, times: bool = True) -> dict[str, tuple[Any, ...]]:
    """Return everything visible of a tree. Names of one file are distinguished from copies."""
    found: dict[str, tuple[Any, ...]] = {}
    first: dict[int, str] = {}
    for folder, folders, names in os.walk(root):
        for name in sorted([*folders, *names]):
            path = Path(folder) / name
            status, place = path.lstat(), str(path.relative_to(root))
            regular = stat.S_ISREG(status.st_mode)
            content = hashlib.sha256(path.read_bytes()).hexdigest() if regular else ""
            target = str(path.readlink()) if path.is_symlink() else ""
            xattrs = (
                {key: os.getxattr(path, key) for key in os.listxattr(path, follow_symlinks=False)} if regular else {}
            )
            owner, mode = (status.st_uid, status.st_gid), oct(status.st_mode)
            found[place] = (mode, owner, target, content, xattrs)
            if times and regular:
                found[place] += (int(status.st_mtime),)
            if regular and status.st_nlink > 1:
                found[place] += (first.setdefault(status.st_ino, place),)
    return found


@pytest.fixture
def by_buildah(tiny: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield the tree that buildah makes of the same image."""
    if shutil.which("buildah") is None:
        pytest.skip("buildah is not installed")
    layout = Layout(tmp_path / "layout")
    layers = [layout.blob(blob, LAYER + kind) for kind, blob in base_layers.blobs(tiny)]
    diffs = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in base_layers.contents(tiny)]
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": diffs}}
    kind = "application/vnd.oci.image.config.v1+json"
    parts = {"config": layout.blob(json.dumps(config).encode(), kind), "layers": layers}
    kind = "application/vnd.oci.image.manifest.v1+json"
    layout.add(layout.blob(json.dumps({"schemaVersion": 2, "mediaType": kind, **parts}).encode(), kind))
    # vfs: its trees are plain folders, and nothing remains mounted
    words = ["buildah", "--root", str(tmp_path / "storage"), "--runroot", str(tmp_path / "run"), "--storage-driver=vfs"]
    policy = tmp_path / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')

    def run(*arguments: str) -> str:
        done = subprocess.run([*words, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    container = run("from", f"--signature-policy={policy}", f"oci:{layout.path}")
    try:
        yield Path(run("mount", container))
    finally:
        run("umount", container)
        run("rm", container)


def test_the_tree_is_the_one_that_other_programs_make(store: Store, tiny: Path, by_buildah: Path) -> None:
    base = build(store, base_layers.plan(store, tiny))[0]
    ours, theirs = tree(store.layer_tree(base.diff_id)), tree(by_buildah)
    assert {path for path in ours if path.startswith(("opt/", "data/"))} >= {
        "opt/real/through", "opt/file/below", "data/sub/new", "data/third",
    }  # fmt: skip
    assert ours == theirs
    assert ours["opt/capable"][4] == {"security.capability": base_layers.CAPABILITY}


def test_the_same_twice_and_steps_on_it(store: Store, tiny: Path) -> None:
    plan = base_layers.plan(store, tiny, *base_layers.STEPS)
    base, above = build(store, plan)
    assert build(store, plan, rebuild=True) == (base, above)
    root = store.layer_tree(base.diff_id)
    assert (root / "etc/made").read_text() == "new\nthrough\n"
    assert (root / "etc/listed").read_text().split() == [".", "..", "hard", "one", "sub", "third"]
    assert not (root / "opt/plain").exists() and (root / "etc/issue").stat().st_uid == 1000
    assert not (root / "run/envbuild").exists()
    assert (store.layer_tree(above.diff_id) / "opt/above").read_text() == "new\n"
    plain = build(store, base_layers.plan(store, tiny))[0]
    assert plain.diff_id != base.diff_id
    assert not any(stat.S_ISCHR(path.lstat().st_mode) for path in store.layer_tree(plain.diff_id).rglob("*"))


def test_the_same_without_privileges(store: Store, tiny: Path, scratch: Path, other_user: tuple[str, str]) -> None:
    name, python = other_user
    base, above = build(store, base_layers.plan(store, tiny, *base_layers.STEPS))
    other = scratch / "base-of-another"
    other.mkdir()
    shutil.chown(other, name, name)
    libraries = str(Path(zstandard.__file__).parents[1])  # its Python may have none of what envbuild needs
    command = ["runuser", "-u", name, "--", "env", f"HOME=/home/{name}", f"TMPDIR=/home/{name}"]
    command.append(f"PYTHONPATH={import_path(libraries)}")
    command += [python, base_layers.__file__, str(other), str(tiny)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=f"/home/{name}")
    if "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"{python} of another user cannot load what this needs: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [base.diff_id, above.diff_id]


def test_a_damaged_layer_is_reported(store: Store) -> None:
    blob = kit.add(store, "000", b"no tar at all" * 100)
    base = Unit("base", "x", (), inputs=(Input("layers", "files", (blob,)),), layers=("000",), epoch=kit.EPOCH)
    plan = Plan("test", (base,), kit.ImageConfig(), kit.EPOCH)
    with pytest.raises(InputError, match=r"layer 1 \(000\) cannot be unpacked"):
        build(store, plan)
    with pytest.raises(EnvbuildError, match=r"cannot be unpacked"):
        write_context(plan, store, store.root / "context")


def test_the_layer_of_a_base_that_was_built_with_units_of_a_cache_has_its_name(store: Store, tiny: Path) -> None:
    """The layers of an image of the project become one; a lock of an image above names that one alone."""
    below = build(store, base_layers.plan(store, tiny, *base_layers.STEPS))[-1]
    store.record_built_with(below, ("ghcr.io/team/open",))
    content = io.BytesIO()
    write_layer_tar(store, below, content)
    blob = kit.add(store, "000", content.getvalue())
    assert blob.sha256 == below.hex
    base = Unit("base", "x", (), inputs=(Input("layers", "files", (blob,)),), layers=("000",), epoch=kit.EPOCH)
    plan = Plan("above", (base,), kit.ImageConfig(), kit.EPOCH)
    (merged,) = build(store, plan)
    found = store.find_layer(merged.diff_id)
    assert found and found.built_with == ("ghcr.io/team/open",)
    record = store.unit(plan.keys()["base"])
    assert record and record.caches == ("ghcr.io/team/open",)


def test_a_base_of_which_nothing_is_known_is_built_once(store: Store, tiny: Path) -> None:
    below = build(store, base_layers.plan(store, tiny, *base_layers.STEPS))[-1]
    store.record_built_with(below, (UNKNOWN,))
    content = io.BytesIO()
    write_layer_tar(store, below, content)
    blob = kit.add(store, "000", content.getvalue())
    base = Unit("base", "x", (), inputs=(Input("layers", "files", (blob,)),), layers=("000",), epoch=kit.EPOCH)
    plan = Plan("above", (base,), kit.ImageConfig(), kit.EPOCH)
    built = [Embedded(packs=()).build(plan, store, SilentReporter(), BuildOptions()) for _ in range(2)]
    assert [result.built for result in built] == [("base",), ()]
    found = store.find_layer(built[1].layers[0].diff_id)
    assert found and found.built_with == (UNKNOWN,)


def test_a_second_build_preserves_what_is_not_known_of_a_base(store: Store, tiny: Path) -> None:
    """`make --check`: the layers below are the same, and the store has no record of them. Units are used again."""
    plan = base_layers.plan(store, tiny, *base_layers.STEPS)
    options = BuildOptions(base_caches=(UNKNOWN,))
    first = build_units(Embedded(packs=()), plan, store, SilentReporter(), options)
    names = [layer.diff_id for layer in first.layers]
    rebuild_and_compare(plan, names, Embedded(packs=()), store, SilentReporter(), options)
    found = [store.find_layer(name) for name in names]
    assert [layer.built_with for layer in found if layer] == [(UNKNOWN,)] * len(names)
    assert not build_units(Embedded(packs=()), plan, store, SilentReporter(), options).built


def test_the_context_holds_the_tree_and_not_the_layers(store: Store, tiny: Path) -> None:
    plan = base_layers.plan(store, tiny, *base_layers.STEPS)
    folder = store.root / "context"
    text = write_context(plan, store, folder).read_text()
    assert "ADD base/seed.tar /" in text
    assert list((folder / "base/layers").iterdir()) == []
    assert (folder / "base/seed.tar").stat().st_size > 10_000


def test_the_buildah_engine_builds_the_same_files(store: Store, tiny: Path) -> None:
    probe = Buildah().probe(store)
    if not probe.ok:
        pytest.skip(f"buildah does not work here: {probe.step}: {probe.reason}")
    plan = base_layers.plan(store, tiny, *base_layers.STEPS)
    embedded = build(store, plan)
    other = Buildah().build(plan, store, SilentReporter(), BuildOptions()).layers
    for ours, theirs in zip(embedded, other, strict=True):
        one, two = (tree(store.layer_tree(layer.diff_id), times=False) for layer in (ours, theirs))
        for name in ("dev", "proc", "sys", "run", "tmp"):  # made where the image lacks them
            one.pop(name, None)
            two.pop(name, None)
        assert one == two
