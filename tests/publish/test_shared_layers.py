"""Layers whose blobs have the bytes of their packs: which ones, what is recorded of them, and their packs as blobs."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

from envbuild.core.digest import file_digest
from envbuild.core.errors import DamagedPackError, EnvbuildError
from envbuild.core.store.build_records import LayerRecord
from envbuild.core.store.store import Store
from envbuild.oci.tar.compress import HashingWriter
from envbuild.publish.finished_image import open_pack
from envbuild.publish.pack_blobs import FileSlice
from envbuild.publish.shared_layers import NAME, SharedLayers, read_shared
from envbuild.publish.shared_pack_blobs import make_shared_blobs
from envbuild.squashfs.pack.layer_frames import write_layer
from tests.support.packs import file, pack, symlink

pytestmark = pytest.mark.unit

NOISE = random.Random(4).randbytes(3 << 20)
SMALL = [file(b"%04d" % number, NOISE[number * 1000 : number * 1000 + 1000]) for number in range(2000)]
EQUAL = [
    file(b"%s%04d" % (name, number), NOISE[number * 1500 :][:1500]) for name in (b"a", b"b") for number in range(2000)
]
LINKS = [symlink(b"%05d" % number, b"%d" % number * 9) for number in range(20_000)]


@dataclass
class Case:
    """A store with one layer and its pack."""

    store: Store
    layer: LayerRecord
    pack: Path

    def __post_init__(self) -> None:
        self.layers = SharedLayers.of([self.layer], [self.pack], self.store)

    def publish(self) -> FileSlice:
        """Write the blob of the layer, and make the blobs of its pack; return the former."""
        blob = self.write()
        work = self.store.root / f"work-{len(list(self.store.root.iterdir()))}"
        work.mkdir()
        make_shared_blobs([self.pack], self.layers.find([self.layer], [blob]), work)
        self.layers = SharedLayers.of([self.layer], [self.pack], self.store)  # of the next command
        return blob

    def write(self) -> FileSlice:
        """Write the blob of the layer into a file; return it."""
        path = self.store.root / "blob"
        with path.open("wb") as out:
            measured = HashingWriter(out)
            encoding = self.layers.encode(self.layer)
            assert encoding
            encoding.write(measured)
        return FileSlice(measured.sha256, measured.size, path)


def make_case(folder: Path, *members: object) -> Case:
    made = pack(folder / "pack", members)
    diff_id, _ = write_layer(made, io.BytesIO())
    store = Store(folder / "store")
    store.layer_path(diff_id).mkdir(parents=True)
    return Case(store, LayerRecord(diff_id, 0, 0), made.path)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return make_case(tmp_path, file(b"a", NOISE), file(b"b", b"small"))


def test_layers_of_files_are_shared_and_a_small_one_and_one_of_links_are_not(case: Case, tmp_path: Path) -> None:
    encoding = case.layers.encode(case.layer)
    assert encoding and encoding.name == f"zstd of {case.pack.name}"
    layers = {"small": SMALL, "tiny": [file(b"a", NOISE[: 1 << 18])], "links": LINKS}
    shared = set()
    for name, members in layers.items():
        (tmp_path / name).mkdir()
        other = make_case(tmp_path / name, *members)
        if other.layers.encode(other.layer):
            shared.add(name)
    assert shared == {"small"}


def test_a_layer_with_equal_files_does_not_make_pulls_large(tmp_path: Path) -> None:
    """What a layer has twice is in its blob twice, and in its pack once."""
    case = make_case(tmp_path, *EQUAL[:2300])
    assert case.layers.find([case.layer], [case.write()])
    (tmp_path / "other").mkdir()
    other = make_case(tmp_path / "other", *EQUAL)
    assert other.layers.encode(other.layer) and not other.layers.find([other.layer], [other.write()])


def test_what_is_shared_is_recorded(case: Case) -> None:
    blob = case.publish()
    known = read_shared(case.store, case.layer, case.pack)
    assert known and (known.blob, known.sha256) == (blob.digest, file_digest(case.pack))
    (found,) = SharedLayers.of([case.layer], [case.pack], case.store).find([case.layer], [blob]).values()
    assert (found.parts, found.sha256) == (known.parts, known.sha256)
    other = FileSlice("0" * 64, blob.size, blob.path)  # of another release, or compressed as a whole
    assert case.layers.find([case.layer], [other]) == {}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"blob": "x", "pack": "pack", "size": 9, "parts": [0, 0, 10]}'])
def test_a_record_of_another_form_is_none(case: Case, content: str) -> None:
    case.publish()
    (case.store.layer_path(case.layer.diff_id) / NAME).write_text(content)
    assert read_shared(case.store, case.layer, case.pack) is None
    assert case.layers.encode(case.layer)


def test_a_pack_of_another_layer_is_refused(case: Case) -> None:
    encoding = SharedLayers.of([case.layer], [case.pack], case.store).encode(case.layer)
    assert encoding
    encoding.layer = LayerRecord("sha256:" + "0" * 64, 0, 0)
    with pytest.raises(DamagedPackError, match="it is of the layer") as caught:
        encoding.write(HashingWriter(io.BytesIO()))
    assert "store check --repair" in caught.value.hint and caught.value.where == str(case.pack)


@pytest.mark.parametrize("present", [False, True])
def test_the_blobs_have_all_bytes_of_the_pack(case: Case, tmp_path: Path, present: bool) -> None:
    """Also where the target has the layer, whose file is then not there."""
    layer = case.publish() if present else case.write()
    shared = case.layers.find([case.layer], [layer])
    content = case.pack.read_bytes()
    if present:
        layer.path.unlink()
    (tmp_path / "work").mkdir()
    work, read = tmp_path / "work", list[int]()
    packs, blobs, used = make_shared_blobs([case.pack, case.pack], shared, work, read.append)  # a layer may come twice
    assert sum(read) == len(content)
    assert used == shared and packs[0].digest == file_digest(case.pack)
    assert len(packs) == 2 and packs[0] == packs[1] and packs[0].size == len(content)
    assert sum(blob.size for blob in blobs) < len(content) / 5
    slices = {blob.digest: blob for blob in blobs} | ({} if present else {layer.digest: layer})
    source = open_pack(packs[0], case.pack, slices)
    assert len(source.pieces) == len(packs[0].blobs)
    found = b""
    for piece, at, length in source.parts(0, len(content)):
        with Path(f"/proc/self/fd/{piece.file.fd}").open("rb") as opened:
            opened.seek(at)
            found += opened.read(length)
    assert found == content


def test_a_pack_that_another_user_wrote_since_is_sent_whole(case: Case, tmp_path: Path) -> None:
    """The target has the blob of the layer, which was written from another pack of that name."""
    layer = case.publish()
    layer.path.unlink()
    shared = case.layers.find([case.layer], [layer])
    other = pack(tmp_path / "other", [file(b"a", NOISE), file(b"b", b"small")], level=4)
    other.path.replace(case.pack)
    work = tmp_path / "work"
    work.mkdir()
    ((found,), blobs, used) = make_shared_blobs([case.pack], shared, work)
    assert not used and not found.layer and sum(blob.size for blob in blobs) == case.pack.stat().st_size


def test_a_pack_that_changes_meanwhile_is_refused(case: Case, tmp_path: Path) -> None:
    layer = case.write()
    shared = case.layers.find([case.layer], [layer])
    with case.pack.open("r+b") as file_:
        file_.truncate(1 << 20)
    (tmp_path / "work").mkdir()
    with pytest.raises(DamagedPackError, match="changed while it was read"):
        make_shared_blobs([case.pack], shared, tmp_path / "work")


@pytest.mark.parametrize("more", [b"", "frame", b"\x50\x2a\x4d\x18\0\0\0\0"], ids=["none", "frame", "skipped"])
def test_a_block_of_more_than_one_frame_is_refused(more: bytes | str, tmp_path: Path) -> None:
    """Another user may have written the pack: other programs would take what follows for a part of the layer."""
    content = b"text " * 40_000
    made = pack(tmp_path / "pack", [file(b"a", content), file(b"b", NOISE)])
    start, word = made.index.columns["starts"][0], made.index.columns["words"][0]
    stored = made.path.read_bytes()[start : start + word]
    extra = zstandard.ZstdCompressor().compress(b"evil") if more == "frame" else more
    assert isinstance(extra, bytes)
    codec = made.index.codec
    if not extra:
        assert codec.decompress(stored, 131072) == content[:131072]
        return
    with pytest.raises(EnvbuildError, match="damaged"):
        codec.decompress(stored + extra, 131072)


def test_of_many_layers_the_largest_are_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.publish.shared_layers.MAX_LAYERS", 2)
    cases = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        cases.append(make_case(tmp_path / str(number), file(b"a", NOISE[: (2 << 20) + (number << 18)])))
        cases[-1].pack = cases[-1].pack.rename(tmp_path / f"pack-{number}")
    layers, packs = [one.layer for one in cases], [one.pack for one in cases]
    shared, blobs = SharedLayers.of(layers, packs, cases[0].store), []
    for one in cases:
        one.layers = shared
        cases[0].store.layer_path(one.layer.diff_id).mkdir(parents=True, exist_ok=True)
        blobs.append(one.write())
    assert set(shared.find([*layers, layers[2]], [*blobs, blobs[2]])) == {"pack-1", "pack-2"}


def test_beyond_the_limit_of_a_document_packs_are_whole(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = case.write()
    monkeypatch.setattr("envbuild.publish.shared_layers.MAX_SHARED", 1)
    assert case.layers.find([case.layer], [blob]) == {}
