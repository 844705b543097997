"""The build context of a Containerfile: a folder with everything that it mounts, so that a build needs no network.

Containerfile
<unit>/<input>/         as the unit sees it below /run/envbuild (`envbuild.build.engines.prepare_inputs`)
<unit>/apt.conf         and sources.list, of units with Debian packages
<unit>/seed.tar         what the base begins with: the files of its essential packages, or of an image's layers
<unit>/step-<n>.sh      a command that does not fit into a RUN
.envbuild-context       the names of all these entries
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from envbuild.build.engines import prepare_inputs
from envbuild.build.plan.containerfile import containerfile, has_debs, script_path
from envbuild.build.plan.units import Plan, Unit
from envbuild.core.errors import PublishError
from envbuild.core.file_status import file_status
from envbuild.core.folder_removal import remove_folder
from envbuild.core.json_text import json_value
from envbuild.core.regular_file import MAX_TEXT, read_bounded
from envbuild.core.store.store import Store
from envbuild.core.text import human_list, printable
from envbuild.core.userns.call import call
from envbuild.oci.output_folder import open_output_folder

# The embedded engine keeps services from starting by the same file; here no other process could remove it again.
POLICY = """\
DPkg::Pre-Invoke { "printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d"; };
DPkg::Post-Invoke { "rm -f /usr/sbin/policy-rc.d"; };
"""
SYSTEM = {"proc": 0o555, "sys": 0o555, "dev": 0o755, "run": 0o755, "tmp": 0o1777}  # made where a root lacks them
MARK = "Containerfile"
LISTED = ".envbuild-context"  # what envbuild wrote there, and nothing else is removed
NAMED = 5  # entries in a message


def write_context(plan: Plan, store: Store, folder: Path) -> Path:
    """Write the context of `plan` into `folder`; returns the path of the Containerfile.

    Files of the store are hard-linked where that is possible. An older context there is replaced. A folder that other
    users own or can write is not used: until all is written, the context is beside it, and closed to them. Raises
    PublishError when the folder holds something else or cannot be written, InputError for missing or damaged content.
    """
    text = containerfile(plan)
    before = os.umask(0o022)  # modes get into layers, as in the embedded engine
    try:
        with contextlib.ExitStack() as stack:
            own = open_older(folder, stack)
            if own is None:
                output = stack.enter_context(
                    open_output_folder(folder.absolute(), LISTED, partial(check_older, folder))
                )
                fill_context(plan, store, output.handle, text)
                replace(output, mode=output.mode & ~before).publish()  # the folder itself is not in a layer
            else:
                fill_context(plan, store, Path(f"/proc/self/fd/{own}"), text)
    except OSError as error:
        raise PublishError(
            f"the build context {folder} cannot be written: {error.strerror or error}",
            hint="choose a folder on a disk with room that you may write: --context FOLDER",
        ) from error
    finally:
        os.umask(before)
    return folder / MARK


def open_older(folder: Path, stack: contextlib.ExitStack) -> int | None:
    """Return a descriptor of an existing folder, emptied, that belongs to this user and that no other one can write: it
    may be a mount point, or in a folder in which this user cannot rename it. None: the context is to be written beside.

    Raises PublishError for a folder with anything that is not of an older context.
    """
    try:
        fd: int = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    stack.callback(os.close, fd)
    handle = Path(f"/proc/self/fd/{fd}")
    names = check_older(folder, handle)
    found = file_status(fd)
    if found.owner != os.geteuid() or found.stat.st_mode & 0o022:
        return None
    for name in sorted(names, key=lambda name: name == LISTED):  # the list last
        if stat.S_ISDIR((handle / name).lstat().st_mode):
            remove_folder(handle / name)
        else:
            (handle / name).unlink()
    return fd


def check_older(folder: Path, at: Path) -> list[str]:
    """Return what is in `folder`, by the path `at`. Raises PublishError if it has anything that is not of an older
    context."""
    names = [path.name for path in at.iterdir()]
    if others := sorted({*names} - {*read_listed(at), LISTED}):
        raise PublishError(
            f"{folder} holds something else than a build context: {human_list(map(printable, others), NAMED)}",
            hint="name a new or an empty folder",
        )
    return names


def read_listed(folder: Path) -> list[str]:
    """Return the names of what an earlier call wrote into a folder; none without its list."""
    with contextlib.suppress(OSError, ValueError):
        value = json_value(read_bounded(folder / LISTED, MAX_TEXT, follow=False))
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            return value
    return []


def is_build_context(folder: Path) -> bool:
    """Return whether an earlier call wrote the folder, or began to."""
    return bool(read_listed(folder))


def fill_context(plan: Plan, store: Store, root: Path, text: str) -> None:
    """Write the context into the empty folder `root`, whose path leads through a descriptor. Raises as
    `write_context`."""
    names = [MARK, *(unit.name for unit in plan.units)]
    (root / LISTED).write_text(json.dumps(names) + "\n")  # first: an interrupted one is recognized
    checked: list[str] = []
    for unit in plan.units:
        checked += _write_unit(unit, plan, store, root / unit.name, checked)
    (root / MARK).write_text(text)  # last: it marks a complete context


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
                debs=input_paths(unit, prepare_inputs.DEBS, unit.seed, store, work),
                layers=input_paths(unit, prepare_inputs.LAYERS, unit.layers, store, work),
                work=str(work.resolve()),
                epoch=unit.epoch,
            )
            shutil.move(work / "seed.tar", folder / "seed.tar")
    if unit.layers:  # they are in the seed; a builder gets the whole context sent, and layers are large
        layers = folder / prepare_inputs.LAYERS
        remove_folder(layers)
        layers.mkdir()
    return verified


def input_paths(unit: Unit, name: str, files: Sequence[str], store: Store, work: Path) -> list[tuple[str, str]]:
    """Return (file name, path) of `files` of the input `name`: in the store, or copies in `work` where others
    may write one of them."""
    blobs = {blob.name: blob.sha256 for item in unit.inputs if item.name == name for blob in item.blobs}
    found = [(file, blobs[file]) for file in files if file in blobs]
    if not any(store.others_may_write(sha256) for _, sha256 in found):
        return [(file, str(store.blob(sha256).resolve())) for file, sha256 in found]
    for sha256 in {sha256 for _, sha256 in found}:  # two names may have the same content
        prepare_inputs.copy_blob(store, sha256, work / sha256)
    return [(file, str((work / sha256).resolve())) for file, sha256 in found]


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
        if not os.path.lexists(tree / name):  # a base may have a link there, also one that leads nowhere
            (tree / name).mkdir()
            (tree / name).chmod(mode)
    with (Path(work) / "seed.tar").open("wb") as file:
        write_members(upper_members(tree, [], epoch=epoch), [TarSink(file)])
    remove_folder(tree)
    remove_folder(names)
