"""Tar headers by hand: paths, links, numbers, types, and how an archive ends."""

from __future__ import annotations

import pytest

from envbuild.core.errors import InputError
from envbuild.oci.tar import name_count
from envbuild.oci.tar.fields import LayerTooLargeError, UnusableNameError
from envbuild.oci.tar.member import Kind
from envbuild.oci.tar.reader import LayerError
from tests.support.tars import END, MEGA, STEPS, file, header, octal, only, pax, read

pytestmark = pytest.mark.unit
NULL = b"0000001\x000000003\0"  # the numbers of /dev/null in a header


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (b"./", b""),
        (b".", b""),
        (b"/", b""),
        (b"./a/", b"a"),
        (b"/a", b"a"),
        (b"a//b/./c/", b"a/b/c"),
        (b"..a/...", b"..a/..."),
    ],
)
def test_paths_of_folders(name: bytes, path: bytes) -> None:
    assert only(header(name, b"5")).path == path


def test_files_remain_below_a_folder_whose_name_ends_in_a_dot() -> None:
    """Names of one folder are not parsed again: `a/b/.` names `a/b`, and what follows is below it."""
    names = (b"a/b/.", b"a/b/sh", b"a/b/.wh.c", b"./d/.", b"./d/f", b"e//.", b"e//f")
    for first in (b"", file(b"a/b/first") + file(b"./d/first") + file(b"e//first")):
        archive = first + b"".join(header(name, b"5") if name.endswith(b".") else file(name) for name in names)
        found = [member.path for member in read(archive + END).members][-len(names) :]
        assert found == [b"a/b", b"a/b/sh", b"a/b/.wh.c", b"d", b"d/f", b"e", b"e/f"]


@pytest.mark.parametrize("name", [b"..", b"../a", b"a/../b", b"a/..", b"/../a", b"./..", b"a/b/../../../c"])
def test_paths_that_leave_the_root(name: bytes) -> None:
    for archive in (file(name), pax((b"path", name)) + file(b"x"), file(b"L", name + b"\0", b"L") + file(b"x")):
        with pytest.raises(LayerError, match="leads out of it"):
            read(archive + END)


@pytest.mark.parametrize(
    "name", [b"n" * 256, b"/".join([b"n" * 200] * 21), b"a\0b", b"x/" + b"n" * 256, b"x/y\0z", b"a/b\0/c"]
)
def test_invalid_paths_are_refused(name: bytes) -> None:
    with pytest.raises(LayerError, match=r"NAME_MAX|PATH_MAX|NUL"):
        read(file(b"x/first") + pax((b"path", name)) + file(b"x") + END)


def test_the_longest_path() -> None:
    name = b"/".join([b"n" * 255] * 16)
    assert len(name) == 4095 and only(pax((b"path", name)) + file(b"x")).path == name


def test_a_name_that_linux_does_not_allow_is_no_fault_of_the_tar() -> None:
    long = b"/".join([b"deep"] * 1000)
    for archive, size, limit in (
        (pax((b"path", b"./" + long)) + file(b"x"), "4999 bytes", "4095 (PATH_MAX)"),
        (pax((b"path", b"deep/" + b"n" * 256)) + file(b"x"), "256 bytes", "255 (NAME_MAX)"),
        (pax((b"linkpath", b"a" * 4096)) + header(b"deep/x", b"2"), "4096 bytes", "4095 (PATH_MAX)"),
    ):
        with pytest.raises(UnusableNameError) as caught:
            read(archive + END)
        assert size in caught.value.message and limit in caught.value.message
    assert only(pax((b"path", b"./" * 3000 + b"a")) + file(b"x")).path == b"a"


def test_a_long_path_below_a_known_folder() -> None:
    folder = b"/".join([b"n" * 255] * 15) + b"/" + b"m" * 200
    archive = pax((b"path", folder + b"/a")) + file(b"x")
    with pytest.raises(LayerError, match="PATH_MAX"):
        read(archive + pax((b"path", folder + b"/" + b"n" * 255)) + file(b"x") + END)


@pytest.mark.parametrize(
    ("link", "path"),
    [(b"a", b"a"), (b"/a/b", b"a/b"), (b"./a", b"a"), (b"a/../b", b"b"), (b"/z", b"z"), (b"a/b/..//c/", b"a/c")],
)
def test_hard_links(link: bytes, path: bytes) -> None:
    """Also before the file that they name, which the reader does not look for."""
    assert only(header(b"x", b"1", link=link)).link == path


@pytest.mark.parametrize("link", [b"..", b"../a", b"/../a", b"a/../../b", b"", b"/", b"a/..", b"x", b"./y/../x"])
def test_hard_links_that_name_nothing(link: bytes) -> None:
    with pytest.raises(LayerError, match="another name of"):
        read(header(b"x", b"1", link=link) + END)


def test_targets_of_symlinks_are_data() -> None:
    assert only(header(b"x", b"2", link=b"../../../etc/./passwd/")).link == b"../../../etc/./passwd/"
    with pytest.raises(LayerError, match="target that cannot be"):
        read(header(b"x", b"2") + END)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"0000644\0", 0o644),
        (b"000644 \0", 0o644),
        (b"   644 \0", 0o644),
        (b"0100644\0", 0o644),
        (b"00100755", 0o755),
        (b"\0" * 8, 0),
        (b" " * 8, 0),
        (b"644\0junk", 0o644),
        (b"\x80\0\0\0\0\0\x01\xa4", 0o644),
    ],
)
def test_octal_fields(field: bytes, value: int) -> None:
    assert only(header(mode=field)).mode == value


@pytest.mark.parametrize("field", [b"0000_44\0", b"-000644\0", b"0o00644\0", b"+000644\0", b"0000648\0", b"64 4   \0"])
def test_fields_that_are_not_numbers(field: bytes) -> None:
    for archive in (header(mode=field), header(size=field.rjust(12, b"0")), header(mtime=field.rjust(12, b"0"))):
        with pytest.raises(LayerError, match="not a number"):
            read(archive + END)


def test_numbers_in_base_256() -> None:
    def field(number: int) -> bytes:
        return bytes([0x80 if number >= 0 else 0xFF]) + number.to_bytes(11, "big", signed=True)

    assert only(header(mtime=field(-1))).mtime == -1
    assert only(header(mtime=field(1 << 40))).mtime == 1 << 40
    assert only(header(uid=b"\x80\0\0\0\xff\xff\xff\xfe")).uid == 0xFFFFFFFE
    assert only(header(mtime=b"777777777777")).mtime == 0o777777777777, "no room for a terminator"
    wrong = header(size=field(-1)), header(uid=b"\x80\0\0\0\xff\xff\xff\xff"), header(mode=b"\xff" * 8)
    for archive in (*wrong, header(mtime=field(1 << 63)), header(mtime=field(-(1 << 70)))):
        with pytest.raises(LayerError, match=r"size|user|mode|seconds"):
            read(archive + END)


@pytest.mark.parametrize("step", STEPS)
def test_wrong_sizes_are_refused(step: int) -> None:
    """Memory depends on the data, not on the declared size."""
    for size in (b"\x80" + bytes(3) + (1 << 60).to_bytes(8, "big"), octal(0o77777777777)):
        with pytest.raises(LayerError, match="ends in the middle of a file"):
            read(header(size=size) + b"x" * 3000, step)
    with pytest.raises(LayerError, match="cannot be"):
        read(header(size=b"\x80" + b"\x7f" * 11) + END, step)
    for kind in b"xgLK":
        with pytest.raises(LayerError, match="more than the 1048576 that are possible"):
            read(header(kind=bytes([kind]), size=octal(4 << 30)) + bytes(2048), step)
        with pytest.raises(LayerError, match="ends in the middle of a header"):
            read(header(kind=bytes([kind]), size=octal(MEGA)) + bytes(2048), step)


def test_types_that_are_files() -> None:
    for kind in (b"0", b"\0", b"7", b"Z", b"A", b"!", b"\xff"):
        found = read(file(b"x", b"content", kind) + file(b"y") + END)
        assert [member.kind for member in found.members] == [Kind.FILE] * 2
        assert found.content(0) == b"content"
    old = header(b"folder/", b"\0", magic=bytes(8))
    assert only(old).kind is Kind.DIR
    with pytest.raises(LayerError, match="has data"):
        read(file(b"folder/", b"x", b"\0") + END)


@pytest.mark.parametrize("kind", [b"0", b"7", b"Z"])
def test_a_file_with_the_name_of_a_folder(kind: bytes) -> None:
    """Over a folder, GNU tar leaves that folder, and Go replaces all of it with an empty file."""
    with pytest.raises(LayerError, match="is named as a folder, and is a file"):
        read(file(b"folder/", b"", kind) + END)


@pytest.mark.parametrize("kind", [b"3", b"4"])
def test_a_device_of_version_7_has_no_numbers(kind: bytes) -> None:
    """Go and GNU tar make the device 0:0 of it, which hides a file in an overlay."""
    assert only(header(b"dev", kind, device=NULL)).kind in (Kind.CHAR, Kind.BLOCK)
    with pytest.raises(LayerError, match="in a header of Unix version 7"):
        read(header(b"dev", kind, magic=bytes(8), device=NULL) + END)


def test_what_hides_files_in_an_overlay_is_refused() -> None:
    """Docker and podman set it where they unpack a layer; other programs leave it out."""
    with pytest.raises(LayerError, match="is 0:0"):
        read(header(b"usr/file", b"3") + END)
    assert read(pax((b"SCHILY.xattr.user.overlay.origin", b"y")) + header(b"usr/", b"5") + END).members  # of buildah
    for name in (b"trusted.overlay.opaque", b"trusted.overlay.redirect", b"user.overlay.redirect"):
        with pytest.raises(LayerError, match="by which an overlay hides other files"):
            read(pax((b"SCHILY.xattr." + name, b"y")) + header(b"usr/", b"5") + END)


def test_sizes_of_members_without_data() -> None:
    """Go and Python read no data after these, for any size in the header."""
    for kind in b"123456":
        one = header(b"x", bytes([kind]), size=octal(5000), link=b"y", device=NULL)
        archive = one + file(b"next", b"content") + END
        found = read(archive)
        assert [member.path for member in found.members] == [b"x", b"next"] and found.members[0].size == 0


def test_devices() -> None:
    member = only(header(b"null", b"3", device=NULL))
    assert (member.kind, member.device) == (Kind.CHAR, (1, 3))
    assert only(header(b"sda", b"4", device=b"0000010\x000000000\0")).device == (8, 0)
    with pytest.raises(LayerError, match="Linux does not have"):
        read(header(b"sda", b"4", device=b"7777777\x000000000\0") + END)


def test_prefixes() -> None:
    assert only(header(b"name", prefix=b"some/folder")).path == b"some/folder/name"
    assert only(header(b"n" * 100, prefix=b"p" * 155)).path == b"p" * 155 + b"/" + b"n" * 100
    for version in (b"\0\0", b"  ", b"xy"):
        assert only(header(b"name", prefix=b"folder", magic=b"ustar\0" + version)).path == b"folder/name"
    assert only(header(b"name", prefix=b"folder", magic=bytes(8))).path == b"name", "of Unix version 7"
    times = b"14371723214\x0014371723214\0"
    assert only(header(b"name", prefix=times, magic=b"ustar  \0")).path == b"name", "GNU tar has times there"
    far = b"\x80" + bytes(7) + b"\x65\0\0\0" + b"000000000000"
    assert only(header(b"name", prefix=far, magic=b"ustar  \0")).path == b"name", "base-256"
    texts = b"x", b"000000000001/doc", b"            x", b"000000000001/", b"   \0evil/", b"000000000000  \0x/"
    for prefix in (*texts, b"\x80\1" + bytes(10)):
        with pytest.raises(LayerError, match="a prefix that programs read differently"):
            read(header(b"name", prefix=prefix, magic=b"ustar  \0") + END)
    times = b"00000000000 00000000000 " + bytes(8) + b"tar\0"  # of star, whose prefix is shorter
    assert only(header(b"name", tail=b"p".ljust(131, b"\0") + times)).path == b"p/name"
    assert only(header(b"name", tail=b"p" * 130 + b"\0" + times)).path == b"p" * 130 + b"/name"
    with pytest.raises(LayerError, match="a prefix that programs read differently"):
        read(header(b"name", tail=b"p" * 131 + times) + END)


def test_both_duplicates_are_read() -> None:
    found = read(file(b"a", b"1") + header(b"a", b"5") + file(b"a", b"2") + END)
    assert [member.kind for member in found.members] == [Kind.FILE, Kind.DIR, Kind.FILE]


def test_ends() -> None:
    """Two blocks of zeros; fewer and more are taken, and only the padding of the last file may be missing."""
    whole = file(b"a", b"content")
    for end in (b"", bytes(512), END, bytes(513), bytes(10240), bytes(3 * MEGA)):
        assert len(read(whole + end).members) == 1
    assert read(b"").members == [] == read(END).members
    assert len(read(whole[: 512 + 7]).members) == 1
    for content, message in (
        (whole[: 512 + 6], "middle of a file"),
        (whole[:511], "middle of a header"),
        (whole + whole[:100], "middle of a header"),
        (whole + END + b"x", "continues after its end"),
        (whole + END + bytes(3 * MEGA) + b"x", "continues after its end"),
        (whole + bytes(512) + whole, "continues after its end"),
        (b"hello" * 1000, "not a tar"),
        (whole + b"\0" * 511 + b"\1", "not a tar"),
    ):
        for step in STEPS[:3]:
            with pytest.raises(LayerError, match=message):
                read(content, step)


def test_sums() -> None:
    block = header(b"\xff\xfe" * 20)
    signed = sum(value - 256 if value > 127 else value for value in block[:148] + block[156:]) + 256
    assert only(block[:148] + b"%06o\0 " % signed + block[156:]).path == b"\xff\xfe" * 20
    for wrong in (block[:100] + b"1" + block[101:], block[:148] + b"%06o\0 " % (signed + 1) + block[156:]):
        with pytest.raises(LayerError, match="header at byte 0 is damaged"):
            read(wrong + END)


def test_errors_are_those_of_inputs() -> None:
    with pytest.raises(InputError) as caught:
        read(b"x" * 512)
    assert caught.value.exit_code == 10 and caught.value.hint


def test_the_entries_of_a_layer_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.oci.tar.name_count.MAX_ENTRIES", 2)
    assert len(read(file(b"a") + file(b"b") + END).members) == 2
    with pytest.raises(LayerTooLargeError, match="it has 3 entries or more; the limit is 2"):
        read(file(b"a") + file(b"b") + file(b"c") + END)


@pytest.mark.parametrize(
    "records", [(b"path", b"n" * 100), (b"linkpath", b"n" * 99), (b"SCHILY.xattr.user.name", b"n" * 90)]
)
def test_the_names_of_a_layer_have_a_limit(records: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    archive = pax(records) + header(b"a", b"2", link=b"b") + END
    size = {b"path": 101, b"linkpath": 100}.get(records[0], 101)
    monkeypatch.setattr("envbuild.oci.tar.name_count.MAX_NAMES", size)
    assert len(read(archive).members) == 1
    monkeypatch.setattr("envbuild.oci.tar.name_count.MAX_NAMES", size - 1)
    with pytest.raises(LayerTooLargeError, match=f"it has {size} bytes or more of paths.*; the limit is {size - 1}"):
        read(archive)


def test_the_largest_images_are_within_the_limits() -> None:
    assert name_count.MAX_ENTRIES >= 2_000_000 and name_count.MAX_NAMES >= 300_000_000
