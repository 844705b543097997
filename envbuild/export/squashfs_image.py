"""The squashfs image that `srun --container-image=` accepts, from packs and a run-time configuration."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from envbuild.core.gc_pause import gc_paused
from envbuild.export.enroot import configure
from envbuild.export.enroot_repair import MOST_VOLUMES, repair
from envbuild.export.host_links import relative_links
from envbuild.export.options import ExportOptions
from envbuild.export.write_errors import raise_write_errors
from envbuild.oci.config import ImageConfig
from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.pack.file import Pack, read_packs
from envbuild.squashfs.write.direct_image import DirectImage
from envbuild.squashfs.write.extents import Range
from envbuild.squashfs.write.image_body import plan_ranges
from envbuild.squashfs.write.limits import LAST_TIME, find_unsupported_metadata
from envbuild.squashfs.write.merge import MergedTree, merge_packs
from envbuild.squashfs.write.unprivileged import device_node_messages, make_unprivileged
from envbuild.squashfs.write.writer import ExtraMember, WrittenImage, common_codec, pack_extra_members, write_tree

EVIDENCE = "etc/envbuild/export.json"
MergedPacks = tuple[Sequence[Pack], MergedTree | None]  # packs, and their tree
DEFAULT_OPTIONS = ExportOptions()
WRITER = 3  # version of an image's bytes; raise it when the same packs result in others


def merge_lowest(paths: Sequence[Path]) -> MergedPacks:
    """Read packs and merge them before the layers above them have packs."""
    with gc_paused():
        packs = read_packs(paths)
        return packs, merge_packs(packs)


class PackImage:
    """An image that is written from stored packs: the counterpart of
    `envbuild.squashfs.write.direct_image.DirectImage`.

    `packs` are opened, bottom first. Used as a context manager: its end removes the packs of added members.
    `digest`: the sha256 of the image is computed. `begun`: the result of `merge_lowest` for the first of
    `paths`.
    """

    def __init__(
        self, paths: Sequence[Path], out: Path, *, jobs: int = 0, digest: bool = False, begun: MergedPacks | None = None
    ) -> None:
        packs, self.begun = begun or ((), None)
        self.packs = read_packs(paths[len(packs) :], packs)
        self.out, self.jobs, self.digest, self.stack = out, jobs, digest, contextlib.ExitStack()

    def add(self, extra: Sequence[ExtraMember]) -> Pack:
        """Return a layer of members whose content is in memory; the caller applies it to the tree."""
        self.packs += self.stack.enter_context(pack_extra_members(self.packs, extra))
        return self.packs[-1]

    def finish(self, tree: MergedTree, *, epoch: int, all_root: bool = True, keep_dev: bool = False) -> WrittenImage:
        """Write the image of `tree`, the merged `packs`."""
        return write_tree(
            self.packs,
            tree,
            self.out,
            epoch=epoch,
            all_root=all_root,
            keep_dev=keep_dev,
            jobs=self.jobs,
            digest=self.digest,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()


class PlannedImage(PackImage):
    """An image of which nothing is written: `ranges` are those that its file has of its packs."""

    ranges: Sequence[Range] = ()

    def finish(self, tree: MergedTree, *, epoch: int, all_root: bool = True, keep_dev: bool = False) -> WrittenImage:
        codec, _ = common_codec(self.packs)
        self.ranges = plan_ranges(self.packs, tree, codec, all_root=all_root, keep_dev=keep_dev, jobs=self.jobs)
        return WrittenImage(self.out, 0, 0)


def plan_squashfs(
    packs: Sequence[Path],
    config: ImageConfig,
    out: Path,
    options: ExportOptions = DEFAULT_OPTIONS,
    *,
    epoch: int,
    evidence: Mapping[str, Any] | None = None,
    foreign: bool = False,
) -> Sequence[Range]:
    """Return the ranges of packs that `export_squashfs` with the same arguments copies into the file `out`."""
    with PlannedImage(packs, out, jobs=options.jobs) as image:
        complete_image(image, config, options, epoch=epoch, evidence=evidence, foreign=foreign)
        return image.ranges


def export_squashfs(
    packs: Sequence[Path],
    config: ImageConfig,
    out: Path,
    options: ExportOptions = DEFAULT_OPTIONS,
    *,
    epoch: int,
    extra: Sequence[ExtraMember] = (),
    evidence: Mapping[str, Any] | None = None,
    foreign: bool = False,
    begun: MergedPacks | None = None,
) -> WrittenImage:
    """Write the enroot image `out` from pack files (bottom first); see `complete_image`. `begun`: see
    `PackImage`."""
    with PackImage(packs, out, jobs=options.jobs, digest=options.sha256, begun=begun) as image:
        return complete_image(image, config, options, epoch=epoch, extra=extra, evidence=evidence, foreign=foreign)


def complete_image(
    image: PackImage | DirectImage,
    config: ImageConfig,
    options: ExportOptions,
    *,
    epoch: int,
    extra: Sequence[ExtraMember] = (),
    evidence: Mapping[str, Any] | None = None,
    foreign: bool = False,
) -> WrittenImage:
    """Add `extra` members and what enroot needs (`envbuild.export.enroot`, `envbuild.export.enroot_repair`) to the
    layers of `image`, and write it.

    `epoch` in seconds. `evidence`: the description of the image in /etc/envbuild/export.json, beside its compression
    and repairs; None: no such file. `foreign`: a third-party image: settings that enroot cannot use are repaired, not
    refused. `WrittenImage.messages` has one line for each repair.

    Raises EnvbuildError for damaged packs, SpecError (for a foreign image InputError) or VerifyError with every finding
    when the image could not be started, InputError for contradictory layers, PublishError when the file cannot be
    written.
    """
    epoch = min(max(epoch, 0), LAST_TIME)  # 0001-01-01 is the time of many an image: squashfs begins in 1970
    with gc_paused(), raise_write_errors(image.out):
        tree = merge_packs(image.packs, image.begun)
        if extra:
            tree.apply(image.add(extra))
        links = relative_links(tree, config.volumes[:MOST_VOLUMES])
        needed = (repair if foreign else configure)(config, tree, epoch)
        plain = device_node_messages(tree) if options.keep_owners else make_unprivileged(tree, options.keep_dev)
        members = [*links.extra, *needed.extra]
        added = {EVIDENCE.encode(), *(member.path for member, _ in members)}
        messages = (
            *links.messages,
            *needed.messages,
            *plain,
            *find_unsupported_metadata(tree, image.packs, attributes=options.keep_owners, hidden=added),
        )
        more = [] if evidence is None else [evidence_member(image.packs, evidence, options, messages, epoch)]
        tree.apply(image.add([*members, *more]))
        written = image.finish(tree, epoch=epoch, all_root=not options.keep_owners, keep_dev=options.keep_dev)
    # the writer reports the same messages again; they were collected above so that they are in the evidence, too
    return dataclasses.replace(written, messages=messages)


def evidence_member(
    packs: Sequence[Pack], evidence: Mapping[str, Any], options: ExportOptions, messages: Sequence[str], epoch: int
) -> ExtraMember:
    """Return the member /etc/envbuild/export.json: the origin of the image and how it was written.

    The same image and options result in the same text, at any time, on any machine, for any user.
    """
    codec, block = common_codec(packs)
    value = {
        **evidence,
        "compression": {"codec": codec.name, "library": codec.library, "level": codec.level, "block": block},
        "options": {"keep_owners": options.keep_owners, **({"keep_dev": True} if options.keep_dev else {})},
        "writer": WRITER,
        "repairs": list(messages),
    }
    content = (json.dumps(value, sort_keys=True, indent=1) + "\n").encode()
    return Member(EVIDENCE.encode(), Kind.FILE, 0o644, mtime=epoch, size=len(content)), content
