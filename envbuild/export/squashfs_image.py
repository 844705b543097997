"""From packs and a run-time configuration to the file that `srun --container-image=` takes."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild.core.errors import PublishError
from envbuild.core.gc_pause import gc_paused
from envbuild.export.enroot import configure
from envbuild.export.enroot_repair import repair
from envbuild.export.options import ExportOptions
from envbuild.oci.config import ImageConfig
from envbuild.oci.tar.member import Kind, Member
from envbuild.squashfs.pack.file import Pack, read_pack
from envbuild.squashfs.write.direct_image import DirectImage
from envbuild.squashfs.write.limits import LAST_TIME, find_unsupported_metadata
from envbuild.squashfs.write.merge import MergedTree, merge_packs
from envbuild.squashfs.write.unprivileged import device_node_messages, make_unprivileged
from envbuild.squashfs.write.writer import ExtraMember, WrittenImage, common_codec, pack_extra_members, write_tree

EVIDENCE = "etc/envbuild/export.json"
FULL_HINT = "free some space there (in the store: envbuild store gc), or name a file elsewhere: -o FILE"
WRITE_HINTS = {
    errno.ENOSPC: FULL_HINT,
    errno.EDQUOT: FULL_HINT,
    errno.EROFS: "that file system is read-only: name a file elsewhere: -o FILE",
    errno.EFBIG: "that file system or ulimit -f allows no file so large: name a file elsewhere: -o FILE",
}
MergedPacks = tuple[Sequence[Pack], MergedTree | None]  # packs, and their tree
DEFAULT_OPTIONS = ExportOptions()
WRITER = 3  # of what an image's bytes are; raise it when the same packs give others


def merge_lowest(paths: Sequence[Path]) -> MergedPacks:
    """Packs read and merged before the layers above them have packs."""
    with gc_paused():
        packs = [read_pack(path) for path in paths]
        return packs, merge_packs(packs)


class PackImage:
    """An image in the making from packs that are kept: the counterpart of
    `envbuild.squashfs.write.direct_image.DirectImage`.

    `packs` are opened, bottom first. Used as a context manager; the packs of added members are gone at its end.
    `reread`: the image is read again at once. `begun`: what `lowest` gave for the first of `paths`."""

    def __init__(
        self, paths: Sequence[Path], out: Path, *, jobs: int = 0, reread: bool = False, begun: MergedPacks | None = None
    ) -> None:
        packs, self.begun = begun or ((), None)
        self.packs = [*packs, *(read_pack(path) for path in paths[len(packs) :])]
        self.out, self.jobs, self.reread, self.stack = out, jobs, reread, contextlib.ExitStack()

    def add(self, extra: Sequence[ExtraMember]) -> Pack:
        """A layer of members that are there already; to be applied to the tree by the caller."""
        self.packs += self.stack.enter_context(pack_extra_members(self.packs, extra, self.out))
        return self.packs[-1]

    def finish(self, tree: MergedTree, *, epoch: int, all_root: bool = True, keep_dev: bool = False) -> WrittenImage:
        """Write the image of `tree`, which `packs` were merged to."""
        return write_tree(
            self.packs,
            tree,
            self.out,
            epoch=epoch,
            all_root=all_root,
            keep_dev=keep_dev,
            jobs=self.jobs,
            reread=self.reread,
        )

    def __enter__(self) -> PackImage:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()


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
    """Write the enroot image `out` from pack files (bottom first); see `complete`. A file whose sha256 `options` ask
    for is read again at once, so it should stay in memory. `begun`: see `PackImage`."""
    with PackImage(packs, out, jobs=options.jobs, reread=options.sha256, begun=begun) as image:
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

    `epoch` in seconds. `evidence`: what /etc/envbuild/export.json is to say of the image, beside its compression and
    repairs; None: no such file. `foreign`: somebody else's image, so that what enroot would trip over is mended and not
    refused. `Written.messages` tells every repair in one line. Raises EnvbuildError for damaged packs, SpecError (of a
    foreign image InputError) or VerifyError with every finding when the image could not be started, InputError for
    layers that make no sense, PublishError when the file cannot be written.
    """
    epoch = min(max(epoch, 0), LAST_TIME)  # 0001-01-01 is the time of many an image: squashfs begins in 1970
    with gc_paused(), raise_write_errors(image.out):
        tree = merge_packs(image.packs, image.begun)
        if extra:
            tree.apply(image.add(extra))
        needed = (repair if foreign else configure)(config, tree, epoch)
        plain = device_node_messages(tree) if options.keep_owners else make_unprivileged(tree, options.keep_dev)
        added = {EVIDENCE.encode(), *(member.path for member, _ in needed.extra)}
        messages = (
            *needed.messages,
            *plain,
            *find_unsupported_metadata(tree, image.packs, attributes=options.keep_owners, hidden=added),
        )
        more = [] if evidence is None else [evidence_member(image.packs, evidence, options, messages, epoch)]
        tree.apply(image.add([*needed.extra, *more]))
        written = image.finish(tree, epoch=epoch, all_root=not options.keep_owners, keep_dev=options.keep_dev)
    # what the writer finds was found before, so that it is in the evidence, too
    return dataclasses.replace(written, messages=messages)


@contextlib.contextmanager
def raise_write_errors(out: Path) -> Iterator[None]:
    """Writes to `out` and beside it happen inside: what the file system refuses is told of `out` as PublishError. Other
    files' errors pass."""
    try:
        yield
    except OSError as error:
        beside = error.filename and Path(os.fsdecode(error.filename)).parent == out.parent
        if not beside and error.errno not in WRITE_HINTS:
            raise
        hint = WRITE_HINTS.get(error.errno or 0, "name a file in a folder that you can write to: -o FILE")
        raise PublishError(f"the image cannot be written: {error.strerror}", hint, str(out)) from error


def evidence_member(
    packs: Sequence[Pack], evidence: Mapping[str, Any], options: ExportOptions, messages: Sequence[str], epoch: int
) -> ExtraMember:
    """The member /etc/envbuild/export.json: where the image came from and how it was made. The same image and options
    give the same text, whenever, wherever and by whomever."""
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
