"""Fragment blocks that are pieces of the tar: which there are, and that no image has more of a layer than it shows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.oci.tar.member import Kind, Member
from envbuild.oci.tar.writer import encode_header
from envbuild.squashfs.pack.file import Pack, read_pack
from envbuild.squashfs.pack.index import LENGTH, check_bounds
from envbuild.squashfs.pack.reader import PackReader
from envbuild.squashfs.pack.tar_pieces import header_length
from envbuild.squashfs.write.dedup import open_packs
from envbuild.squashfs.write.extents import DataPlan, plan_data
from envbuild.squashfs.write.inode_order import number_inodes
from envbuild.squashfs.write.merge import merge_packs
from tests.support.packs import file, folder, gone, hard, pack, symlink
from tests.support.squashfs_image import write_image
from tests.support.tars import written_tar

pytestmark = pytest.mark.unit

NOISE = random.Random(11).randbytes(400_000)
SECRET = b"the password is correct horse battery staple"


def small(number: int) -> bytes:
    """Return 3,000 to 3,200 bytes of text, another for each number."""
    return random.Random(number).randbytes(1500 + number).hex().encode()


FILES = [file(b"f%03d" % number, small(number)) for number in range(110)]


def pieces(made: Pack) -> dict[int, bytes]:
    """Return the content of the pieces by their number."""
    reader = PackReader(made)
    members = made.index.columns["fragment_members"]
    return {number: reader.fragment(number) for number, found in enumerate(members) if found}


def plan(packs: list[Pack]) -> DataPlan:
    return plan_data(packs, number_inodes(merge_packs(packs), packs).live, 104)


def unpacked(image: Path, packs: list[Pack]) -> bytes:
    """Return all bytes of an image, and its fragment blocks unpacked."""
    found, planned = image.read_bytes(), plan(packs)
    with open_packs(packs) as files:
        for number, copied in enumerate(planned.copied):
            found += b"".join(files.read_fragment(number, fragment) for fragment in copied)
        for tails in planned.new:
            for (number, fragment, offset), length in tails:
                found += files.read_fragment(number, fragment)[offset : offset + length]
    return found


def test_small_files_and_what_is_between_them_are_pieces(tmp_path: Path) -> None:
    layer = [folder(b"a"), *FILES[:50], symlink(b"k", b"target"), file(b"l"), *FILES[50:], hard(b"z", b"f001")]
    made = pack(tmp_path / "p", layer)
    found = pieces(made)
    assert len(found) == len(made.index.columns["fragment_starts"]) == 4
    tar = written_tar(layer)
    assert tar.startswith(b"".join(found.values()))
    rows = [(members >> 32, members & LENGTH) for members in made.index.columns["fragment_members"]]
    assert [first for first, _ in rows[1:]] == [first + count for first, count in rows[:-1]]
    assert rows[0][0] == 0 and sum(rows[-1]) == len(layer)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "none"])
def test_other_codecs_have_none(tmp_path: Path, codec: str) -> None:
    made = pack(tmp_path / "p", FILES, codec=codec, level={"gzip": 6, "lz4": 9, "none": 0}[codec])
    assert not pieces(made) and sum(made.index.columns["fragment_sizes"]) == sum(len(data) for _, data in FILES)


ODD = {
    "long": Member(b"x" * 250, Kind.DIR, 0o755),
    "deep": Member(b"/".join([b"y" * 60] * 3), Kind.DIR, 0o755),
    "folder": Member(b"x" * 99, Kind.DIR, 0o755),
    "file": Member(b"x" * 100, Kind.FILE, 0o644),
    "link": Member(b"x", Kind.SYMLINK, 0o777, link=b"z" * 101),
    "owner": Member(b"x", Kind.FILE, 0o644, uid=1 << 31, gid=1 << 22),
    "time": Member(b"x", Kind.FILE, 0o644, mtime=-1),
    "device": Member(b"x", Kind.CHAR, 0o644, device=(4095, 1 << 19)),
    "attributes": Member(b"x", Kind.FILE, 0o644, xattrs={b"user.a": b"1" * 600}),
}


@pytest.mark.parametrize("member", ODD.values(), ids=ODD)
def test_headers_of_any_length_are_where_the_tar_has_them(tmp_path: Path, member: Member) -> None:
    assert header_length(member) == len(encode_header(member))
    layer = sorted([*FILES, (replace(member, path=b"f050" + member.path[4:]), b"")], key=lambda item: item[0].path)
    found = pieces(pack(tmp_path / "p", layer))
    assert written_tar(layer).startswith(b"".join(found.values())) and len(found) >= 3


def test_whole_blocks_are_between_pieces(tmp_path: Path) -> None:
    large = [file(b"g%d" % number, NOISE[number:][:170_000]) for number in range(3)]
    layer = [*FILES[:40], *large, *FILES[40:]]
    made = pack(tmp_path / "p", layer)
    found, tar = pieces(made), written_tar(layer)
    assert all(content in tar for content in found.values())
    columns = made.index.columns
    order = sorted(columns["fragment_starts"][number] for number in found)
    assert order == [columns["fragment_starts"][number] for number in found]
    assert {columns["fragments"][row] for row in range(40, 43)} <= found.keys()


def test_a_piece_with_little_of_files_is_none(tmp_path: Path) -> None:
    """Folders, links and files of few bytes would fill blocks with headers."""
    layer = [item for number in range(300) for item in (folder(b"%03d" % number), file(b"%03d/x" % number, b"few"))]
    made = pack(tmp_path / "p", layer)
    assert not pieces(made)


def test_repeated_files_are_stored_once(tmp_path: Path) -> None:
    again = [(replace(member, path=b"g" + member.path), data) for member, data in FILES]
    one, two = pack(tmp_path / "1", FILES), pack(tmp_path / "2", [*FILES, *again])
    assert two.end - one.end < 200
    near = [item for pair in zip(FILES, again, strict=True) for item in pair]
    three = pack(tmp_path / "3", near)
    assert three.end < 1.1 * one.end
    for made, layer in ((two, [*FILES, *again]), (three, near)):
        reader = PackReader(made)
        assert [reader.tail(row) for row in range(len(layer))] == [data for _, data in layer]


def test_marks_of_deletions_are_in_no_piece(tmp_path: Path) -> None:
    layer = sorted([*FILES, gone(b"f040x"), gone(b"f070x")], key=lambda item: item[0].path)
    found = pieces(pack(tmp_path / "p", layer))
    assert found and not any(b".wh." in content for content in found.values())


DELETED = [
    file(b"f050-secret", SECRET),
    file(b"f050-secret", NOISE[:140_000] + SECRET),
    file(b"f050-secret", b""),
    symlink(b"f050-secret", b"secret"),
]


@pytest.mark.parametrize("entry", DELETED, ids=["small", "large", "empty", "link"])
def test_what_a_layer_deletes_is_in_no_image(tmp_path: Path, entry: tuple) -> None:
    lower = sorted([*FILES, entry], key=lambda item: item[0].path)
    packs = [pack(tmp_path / "0", lower), pack(tmp_path / "1", [gone(b"f050-secret")])]
    assert any(b"secret" in content for content in pieces(packs[0]).values())
    image = write_image(packs, tmp_path / "image", epoch=0)
    assert image.repacked
    content = unpacked(image.path, packs)
    assert SECRET not in content and b"secret" not in content
    assert all(data in content for _, data in FILES[40:60])
    whole = write_image(packs[:1], tmp_path / "whole", epoch=0)
    assert b"secret" in unpacked(whole.path, packs[:1]) and not whole.repacked


@pytest.mark.parametrize("kind", [Kind.DIR, Kind.HARDLINK])
def test_attributes_of_folders_and_hard_links_are_in_no_piece(tmp_path: Path, kind: Kind) -> None:
    """No image shows whether another layer replaced them. Those of files are dropped with the files."""
    link = b"f001" if kind is Kind.HARDLINK else b""
    member = Member(b"f050-x", kind, 0o755, link=link, xattrs={b"user.note": SECRET})
    layer = sorted([*FILES, (member, b"")], key=lambda item: item[0].path)
    made = pack(tmp_path / "p", layer)
    assert pieces(made) and not any(SECRET in content for content in pieces(made).values())
    of_file = [(replace(FILES[0][0], xattrs=member.xattrs), FILES[0][1]), *FILES[1:]]
    packs = [pack(tmp_path / "0", of_file), pack(tmp_path / "1", [FILES[0]])]
    assert SECRET in pieces(packs[0])[0]
    assert SECRET not in unpacked(write_image(packs, tmp_path / "image", epoch=0).path, packs)


def test_a_replaced_file_and_a_folder_in_two_layers(tmp_path: Path) -> None:
    """Only the piece of the file is packed again, and a folder that both have changes none."""
    lower = [folder(b"d"), *((replace(member, path=b"d/" + member.path), data) for member, data in FILES)]
    packs = [pack(tmp_path / "0", lower), pack(tmp_path / "1", [folder(b"d"), file(b"d/f001", SECRET)])]
    planned = plan(packs)
    assert len(planned.new) == 1 and len(planned.copied[0]) == len(pieces(packs[0])) - 1
    assert small(1) not in unpacked(write_image(packs, tmp_path / "image", epoch=0).path, packs)


def test_members_of_a_piece_outside_of_the_index_are_refused(tmp_path: Path) -> None:
    made = read_pack(pack(tmp_path / "p", FILES).path)
    made.index.columns["fragment_members"][0] = 1 << 32 | 1_000
    with pytest.raises(ValueError, match="a member of a fragment block is outside"):
        check_bounds(made.index, 4096, made.end)
