"""Maps of sparse files in tars, by hand: sound, damaged, and those that would cost memory."""

from __future__ import annotations

import pytest

from envbuild.oci.tar.reader import LayerError
from tests.support.tars import END, file, header, octal, old_sparse, padded, pax, read

pytestmark = pytest.mark.unit


VERSION_1 = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0")]


def version_1(text: bytes, real: bytes = b"8192", stored: int = 0) -> bytes:
    return (
        pax(*VERSION_1, (b"GNU.sparse.realsize", real))
        + header(b"s", size=octal(len(padded(text)) + stored))
        + padded(text)
        + b"x" * stored
        + END
    )


def version_0(real: bytes, *records: tuple[bytes, bytes], stored: int = 0, blocks: bytes = b"2") -> bytes:
    return (
        pax((b"GNU.sparse.size", real), (b"GNU.sparse.numblocks", blocks), *records) + file(b"s", b"x" * stored) + END
    )


def pair(offset: int, length: int) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    """Return the records of one part in version 0.0."""
    return (b"GNU.sparse.offset", b"%d" % offset), (b"GNU.sparse.numbytes", b"%d" % length)


MAP = (b"GNU.sparse.map", b"0,3,10,0")  # of 10 bytes


@pytest.mark.parametrize(
    "archive",
    [
        version_1(b"2\n0\n512\n8192\n0\n", stored=100),
        version_1(b"1\n8000\n512\n", stored=512),
        version_1(b"3\n1024\n512\n0\n512\n8192\n0\n", stored=1024),
        version_1(b"3\n0\n512\n100\n512\n8192\n0\n", stored=1024),
        # GNU tar ends the file after the last part, Go at the size
        version_1(b"1\n0\n512\n", stored=512),
        version_1(b"0\n"),
        version_0(b"10", (b"GNU.sparse.map", b"0,3"), stored=3, blocks=b"1"),
        old_sparse(real=octal(8193)) + END,
        version_1(b"-1\n"),
        version_1(b"x" * 600),
        version_1(b"9" * 18 + b"\n" + b"0\n0\n" * 200),
        version_1(b"1\n" + b"0" * 30 + b"\n5\n"),
        version_1(b"0\n", real=b"9" * 20),
        version_1(b"0\n", real=b"x"),
        version_0(b"10", (b"GNU.sparse.offset", b"0"), stored=1),
        version_0(b"10", (b"GNU.sparse.numbytes", b"0")),
        version_0(b"10", (b"GNU.sparse.map", b"1,2,3"), stored=2),
        version_0(b"10", (b"GNU.sparse.map", b"1,,3"), stored=2),
        version_0(b"10", (b"GNU.sparse.map", b"1,18446744073709551615"), stored=2),
        version_0(b"10", (b"GNU.sparse.major", b"2"), stored=2),
        # GNU tar reads sparse files, and Go plain ones of another name
        version_0(b"10", (b"GNU.sparse.major", b"0"), (b"GNU.sparse.name", b"x"), MAP, stored=3),
        version_0(b"10", (b"GNU.sparse.minor", b"1"), (b"GNU.sparse.name", b"x"), MAP, stored=3),
        version_0(b"10", (b"GNU.sparse.name", b"x")),
        version_0(b"10", (b"GNU.sparse.name", b"x"), (b"GNU.sparse.map", b""), blocks=b"0"),
        version_0(b"10", (b"GNU.sparse.major", b"0"), (b"GNU.sparse.minor", b"1"), blocks=b"0"),
        # Go takes the name of the header, GNU tar the empty one
        version_0(b"10", (b"GNU.sparse.name", b""), MAP, stored=3),
        # Go takes the first size, GNU tar the second
        version_0(b"10", (b"GNU.sparse.realsize", b"5"), MAP, stored=3),
        # Go refuses another number of blocks, and takes one map of two
        version_0(b"10", MAP, stored=3, blocks=b"1"),
        version_0(b"10", MAP, stored=3, blocks=b""),
        version_0(b"3", (b"GNU.sparse.map", b"0,3"), *pair(0, 3), stored=3, blocks=b"1"),
        pax(*VERSION_1, (b"GNU.sparse.realsize", b"3"), MAP) + file(b"s", padded(b"0\n")) + END,
        # GNU tar takes the second part from the next block
        version_0(b"8192", *pair(0, 2), *pair(8190, 2), stored=4),
        # Go refuses a folder with a map
        pax(*VERSION_1, (b"GNU.sparse.realsize", b"3")) + header(b"s", b"5") + END,
        pax((b"GNU.sparse.name", b"x")) + file(b"s") + END,
        pax((b"GNU.sparse.size", b"5")) + old_sparse() + END,
        old_sparse(size=octal(512)) + END,
        old_sparse(real=b"00000000100\0") + END,
        old_sparse(more=b"\1"),
        header(b"s", b"S"),
    ],
)
def test_sparse_files_that_are_damaged(archive: bytes) -> None:
    with pytest.raises(LayerError):
        read(archive)


def test_sparse_files_that_are_sound() -> None:
    listed = (b"GNU.sparse.map", b"0,3,8192,0")
    versions = [(b"GNU.sparse.major", b"0"), (b"GNU.sparse.minor", b"1")]
    for archive, wanted in (
        (version_0(b"8192", *versions, listed, stored=3), b"xxx"),
        (
            version_1(b"3\n1024\n512\n4096\n512\n8192\n0\n", stored=1024),
            bytes(1024) + b"x" * 512 + bytes(2560) + b"x" * 512,
        ),
        (version_1(b"1\n8192\n0\n"), b""),
        (version_0(b"8192", listed, stored=3), b"xxx"),
        (version_0(b"8192", *pair(0, 512), *pair(8190, 2), stored=514), b"x" * 512 + bytes(7678) + b"xx"),
        (old_sparse() + END, bytes(1024) + b"y" * 512 + bytes(2560) + b"y" * 512),
    ):
        assert read(archive).content(0) == wanted.ljust(8192, b"\0")


@pytest.mark.parametrize("magic", [b"ustar  \0", bytes(8), b"ustar\x0000"])
def test_a_map_in_an_extended_header_is_that_of_a_posix_header(magic: bytes) -> None:
    """GNU tar reads one of its own headers as a plain file of the stated size, which covers the next headers."""
    records = [(b"GNU.sparse.size", b"10"), (b"GNU.sparse.numblocks", b"2"), MAP]
    archive = pax(*records) + file(b"s", b"xxx", magic=magic) + END
    if magic == b"ustar\x0000":
        assert read(archive).content(0) == b"xxx" + bytes(7)
    else:
        with pytest.raises(LayerError, match="has no POSIX header"):
            read(archive)


def test_maps_that_never_end() -> None:
    """The size of a map in memory is bounded by what GNU tar's users have, not by the archive."""
    block = b"".join(b"%011o\0" % 0 for _ in range(42)) + b"\1" + bytes(7)
    with pytest.raises(LayerError, match="longer than 1048576"):
        read(old_sparse(more=b"\1")[:512] + block * 3000)
    with pytest.raises(LayerError, match="longer than 1048576"):
        read(version_1(b"9999999\n" + b"0\n" * 600_000))


def test_holes_are_bounded() -> None:
    """Each of these few bytes would be terabytes in a list of blocks."""
    records = [(b"GNU.sparse.numblocks", b"1"), (b"GNU.sparse.map", b"%d,0" % (3 << 40))]
    one = pax((b"GNU.sparse.size", b"%d" % (3 << 40)), *records) + file(b"s")
    assert read(one + END).members[0].size == 3 << 40
    with pytest.raises(LayerError, match="4 TiB of holes"):
        read(one + one + END)
