"""Random bits of a small store flip: the next image is right, or it is refused, and the store heals.

ENVBUILD_ATTACK_SEED chooses the bits, ENVBUILD_ATTACK_N how many trials there are.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.build.engines.embedded.engine import Embedded
from envbuild.build.plan.units import Plan
from envbuild.core.errors import EnvbuildError, InputError
from envbuild.core.store.records import write_record
from envbuild.make import build_and_write
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.pack.file import read_pack
from envbuild.verify.store_check import check_store
from tests.support.bit_flips import flip_bit
from tests.support.engine_fixtures import scratch, store
from tests.support.foreign_images import workspace
from tests.support.ready_image import ready_image
from tests.support.stored_inputs import lock
from tests.support.tiny_root import plan, unit

__all__ = ["scratch", "store"]
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="layers are read outside of a user namespace by root"),
]

SEED = int(os.environ.get("ENVBUILD_ATTACK_SEED", "1"))
TRIALS = int(os.environ.get("ENVBUILD_ATTACK_N", "12"))
KINDS = ("pack data", "pack fragment", "pack index", "blob", "layer", "layer record", "unit", "image")
STEPS = "mkdir -p /opt/x && cp /usr/bin/* /opt/x && rm /data/two && echo new > /data/new"


class Flips:
    """A store with an image, and flips of bits in it."""

    def __init__(self, at: Workspace, chance: random.Random) -> None:
        self.at, self.root, self.chance = at, at.store.root, chance
        self.plan: Plan = plan(at.store, unit("one", STEPS), unit("two", "echo 2 > /opt/two", lowers=("base", "one")))
        self.sha256, self.artifact = self.make()
        self.blobs = {path: path.read_bytes() for path in self.files("blobs/sha256/*")}

    def make(self) -> tuple[str, Path]:
        artifact = build_and_write(ready_image(Embedded(), self.plan, lock()), self.at)[1]
        made = {"artifact": str(artifact.path), "sha256": artifact.sha256, "layers": []}
        write_record(self.root / "images" / f"{'0' * 64}.json", made)
        return artifact.sha256, artifact.path

    def files(self, pattern: str) -> list[Path]:
        found = self.root.glob(pattern)
        return sorted(path for path in found if path.is_file() and not path.is_symlink() and path.stat().st_size)

    def flip(self, kind: str) -> str:
        """Flip a bit of something of `kind`; let the next build need it. Return what was changed."""
        part = kind.partition(" ")[2]
        pattern = {
            "pack": "packs/*.v*[0-9]",
            "blob": "blobs/sha256/*",
            "layer": "layers/*/layer.json" if part else "layers/*/tree/**/*",
            "unit": "units/*.json",
            "image": "artifacts/*.sqsh",
        }[kind.split()[0]]
        path = self.chance.choice(self.files(pattern))
        begin, end = self.bounds(path, part) if kind.startswith("pack") else (0, path.stat().st_size)
        position, bit = self.chance.randrange(begin, end), self.chance.randrange(8)
        flip_bit(path, position, bit)
        if kind in ("blob", "layer record"):  # what is built needs it
            for record in self.files("units/*.json"):
                record.unlink()
        elif kind.startswith("layer"):
            for pack in self.files(f"packs/{path.relative_to(self.root).parts[1]}*"):
                pack.unlink()
        return f"bit {bit} of byte {position} of {path.relative_to(self.root)}"

    def bounds(self, path: Path, part: str) -> tuple[int, int]:
        pack = read_pack(path)
        columns = pack.index.columns
        if part == "fragment":
            number = self.chance.randrange(len(columns["fragment_starts"]))
            start = columns["fragment_starts"][number]
            return start, start + (columns["fragment_words"][number] & 0xFFFFFF)
        return (4096, pack.end) if part == "data" else (pack.end, path.stat().st_size)


@pytest.fixture
def flips(store: object) -> Iterator[Flips]:
    root = store.root  # type: ignore[attr-defined]
    yield Flips(workspace(root), random.Random(SEED))


def test_after_any_flipped_bit_the_image_is_right_or_refused_and_the_store_heals(flips: Flips) -> None:
    store, reporter = flips.at.store, flips.at.reporter
    for trial in range(TRIALS):
        kind = KINDS[trial % len(KINDS)]
        where = f"trial {trial} of seed {SEED}: {flips.flip(kind)}"
        if kind == "image":
            damaged = check_store(store, reporter, repair=False).damaged
            assert [(item.kind, item.path) for item in damaged] == [("artifacts", flips.artifact)], where
        try:
            assert flips.make()[0] == flips.sha256, where
        except InputError:
            assert kind == "blob", where
        except EnvbuildError as error:
            raise AssertionError(where) from error
        check_store(store, reporter, repair=True)
        for path, content in flips.blobs.items():  # as a fetch does
            if not path.exists():
                path.write_bytes(content)
        found = check_store(store, reporter, repair=False)
        assert not found.damaged and all(found.compared[name] for name in ("packs", "layers", "blobs")), where
        assert flips.make()[0] == flips.sha256, where
