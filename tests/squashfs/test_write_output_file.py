"""An image that is written into a folder of several users: another user puts a link in the place of its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import PublishError
from envbuild.squashfs.pack.file import Pack
from envbuild.squashfs.read import superblock
from envbuild.squashfs.write.direct_image import DirectImage
from envbuild.squashfs.write.merge import merge_packs
from envbuild.squashfs.write.writer import write_extra_members, write_tree
from tests.support.packs import file, folder, pack

pytestmark = pytest.mark.unit

LAYER = [folder(b"bin"), file(b"bin/sh", b"#" * 9000, 0o755)]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return a file of the user that no other may read."""
    path = tmp_path / "secret"
    path.write_text("token\n" * 4000)
    path.chmod(0o600)
    return path


def replace_unfinished(out: Path, secret: Path) -> None:
    """Do what another user does who can write the folder."""
    (unfinished,) = out.parent.glob(f".{out.name}.*")
    unfinished.rename(out.parent / "taken")
    unfinished.symlink_to(secret)


def write_from_packs(out: Path, made: Pack) -> None:
    write_tree([made], merge_packs([made]), out, epoch=1)


def write_directly(out: Path, made: Pack) -> None:
    with DirectImage(out) as image:
        with image.layer() as layer:
            write_extra_members(layer, LAYER)
        image.finish(merge_packs(image.packs), epoch=1)


@pytest.mark.parametrize("write", [write_from_packs, write_directly])
def test_a_link_in_the_place_of_an_unfinished_image_changes_no_other_file(
    write, tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, out, read_layout = pack(tmp_path / "pack", LAYER), tmp_path / "shared/image", superblock.read_layout
    out.parent.mkdir()

    def read_and_replace(*given: object, **options: object) -> object:
        replace_unfinished(out, secret)
        return read_layout(*given, **options)

    monkeypatch.setattr(superblock, "read_layout", read_and_replace)
    with pytest.raises(PublishError, match="another user replaced the file"):
        write(out, made)
    assert secret.stat().st_mode & 0o777 == 0o600
    assert (out.parent / "taken").stat().st_mode & 0o777 == 0o644


def test_what_an_image_reads_again_is_its_own_file(tmp_path: Path, secret: Path) -> None:
    (tmp_path / "shared").mkdir()
    write_directly(tmp_path / "expected", None)
    out = tmp_path / "shared/image"
    with pytest.raises(PublishError), DirectImage(out) as image:
        for part in (LAYER, [file(b"bin/sh", b"new")]):  # the first layer's data is not live
            with image.layer() as layer:
                write_extra_members(layer, part)
        replace_unfinished(out, secret)
        image.finish(merge_packs(image.packs), epoch=1)
    assert b"token" not in (out.parent / "taken").read_bytes()
    assert secret.read_text() == "token\n" * 4000
