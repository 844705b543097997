"""An image of layers of a store, written as an OCI layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci.config import ImageConfig
from envbuild.oci.layout import Layout, write_layout
from tests.support.stored_layers import EPOCH

CONFIG = ImageConfig(
    env={"PATH": "/bin", "WORDS": 'two "words" $HOME \\'},
    cmd=("/bin/sh", "-l"),
    workdir="/work",
    labels={"b": "2", "a": "ü"},
)


def write(layers: tuple[LayerRecord, ...], out: Path, store: Store, **options: Any) -> Layout:
    """Write the layout of an image of these layers with CONFIG; `options`: of `write_layout`."""
    return write_layout(layers, CONFIG, out, store, epoch=EPOCH, name="image:tag", **options)
