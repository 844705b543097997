"""From packs and a run-time configuration to the file that `srun --container-image=` takes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.errors import EnvbuildError
from envbuild.oci.member import Kind, Member
from envbuild.plan.units import ImageConfig
from envbuild.squashfs.direct import DirectImage
from envbuild.squashfs.enroot import configure
from envbuild.squashfs.mend import mend
from envbuild.squashfs.merge import Tree, merge
from envbuild.squashfs.pack import Pack, read_pack
from envbuild.squashfs.plain import make_plain
from envbuild.squashfs.writer import Extra, Written, adding, parameters, write_tree

EVIDENCE = "etc/envbuild/export.json"
WRITER = 1  # of what an image's bytes are; raise it when the same packs give others


@dataclass(frozen=True, slots=True)
class Manner:
    """How an image is made of its packs. `keep_owners`: owners, device nodes and extended attributes stay as the layers
    have them. `foreign`: somebody else's image, so that what enroot would trip over is mended and not refused."""

    keep_owners: bool = False
    foreign: bool = False


class PackImage:
    """An image in the making from packs that are kept: the counterpart of `envbuild.squashfs.direct.DirectImage`.

    `packs` are opened, bottom first. Used as a context manager; the packs of added members are gone at its end."""

    def __init__(self, paths: Sequence[Path], out: Path, *, jobs: int = 0) -> None:
        self.packs = [read_pack(path) for path in paths]
        self.out, self.jobs, self.stack = out, jobs, contextlib.ExitStack()

    def add(self, extra: Sequence[Extra]) -> Pack:
        """A layer of members that are there already; to be applied to the tree by the caller."""
        self.packs += self.stack.enter_context(adding(self.packs, extra, self.out))
        return self.packs[-1]

    def finish(self, tree: Tree, *, epoch: int, all_root: bool = True) -> Written:
        """Write the image of `tree`, which `packs` were merged to."""
        return write_tree(self.packs, tree, self.out, epoch=epoch, all_root=all_root, jobs=self.jobs)

    def __enter__(self) -> PackImage:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()


def export_squashfs(
    packs: Sequence[Path],
    config: ImageConfig,
    out: Path,
    *,
    epoch: int,
    extra: Sequence[Extra] = (),
    manner: Manner = Manner(),
    evidence: Mapping[str, Any] | None = None,
    jobs: int = 0,
) -> Written:
    """Write the enroot image `out` from pack files (bottom first); see `complete`. `jobs`: threads (0: all cores)."""
    with PackImage(packs, out, jobs=jobs) as image:
        return complete(image, config, epoch=epoch, extra=extra, manner=manner, evidence=evidence)


def complete(
    image: PackImage | DirectImage,
    config: ImageConfig,
    *,
    epoch: int,
    extra: Sequence[Extra] = (),
    manner: Manner = Manner(),
    evidence: Mapping[str, Any] | None = None,
) -> Written:
    """Add `extra` members and what enroot needs (`envbuild.squashfs.enroot`, `envbuild.squashfs.mend`) to the layers of
    `image`, and write it.

    `epoch` in seconds. `Written.messages` tells every repair in one line. `evidence`: what /etc/envbuild/export.json is
    to say of the image, beside its compression and repairs; None: no such file. Raises EnvbuildError for damaged packs,
    SpecError (of a foreign image InputError) or VerifyError with every finding when the image could not be started.
    """
    tree = merge(image.packs)
    try:
        if extra:
            tree.apply(image.add(extra))
        needed = (mend if manner.foreign else configure)(config, tree, epoch)
        plain = () if manner.keep_owners else make_plain(tree)
        messages = (*needed.messages, *plain)
        more = [] if evidence is None else [document(image.packs, evidence, manner, messages, epoch)]
        tree.apply(image.add([*needed.extra, *more]))
        written = image.finish(tree, epoch=epoch, all_root=not manner.keep_owners)
    except OSError as error:
        raise EnvbuildError(
            f"the image cannot be written: {error.strerror}", where=str(error.filename or image.out)
        ) from error
    # what was made plain before is found again, and told once
    return dataclasses.replace(written, messages=tuple(dict.fromkeys((*messages, *written.messages))))


def document(
    packs: Sequence[Pack], evidence: Mapping[str, Any], manner: Manner, messages: Sequence[str], epoch: int
) -> Extra:
    """The member /etc/envbuild/export.json: where the image came from and how it was made. The same image and options
    give the same text, whenever, wherever and by whomever."""
    codec, block = parameters(packs)
    value = {
        **evidence,
        "compression": {"codec": codec.name, "library": codec.library, "level": codec.level, "block": block},
        "options": {"keep_owners": manner.keep_owners},
        "writer": WRITER,
        "repairs": list(messages),
    }
    content = (json.dumps(value, sort_keys=True, indent=1) + "\n").encode()
    return Member(EVIDENCE.encode(), Kind.FILE, 0o644, mtime=epoch, size=len(content)), content
