"""Bit rot of packs: found when an image is written and read, and healed by making the pack again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from envbuild.build.engines.base import BuildResult
from envbuild.core.console import SilentReporter
from envbuild.core.errors import DamagedLayerError, DamagedPackError
from envbuild.core.store.store import LayerRecord
from envbuild.export.drop_damaged import write_again_if_damaged
from envbuild.export.foreign_image import ConvertedImage
from envbuild.export.project_image import SquashfsFile, write_artifact
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.pack.checksums import check_pack
from envbuild.squashfs.pack.file import read_pack
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.store_packs import pack_path
from tests.export.test_outputs import fill_root
from tests.support import foreign_images as kit
from tests.support.bit_flips import flip_bit
from tests.support.foreign_images import made, noise, workspace
from tests.support.local_registry import Layout
from tests.support.small_plan import small_plan
from tests.support.stored_inputs import lock
from tests.support.stored_layers import layer

pytestmark = pytest.mark.unit
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="layers made outside of a user namespace are read by root")


@pytest.fixture
def at(tmp_path: Path) -> Workspace:
    return workspace(tmp_path / "store")


@pytest.fixture
def source(tmp_path: Path) -> str:
    layout = Layout(tmp_path / "layout")
    layout.add(kit.image(layout, kit.layers()))
    return f"oci:{layout.path}"


def place(path: Path, part: str) -> int:
    """Return the position of a byte in a part of a pack."""
    pack = read_pack(path)
    columns = pack.index.columns
    if part == "fragment":
        return columns["fragment_starts"][0] + 2
    row = max(range(len(columns["stored"])), key=lambda number: columns["stored"][number])
    return {"data": columns["starts"][row] + columns["stored"][row] // 2, "index": pack.end + 5, "head": 1}[part]


def layer_packs(at: Workspace, done: ConvertedImage) -> list[Path]:
    return [pack_path(at.store, layer.diff_id, PackFormat()) for layer in done.layers]


@pytest.mark.slow_unit
@pytest.mark.parametrize("number,part", [(1, "data"), (0, "fragment"), (2, "fragment"), (1, "index"), (0, "head")])
def test_a_flipped_bit_of_a_pack_is_not_in_the_image(
    number: int, part: str, source: str, at: Workspace, tmp_path: Path
) -> None:
    first = made(source, at, tmp_path / "one.sqsh")
    path = layer_packs(at, first)[number]
    flip_bit(path, place(path, part), 4)
    with pytest.raises(DamagedPackError):
        check_pack(path)
    again = made(source, at, tmp_path / "two.sqsh")
    assert again.artifact.sha256 == first.artifact.sha256
    assert (tmp_path / "two.sqsh").read_bytes() == (tmp_path / "one.sqsh").read_bytes()
    assert [layer.cached for layer in again.layers] == [index != number for index in range(3)]
    assert isinstance(at.reporter, SilentReporter) and sum(str(path) in line for line in at.reporter.lines) == 1
    for pack in layer_packs(at, again):
        check_pack(pack)


def test_an_image_that_cannot_be_written_right_leaves_the_earlier_file(
    source: str, at: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "one.sqsh"
    path = layer_packs(at, made(source, at, out))[1]
    flip_bit(path, place(path, "data"))
    before = out.read_bytes()
    monkeypatch.setattr("envbuild.export.drop_damaged.drop_damaged_packs", lambda packs, reporter: [])
    with pytest.raises(DamagedPackError) as caught:
        made(source, at, out)
    assert caught.value.exit_code == 5 and caught.value.hint.endswith("envbuild store check")
    assert out.read_bytes() == before and not list(tmp_path.glob(".one.sqsh*"))


def fill(tree: Path) -> None:
    fill_root(tree)
    (tree / "noise").write_bytes(noise(300_000))
    (tree / "small").write_text("small\n")


def write(at: Workspace, layers: Sequence[LayerRecord]) -> SquashfsFile:
    built = BuildResult("embedded", tuple(layers), (), ())
    return write_artifact(small_plan(), built, lock(), at.store, at.reporter)


@as_root
@pytest.mark.parametrize("part", ["data", "fragment", "index"])
def test_a_damaged_pack_of_a_project_is_made_again_from_its_layer(part: str, at: Workspace) -> None:
    base = layer(at.store, "base", fill)
    first = write(at, [base])
    path = pack_path(at.store, base.diff_id, PackFormat())
    flip_bit(path, place(path, part), 6)
    assert write(at, [base]).sha256 == first.sha256
    check_pack(path)


@as_root
def test_damaged_layers_without_packs_are_moved_aside_and_reported_together(at: Workspace) -> None:
    one, two = layer(at.store, "one", fill), layer(at.store, "two", lambda tree: (tree / "b").write_text("b"))
    for record, name in ((one, "noise"), (two, "b")):
        flip_bit(at.store.layer_tree(record.diff_id) / name, 0)
    with pytest.raises(DamagedLayerError) as caught:
        write(at, [one, two])
    assert [finding.message.split()[2] for finding in caught.value.findings] == [one.diff_id, two.diff_id]
    assert not at.store.layer_path(one.diff_id).exists() and not at.store.layer_path(two.diff_id).exists()
    assert len(list((at.store.tmp).glob("removed-*"))) == 2
    assert layer(at.store, "one", fill) == one and layer(at.store, "two", lambda tree: (tree / "b").write_text("b"))
    assert write(at, [one, two]).sha256


def test_damage_that_no_pack_has_is_written_again_once() -> None:
    reporter, calls = SilentReporter(), []

    def write() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise DamagedPackError("pieces differ")
        return 7

    assert write_again_if_damaged(write, [], reporter) == 7
    assert len(calls) == 2 and len(reporter.lines) == 1
