"""The same image however it is made: direct or from cached packs, one thread or many; equal data once, deleted data
never.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.pack.checksums import check_pack
from envbuild.squashfs.pack.file import DATA, PAGE, read_pack
from envbuild.squashfs.pack.writer import PackWriter
from envbuild.squashfs.write.dedup import open_packs
from envbuild.squashfs.write.direct_image import DirectImage
from envbuild.squashfs.write.extents import SHARED_LENGTH, plan_data
from envbuild.squashfs.write.live_extents import find_live_extents
from envbuild.squashfs.write.merge import merge_packs
from envbuild.squashfs.write.writer import write_extra_members
from tests.support.examples import examples
from tests.support.packs import file, folder, gone, hard, pack
from tests.support.squashfs_image import write_image

pytestmark = pytest.mark.unit

NOISE = random.Random(7).randbytes(1 << 20)
SECRET = b"the password is correct horse battery staple"


def cached(folder, layers, extra=(), jobs=1, **form):
    packs = [pack(folder / f"{number}.pack", layer, jobs=jobs, **form) for number, layer in enumerate(layers)]
    return write_image(packs, folder / "cached", epoch=7, extra=extra, all_root=False)


def direct(folder, layers, extra=(), jobs=1, **form):
    with DirectImage(folder / "direct", jobs=jobs, **form) as image:
        for layer in layers:
            with image.layer() as sink:
                for member, content in layer:
                    sink.begin(member)
                    sink.data(content)
                    sink.end()
        if extra:
            image.add(extra)
        return image.finish(merge_packs(image.packs), epoch=7, all_root=False)


def contents(image, packs):
    """Return every byte that a reader could find: the file, and its fragment blocks unpacked (by the packs' plan)."""
    found = image.read_bytes()
    tree = merge_packs(packs)
    from envbuild.squashfs.write.inode_order import number_inodes

    live = number_inodes(tree, packs).live
    planned = plan_data(packs, live, 104)
    with open_packs(packs) as files:
        for number, kept in enumerate(planned.copied):
            for fragment in kept:
                found += files.read_fragment(number, fragment)
    return found


def small(number):
    """Text of 100 to 3,000 bytes, another for each number."""
    return b"file %d " % number * (12 + number % 200)


LAYERS = [
    [file(b"big", NOISE), *(file(b"d/%04d" % number, small(number)) for number in range(600)), file(b"s", SECRET)],
    [gone(b"s"), *(gone(b"d/%04d" % number) for number in range(0, 600, 3)), file(b"again", NOISE[: 5 * 4096])],
    [],
    [file(b"big copy", NOISE), *(file(b"e/%04d" % number, small(number)) for number in range(100, 200))],
    [file(b"zeros", bytes(100_000)), hard(b"link", b"again"), gone(b"big"), file(b"half", NOISE[:70_000] + b"!")],
]
EXTRA = [file(b"etc/rc", b"exec sh"), file(b"etc/environment", b"A=1\n"), folder(b"work")]


@pytest.mark.slow_unit
@pytest.mark.parametrize("jobs", [1, 3, 40])
@pytest.mark.parametrize("form", [{"block": 4096}, {}, {"codec": "none"}, {"codec": "lz4", "level": 9}])
def test_direct_and_cached_images_are_equal(tmp_path, form, jobs):
    level = {"level": 0} if form.get("codec") == "none" else {}
    one = cached(tmp_path, LAYERS, EXTRA, **form, **level)
    two = direct(tmp_path, LAYERS, EXTRA, jobs=jobs, **form, **level)
    assert one.path.read_bytes() == two.path.read_bytes()
    assert (one.size, one.inodes, one.messages, one.copied) == (two.size, two.inodes, two.messages, two.copied)
    assert two.path.stat().st_mode & 0o777 == 0o644
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@examples(60)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 30), st.sampled_from(["file", "copy", "gone"]), st.integers(0, 80_000)),
            max_size=25,
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 3),
)
def test_direct_and_cached_images_are_equal_for_any_live_files(tmp_path_factory, drawn, jobs):
    layers = []
    for items in drawn:
        layer = {}
        for name, kind, size in items:
            path = b"f%02d" % name
            content = NOISE[:size] if kind == "copy" else NOISE[name * 1000 :][:size]
            layer[path] = gone(path) if kind == "gone" else file(path, content)
        layers.append([layer[path] for path in sorted(layer)])
    place = tmp_path_factory.mktemp("x")
    one = cached(place, layers, block=4096, jobs=jobs)
    assert one.path.read_bytes() == direct(place, layers, block=4096).path.read_bytes()


@pytest.mark.parametrize("block", [4096, 131072])
def test_a_deleted_secret_is_in_no_image(tmp_path, block):
    packs = [
        pack(tmp_path / f"{number}", layer, block=block, codec="none", level=0) for number, layer in enumerate(LAYERS)
    ]
    assert SECRET in (tmp_path / "0").read_bytes()
    for made in (
        write_image(packs, tmp_path / "image", epoch=0),
        direct(tmp_path, LAYERS, block=block, codec="none", level=0),
    ):
        assert made.repacked
        assert SECRET not in contents(made.path, packs)
    assert SECRET in contents(write_image(packs[:1], tmp_path / "whole", epoch=0).path, packs[:1])


def test_equal_files_are_stored_once(tmp_path):
    """Within a layer and across layers, whole files and tails; with other data of the same length they are not."""
    one = pack(tmp_path / "1", [file(b"a", NOISE[:300_000]), file(b"b", b"x" * 9), file(b"c", NOISE[:300_000])])
    assert one.end < 310_000 + DATA
    check_pack(tmp_path / "1")
    other = NOISE[400_000:700_000]
    two = pack(tmp_path / "2", [file(b"d", NOISE[:300_000]), file(b"e", other)])
    size = write_image([one], tmp_path / "image", epoch=0).size
    both = write_image([one, two], tmp_path / "image", epoch=0)
    assert size + 295_000 < both.size < size + 345_000  # a block of two tails, one of them new, remains whole
    assert both.path.read_bytes().count(NOISE[1000:2000]) == 1
    three = pack(tmp_path / "3", [file(b"d", NOISE[:300_000])])
    assert write_image([one, three], tmp_path / "image", epoch=0).size < size + 8192


def test_the_last_file_of_a_layer_twice(tmp_path):
    """Its blocks are taken back from the end of the pack."""
    single = pack(tmp_path / "1", [file(b"a", NOISE[: 2 * 131072])])
    double = pack(tmp_path / "2", [file(b"a", NOISE[: 2 * 131072]), file(b"b", NOISE[: 2 * 131072])])
    assert double.end == single.end
    check_pack(tmp_path / "2")
    assert read_pack(tmp_path / "2").index.columns["starts"][1] == DATA


def test_equal_checksums_of_different_tails(tmp_path, monkeypatch):
    """Bytes decide, not checksums."""
    from envbuild.squashfs.pack import blocks, tar_pieces
    from envbuild.squashfs.write import dedup

    monkeypatch.setattr(blocks, "crc32", lambda *_: 5)
    monkeypatch.setattr(tar_pieces, "crc32", lambda *_: 5)
    monkeypatch.setattr(dedup, "crc32", lambda *_: 5)
    layer = [file(b"%d" % number, NOISE[number * 5000 :][:5000]) for number in range(9)]
    one, two = (
        pack(tmp_path / "1", layer, block=4096),
        pack(tmp_path / "2", [*layer[3:], file(b"x", NOISE[:5000])], block=4096),
    )
    with open_packs([one]) as files:
        for row, (_, content) in enumerate(layer):
            columns = one.index.columns
            fragment = files.read_fragment(0, columns["fragments"][row])
            assert fragment[columns["offsets"][row] :][:904] == content[4096:]
    image = write_image([one, two], tmp_path / "image", epoch=0).path.read_bytes()
    assert all(image.count(content[:4000]) >= 1 for _, content in layer)


@pytest.mark.parametrize("chunk", [1, 1000, 4096, 4097, 50_000])
def test_zeros_are_data(tmp_path, chunk):
    """However runs of zeros and data fall on blocks, the pack is that of the data alone."""
    content = NOISE[:5000] + bytes(20_000) + NOISE[:3] + bytes(4096) + NOISE[:4089] + bytes(9000)
    plain = pack(tmp_path / "1", [file(b"a", content), file(b"b", b"z")], block=4096)
    with PackWriter(tmp_path / "2", block=4096) as writer:
        writer.begin(file(b"a", content)[0])
        at = 0
        while at < len(content):
            piece = content[at : at + chunk]
            writer.data(piece) if piece.strip(b"\0") else writer.zeros(len(piece))
            at += len(piece)
        writer.zeros(0)
        writer.end()
        write_extra_members(writer, [file(b"b", b"z")])
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    assert plain.index.columns["sparse"][0]


def test_a_hole_of_a_tebibyte_costs_nothing(tmp_path):
    with PackWriter(tmp_path / "1", block=1 << 20) as writer:
        writer.begin(Member(b"a", Kind.FILE, 0o644, size=(1 << 40) + 1))
        writer.zeros(1 << 40)
        writer.data(b"1")
        writer.end()
    found = read_pack(tmp_path / "1")
    assert found.index.columns["sparse"][0] == 1 << 40 and found.end < DATA + 100


def test_long_extents_are_aligned_to_pages_of_their_pack(tmp_path):
    layers = [[file(b"%d" % number, NOISE[number * 1000 :][:200_000]) for number in range(5)]]
    packs = [pack(tmp_path / "1", layers[0])]
    planned = plan_data(packs, [[1, 3, 4]], 104)
    long = [(at, length, to) for _, at, length, to in planned.ranges if length >= SHARED_LENGTH]
    assert len(long) == 2 and all(at % PAGE == to % PAGE for at, _, to in long)
    assert find_live_extents(packs[0], [1, 3]).extents.keys() == {
        packs[0].index.columns["starts"][row] for row in (1, 3)
    }


def test_a_layer_that_failed_is_written_over(tmp_path):
    with DirectImage(tmp_path / "direct") as image:
        with pytest.raises(RuntimeError), image.layer() as sink:
            write_extra_members(sink, [file(b"wrong", NOISE)])
            raise RuntimeError
        with image.layer() as sink:
            write_extra_members(sink, LAYERS[0])
        image.finish(merge_packs(image.packs), epoch=7, all_root=False)
    assert (tmp_path / "direct").read_bytes() == cached(tmp_path, LAYERS[:1]).path.read_bytes()


def test_nothing_is_left_of_an_image_that_failed(tmp_path):
    with pytest.raises(RuntimeError), DirectImage(tmp_path / "direct") as image:
        image.layer().begin(LAYERS[0][0][0])
        raise RuntimeError
    assert not list(tmp_path.iterdir())


@pytest.mark.slow_unit
def test_layers_without_anything(tmp_path):
    assert cached(tmp_path, [[]]).path.read_bytes() == direct(tmp_path, [[]]).path.read_bytes()
    assert direct(tmp_path, []).inodes == 1
    layers = [[file(b"%d" % number, b"%d" % number)] for number in range(120)]
    made = direct(tmp_path, layers)
    assert made.inodes == 121 and made.path.read_bytes() == cached(tmp_path, layers).path.read_bytes()


def test_times_that_squashfs_cannot_hold_are_reported(tmp_path):
    layer = [file(b"old", b"1", mtime=-5), file(b"new", b"1", mtime=1 << 40), file(b"now", b"1", mtime=5)]
    assert cached(tmp_path, [layer]).messages == (
        "moved times before 1970 or after 2106 to the nearest that squashfs holds: 2 (new, old)",
    )


def test_many_cores_do_not_hold_many_batches(tmp_path):
    with PackWriter(tmp_path / "pack", jobs=200) as writer:
        writer.begin(file(b"a", bytes(range(256)) * (64 << 12))[0])
        for number in range(64):
            writer.data(bytes([number]) * (1 << 20))
            assert len(writer.blocks.pending) <= 24
        writer.end()
