"""The check that the packs of an image result in its squashfs file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import VerifyError
from envbuild.core.regular_file import pin_regular
from envbuild.publish.finished_image import FinishedImage, check_samples
from envbuild.squashfs.write.assembly import (
    TABLES,
    ZEROS,
    Extent,
    Source,
    SourcePiece,
    TruncatedSourceError,
    list_extents,
)

pytestmark = pytest.mark.unit

EXTENTS: list[Extent] = [(TABLES, 0, 10), (0, 5, 9000), (ZEROS, 0, 6), (1, 0, 3000), (0, 9500, 100), (TABLES, 10, 4)]


@pytest.fixture
def packs(tmp_path: Path) -> list[Path]:
    """Return two packs, of which no two pages are alike."""
    paths = [tmp_path / "0", tmp_path / "1"]
    for number, path in enumerate(paths):
        path.write_bytes(b"".join(b"%06d" % (at + 5000 * number) for at in range(2000)))
    return paths


def image_of(packs: list[Path], folder: Path, extents: list[Extent] = EXTENTS) -> FinishedImage:
    contents = [path.read_bytes() for path in packs]
    parts = [bytes(length) if source < 0 else contents[source][at : at + length] for source, at, length in extents]
    path = folder / "x.sqsh"
    path.write_bytes(b"".join(parts))
    return FinishedImage("x", "amd64", path, "a" * 64, packs, (), {}, is_new=True)


def sources(packs: list[Path]) -> list[Source]:
    """Return each pack in two pieces, as a pack that is split."""
    found = []
    for path in packs:
        pinned, size = pin_regular(path), path.stat().st_size
        found.append(Source.of([SourcePiece(pinned, 0, 5000), SourcePiece(pinned, 5000, size - 5000)]))
    return found


def test_extents_at_their_places_are_right(packs: list[Path], tmp_path: Path) -> None:
    check_samples(image_of(packs, tmp_path), EXTENTS, sources(packs))


@pytest.mark.parametrize(
    "wrong",
    [
        [*EXTENTS[:1], (0, 6, 9000), *EXTENTS[2:]],  # one byte further in its pack
        [*EXTENTS[:3], (0, 0, 3000), *EXTENTS[4:]],  # another pack
        [*EXTENTS[:4], (0, 9400, 100), *EXTENTS[5:]],  # the last one
        [(TABLES, 0, 11), *EXTENTS[1:]],  # all of them one byte later
    ],
)
def test_an_extent_at_another_place_is_found(wrong: list[Extent], packs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="do not result in its squashfs file") as caught:
        check_samples(image_of(packs, tmp_path), wrong, sources(packs))
    assert caught.value.where == str(tmp_path / "x.sqsh")


def test_a_changed_file_is_found_at_the_ends_of_its_extents(packs: list[Path], tmp_path: Path) -> None:
    image = image_of(packs, tmp_path)
    content = bytearray(image.path.read_bytes())
    content[10] ^= 1
    image.path.write_bytes(content)
    with pytest.raises(VerifyError, match="its bytes at 10 are others"):
        check_samples(replace(image, name="y"), EXTENTS, sources(packs))


def test_a_file_that_is_shorter_than_its_packs_require_is_no_internal_error(packs: list[Path], tmp_path: Path) -> None:
    """Another member of a group's store has written a larger pack of the same name."""
    path = image_of(packs, tmp_path).path
    with path.open("rb") as file, pytest.raises(TruncatedSourceError):
        list_extents(file.fileno(), path.stat().st_size, [(0, 0, 9000, 10_000)], 1)
