"""Inputs of a unit as folders: blobs under their names, a flat apt repository, an unpacked archive, small texts.

The folders are made in the unit's working folder by the unit's own process, then bound read-only below /run/envbuild.
Times are fixed, so that a copied input looks the same on every machine."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild.build.engines import deb
from envbuild.build.engines.safe_extract import extract_tar, extract_zip, single_folder
from envbuild.build.steps import INPUTS
from envbuild.core.archive_damage import DAMAGE
from envbuild.core.bombs import UnpackedFiles
from envbuild.core.bounded_tar import BoundedTarFile
from envbuild.core.digest import copy_digested
from envbuild.core.errors import InputError
from envbuild.core.fixed_time import TIME
from envbuild.core.folder_removal import remove_folder
from envbuild.core.plain_zip import PlainZipFile
from envbuild.core.regular_file import open_regular
from envbuild.core.rooted_tree import PATH_ERRORS
from envbuild.core.store.store import Store
from envbuild.core.text import escaped

DEBS, LAYERS = "debs", "layers"  # inputs that a base begins with: Unit.seed, Unit.layers

# of names in an archive, and without a number: of gzip and bzip2
NAME_ERRORS = PATH_ERRORS | {None, errno.EINVAL}

ZIPPED = (".whl", ".zip")

APT_CONF = f"""\
Dir::Etc::SourceList "{INPUTS}/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "{INPUTS}/apt/lists";
Dir::Cache "{INPUTS}/apt/cache";
Dir::Log "{INPUTS}/apt/log";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
Acquire::Languages "none";
DPkg::Use-Pty "0";
DPkg::Options {{ "--force-unsafe-io"; "--force-confdef"; "--force-confold"; }};
"""


def prepare_inputs(
    store: Store, inputs: Sequence[Mapping[str, Any]], folder: Path, checked: Sequence[str] = ()
) -> list[str]:
    """Make the folders of `inputs` (as in a job: name, kind, blobs as (name, sha256), texts) in `folder`.

    Returns the digests that were compared; those in `checked` are trusted. Raises InputError for damaged or missing
    content."""
    verified: list[str] = []
    known = set(checked)
    for item in inputs:
        target = folder / item["name"]
        target.mkdir(parents=True)
        blobs: list[tuple[str, str]] = [(name, sha256) for name, sha256 in item["blobs"]]
        for _, sha256 in blobs:
            if sha256 not in known:
                if not store.has_blob(sha256):
                    raise InputError(
                        f"the store lacks sha256 {sha256}",
                        hint="run envbuild make again to fetch it",
                        where=item["name"],
                    )
                if not store.others_may_write(sha256):  # else each copy is compared
                    store.check_blob(sha256)
                known.add(sha256)
                verified.append(sha256)
        if item["kind"] == "tree":
            if len(blobs) != 1:
                raise InputError(f"a tree is of one archive, and it has {len(blobs)}", "lock again", item["name"])
            ((name, sha256),) = blobs
            unpack_blob(store, sha256, name, target)
            continue
        for name, text in item["texts"]:
            write_new(place_of(target, name), text)
        link_blobs(store, blobs, target)
        if item["kind"] == "debian":
            text = deb.packages_index(((name, sha, target / name) for name, sha in blobs), store)
            write_new(place_of(target, "Packages"), text)
        fix_times(target)
    return verified


def place_of(target: Path, name: str) -> Path:
    """Return the path of a new input below `target`, and make the folders above it. Raises InputError.

    Nothing may be there: it may be a hard link of a blob, and what is written to one is written to both."""
    if not name or {"", ".", ".."} & set(name.split("/")) or "\0" in name:
        raise InputError(f"an input has the name {escaped(name)}, which leads out of its folder", hint="lock again")
    path = target / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        taken = os.path.lexists(path)
    except (FileExistsError, NotADirectoryError):
        taken = True
    if taken:
        raise InputError(f"two inputs have the name {escaped(name)}, or one is a folder of the other", "lock again")
    return path


def write_new(path: Path, text: str) -> None:
    with path.open("x") as file:
        file.write(text)


def link_blobs(store: Store, blobs: Sequence[tuple[str, str]], target: Path) -> None:
    """Make hard links of blobs, under their names; copies where the file system has no more links.

    Copies where others may write a blob, too: it has another owner, group or mode, which a step would see and copy.
    """
    for name, sha256 in blobs:
        path = place_of(target, name)
        if store.others_may_write(sha256) or not _has_link(store.blob(sha256), path):
            copy_blob(store, sha256, path)


def copy_blob(store: Store, sha256: str, path: Path) -> None:
    """Copy a blob, and compare its digest meanwhile: another user may have written it since it was
    compared. Raises InputError, and OSError for a full disk."""
    failure: Exception = InputError(f"the input sha256:{sha256} was changed while it was read", "run the command again")
    found = ""
    try:
        with open_regular(store.blob(sha256), follow=False) as source, path.open("xb") as file:
            found = copy_digested(source, file)
    except OSError as error:
        failure = error
    if found != sha256:
        path.unlink(missing_ok=True)
        store.check_blob(sha256)
        raise failure


def unpack_blob(store: Store, sha256: str, name: str, target: Path) -> None:
    """Extract a blob that is an archive, as `unpack_archive`; a copy where others may write it."""
    if not store.others_may_write(sha256):
        unpack_archive(store.blob(sha256), name, target)
        return
    copy = target.parent / f".{sha256}"
    try:
        copy_blob(store, sha256, copy)
        unpack_archive(copy, name, target)
    finally:
        copy.unlink(missing_ok=True)


def _has_link(blob: Path, path: Path) -> bool:
    """Return whether `path` could be made a hard link of a blob."""
    try:
        os.link(blob, path)
    except OSError:
        return False
    return True


def fix_times(target: Path) -> None:
    for folder in list_folders(target):
        for entry in os.scandir(folder):
            if not entry.is_dir(follow_symlinks=False):
                os.utime(entry.path, (TIME, TIME))
        os.utime(folder, (TIME, TIME))


def list_folders(top: Path) -> Iterator[str]:
    """Yield a folder and all below it; `os.walk` of Python 3.11 calls itself for each level. Raises OSError."""
    pending = [str(top)]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as entries:
            pending += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        yield folder


def unpack_archive(archive: Path, name: str, target: Path) -> None:
    """Extract an archive into the empty folder `target`, without its single top folder: the tar of a project folder,
    which envbuild wrote, or the locked wheel of uv. Sources are unpacked by `tar`, in the box. Raises InputError.

    Its name decides which it is: `zipfile.is_zipfile` takes a tar for the zip archive that is its last member, or that
    a test of the project needs. In a folder with another archive this one could replace what a link of that one leads
    through."""
    if any(target.iterdir()):
        raise InputError(f"the archive {name} has no folder of its own", hint="lock again")
    try:
        with open_regular(archive, follow=False) as file:
            files = UnpackedFiles(os.fstat(file.fileno()).st_size)
            if name.endswith(ZIPPED):
                with PlainZipFile(file) as bundle:
                    extract_zip(bundle, target, files)
            else:
                with BoundedTarFile.open(fileobj=file) as tar:
                    extract_tar(tar, target, files)
        unwrap(target)
    except (*DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno not in NAME_ERRORS:
            raise
        raise InputError(
            f"the archive {name} cannot be unpacked: {error}", hint="lock again with another file"
        ) from error


def unwrap(target: Path) -> None:
    """Replace a folder by the single folder in it, if there is one, and fix the times of all folders."""
    if single := single_folder(target):
        top = single.rename(target.with_name(f".{target.name}.top"))
        remove_folder(target)
        top.rename(target)
    for folder in list_folders(target):
        os.utime(folder, (TIME, TIME))


def write_apt_files(run: Path) -> None:
    """Write apt's configuration and its scratch folders below ``run`` (/run/envbuild of the unit)."""
    (run / "apt.conf").write_text(APT_CONF)
    (run / "sources.list").write_text(f"deb [trusted=yes] file:{INPUTS}/{DEBS} ./\n")
    for name in ("lists/partial", "cache/archives/partial", "log"):
        (run / "apt" / name).mkdir(parents=True)
