"""Package databases of the image: dpkg's status file, and the dist-info folders of Python environments."""

# Strings instead of Path objects: many thousand files, and names that are not UTF-8.
# ruff: noqa: PTH113, PTH123, PTH207

from __future__ import annotations

import csv
import glob
import os
import posixpath
import re
from collections.abc import Iterator, Sequence

SITES = (
    "/opt/venv/lib/python*/site-packages",
    "/usr/local/lib/python*/dist-packages",
    "/usr/local/lib/python*/site-packages",
)
LONGEST, LARGEST = 1 << 16, 1 << 20  # characters of a row of a RECORD, and of a METADATA that are read
MODULE = re.compile(r"(?P<name>.+?)(\.cpython-[^./]+|\.abi3)?\.so")


def parse_dpkg_status(status: str) -> tuple[dict[str, str], list[str]]:
    """Return (name → version of what is installed, names half installed) from the text of /var/lib/dpkg/status.

    A package of a foreign architecture is NAME:ARCH; native is the architecture of dpkg itself.
    """
    paragraphs = [
        dict(re.findall(r"^([A-Za-z-]+): ?(.*)$", part, re.MULTILINE)) for part in status.split("\n\n") if part.strip()
    ]
    native = next((item.get("Architecture", "") for item in paragraphs if item.get("Package") == "dpkg"), "")
    versions: dict[str, str] = {}
    broken: list[str] = []
    for item in paragraphs:
        name, arch, state = item.get("Package", ""), item.get("Architecture", ""), item.get("Status", "").split()
        if native and arch not in ("all", native):
            name = f"{name}:{arch}"
        if state[-1:] == ["installed"]:
            versions[name] = item.get("Version", "")
            if state[1:2] != ["ok"]:
                broken.append(name)
        elif state and state[-1] not in ("not-installed", "config-files"):
            broken.append(f"{name} ({state[-1]})")
    return versions, broken


def list_dists(sites: Sequence[str] = SITES) -> tuple[list[dict[str, object]], dict[str, str]]:
    """Return (installed distributions by name, owner of each file: path → distribution name).

    Of a distribution: name, version, site, `modules` (dotted names of its extension modules), `missing` (files of its
    RECORD that are not there).
    """
    found: list[dict[str, object]] = []
    owners: dict[str, str] = {}
    for site in sorted({os.path.realpath(path) for pattern in sites for path in glob.glob(pattern)}):
        for info in sorted(glob.glob(f"{site}/*.dist-info")):
            name, version = _metadata(f"{info}/METADATA")
            modules: list[str] = []
            missing: list[str] = []
            for file, _ in rows_of(info, missing):
                path = posixpath.normpath(posixpath.join(site, file))
                owners.setdefault(path, name)
                if file.endswith(".pyc"):
                    continue
                if not os.path.lexists(path):
                    missing.append(file)
                match = MODULE.fullmatch(file)
                if match and not posixpath.basename(file).startswith("lib"):
                    modules.append(match["name"].replace("/", "."))
            found.append(
                {"name": name, "version": version, "site": site, "modules": sorted(modules), "missing": sorted(missing)}
            )
    return found, owners


def find_clashes(sites: Sequence[str] = SITES) -> list[dict[str, object]]:
    """Return files that several distributions claim with different content: the one installed last won.

    nvidia-nccl-cu12 and -cu13 do this.
    """
    claims: dict[str, dict[str, list[str]]] = {}
    for pattern in sites:
        for info in sorted(glob.glob(f"{pattern}/*.dist-info")):
            site = posixpath.dirname(info)
            for file, digest in rows_of(info, []):  # `list_dists` reports those that cannot be read
                if digest:
                    path = posixpath.normpath(posixpath.join(site, file))
                    claims.setdefault(path, {}).setdefault(digest, []).append(
                        posixpath.basename(info)[: -len(".dist-info")]
                    )
    return [
        {"path": path, "dists": sorted(name for names in digests.values() for name in names)}
        for path, digests in sorted(claims.items())
        if len(digests) > 1
    ]


def rows_of(info: str, missing: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the rows of the RECORD of a dist-info folder; one that cannot be read is added to `missing`."""
    try:
        yield from read_record(f"{info}/RECORD")
    except (OSError, ValueError, csv.Error) as error:
        missing.append(f"{posixpath.basename(info)}/RECORD ({error})")


def read_record(path: str) -> Iterator[tuple[str, str]]:
    """Yield (file, digest) rows of a RECORD (PyPA, "Recording installed projects"); nothing when there is none.

    Raises OSError, ValueError and csv.Error for one that cannot be read."""
    if not os.path.isfile(path):  # a pipe would wait
        return
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.reader(iter(lambda: file.readline(LONGEST), "")):
            if row:
                yield row[0], row[1] if len(row) > 1 else ""


def _metadata(path: str) -> tuple[str, str]:
    values = {"Name": "", "Version": ""}
    if os.path.isfile(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file.read(LARGEST).split("\n"):
                key, _, value = line.partition(":")
                if not line.strip():
                    break
                if key in values and not values[key]:
                    values[key] = value.strip()
    name = values["Name"] or posixpath.basename(posixpath.dirname(path)).split("-")[0]
    return name, values["Version"]
