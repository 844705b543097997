"""Codecs: the bytes of a tiny image do not change from one version of envbuild to the next."""

import hashlib

import pytest

from envbuild.core.errors import EnvbuildError, SpecError
from envbuild.squashfs.codec import DEFAULTS, LEVELS, Codec
from envbuild.squashfs.read.superblock import describe_superblock
from tests.support.packs import file, folder, gone, hard, pack, symlink
from tests.support.squashfs_image import write_image

pytestmark = pytest.mark.unit

TEXT = b"".join(b"line %d\n" % number for number in range(40_000))
LAYERS = [
    [
        folder(b"bin"),
        file(b"bin/sh", TEXT[:5000], 0o755),
        file(b"text", TEXT),
        hard(b"text2", b"text"),
        file(b"old", b"1"),
    ],
    [
        gone(b"old"),
        symlink(b"lib", b"usr/lib"),
        file(b"zeros", bytes(300_000)),
        file(b"copy", TEXT, mtime=1_700_000_000),
    ],
]
# codec, level → the library and its version that made it, SHA-256 of the image. Another library may give other bytes.
GOLDEN = {
    ("zstd", 3): ("zstd-1.5.7", "766e3494373e826cdb2ead73f69f7d00f867db4428e742e6554b05668f20a48a"),
    ("zstd", 15): ("zstd-1.5.7", "d1327a425f7e8c5bac06f8afd5480ac8871096507b972c8855e6a51b6a80edd9"),
    ("lz4", 0): ("lz4-1.9.4", "9007189773eb4a4f335ba840b26b97786abfe40cb8a94754897680a207518e5f"),
    ("lz4", 9): ("lz4-1.9.4", "c26702917e54819a47c7abc7ef95ac4213b1db051e50adf37de3ed80f80d5eae"),
    ("gzip", 6): ("zlib-1.2.13", "2948cd6ac98a0278957518f69e944d9252337a44a7d9b5f139bc406f07a287b2"),
    ("none", 0): ("none", "2e9f26945e4be21ccb3ea499c66150454ddf6e0618c2bb4d0ffe7e2e1ef68716"),
}


@pytest.mark.parametrize("codec,level", GOLDEN)
def test_golden_image(tmp_path, codec, level):
    library, digest = GOLDEN[codec, level]
    if Codec(codec, level).library != library:
        pytest.skip(f"the stored digest is that of {library}, here is {Codec(codec, level).library}")
    packs = [pack(tmp_path / f"{number}", layer, codec=codec, level=level) for number, layer in enumerate(LAYERS)]
    image = write_image(packs, tmp_path / "image", epoch=1_700_000_000).path
    assert hashlib.sha256(image.read_bytes()).hexdigest() == digest, (
        "raise PACK_VERSION in core/store/build_records.py, or WRITER"
    )


@pytest.mark.slow_unit
@pytest.mark.parametrize("codec", LEVELS)
def test_blocks_round_trip(codec):
    for level in {LEVELS[codec][0], LEVELS[codec][-1], DEFAULTS[codec]}:
        used = Codec(codec, level)
        for content in (TEXT[:131072], bytes(4096), b"x"):
            packed = used.compress(content)
            if codec == "none":
                assert packed == content
            else:
                assert used.decompress(packed, 131072) == content
        assert used.library.startswith({"gzip": "zlib-"}.get(codec, codec))


@pytest.mark.parametrize("codec,level", [("lz4", 13), ("lz4", -1), ("gzip", 0), ("gzip", 10), ("none", 1), ("xz", 6)])
def test_unknown_levels_are_refused(codec, level):
    with pytest.raises(SpecError) as caught:
        Codec(codec, level)
    assert caught.value.hint.startswith("use ")


def test_codec_none_does_not_decompress():
    with pytest.raises(EnvbuildError, match="none"):
        Codec("none", 0).decompress(b"1", 10)


def test_tables_of_slow_codecs_are_written_fast():
    assert Codec("zstd", 22).tables.level < 10 and Codec("lz4", 12).tables == Codec("lz4", 12)


def test_lz4_options_are_stored(tmp_path):
    """The kernel refuses lz4 without its options, and wants to know of the high-compression levels."""
    for level, flags in ((0, 0), (9, 1)):
        image = write_image(
            [pack(tmp_path / "1", LAYERS[0], codec="lz4", level=level)], tmp_path / "image", epoch=0
        ).path
        assert image.read_bytes()[96:106] == b"\x08\x80\x01\0\0\0" + bytes([flags, 0, 0, 0])
        assert describe_superblock(image)["codec"] == "lz4"
