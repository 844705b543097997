"""Third-party images by the references that users write, of the kinds in `envbuild.oci.sources.kinds`.

A path alone is a layout if it is a folder, else an archive.
"""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from envbuild.core.distributions import has_registry
from envbuild.core.errors import InputError, SpecError
from envbuild.core.judged_links import check_links
from envbuild.core.late_import import import_object
from envbuild.core.ownership import own_users
from envbuild.core.paths import expand_home
from envbuild.core.store.store import Store
from envbuild.core.text import without_logins
from envbuild.net.site import Site
from envbuild.oci.sources.base import SourceImage, SourceRequest
from envbuild.oci.sources.kinds import FORMS, PREFIXES, SOURCES
from envbuild.oci.sources.platform import Platform

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
SCHEME = re.compile(r"([a-z][a-z0-9+-]*):")


@dataclass(frozen=True, slots=True)
class SourceReference:
    """Reference of a source: `kind` is one of `SOURCES`; `rest` the text after the prefix."""

    kind: str
    rest: str


def parse_source(text: str) -> SourceReference | None:
    """Return the source that `text` names; None: it names an image of the project.

    Raises SpecError for forms of other programs and for texts that are not a form, InputError for a missing path.
    """
    for prefix, kind in PREFIXES.items():
        if text.startswith(prefix):
            rest = text.removeprefix(prefix).removeprefix("//")
            if not rest:
                raise SpecError(f"{text!r} names nothing", hint=f"write one of: {FORMS}")
            return SourceReference(kind, rest)
    scheme = SCHEME.match(text)
    if scheme:
        printed = without_logins(text)
        raise SpecError(f"{printed[:200]!r} is not a source that envbuild reads", hint=suggest_form(printed, scheme[1]))
    if text.endswith((".yaml", ".yml")) or ("/" not in text and not text.endswith(ARCHIVES)):
        return None
    return parse_path(text)


def suggest_form(text: str, scheme: str) -> str:
    """Return the hint for another program's form: what to write instead."""
    rest = text[len(scheme) + 1 :].lstrip("/")
    if scheme in ("podman", "containers-storage"):
        return f"podman save -o image.tar {rest}; then: envbuild export docker-archive:image.tar --to squashfs"
    if scheme == "docker":
        return f"write docker://{rest} for a registry, docker-daemon:{rest} for the Docker Engine here"
    if scheme in ("http", "https"):
        return f"for an image of a registry write docker://{rest}"
    if re.fullmatch(r"[\w.-]+|[0-9]+/.+", text[len(scheme) + 1 :]):  # ubuntu:24.04, localhost:5000/app:1
        return f"for an image of a registry write docker://{text}"
    return f"write one of: {FORMS}"


def parse_path(text: str) -> SourceReference:
    """Return the source at a bare path. Raises InputError for a missing one, SpecError for a squashfs file."""
    try:
        path, _ = split_path(text)
    except InputError:
        if has_registry(text):
            raise InputError(
                f"there is no file or folder {text[:200]}", hint=f"for an image of a registry write docker://{text}"
            ) from None
        raise
    if path.suffix == ".sqsh":
        raise SpecError(f"{path} is a squashfs file already", hint=f"srun --container-image={path.absolute()}")
    return SourceReference("layout" if path.is_dir() else "archive", text)


def split_path(text: str) -> tuple[Path, str]:
    """Return (path, tag) of ``PATH[:TAG]``: the longest beginning that exists. Raises InputError."""
    ends = [len(text), *(found.start() for found in reversed(list(re.finditer(":", text))))]
    for end in ends:
        path = expand_home(text[:end])
        if text[:end] and os.path.exists(path):  # noqa: PTH110  # Path's raises for a name that is too long
            return path, text[end + 1 :]
    raise InputError(f"there is no file or folder {text[:200]}", hint="check the path; a tag follows it after a colon")


def open_source(
    text: str,
    site: Site,
    store: Store,
    arch: str = "",
    *,
    keep: bool = False,
    alone: bool = False,
    manifest: str = "",
) -> AbstractContextManager[SourceImage]:
    """Return the image that `text` names; what it opened is closed at the end of the context.

    - `arch`: its CPU architecture (``amd64``, ``arm64``, ``arm/v7``); empty: this machine's where there is a choice
    - `keep`: cache the layers of a remote image in the store
    - `alone`: take nothing of it from the store: what is read is what the source has
    - `manifest` (``sha256:…``): the image of a layout with this manifest, which its tag may no longer name

    Raises SpecError for a text that names no source and for `keep` of an image on this machine, InputError with every
    finding if the image is not available or unreadable, ConflictError if there is no image for `arch`, EngineError
    without a Docker Engine.
    """
    place = parse_source(text)
    if place is None:
        raise SpecError(f"{text[:200]!r} is not a source", hint=f"write one of: {FORMS}")
    kind, platform = SOURCES[place.kind], Platform.of(arch)
    if keep and not kind.remote:
        raise SpecError(
            f"--keep-layers has no meaning for {text[:200]}, whose layers are on this machine", hint="leave it out"
        )
    image: AbstractContextManager[SourceImage] = import_object(kind.opener)(
        place.rest, SourceRequest(site, store, platform, keep, alone, manifest)
    )
    return image


def open_path(rest: str, request: SourceRequest) -> AbstractContextManager[SourceImage]:
    """Return the image at ``PATH[:TAG]``: a layout if it is a folder, else an archive.

    Raises InputError, also for a link of another user on the way that does not lead to a file of theirs, ConflictError.
    """
    path, tag = split_path(rest)
    try:
        check_links(path.absolute(), own_users())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}", hint=f"ls -l {path}") from None
    if path.is_dir():
        from envbuild.oci.sources.oci_layout import open_layout

        return open_layout(path, tag, request.platform, request.manifest)
    from envbuild.oci.sources.archive import open_archive

    return open_archive(path, tag, request.platform)
