"""The document of a published squashfs file: what it may claim."""

from __future__ import annotations

import pytest

from envbuild.core.errors import InputError
from envbuild.publish.squashfs_document import BlobPart, PublishedPack, SquashfsDocument, decode_document

pytestmark = pytest.mark.unit

PACK, TABLES, OTHER = "a" * 64, "b" * 64, "c" * 64


def written(times: int) -> tuple[bytes, dict[str, int]]:
    """Return a document whose pack names one blob of 1000 bytes many times, and the blobs of its artifact."""
    pack = PublishedPack("d" * 64 + ".zstd", "e" * 64, 1000 * times, (BlobPart(PACK, 0, 1000),) * times)
    extents = [(0, 0, 1000 * times), (-1, 0, 96)]
    size = 1000 * times + 96
    tables = BlobPart(TABLES, 0, 96)
    document = SquashfsDocument("x", "amd64", "sha256:" + "0" * 64, "1" * 64, size, tables, (pack,), extents)
    return document.encode(), {PACK: 1000, TABLES: 96}


def test_a_layer_may_be_in_an_image_more_than_once() -> None:
    content, blobs = written(8)
    assert decode_document(content, blobs, "app").size == 8096


@pytest.mark.parametrize("claimed", [{}, {OTHER: 1 << 50}])
def test_the_file_is_bounded_by_the_blobs_that_are_fetched_for_it(claimed: dict[str, int]) -> None:
    """The artifact may list blobs that no pack names, of any size: they cost a server nothing."""
    content, blobs = written(4000)
    with pytest.raises(InputError, match="far larger than the blobs"):
        decode_document(content, blobs | claimed, "app")
