"""The build context of a Containerfile: a folder with everything that it mounts, so that a build needs no network.

Containerfile
<unit>/<input>/         as the unit sees it below /run/envbuild (`envbuild.build.engines.prepare_inputs`)
<unit>/apt.conf         and sources.list, of units with Debian packages
<unit>/seed.tar         what the base begins with: the files of its essential packages, or of an image's layers
<unit>/step-<n>.sh      a command that does not fit into a RUN
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from envbuild.build.engines import prepare_inputs
from envbuild.build.plan.containerfile import PRINTED, containerfile, has_debs, script_path
from envbuild.build.plan.units import Plan, Unit
from envbuild.core.errors import PublishError
from envbuild.core.folder_removal import remove_folder
from envbuild.core.store.store import Store
from envbuild.core.userns.call import call
from envbuild.oci.output_folder import open_output_folder

# The embedded engine keeps services from starting by the same file; here no other process could remove it again.
POLICY = """\
DPkg::Pre-Invoke { "printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d"; };
DPkg::Post-Invoke { "rm -f /usr/sbin/policy-rc.d"; };
"""
SYSTEM = {"proc": 0o555, "sys": 0o555, "dev": 0o755, "run": 0o755, "tmp": 0o1777}  # made where a root lacks them
MARK, UNFINISHED = "Containerfile", ".unfinished"


def write_context(plan: Plan, store: Store, folder: Path) -> Path:
    """Write the context of `plan` into `folder`; returns the path of the Containerfile.

    Files of the store are hard-linked where that is possible. An older context there is replaced. A folder that other
    users own or can write is not used: until all is written, the context is beside it, and closed to them. Raises
    PublishError when the folder holds something else or cannot be written, InputError for missing or damaged content.
    """
    text = containerfile(plan)
    before = os.umask(0o022)  # modes get into layers, as in the embedded engine
    try:
        if folder.exists() and any(folder.iterdir()) and not is_build_context(folder):
            raise PublishError(f"{folder} holds something else than a build context", hint="name an empty folder")
        with contextlib.ExitStack() as stack:
            own = open_own_folder(folder)
            if own is None:
                output = stack.enter_context(open_output_folder(folder.absolute(), MARK))
                fill_context(plan, store, output.handle, text)
                output.publish()
            else:
                stack.callback(os.close, own)
                fill_context(plan, store, Path(f"/proc/self/fd/{own}"), text)
    except OSError as error:
        raise PublishError(
            f"the build context {folder} cannot be written: {error.strerror or error}",
            hint="choose a folder on a disk with room that you may write: --context FOLDER",
        ) from error
    finally:
        os.umask(before)
    return folder / MARK


def open_own_folder(folder: Path) -> int | None:
    """Return a descriptor of an existing folder that belongs to this user and that no other one can write; else None.
    It may be a mount point, or in a folder in which this user cannot rename it."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    status = os.fstat(fd)
    if status.st_uid == os.geteuid() and not status.st_mode & 0o022:
        return fd
    os.close(fd)
    return None


def fill_context(plan: Plan, store: Store, root: Path, text: str) -> None:
    """Write the context into the folder `root`, whose path leads through a descriptor. Raises as `write_context`."""
    for entry in sorted(root.iterdir()):
        if entry.name == UNFINISHED:
            continue
        if entry.is_dir() and not entry.is_symlink():
            remove_folder(entry)
        else:
            entry.unlink()
    (root / UNFINISHED).write_text(PRINTED)
    checked: list[str] = []
    for unit in plan.units:
        checked += _write_unit(unit, plan, store, root / unit.name, checked)
    (root / MARK).write_text(text)  # last: it marks a complete context
    (root / UNFINISHED).unlink()


def is_build_context(folder: Path) -> bool:
    """Return whether an earlier call wrote the folder, or began to."""
    for name in (MARK, UNFINISHED):
        with contextlib.suppress(OSError), (folder / name).open() as file:
            if PRINTED in file.readline():
                return True
    return False


def _write_unit(unit: Unit, plan: Plan, store: Store, folder: Path, checked: list[str]) -> list[str]:
    """Write the folder of one unit; return the digests that were compared."""
    inputs = [
        {
            "name": item.name,
            "kind": item.kind,
            "blobs": [(blob.name, blob.sha256) for blob in item.blobs],
            "texts": list(item.texts),
        }
        for item in unit.inputs
        if item.blobs or not item.units  # wheels come from the stages that make them
    ]
    scripts = [script for number in range(len(unit.steps)) if (script := script_path(unit, number))]
    if not inputs and not scripts:
        return []
    folder.mkdir()
    verified = prepare_inputs.prepare_inputs(store, inputs, folder, checked)
    if has_debs(unit):
        prepare_inputs.write_apt_files(folder)
        remove_folder(folder / "apt")  # a tmpfs in the build
        with (folder / "apt.conf").open("a") as file:
            file.write(POLICY)
    for number, step in enumerate(unit.steps):
        if script := script_path(unit, number):
            (folder.parent / script).write_text(step.command.strip() + "\n")
    if unit.seed or unit.layers:
        with store.workdir() as work:  # another process writes it, for which the folder of the context is a path
            call(
                write_seed,
                debs=input_paths(unit, prepare_inputs.DEBS, unit.seed, store),
                layers=input_paths(unit, prepare_inputs.LAYERS, unit.layers, store),
                work=str(work.resolve()),
                epoch=unit.epoch,
            )
            shutil.move(work / "seed.tar", folder / "seed.tar")
    if unit.layers:  # they are in the seed; a builder gets the whole context sent, and layers are large
        layers = folder / prepare_inputs.LAYERS
        remove_folder(layers)
        layers.mkdir()
    return verified


def input_paths(unit: Unit, name: str, files: Sequence[str], store: Store) -> list[tuple[str, str]]:
    """Return (file name, path in the store) of `files` of the input `name`."""
    blobs = {blob.name: blob.sha256 for item in unit.inputs if item.name == name for blob in item.blobs}
    return [(file, str(store.blob(blobs[file]).resolve())) for file in files if file in blobs]


def write_seed(*, debs: list[tuple[str, str]], layers: list[tuple[str, str]], work: str, epoch: int) -> None:
    """Write ``work/seed.tar`` from packages and layers given as (name, path): what the embedded engine unpacks, as one
    canonical tar.

    Must run as root, or as root of a user namespace."""
    from envbuild.build.engines import deb
    from envbuild.oci.layers.apply import apply_layers
    from envbuild.oci.layers.layer import upper_members, write_members
    from envbuild.oci.tar.writer import TarSink

    tree, names = Path(work) / ".seed", Path(work) / ".debs"
    tree.mkdir(mode=0o700)  # a base has setuid programs, and the folder above may be open to others
    names.mkdir(mode=0o700)
    for name, path in debs:  # the order of unpacking follows from the names
        (names / name).symlink_to(path)
    deb.unpack_packages((names / name for name, _ in debs), tree)
    apply_layers([Path(path) for _, path in layers], tree)
    for name, mode in SYSTEM.items():
        if not (tree / name).exists():
            (tree / name).mkdir()
            (tree / name).chmod(mode)
    with (Path(work) / "seed.tar").open("wb") as file:
        write_members(upper_members(tree, [], epoch=epoch), [TarSink(file)])
    remove_folder(tree)
    remove_folder(names)
