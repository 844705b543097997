"""Units of caches that are wrong: refused, each alone, and the next cache is tried."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from envbuild.build.cache.fill_store import fill_from_caches
from envbuild.build.cache.unit_document import FORMAT
from envbuild.build.engines.base import BuildOptions
from envbuild.core.console import SilentReporter
from envbuild.core.store.build_records import PACK_VERSION, SharedLayer, UnitRecord
from envbuild.core.store.json_files import write_sealed
from envbuild.core.store.store import Store
from envbuild.oci.layers.layer import UNPACKED
from envbuild.publish.cached_units import send_units
from envbuild.squashfs.codec import Codec
from envbuild.squashfs.pack.file import DATA, pack_foot, read_pack
from envbuild.squashfs.pack.index import FILE, NONE, RAW
from envbuild.squashfs.pack.reader import send_members
from envbuild.squashfs.pack.writer import PackWriter
from tests.support.local_registry import Server
from tests.support.small_plan import KEYS, small_plan
from tests.support.unit_caches import IMAGE, built_store, fill, of_earlier_format, opened, send, setting, warnings

pytestmark = pytest.mark.registry


def change(path: Path, edit: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    """Change the document of a unit in a folder: `path` is its manifest."""
    manifest, blobs = json.loads(path.read_bytes()), path.parents[1] / "blobs/sha256"
    document = json.loads((blobs / manifest["config"]["digest"][7:]).read_bytes())
    edit(document)
    content = json.dumps(document).encode()
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    manifest["config"] |= {"digest": f"sha256:{digest}", "size": len(content)}
    path.write_text(json.dumps(manifest))


def pack_of(cache: Path, name: str) -> Path:
    """Return the file of the pack of a unit in a folder."""
    manifest = json.loads((cache / "units" / KEYS[name]).read_bytes())
    return Path(cache / "blobs/sha256" / manifest["layers"][0]["digest"][7:])


def test_wrong_bytes_are_refused_and_the_next_cache_is_tried(tmp_path: Path) -> None:
    cache, good = tmp_path / "cache", tmp_path / "good"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    send(store, records, good)
    wrong = pack_of(cache, "base")
    content = bytearray(wrong.read_bytes())
    content[5000] ^= 1
    wrong.write_bytes(content)
    cut = pack_of(cache, "ucx")
    cut.write_bytes(cut.read_bytes()[:-1])
    pack_of(cache, "debian").unlink()
    taken, lines = fill(Store.open(tmp_path / "b"), cache)
    assert sorted(taken) == sorted({*IMAGE, "root-build-ucx"} - {"base", "ucx", "debian"})
    assert len(warnings(lines)) == 3 and all(str(cache) in line and "refused" in line for line in warnings(lines))
    assert any(wrong.name in line and hashlib.sha256(content).hexdigest() in line for line in lines)
    taken, lines = fill(Store.open(tmp_path / "c"), cache, good)
    assert sorted(taken) == sorted(IMAGE) and taken["base"].caches == (str(good),)


def replace_pack(cache: Path, name: str, content: bytes) -> None:
    """Put another pack into the unit of a folder, with right digests."""
    digest = hashlib.sha256(content).hexdigest()
    (cache / "blobs/sha256" / digest).write_bytes(content)
    pack = {"digest": digest, "size": len(content), "parts": [[digest, len(content)]]}
    change(cache / "units" / KEYS[name], lambda value: value["layer"].update(pack=pack))


def with_other_blocks(path: Path) -> bytes:
    """Return a pack whose layer is that of `path`, of which an image shows other bytes: what is copied ends before
    its size words do."""
    pack, data = read_pack(path), bytearray(path.read_bytes())
    index, end = pack.index, pack.end
    columns, row = index.columns, index.kinds.index(FILE)
    at, size = columns["offsets"][row], columns["sizes"][row]
    content = index.codec.decompress(bytes(data[DATA:end]), index.block)[at : at + size]
    del data[end:]
    columns["starts"][row], columns["first"][row] = len(data), 0
    columns["fragments"][row], columns["tails"][row], columns["offsets"][row] = NONE, 0, 0
    columns["words"].append(len(content) | RAW)
    data += content
    return bytes(data) + pack_foot(index, len(data))


def compressed_with_gzip(path: Path) -> bytes:
    """Return the pack of the same layer by another compressor than its name is made of."""
    out = path.with_name("gzip")
    with PackWriter(out, codec="gzip", level=3) as writer:
        writer.index.library = Codec("zstd", 3).library
        send_members(read_pack(path), [writer])
    content = out.read_bytes()
    out.unlink()
    return content


@pytest.mark.parametrize("make", [with_other_blocks, compressed_with_gzip])
def test_no_pack_of_a_cache_enters_the_store(tmp_path: Path, make: Callable[[Path], bytes]) -> None:
    cache = tmp_path / "cache"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    honest = pack_of(cache, "base").read_bytes()
    content = make(pack_of(cache, "base"))
    replace_pack(cache, "base", content)
    other = Store.open(tmp_path / "b")
    taken, lines = fill(other, cache)
    base = taken["base"].layer
    assert base and not warnings(lines) and content != honest
    (pack,) = (tmp_path / "b/packs").glob(f"{base.hex}.*.v{PACK_VERSION}")
    assert pack.read_bytes() == honest


def test_a_pack_of_another_format_is_not_damaged(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    replace_pack(cache, "base", of_earlier_format(pack_of(cache, "base").read_bytes()))
    (line,) = warnings(fill(Store.open(tmp_path / "b"), cache)[1])
    reason = f"the pack has format version {PACK_VERSION - 1}, this envbuild reads {PACK_VERSION}"
    assert f"is refused: {reason} (key {KEYS['base']})" in line


def test_the_folders_of_a_cache_are_for_its_own_units(tmp_path: Path) -> None:
    """Two units may have the same layer. The folders that it does not list are described by the cache alone."""
    near, far = tmp_path / "near", tmp_path / "far"
    store, records = built_store(tmp_path / "a")
    for cache in (near, far):
        send(store, records, cache)
    change(near / "units" / KEYS["base"], lambda value: value["layer"].update(folders=[["x", 0o777, 0, 0, 0, {}]]))
    other = Store.open(tmp_path / "b")
    taken, _ = fill(other, near)
    layer = taken["base"].layer
    assert layer and other.layer(layer.diff_id).caches == (str(near),)
    other.record_unit(UnitRecord("1" * 64, "built", replace(layer, caches=())))
    assert other.unit("1" * 64) is None and other.unit(KEYS["base"])
    tree = other.layer_path(layer.diff_id)  # unpacked with those folders
    tree.mkdir(mode=0o700)
    (tree / UNPACKED).touch()
    write_sealed(tree / "layer.json", asdict(layer))
    taken, _ = fill(other, far)
    assert taken["base"].caches == other.layer(layer.diff_id).caches == (str(far),)
    shared = SharedLayer.read(tmp_path / "b/packs", layer.diff_id)
    assert shared and not shared.folders and not other.has_tree(layer.diff_id)


def test_the_store_does_not_answer_for_a_cache(tmp_path: Path) -> None:
    """The digests of a private layer or wheel are public: a cache that only names them would get them into an image."""
    cache = tmp_path / "cache"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    for blob in (cache / "blobs/sha256").iterdir():
        if blob.read_bytes()[:1] != b"{":  # no document
            store.add_blob(Path(shutil.copy(blob, tmp_path / "a/tmp/copy")))
            blob.unlink()
    for key in KEYS.values():
        (tmp_path / "a/units" / f"{key}.json").unlink()
    taken, lines = fill(store, cache)
    assert not taken and len(warnings(lines)) == len(records)
    honest = tmp_path / "honest"
    send(store, records, honest)  # what has the bytes is believed, and what was built here remains so
    taken, lines = fill(store, honest)
    assert {"base", "venv"} <= set(taken) and not warnings(lines)
    layer = taken["base"].layer
    assert layer and layer.caches == () and store.has_tree(layer.diff_id)


def test_a_unit_of_another_key_is_refused(tmp_path: Path, registry: Server) -> None:
    cache = tmp_path / "cache"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    shutil.copyfile(cache / "units" / KEYS["debian"], cache / "units" / KEYS["base"])
    taken, lines = fill(Store.open(tmp_path / "b"), cache)
    (line,) = warnings(lines)
    assert "base" not in taken and f"another unit, debian with the key {KEYS['debian']}" in line


LIES: dict[str, Callable[[dict], object]] = {  # type: ignore[type-arg]
    "its layer is not the one": lambda value: value["layer"].update(diff_id=f"sha256:{'0' * 64}"),
    "its product is not a layer": lambda value: value.update(layer=None),
    "its product": lambda value: value.update(layer=None, wheels=[["x-1-py3-none-any.whl", "0" * 64, 5]]),
    "it does": lambda value: value["layer"]["pack"].update(size=1),
    "it does not": lambda value: value["layer"].update(folders=[["../x", 1 << 20, 0, 0, 0, {}]]),
    "it does not describe a unit (a number of a folder)": lambda value: value["layer"].update(
        folders=[["x", 0o755, (1 << 32) - 1, 0, 0, {}]]
    ),
    "it does not describe a unit (an attribute of a folder has a name": lambda value: value["layer"].update(
        folders=[["x", 0o755, 0, 0, 0, {"user.a\0b": "c"}]]
    ),
    "it does not describe": lambda value: value.pop("box"),
    "it does not describe a unit": lambda value: value.update(seconds=1e999),
    "it does not describe a unit (not a number": lambda value: value.update(seconds="inf"),
    "it does not describe a unit (it has too many": lambda value: value.update(box=[[]] * 1_100_000),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_document_is_refused(tmp_path: Path, lie: str) -> None:
    cache = tmp_path / "cache"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    change(cache / "units" / KEYS["base"], LIES[lie])
    other = Store.open(tmp_path / "b")
    taken, lines = fill(other, cache)
    assert "base" not in taken and lie in warnings(lines)[0]
    assert not any(path.name.startswith("0" * 64) for path in (tmp_path / "b/packs").iterdir())


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    """Also one of packs: releases that share a cache would replace each other's units for ever."""
    assert (FORMAT, PACK_VERSION) == (2, 3)
    cache = tmp_path / "cache"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    for path in (cache / "units").iterdir():
        change(path, lambda value: value.update(format=FORMAT + 1))
    taken, lines = fill(Store.open(tmp_path / "b"), cache)
    assert taken == {} and len(lines) == 1 and "a newer envbuild wrote its units" in lines[0]


@pytest.mark.parametrize("size", [17 << 20, 1 << 50, (1 << 63) - 1])
def test_a_description_of_any_claimed_size_is_refused_unread(tmp_path: Path, size: int) -> None:
    cache, good = tmp_path / "cache", tmp_path / "good"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    send(store, records, good)
    path = cache / "units" / KEYS["base"]
    manifest = json.loads(path.read_bytes())
    manifest["config"]["size"] = size
    path.write_text(json.dumps(manifest))
    taken, lines = fill(Store.open(tmp_path / "b"), cache, good)
    (line,) = warnings(lines)
    assert sorted(taken) == sorted(IMAGE) and taken["base"].caches == (str(good),)
    assert "the unit base of the cache" in line and "more than 16 MiB" in line


def long_document(cache: Path) -> None:
    path = document_of(cache)
    path.write_bytes(path.read_bytes() + b" ")


def document_of(cache: Path) -> Path:
    manifest = json.loads((cache / "units" / KEYS["base"]).read_bytes())
    return Path(cache / "blobs/sha256" / manifest["config"]["digest"][7:])


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "fifo-document": lambda cache: replaced(document_of(cache), os.mkfifo),
    "fifo-pack": lambda cache: replaced(pack_of(cache, "base"), os.mkfifo),
    "fifo-unit": lambda cache: replaced(cache / "units" / KEYS["base"], os.mkfifo),
    "folder-unit": lambda cache: replaced(cache / "units" / KEYS["base"], Path.mkdir),
    "folder-pack": lambda cache: replaced(pack_of(cache, "base"), Path.mkdir),
    "link-unit": lambda cache: replaced(cache / "units" / KEYS["base"], lambda path: path.symlink_to("/etc/passwd")),
    "link-document": lambda cache: replaced(document_of(cache), lambda path: path.symlink_to("/dev/zero")),
    "link-pack": lambda cache: replaced(pack_of(cache, "base"), lambda path: path.symlink_to("/etc/passwd")),
    "long-document": long_document,
    "long-unit": lambda cache: os.truncate(cache / "units" / KEYS["base"], 17 << 20),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_refuses_its_unit_alone(tmp_path: Path, damage: str) -> None:
    cache, good = tmp_path / "cache", tmp_path / "good"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    send(store, records, good)
    DAMAGE[damage](cache)
    taken, lines = fill(Store.open(tmp_path / "b"), cache, good)
    (line,) = warnings(lines)
    assert f"the unit base of the cache {cache} is refused" in line and sorted(taken) == sorted(IMAGE)
    assert [name for name, record in taken.items() if record.caches == (str(good),)] == ["base"]


def test_what_was_refused_is_sent_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    store, records = built_store(tmp_path / "a")
    send(store, records, cache)
    pack_of(cache, "base").write_bytes(b"wrong")
    reporter = SilentReporter()
    caches = opened(reporter, setting(cache, write=True))
    assert "base" not in fill_from_caches(
        small_plan(), Store.open(tmp_path / "b"), caches, reporter, BuildOptions(caches=frozenset((str(cache),)))
    )
    assert send_units(records, caches, store, reporter) == {str(cache): 1}
    taken, lines = fill(Store.open(tmp_path / "c"), cache)
    assert sorted(taken) == sorted(IMAGE) and not warnings(lines)
