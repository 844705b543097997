"""The comparison of a rebuild with what an image states: digests of all parts, and the first file that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envbuild.build.reproducibility import Entries, EntrySink, find_difference, read_layer_entries
from envbuild.core.errors import VerifyError
from envbuild.core.store.store import LayerRecord
from envbuild.oci.sources.open import open_source
from envbuild.oci.sources.read_layer import read_layer, read_unnamed_layer
from envbuild.publish.rebuild.claim import Claim
from envbuild.spec.workspace import Workspace
from envbuild.squashfs.read.compare import Comparison, pair_entries
from envbuild.squashfs.read.inode import printable_path
from envbuild.squashfs.read.tree import SquashTree

FOLLOWS = b"etc/envbuild/export.json"  # it has the digests of all layers
SAME_FILES = "all files are equal; their order or compression differs"
HIDDEN = "no file that the image shows differs; the layer cannot be read to compare those that upper layers hide"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an image: a layer of `unit`, ``config``, ``manifest`` or ``squashfs``. `claimed` and `rebuilt` are
    digests (``sha256:…``; empty: there is none)."""

    kind: str
    claimed: str
    rebuilt: str
    unit: str = ""

    @property
    def equal(self) -> bool:
        return self.claimed == self.rebuilt


@dataclass(frozen=True, slots=True)
class Difference:
    """The first file that differs. `path` is empty where no file does; `what`: in what, or why none is named."""

    kind: str
    unit: str
    path: str
    what: str

    def __str__(self) -> str:
        place = f"layer of {self.unit}" if self.unit else self.kind
        return f"{place}: {self.path} {self.what}" if self.path else f"{place}: {self.what}"


def compare_layers(claim: Claim, layers: Sequence[LayerRecord]) -> list[Part]:
    """Return all layers, bottom first; where one side has more, the digest of the other is empty."""
    count = max(len(claim.layers), len(layers))
    claimed = [*claim.layers, *[None] * (count - len(claim.layers))]
    rebuilt = [*layers, *[None] * (count - len(layers))]
    return [
        Part(
            "layer",
            one.diff_id if one else "",
            other.diff_id if other else "",
            (other.unit if other else "") or (one.unit if one else ""),
        )
        for one, other in zip(claimed, rebuilt, strict=True)
    ]


def compare_blobs(claim: Claim, layers: Sequence[Part], rebuilt: Sequence[str], workspace: Workspace) -> list[Part]:
    """Return the layers of a published image, each as its blob has it where that is not the blob of the rebuild.

    layers: as the configuration states them, bottom first. rebuilt: digests (hex) of the blobs of the rebuild.
    A configuration names layers by their content, a manifest by their blobs: nothing else compares the two. Raises
    InputError, VerifyError, ConflictError, and what the source raises.
    """
    compared = list(layers)
    for number, (layer, blob) in enumerate(zip(claim.layers, rebuilt, strict=False)):
        if compared[number].equal and layer.digest.removeprefix("sha256:") != blob:
            workspace.reporter.start("blob", f"reading the blob of layer {number + 1}, which differs")
            try:
                compared[number] = replace(compared[number], claimed=read_diff_id(claim, number, workspace))
            finally:
                workspace.reporter.finish("blob")
    return compared


def read_diff_id(claim: Claim, number: int, workspace: Workspace) -> str:
    """Return the digest (``sha256:…``) of the content of a layer of a published image, whose blob is read."""
    with open_source(claim.source, workspace.site, workspace.store, claim.platform, alone=True) as image:
        named = image.layers[number] if number < len(image.layers) else None
        if named is None or named.digest != claim.layers[number].digest:
            raise VerifyError(f"{claim.name} names another image than at the begin", hint="run the command again")
        return read_unnamed_layer(named)


def find_first(
    claim: Claim, parts: Sequence[Part], rebuilt: Path, workspace: Workspace, temporary: Workspace, work: Path
) -> Difference | None:
    """Return the first file that differs; None for equal parts.

    parts: layers bottom first, then others. rebuilt: the new squashfs file. temporary: with the store of the rebuild.
    Raises what reading the image raises.
    """
    different = next((part for part in parts if not part.equal), None)
    if different is None:
        return None
    workspace.reporter.start(
        "difference", f"looking for the first file that differs: {different.unit or different.kind}"
    )
    try:
        return find_file(claim, parts, different, rebuilt, workspace, temporary, work)
    finally:
        workspace.reporter.finish("difference")


def find_file(
    claim: Claim,
    parts: Sequence[Part],
    different: Part,
    rebuilt: Path,
    workspace: Workspace,
    temporary: Workspace,
    work: Path,
) -> Difference:
    """Return the first file that differs in a part; see `find_first`."""
    if different.kind == "layer" and different.claimed and different.rebuilt:
        claimed = claimed_entries(claim, parts.index(different), different.claimed, workspace)
        if claimed is not None:
            found = find_difference(claimed, read_layer_entries(different.rebuilt, temporary.store), "layer")
            return Difference("layer", different.unit, *named(found))
    path, what = compare_files(claim.write(work), rebuilt)
    if not path:
        what = HIDDEN if different.kind == "layer" else what
    return Difference(different.kind, different.unit, path, what)


def named(found: tuple[str, str]) -> tuple[str, str]:
    """Return a difference with the sides named as those of a rebuild."""
    path, what = found
    sides = {
        "is only in the first layer": "is only in the image",
        "is only in the second layer": "is only in the rebuild",
    }
    return path, sides.get(what, what)


def claimed_entries(claim: Claim, number: int, diff_id: str, workspace: Workspace) -> Entries | None:
    """Return the entries of a layer of the image: of the project, from the store, else from where it was published;
    None if that has no layers.

    The store answers for nothing that another image states: that may be the digest of a layer of this user, and an
    answer can be signed and published."""
    if not claim.spec and workspace.store.find_layer(diff_id):
        return read_layer_entries(diff_id, workspace.store)
    if not claim.source:
        return None
    with open_source(claim.source, workspace.site, workspace.store, claim.platform, alone=True) as image:
        if len(image.layers) <= number:  # a tag moved meanwhile
            return None
        layer, sink = image.layers[number], EntrySink()
        if layer.diff_id == diff_id:
            read_layer(layer, [sink])
        elif read_unnamed_layer(layer, sink) != diff_id:  # else its blob is not what the configuration states
            return None
    return sink.entries


def compare_files(claimed: Path, rebuilt: Path) -> tuple[str, str]:
    """Return the first path that differs between two squashfs files, and how; an empty path if none does. One that
    only follows from others (`FOLLOWS`) is the last."""
    last = ("", SAME_FILES)
    with SquashTree(claimed) as old, SquashTree(rebuilt) as new:
        comparison = Comparison(old, new)
        for before, after in pair_entries(old, new):
            entry = before or after
            assert entry is not None
            if before and after:
                fields = comparison.fields(before, after)
                what = f"differs in {', '.join(fields)}" if fields else ""
            else:
                what = f"is only in the {'image' if before else 'rebuild'}"
            if what and entry.path != FOLLOWS:
                return printable_path(entry.path), what
            if what:
                last = (printable_path(entry.path), what)
    return last
