"""OCI layouts whose documents or files are hostile or damaged."""

from __future__ import annotations

import copy
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import foreign_images
from tests.support.local_registry import CONFIG, LAYER, MANIFEST, Layout, sha256

Keys = tuple[str | int, ...]
NAMES = ("index.json", "manifest", "configuration")
OUT = "sha256:../../../../etc/passwd"
MISSING = object()

# document → place in it → values that cannot be there
WRONG: dict[str, dict[Keys, tuple[Any, ...]]] = {
    "index.json": {
        ("manifests",): (MISSING, None, "x", {}, 1, [1], ["x"], [[]], [None], True),
        ("manifests", 0, "digest"): (MISSING, None, 1, [], "", OUT, "sha256:" + "A" * 64, "md5:" + "a" * 32),
        ("manifests", 0, "size"): (MISSING, None, "1", 1.5, -1, [], True),
        ("manifests", 0, "mediaType"): (MISSING, None, 1, []),
        ("manifests", 0, "platform"): ("x", [1], 1),
        ("manifests", 0, "platform", "os"): (1, {}),
        ("manifests", 0, "annotations"): ("x", [1]),
        ("manifests", 0, "annotations", "org.opencontainers.image.ref.name"): (1, ["x"]),
    },
    "manifest": {
        ("config",): (MISSING, None, "x", [], 1),
        ("config", "digest"): (MISSING, 1, OUT, "../../../etc/passwd"),
        ("layers",): (MISSING, None, "x", {}, [1], 7),
        ("layers", 0, "digest"): (MISSING, 1, OUT),
        ("layers", 0, "size"): (MISSING, "big", -5, 0.5),
        ("layers", 0, "mediaType"): (MISSING, 7, ["a"]),
        ("layers", 0, "urls"): (1, [1]),
    },
    "configuration": {
        ("architecture",): (MISSING, None, 1, ["amd64"]),
        ("os",): (MISSING, 1),
        ("config",): ("x", [1], 1),
        ("config", "Env"): (1, "A=1", [1], [["a"]]),
        ("config", "Labels"): ([1], "x", {"a": 1}),
        ("config", "Cmd"): (1, [1]),
        ("config", "WorkingDir"): (1, ["/"]),
        ("config", "User"): (1, {}),
        ("config", "Volumes"): (1, [1]),
        ("rootfs",): (MISSING, None, 1, []),
        ("rootfs", "diff_ids"): (MISSING, None, 1, "x", [1], ["sha512:" + "a" * 128]),
        ("created",): (1, []),
    },
}

# whole documents
TEXTS = {
    "empty": b"",
    "brackets": b"[" * 200_000,
    "objects": b'{"a":' * 100_000,
    "a-number": b"17",
    "a-list": b"[]",
    "null": b"null",
    "bytes": b"\xff\xfe\0\1",
    "not-utf-8": b'{"manifests": "\xff"}',
    "digits": b'{"manifests": ' + b"9" * 5_000_000 + b"}",
    "cut": b'{"manifests": [',
    "infinity": b'{"manifests": [{"digest": "x", "size": Infinity}]}',
    "schema-1": b'{"schemaVersion": 1}',
    "many-values": b'{"manifests": [' + b"{}," * 2_000_000 + b"{}]}",
}


def place_name(keys: Keys) -> str:
    """Return how messages write a place."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")


def write_layout(folder: Path, edit: Callable[[str, Any], Any] = lambda name, value: value) -> Layout:
    """Write a good layout. `edit` gets each document by its name and returns it changed: a value, or bytes. The digests
    of documents that name others are right."""
    layout = Layout(folder)
    folder.mkdir(parents=True)
    tars = foreign_images.layers()[:1]

    def encode(name: str, value: Any) -> bytes:
        changed = edit(name, value)
        return changed if isinstance(changed, bytes) else json.dumps(changed).encode()

    config = layout.blob(encode("configuration", foreign_images.document(tars)), CONFIG)
    layers = [layout.blob(gzip.compress(tar, mtime=0), f"{LAYER}+gzip") for tar in tars]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    entry = layout.blob(encode("manifest", manifest), MANIFEST)
    platform = {"architecture": "amd64", "os": "linux"}
    listed = [{**entry, "platform": platform, "annotations": {"org.opencontainers.image.ref.name": "x"}}]
    (folder / "index.json").write_bytes(encode("index.json", {"schemaVersion": 2, "manifests": listed}))
    return layout


def change_value(document: str, keys: Keys, value: Any) -> Callable[[str, Any], Any]:
    """Return an `edit` that puts a value at a place of a document."""

    def edit(name: str, whole: Any) -> Any:
        if name == document:
            part = whole = copy.deepcopy(whole)
            for key in keys[:-1]:
                part = part[key]
            if value is MISSING:
                part.pop(keys[-1], None)
            else:
                part[keys[-1]] = value
        return whole

    return edit


def change_text(document: str, content: bytes) -> Callable[[str, Any], Any]:
    """Return an `edit` that replaces a document."""
    return lambda name, value: content if name == document else value


def nest(layout: Layout, depth: int) -> None:
    """Put indexes between index.json and the manifest."""
    whole = json.loads((layout.path / "index.json").read_text())
    (entry,) = whole["manifests"]
    for _ in range(depth):
        entry = {**layout.index([entry]), "annotations": entry["annotations"]}
    whole["manifests"] = [entry]
    (layout.path / "index.json").write_text(json.dumps(whole))


def layer_blob(layout: Layout) -> Path:
    """Return the file of the layer."""
    content = gzip.compress(foreign_images.layers()[0], mtime=0)
    return layout.path / "blobs/sha256" / sha256(content)


def exchange(place: Callable[[Layout], Path], make: Callable[[Path], object]) -> Callable[[Layout], None]:
    """Return a change of a layout that puts something else in the place of a file."""

    def change(layout: Layout) -> None:
        path = place(layout)
        path.unlink()
        make(path)

    return change


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def index_file(layout: Layout) -> Path:
    return layout.path / "index.json"


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


FILES: dict[str, Callable[[Layout], object]] = {
    "blob-missing": exchange(layer_blob, lambda path: None),
    "blob-cut": lambda layout: cut(layer_blob(layout)),
    "blob-empty": exchange(layer_blob, Path.touch),
    "blob-longer": lambda layout: layer_blob(layout).write_bytes(layer_blob(layout).read_bytes() + b"more"),
    "blob-fifo": exchange(layer_blob, os.mkfifo),
    "blob-folder": exchange(layer_blob, Path.mkdir),
    "blob-zero": exchange(layer_blob, lambda path: path.symlink_to("/dev/zero")),
    "blob-out": exchange(layer_blob, lambda path: path.symlink_to("../../../../../../../../../../etc/hostname")),
    "blob-circle": exchange(layer_blob, lambda path: path.symlink_to(path.name)),
    "blob-sparse": exchange(layer_blob, make_sparse),
    "index-fifo": exchange(index_file, os.mkfifo),
    "index-zero": exchange(index_file, lambda path: path.symlink_to("/dev/zero")),
    "index-sparse": exchange(index_file, make_sparse),
    "nested-3000": lambda layout: nest(layout, 3000),
    "nested-5": lambda layout: nest(layout, 5),
}
