"""The build context of a Containerfile: everything that it mounts, and nothing of the user's is replaced."""

from __future__ import annotations

import os
import stat
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.engines import prepare_inputs
from envbuild.build.engines.build_context import input_paths, is_build_context, write_context, write_seed
from envbuild.build.plan.containerfile import containerfile
from envbuild.build.plan.units import Blob, Input, Plan, Product, Unit
from envbuild.build.steps import Step
from envbuild.core.errors import InputError, PublishError
from envbuild.core.store.store import Store
from envbuild.oci.config import ImageConfig
from tests.support.local_registry import folder, symlink, tar

pytestmark = pytest.mark.unit


def add(store: Store, name: str, content: bytes) -> Blob:
    (store.root / "tmp/new").write_bytes(content)
    return Blob(name, store.add_blob(store.root / "tmp/new"), len(content))


def plan(*units: Unit) -> Plan:
    return Plan("app", units, ImageConfig(), 0)


def test_inputs_are_files_of_the_context(store: Store, tmp_path: Path) -> None:
    wheel = add(store, "a.whl", b"wheel")
    inputs = (
        Input("python", "files", (wheel,)),
        Input("texts", "text", texts=(("pins.txt", "a==1\n"),)),
        Input("kernels", "files", units=("apex",)),
    )
    units = (
        Unit("base", "the base", (Step("true"),)),
        Unit("apex", "a wheel", (Step("make"),), ("base",), product=Product.WHEEL, in_image=False),
        Unit("venv", "the venv", (Step("uv pip install"),), ("base",), inputs),
    )
    path = write_context(plan(*units), store, tmp_path / "context")
    folder = tmp_path / "context"
    assert path == folder / "Containerfile" and is_build_context(folder)
    found = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert found == {"Containerfile", ".envbuild-context", "venv/python/a.whl", "venv/texts/pins.txt"}
    assert (folder / "venv/python/a.whl").stat().st_ino == store.blob(wheel.sha256).stat().st_ino


def test_an_older_context_is_replaced_and_another_folder_is_not(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "context"
    one = plan(Unit("base", "the base", (Step("true"),)))
    write_context(one, store, folder)
    (folder / "base").mkdir()
    (folder / "base/old").touch()
    write_context(one, store, folder)
    assert {path.name for path in folder.iterdir()} == {"Containerfile", ".envbuild-context"}
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(PublishError, match=r"something else than a build context: thesis\.txt"):
        write_context(one, store, folder)
    assert (folder / "thesis.txt").read_text() == "years of work" and not is_build_context(tmp_path / "none")
    with pytest.raises(PublishError):
        write_context(one, store, folder / "Containerfile" / "deep")


def test_the_mask_of_the_user_does_not_change_modes(store: Store, tmp_path: Path) -> None:
    unit = Unit("venv", "the venv", (Step("true"),), (), (Input("texts", "text", texts=(("a", "b"),)),))
    before = os.umask(0o077)
    try:
        write_context(plan(unit), store, tmp_path / "context")
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert (tmp_path / "context/venv/texts/a").stat().st_mode & 0o777 == 0o644


def test_the_seed_is_of_the_named_files_of_its_own_input(store: Store, tmp_path: Path) -> None:
    dash, other, layer = (add(store, name, name.encode()) for name in ("dash.deb", "other.deb", "layer"))
    same = replace(layer, name="dash.deb")  # the name of another input's file
    unit = Unit(
        "base",
        "the base",
        (Step("true"),),
        inputs=(Input("debs", "debian", (dash, other)), Input("layers", "files", (layer, same))),
        seed=("dash.deb",),
    )
    found = input_paths(unit, "debs", ("dash.deb", "none.deb"), store, tmp_path)
    assert found == [("dash.deb", str(store.blob(dash.sha256)))]
    assert input_paths(unit, "layers", ("layer",), store, tmp_path) == [("layer", str(store.blob(layer.sha256)))]
    store.root.chmod(0o3775)
    store = Store.open(store.root)
    assert input_paths(unit, "layers", ("layer",), store, tmp_path) == [("layer", str(tmp_path / layer.sha256))]
    store.blob(layer.sha256).write_bytes(b"of another member")
    with pytest.raises(InputError):
        input_paths(unit, "layers", ("layer",), store, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="others need a user namespace")
def test_layers_of_a_base_image_are_in_the_seed_alone(store: Store, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "layer.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("marker"))
    layer = add(store, "layer", (tmp_path / "layer.tar").read_bytes())
    unit = Unit(
        "base", "the base", (Step("true"),), inputs=(Input("layers", "files", (layer,)),), layers=("layer",), epoch=7
    )
    write_context(plan(unit), store, tmp_path / "context")
    with tarfile.open(tmp_path / "context/base/seed.tar") as tar:
        members = {member.name.rstrip("/"): member for member in tar}
    assert sorted(members) == ["dev", "marker", "proc", "run", "sys", "tmp"]
    assert {member.mtime for member in members.values()} <= {0, 7}
    assert members["tmp"].mode == 0o1777
    assert sorted(path.name for path in (tmp_path / "context/base").iterdir()) == ["layers", "seed.tar"]
    assert list((tmp_path / "context/base/layers").iterdir()) == []


def test_setuid_programs_of_a_base_are_closed_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed is written in a folder of the user's choice."""
    modes = []

    def look(_: object, tree: Path) -> None:
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir())

    monkeypatch.setattr("envbuild.build.engines.deb.unpack_packages", look)
    write_seed(debs=[], layers=[], work=str(tmp_path), epoch=0)
    assert modes == [0o700, 0o700]


def test_links_in_the_place_of_an_unfinished_context_are_not_written_through(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write the folder above (or owned the folder itself) renames entries of it at any moment."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    (shared / "context").mkdir()
    (shared / "context").chmod(0o777)
    own.write_text("export PATH")
    prepare = prepare_inputs.prepare_inputs

    def swap_first(*arguments: Any) -> list[str]:
        for unfinished in [*shared.glob("context/*"), *shared.glob(".context.*")]:
            unfinished.rename(tmp_path / f"moved-{unfinished.name}")
            trap = unfinished / "debian" if unfinished.parent == shared else unfinished
            trap.mkdir(parents=True)
            for place in (unfinished, trap):
                for name in ("apt.conf", "sources.list", "Containerfile", "texts"):
                    (place / name).symlink_to(own)
        return prepare(*arguments)

    monkeypatch.setattr(prepare_inputs, "prepare_inputs", swap_first)
    unit = Unit("debian", "packages", (Step("true"),), (), (Input("debs", "debian", texts=(("a", "b"),)),))
    with pytest.raises(PublishError, match="another user replaced"):
        write_context(plan(unit), store, shared / "context")
    assert own.read_text() == "export PATH"


def test_a_folder_of_the_user_is_filled_where_it_is(store: Store, tmp_path: Path) -> None:
    """It may be a volume of a container, or in a folder that the user cannot write."""
    folder = tmp_path / "context"
    folder.mkdir(mode=0o755)
    before = folder.stat().st_ino
    write_context(plan(Unit("base", "the base", (Step("true"),))), store, folder)
    assert folder.stat().st_ino == before and (folder / "Containerfile").is_file()


def test_a_context_that_was_interrupted_is_written_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, unit = tmp_path / "context", Unit("base", "the base", (Step("true"),))
    folder.mkdir(mode=0o755)
    with monkeypatch.context() as patch:
        patch.setattr("envbuild.build.engines.build_context._write_unit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_context(plan(unit), store, folder)
    assert not (folder / "Containerfile").exists() and is_build_context(folder)
    write_context(plan(unit), store, folder)
    assert (folder / "Containerfile").is_file()


def test_a_project_with_a_printed_containerfile_is_not_removed(store: Store, tmp_path: Path) -> None:
    """``envbuild compile NAME > Containerfile``, and then ``--context .``."""
    one = plan(Unit("base", "the base", (Step("true"),)))
    for name, text in (("Containerfile", containerfile(one)), ("thesis.txt", "years of work")):
        (tmp_path / name).write_text(text)
    with pytest.raises(PublishError, match="something else"):
        write_context(one, store, tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_link_and_pipes_in_the_place_of_a_context_are_refused(store: Store, tmp_path: Path) -> None:
    """Another user may own the folder above: the link would lead to any folder of the caller."""
    own, link, one = tmp_path / "own", tmp_path / "link", plan(Unit("base", "the base", (Step("true"),)))
    own.mkdir()
    link.symlink_to(own)
    with pytest.raises(PublishError):
        write_context(one, store, link)
    os.mkfifo(own / ".envbuild-context")
    (own / "key").touch()
    with pytest.raises(PublishError, match="something else"):
        write_context(one, store, own)
    assert (own / "key").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="files get the owners of the layers, which needs root")
def test_a_base_may_have_a_link_to_a_missing_folder(tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    layer.write_bytes(tar(symlink("tmp", "/nonexistent"), folder("run")))
    write_seed(debs=[], layers=[("layer", str(layer))], work=str(tmp_path), epoch=0)
    with tarfile.open(tmp_path / "seed.tar") as seed:
        kinds = {member.name: member.type for member in seed}
    assert kinds["tmp"] == tarfile.SYMTYPE and {kinds[name] for name in ("proc", "sys", "dev", "run")} == {
        tarfile.DIRTYPE
    }
