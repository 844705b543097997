"""The metadata of an image, read from its squashfs file without mounting or running anything.

/etc/envbuild/ contains the files of envbuild: resolution.json and lock.yaml of an image it built, export.json of one it
wrote. /etc/rc and /etc/environment define how enroot starts it (`envbuild.export.enroot`; enroot's own imports have the
same form, and since 2026 a first line ``# enroot-provenance: SOURCE``). An image is not trusted: unreadable
parts are left out, and printed texts have no control characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.core.errors import LockError
from envbuild.core.json_text import record_value
from envbuild.core.plain_yaml import MAX_BYTES
from envbuild.lock.lockfile import parse_lock
from envbuild.lock.model import Lock
from envbuild.squashfs.read.tree import SquashTree
from envbuild.verify.contents.dpkg_status import debian_packages, join_versions

FOLDER = "etc/envbuild"
PROVENANCE = "enroot-provenance:"
WORKDIR = re.compile(r'cd "(.*)" && unset OLDPWD')
COMMAND = re.compile(r"\s*exec (.+)")
LIMIT = 1 << 20  # bytes of a text that is read whole: /etc/rc and /etc/environment have some thousand


@dataclass(frozen=True, slots=True)
class ImageMetadata:
    """The metadata of an image.

    `origin`: its resolution (image, target, versions …); empty if envbuild did not build it.
    `export`: how it was written; empty if envbuild did not write it.
    `labels`, `provenance`, `command` (shell words, unchanged), `workdir`: from /etc/rc.
    `has_start_script`: whether there is an /etc/rc.
    `debian`: the packages that dpkg has installed (name → version).
    """

    origin: dict[str, Any] = field(default_factory=dict)
    export: dict[str, Any] = field(default_factory=dict)
    lock: Lock | None = None
    lock_error: str = ""  # why the lock inside is unreadable
    provenance: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    has_start_script: bool = False
    command: str = ""
    workdir: str = ""
    env: dict[str, str] = field(default_factory=dict)
    debian: dict[str, str] = field(default_factory=dict)

    @property
    def versions(self) -> dict[str, str]:
        """Component → version."""
        found = self.origin.get("versions")
        return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}


def read_texts(tree: SquashTree, names: Iterable[str]) -> dict[str, str]:
    """Return texts of /etc/envbuild: name → content, without those that the image does not contain."""
    found = {}
    for name in names:
        data = tree.read(f"{FOLDER}/{name}".encode(), MAX_BYTES)
        if data is not None:
            found[name] = data.decode(errors="replace")
    return found


def read_image_texts(path: Path, *names: str) -> dict[str, str]:
    """Return texts of /etc/envbuild of a squashfs file: name → content, without those that it does not
    contain.

    Raises VerifyError if the file is damaged.
    """
    with SquashTree(path) as tree:
        return read_texts(tree, names)


def read_metadata(tree: SquashTree) -> ImageMetadata:
    """Return the metadata of an image.

    Raises VerifyError if the file is damaged.
    """
    documents = read_texts(tree, ("resolution.json", "lock.yaml", "export.json"))
    lock, lock_error = None, ""
    if "lock.yaml" in documents:
        try:
            lock = parse_lock(documents["lock.yaml"], tree.path)
        except LockError as error:  # perhaps of a later envbuild: everything else can still be shown
            lock_error = error.message
    script = read_text(tree, "etc/rc")
    start = parse_start_script(script) if script is not None else {}
    return ImageMetadata(
        origin=parse_object(documents.get("resolution.json", "")),
        export=parse_object(documents.get("export.json", "")),
        lock=lock,
        lock_error=lock_error,
        has_start_script=script is not None,
        env=parse_environment(read_text(tree, "etc/environment") or ""),
        debian=debian_packages(tree),
        **start,
    )


def read_text(tree: SquashTree, path: str) -> str | None:
    """Return a text file of the image, or None. Raises VerifyError when it has more than `LIMIT` bytes."""
    data = tree.read(path.encode(), LIMIT)
    return None if data is None else data.decode(errors="replace")


def parse_object(document: str) -> dict[str, Any]:
    """Return a JSON object, or an empty one for anything else."""
    try:
        value = record_value(document) if document else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def parse_start_script(script: str) -> dict[str, Any]:
    """Return provenance, labels, workdir and command of an /etc/rc."""
    lines = script.split("\n")
    labels: dict[str, str] = {}
    provenance = workdir = command = ""
    for number, line in enumerate(lines):
        if not line.startswith("# "):
            lines = lines[number:]
            break
        name, _, value = line[2:].partition(" ")
        if name == PROVENANCE:
            provenance = value
        else:
            labels[name] = value
    for line in lines:
        if found := WORKDIR.match(line):
            workdir = found[1]
        if (found := COMMAND.match(line)) and '"$@"' not in found[1]:
            command = found[1]
    return {"provenance": provenance, "labels": labels, "workdir": workdir, "command": command}


def parse_environment(lines: str) -> dict[str, str]:
    """Return the variables of /etc/environment as enroot reads it: one NAME=VALUE a line, the last of a name wins."""
    pairs = (line.strip().partition("=") for line in lines.split("\n"))
    return {name: value for name, sign, value in pairs if sign and not name.startswith("#")}


def locked_packages(lock: Lock) -> dict[str, dict[str, str]]:
    """Return the locked content of the image itself: debian, python and source → name → version (of a source: its
    origin).

    Inputs that only builds use are left out, as in the SBOM (`envbuild.build.plan.embedded_documents`).
    """
    debian = [lock.debian[file] for unit in lock.image_units() for file in (*unit.debian, *unit.essential)]
    python = [lock.python_files[file] for file in lock.image_python()]
    base = lock.base_image.python if lock.base_image else {}
    return {
        "debian": group_versions((file.name, file.version) for file in debian),
        "python": {
            **{normalize_name(name): version for name, version in base.items()},
            **group_versions((normalize_name(file.name), file.version) for file in python),
        },
        "source": {source.file: source.origin for source in lock.sources.values()},
    }


def locked_inputs(lock: Lock) -> dict[tuple[str, str], str]:
    """Return every input of a lock, also those that only builds use: (kind, name), with the kinds of `locked_packages`
    → its files' versions (of a source: its origin) and sha256, as one text."""
    found: dict[tuple[str, str], set[str]] = {}
    for file in lock.debian.values():
        found.setdefault(("debian", file.name), set()).add(f"{file.version} sha256:{file.sha256}")
    for python in lock.python_files.values():
        found.setdefault(("python", normalize_name(python.name)), set()).add(f"{python.version} sha256:{python.sha256}")
    for source in lock.sources.values():
        found[("source", source.file)] = {f"{source.origin} sha256:{source.sha256}"}
    return {key: ", ".join(sorted(texts)) for key, texts in found.items()}


def group_versions(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return name → its versions, sorted."""
    found: dict[str, set[str]] = {}
    for name, version in pairs:
        found.setdefault(name, set()).add(version)
    return {name: join_versions(versions) for name, versions in sorted(found.items())}


def normalize_name(name: str) -> str:
    """Return a distribution's name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
