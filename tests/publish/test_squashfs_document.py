"""The document of a published squashfs file: what it may claim."""

from __future__ import annotations

import json

import pytest

from envbuild.core.errors import InputError
from envbuild.publish.published_pack import BlobPart, PublishedPack
from envbuild.publish.squashfs_document import SquashfsDocument, decode_document
from envbuild.squashfs.pack.frame_writer import Shared

pytestmark = pytest.mark.unit

PACK, TABLES, OTHER = "a" * 64, "b" * 64, "c" * 64


def written(times: int) -> tuple[bytes, dict[str, int]]:
    """Return a document with one pack of a blob of 1000 bytes many times, and the blobs of its artifact."""
    pack = PublishedPack("d" * 64 + ".zstd", "e" * 64, 1000, (BlobPart(PACK, 0, 1000),))
    extents = [*((number, 0, 1000) for number in range(times)), (-1, 0, 96)]
    size, tables = 1000 * times + 96, BlobPart(TABLES, 0, 96)
    document = SquashfsDocument("x", "amd64", "sha256:" + "0" * 64, "1" * 64, size, tables, (pack,) * times, extents)
    return document.encode(), {PACK: 1000, TABLES: 96}


def test_a_layer_may_be_in_an_image_more_than_once() -> None:
    content, blobs = written(8)
    assert decode_document(content, blobs, "app").size == 8096


@pytest.mark.parametrize("claimed", [{}, {OTHER: 1 << 50}])
def test_the_file_is_bounded_by_the_blobs_that_are_fetched_for_it(claimed: dict[str, int]) -> None:
    """The artifact may list blobs that no pack names, of any size: they cost a server nothing."""
    content, blobs = written(40)
    with pytest.raises(InputError, match="far larger than the blobs"):
        decode_document(content, blobs | claimed, "app")


def test_a_pack_that_the_store_has_bounds_the_file_once() -> None:
    """A store takes packs that it has by their names, and fetches none of their blobs."""
    content, blobs = written(1)
    value = json.loads(content)
    (pack,) = value["packs"]
    pack["size"] = 1000
    value["packs"] = [{**pack, "blobs": [[f"sha256:{number:064x}", 0, 1000]]} for number in range(100)]
    value["extents"] = [part for number in range(100) for part in (number, 0, 1000)] + [-1, 0, 96]
    value["file"]["size"] = 100 * 1000 + 96
    claimed = {f"{number:064x}": 1000 for number in range(100)} | blobs
    with pytest.raises(InputError, match="in two ways"):
        decode_document(json.dumps(value).encode(), claimed, "app")
    value["packs"] = [pack] * 100
    with pytest.raises(InputError, match="far larger than its packs"):
        decode_document(json.dumps(value).encode(), {**blobs, PACK: 1 << 40}, "app")


def test_the_parts_of_packs_have_a_limit() -> None:
    """Each is an open file, and is searched for each extent."""
    content, blobs = written(1)
    value = json.loads(content)
    size = value["packs"][0]["size"]
    digest = value["packs"][0]["blobs"][0][0]
    pack = value["packs"][0]
    value["packs"] = [{**pack, "blobs": [[digest, at, 1] for at in range(64)] + [[digest, 64, size - 64]]}]
    with pytest.raises(InputError, match="more than 64 parts"):
        decode_document(json.dumps(value).encode(), blobs, "app")
    value["packs"] = [{**pack, "blobs": [[f"sha256:{number:064x}", 0, size]]} for number in range(600)]
    with pytest.raises(InputError, match="more than 512 blobs"):
        decode_document(json.dumps(value).encode(), {**blobs, **{f"{n:064x}": size for n in range(600)}}, "app")


@pytest.mark.parametrize("rows", [[(0, 500), (0, 500)], [(500, 500), (0, 500)], [(0, 600), (500, 400)]])
def test_a_pack_has_each_part_of_a_blob_once(rows: list[tuple[int, int]]) -> None:
    content, blobs = written(1)
    value = json.loads(content)
    value["packs"][0]["blobs"] = [[f"sha256:{PACK}", start, length] for start, length in rows]
    with pytest.raises(InputError, match="each part of a blob once"):
        decode_document(json.dumps(value).encode(), blobs, "app")


LAYER = "f" * 64
SHARED = (Shared(100, 5, 300), Shared(400, 400, 500))
REST = (BlobPart(PACK, 0, 60), BlobPart(OTHER, 7, 140))


def shared_document(**changes: object) -> tuple[bytes, dict[str, int]]:
    """Return a document with a pack of 1000 bytes of which 800 are in the blob of its layer."""
    pack = PublishedPack.of_layer("d" * 64 + ".zstd", "e" * 64, 1000, REST, LAYER, SHARED)
    tables = BlobPart(TABLES, 0, 96)
    extents = [(0, 0, 1000), (-1, 0, 96)]
    document = SquashfsDocument("x", "amd64", "sha256:" + "0" * 64, "1" * 64, 1096, tables, (pack,), extents)
    value = json.loads(document.encode())
    value["packs"][0].update(changes)
    return json.dumps(value).encode(), {PACK: 60, OTHER: 147, LAYER: 900, TABLES: 96}


def test_parts_of_a_pack_in_the_blob_of_its_layer() -> None:
    content, blobs = shared_document()
    value = json.loads(content)
    assert value["format"] == 2 and value["packs"][0]["shared"] == [100, 5, 300, 0, 95, 500]
    (pack,) = decode_document(content, blobs, "app").packs
    assert (pack.shared, pack.rest, pack.layer) == (SHARED, REST, LAYER)
    assert pack.blobs == (
        BlobPart(PACK, 0, 60),
        BlobPart(OTHER, 7, 40),
        BlobPart(LAYER, 5, 300),
        BlobPart(LAYER, 400, 500),
        BlobPart(OTHER, 47, 100),
    )
    assert json.loads(written(1)[0])["format"] == 1


@pytest.mark.parametrize(
    "shared",
    [
        [100, 5, 300, 0, 95, 501],  # beyond the blob
        [100, 5, 300, 0, 95, 499],  # the rest is too short
        [200, 0, 850],  # beyond the pack
        [201, 5, 799],  # more of the rest than there is
        [100, -5, 300, 0, 95, 500],
        [-1, 5, 801],
        [100, 5, 0, 0, 95, 800],
        [100, 5],
        [100, 5, True],
        ["100", 5, 300],
        [1 << 70, 5, 300],
        {"0": 1},
        None,
    ],
)
def test_parts_that_do_not_fit_are_refused(shared: object) -> None:
    content, blobs = shared_document(shared=shared)
    with pytest.raises(InputError, match="damaged document"):
        decode_document(content, blobs, "app")


def test_other_formats_have_no_such_packs() -> None:
    content, blobs = shared_document()
    value = json.loads(content)
    value["format"] = 1
    with pytest.raises(InputError, match="its format does not have such packs"):
        decode_document(json.dumps(value).encode(), blobs, "app")
    content, blobs = written(1)
    with pytest.raises(InputError, match="its format does not have such packs"):
        decode_document(content.replace(b'"format":1', b'"format":2'), blobs, "app")


def test_no_byte_of_a_blob_is_in_two_packs() -> None:
    """The file is written while the blob arrives, and a server can send its first byte alone."""
    content, blobs = written(1)
    value = json.loads(content)
    (pack,) = value["packs"]
    digest = pack["blobs"][0][0]
    rows = [[digest, 0, 500]], [[digest, 500, 500]]
    value["packs"] = [
        {**pack, "key": f"{number:064x}.zstd", "size": 500, "blobs": row} for number, row in enumerate(rows)
    ]
    value["extents"] = [0, 0, 500, 1, 0, 500, -1, 0, 96]
    assert decode_document(json.dumps(value).encode(), blobs, "app").size == 1096
    value["packs"][1]["blobs"] = [[digest, 499, 500]]
    with pytest.raises(InputError, match="the same part of a blob"):
        decode_document(json.dumps(value).encode(), blobs, "app")


def test_the_layer_is_a_blob_of_the_artifact() -> None:
    content, blobs = shared_document()
    del blobs[LAYER]
    with pytest.raises(InputError, match="outside of the blobs"):
        decode_document(content, blobs, "app")
    with pytest.raises(InputError, match="damaged document"):
        decode_document(*shared_document(layer="sha256:x"), "app")


def test_shared_parts_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("squashfs_document", "published_pack"):
        monkeypatch.setattr(f"envbuild.publish.{module}.MAX_SHARED", 2)
    content, blobs = shared_document()
    decode_document(content, blobs, "app")
    value = json.loads(content)
    value["packs"] *= 2
    value["extents"] = [0, 0, 1000, 1, 0, 1000, -1, 0, 96]
    value["file"]["size"] = 2096
    decode_document(json.dumps(value).encode(), blobs, "app")
    value["packs"][1] = {**value["packs"][0], "key": "c" * 64 + ".zstd"}
    with pytest.raises(InputError, match="more than 2 parts"):  # before its blobs are compared
        decode_document(json.dumps(value).encode(), blobs, "app")
    with pytest.raises(InputError, match="three for each part"):
        decode_document(*shared_document(shared=[100, 5, 300, 0, 95, 400, 0, 0, 100]), "app")
