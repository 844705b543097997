"""From packs and a run-time configuration to the file that `srun --container-image=` takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from envbuild.errors import EnvbuildError
from envbuild.plan.units import ImageConfig
from envbuild.squashfs.enroot import configure
from envbuild.squashfs.index import read_pack
from envbuild.squashfs.merge import merge
from envbuild.squashfs.writer import Extra, Written, adding, write_tree


def export_squashfs(
    packs: Sequence[Path], config: ImageConfig, out: Path, *, epoch: int, extra: Sequence[Extra] = ()
) -> Written:
    """Write the enroot image `out` from pack files (bottom first), `extra` members and what enroot needs
    (`envbuild.squashfs.enroot`).

    `epoch` in seconds. `Written.messages` tells every repair in one line. Raises EnvbuildError for damaged packs,
    SpecError or VerifyError with every finding when the image could not be started.
    """
    opened = [read_pack(path) for path in packs]
    tree = merge(opened)
    try:
        with adding(opened, extra, out) as given:
            for pack in given:
                tree.apply(pack)
            needed = configure(config, tree, epoch)
            with adding(opened, needed.extra, out) as added:
                for pack in added:
                    tree.apply(pack)
                written = write_tree([*opened, *given, *added], tree, out, epoch=epoch)
    except OSError as error:
        raise EnvbuildError(
            f"the image cannot be written: {error.strerror}", where=str(error.filename or out)
        ) from error
    return dataclasses.replace(written, messages=(*needed.messages, *written.messages))
