"""``caches:`` of ``site.yaml``: what a user may write about caches of units, and every mistake in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from envbuild.core.distributions import PATHS
from envbuild.core.errors import SpecError
from envbuild.core.yaml_nodes import Node
from envbuild.core.yaml_reader import Reader
from envbuild.net.registry.reference import parse_reference
from envbuild.net.unit_caches import UnitCache
from envbuild.net.urls import redact_reference

KEYS = ("at", "write", "unsigned", "keys", "sign")
LAYOUT = "oci:"
FOLDERS = (*PATHS, "$", LAYOUT)
UNSIGNED = (
    "write keys: [FILE.pub] of those who sign its units; or unsigned: true if you believe all who can write there: "
    "what they put there runs in your builds and images"
)


def read_caches(
    reader: Reader, node: Node, folder: Callable[[str], str], trusted: Sequence[Path] = ()
) -> tuple[UnitCache, ...]:
    """Return the caches that a site file lists; report mistakes. trusted: the keys of the site, for caches that name
    none."""
    found: dict[str, UnitCache] = {}
    for item in reader.items(node, "caches"):
        entries = reader.table(item, KEYS, "caches", "a cache")
        if "at" not in entries:
            if entries:
                reader.wrong(item.where, "a cache without 'at'", "name it: at: REGISTRY/REPOSITORY, or a folder")
            continue
        text = reader.text(entries["at"], "at") or ""
        printed = redact_reference(text)
        flags = {key: reader.value(entries[key], bool, key) is True for key in KEYS[1:3] if key in entries}
        unsigned, write = flags.get("unsigned", False), flags.get("write", False)
        keys = tuple(Path(folder(key)) for key in reader.texts(entries["keys"], "keys")) if "keys" in entries else ()
        sign = folder(reader.text(entries["sign"], "sign") or "") if "sign" in entries else ""
        if unsigned and "keys" in entries:
            reader.wrong(entries["keys"].where, f"'{printed}' has keys and unsigned: true", "leave out one of them")
        keys = () if unsigned else keys or tuple(trusted)
        if not keys and not unsigned:
            reader.wrong(item.where, f"'{printed}': nothing states who may write its units", UNSIGNED)
        if write and keys and not sign:
            what = f"'{printed}': units that are sent there need a signature"
            reader.wrong(item.where, what, "write sign: FILE.key, which envbuild key new makes")
        if sign and not write:
            reader.wrong(entries["sign"].where, f"'{printed}': nothing is sent there", "write: true; or leave out sign")
        try:
            cache = replace(_parse_place(text, folder, write), keys=keys, sign=Path(sign) if sign else None)
        except SpecError as error:
            reader.wrong(entries["at"].where, error.message, error.hint)
            continue
        if cache.at in found:
            reader.wrong(item.where, f"'{printed}' is listed twice", "leave out one of them")
        found[cache.at] = cache
    return tuple(found.values())


def _parse_place(text: str, folder: Callable[[str], str], write: bool) -> UnitCache:
    """Return the cache at a place. Raises SpecError."""
    if text.startswith(FOLDERS):
        path = folder(text.removeprefix(LAYOUT))
        return UnitCache(path, folder=Path(path), write=write)
    hint = "write REGISTRY/REPOSITORY, as in ghcr.io/team/envbuild-cache, or a folder: /shared/cache, ./cache"
    printed = redact_reference(text)[:200]
    try:
        found = parse_reference(text)
    except SpecError:
        raise SpecError(f"'{printed}' is neither a repository of a registry nor a folder", hint) from None
    if found.name != text:
        raise SpecError(f"'{printed}' has a tag: the keys of units are the tags of a cache", hint)
    return UnitCache(found.name, write=write)
