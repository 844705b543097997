"""``site.yaml``: what a user may write about a site, and every mistake in it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.engines import ENGINES
from envbuild.core.errors import SpecError
from envbuild.core.paths import expand_home
from envbuild.core.yaml_nodes import Node, Scalar
from envbuild.core.yaml_reader import Reader, did_you_mean, short
from envbuild.net.apt_options import is_address, read_apt_options
from envbuild.net.origin_kinds import ORIGIN_KINDS, SIGNED_KINDS
from envbuild.net.site import COMPRESSIONS, Site, store_folder, user_file
from envbuild.net.slurm_site import NODE_KEYS, Slurm, read_node_settings, read_slurm, read_target_settings
from envbuild.net.trusted_file import check_trusted_file
from envbuild.net.urls import has_bare_login, is_well_formed, may_have_login, redact_written

if TYPE_CHECKING:
    from envbuild.net.signature_policy import SignaturePolicy
    from envbuild.net.unit_caches import UnitCache

KEYS = (
    "schema", "engine", "store", "upstream", "mirrors", "ca_bundle", "proxy", "insecure_hosts", "debian_keyring",
    "keyrings", "apt", "trust", "registry", "compression", "compiler_cache", "caches", "images", "signatures", "slurm",
    "targets",
    *NODE_KEYS,
)  # fmt: skip
PREFIX = re.compile(r"[a-z][a-z0-9-]*(:.*)?")
PREFIX_ADVICE = (
    "a prefix is a kind of origin, or the beginning of one: debian, python, apt:nvidia-cuda, github:openucx/"
)
RAW_LOGIN_ADVICE = "write / as %2F, : as %3A, @ as %40, # as %23, ? as %3F in the user name and the password"
SCHEMES = ("https", "http", "file")


def read_site(path: Path) -> Site:
    """Read one ``site.yaml``. Folders in it may hold ``~`` and ``$NAME`` and are relative to the file, or to the one
    that a link points at. Raises SpecError.
    """
    reader = Reader()
    top = reader.load(path)
    reader.schema(top, "site")
    entries = reader.table(top, KEYS, "site", "a site")

    folder = partial(_absolute_path, path)

    def text(key: str) -> str:
        return (reader.text(entries[key], key) or "") if key in entries else ""

    def choice(key: str, words: Sequence[str]) -> str:
        return (reader.choice(entries[key], key, words) or "") if key in entries else ""

    ca_bundle, keyring = folder(text("ca_bundle")), folder(text("debian_keyring"))
    for name, file in (("ca_bundle", ca_bundle), ("debian_keyring", keyring)):
        if file:
            check_trusted_file(reader, entries[name].where, name, file, folder=name == "ca_bundle")
    proxy = text("proxy")
    if proxy and (may_have_login(proxy) or not is_address(proxy)):
        hint = RAW_LOGIN_ADVICE if may_have_login(proxy) else "write http://HOST:PORT"
        reader.wrong(entries["proxy"].where, f"'proxy': '{short(redact_written(proxy))}' is not an address", hint)
    site = Site(
        store=store_folder(folder(text("store")) or None),
        engine=choice("engine", ("auto", *sorted(ENGINES))) or "auto",
        mirrors=_read_mirrors(reader, entries, folder),
        ca_bundle=Path(ca_bundle) if ca_bundle else None,
        proxy=proxy,
        insecure_hosts=_read_hosts(reader, entries["insecure_hosts"]) if "insecure_hosts" in entries else (),
        debian_keyring=Path(keyring) if keyring else None,
        apt=read_apt_options(reader, entries["apt"]) if "apt" in entries else {},
        registry=text("registry"),
        compression=choice("compression", COMPRESSIONS),
        images=folder(text("images")),
        slurm=read_slurm(reader, entries["slurm"]) if "slurm" in entries else Slurm(),
        nodes=read_node_settings(reader, entries),
        targets=read_target_settings(reader, entries["targets"]) if "targets" in entries else {},
        use_host=reader.value(entries["upstream"], bool, "upstream") is not False if "upstream" in entries else True,
        compiler_cache=reader.value(entries["compiler_cache"], bool, "compiler_cache") is not False
        if "compiler_cache" in entries
        else True,
        where=str(path),
        keyrings=_read_keyrings(reader, entries, folder),
        caches=_read_caches(reader, entries, folder),
        signatures=_read_signatures(reader, entries, folder),
        trust=_read_trust(reader, entries["trust"], path, folder) if "trust" in entries else (),
    )
    reader.finish()
    return site


def _absolute_path(file: Path, value: str) -> str:
    """Return a folder as `file` names it; "" remains. Raises SpecError for the home of a user who does not exist."""
    try:
        return str(file.resolve().parent / expand_home(os.path.expandvars(value))) if value else ""
    except SpecError as error:
        raise error.at(str(file)) from None


def _read_mirrors(
    reader: Reader, entries: Mapping[str, Node], folder: Callable[[str], str]
) -> dict[str, tuple[str, ...]]:
    """Return prefix of origins → addresses and folders; report mistakes."""
    mirrors: dict[str, tuple[str, ...]] = {}
    for full, key, node in _read_prefixes(reader, entries, "mirrors", ORIGIN_KINDS):
        if full in mirrors:
            reader.wrong(key.where, f"'{full}' has mirrors already", "put all of them into one list")
        places = _read_places(reader, node, key.value)
        mirrors[full] = tuple(place if "://" in place else folder(place) for place in places)
    return mirrors


def _read_keyrings(reader: Reader, entries: Mapping[str, Node], folder: Callable[[str], str]) -> dict[str, Path]:
    """Return prefix of origins → file of keys; report mistakes."""
    keyrings: dict[str, Path] = {}
    for full, key, node in _read_prefixes(reader, entries, "keyrings", SIGNED_KINDS):
        file = folder(reader.text(node, key.value) or "")
        if full in keyrings:
            reader.wrong(key.where, f"'{full}' has a file of keys already", "put all keys into one file")
        if file:
            check_trusted_file(reader, node.where, key.value, file)
        keyrings[full] = Path(file)
    return keyrings


def _read_caches(reader: Reader, entries: Mapping[str, Node], folder: Callable[[str], str]) -> tuple[UnitCache, ...]:
    if "caches" not in entries:
        return ()
    from envbuild.net.cache_settings import read_caches  # few sites have one

    policy = _read_signatures(reader, entries, folder)
    return read_caches(reader, entries["caches"], folder, policy.keys if policy else ())


def _read_signatures(
    reader: Reader, entries: Mapping[str, Node], folder: Callable[[str], str]
) -> SignaturePolicy | None:
    if "signatures" not in entries:
        return None
    from envbuild.net.signature_policy import read_policy  # few sites have one

    return read_policy(reader, entries["signatures"], folder)


def _read_trust(reader: Reader, node: Node, path: Path, folder: Callable[[str], str]) -> tuple[Path, ...]:
    """Return the folders that are trusted; report the key in any file but the user's own."""
    own = user_file()
    if own is None or path.absolute() != own.absolute():
        hint = f"write it into {own or 'the site.yaml of your configuration folder'}"
        reader.wrong(node.where, "a project cannot state that it is trusted", hint)
    return tuple(Path(folder(place)) for place in reader.texts(node, "trust"))


def _read_prefixes(
    reader: Reader, entries: Mapping[str, Node], name: str, kinds: tuple[str, ...]
) -> Iterator[tuple[str, Scalar, Node]]:
    """Yield (prefix of origins, its key, its value) of the table `name`; report mistakes and leave them out."""
    for prefix, (key, node) in reader.entries(entries[name], name).items() if name in entries else ():
        if mistake := _prefix_mistake(prefix, kinds):
            reader.wrong(key.where, *mistake)
        else:
            # In YAML the colon of ``debian: [...]`` ends the key, so it is added again.
            yield prefix if ":" in prefix else f"{prefix}:", key, node


def _prefix_mistake(prefix: str, kinds: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the mistake in a prefix of origins, and the hint; None if it is valid."""
    kind, _, rest = prefix.partition(":")
    if not PREFIX.fullmatch(prefix):
        return f"'{short(prefix)}' is not a prefix of origins", PREFIX_ADVICE
    if kind not in ORIGIN_KINDS:
        return f"'{short(prefix)}' is not a kind of origin", did_you_mean(kind, kinds, "origins begin with one of")
    if kind not in kinds:
        return f"'{short(prefix)}' needs no keys", f"package lists that are signed begin with: {', '.join(kinds)}"
    if kind == "python" and rest:
        hint = "write python: [ADDRESS, …]; a vendor's own index is  pip:NAME: [ADDRESS, …]"
        return f"'{short(prefix)}': the indexes of Python packages are the same for all", hint
    return None


def _read_hosts(reader: Reader, node: Node) -> tuple[str, ...]:
    """Return the hosts whose certificate is not checked; report those that are written with a login."""
    hosts = reader.texts(node, "insecure_hosts")
    for host in hosts:
        if "@" in host:
            what = f"'insecure_hosts': '{short(redact_written(host))}' is written with a login"
            reader.wrong(node.where, what, "write HOST, or HOST:PORT")
    return hosts


def _read_places(reader: Reader, node: Node, prefix: str) -> list[str]:
    """Return the addresses and folders of one prefix, as they are written."""
    found = []
    for item in (node,) if isinstance(node, Scalar) else reader.items(node, prefix):
        place = reader.text(item, prefix)
        # git starts the program git-remote-WORD for WORD::….
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):[/:]", place or "")
        known_scheme = (place or "").startswith(tuple(f"{known}://" for known in SCHEMES))
        if (scheme or "://" in (place or "")) and not known_scheme:
            hint = f"write {', '.join(f'{known}://…' for known in SCHEMES)} or a folder"
            address = short(redact_written(place or ""))
            reader.wrong(item.where, f"'{prefix}': '{address}' is not an address that can be read", hint)
        elif place and may_have_login(place):
            what = f"'{prefix}': the login in the address of {redact_written(place)} cannot be read"
            reader.wrong(item.where, what, RAW_LOGIN_ADVICE)
        elif place and has_bare_login(place):
            what = f"'{prefix}': the address of {short(redact_written(place))} has a login and no scheme"
            reader.wrong(item.where, what, "write https://, or ./ before the name of a folder")
        elif place and "://" in place and not is_well_formed(place):
            reader.wrong(
                item.where, f"'{prefix}': {short(redact_written(place))} is not an address", "write https://HOST:PORT/…"
            )
        elif place:
            found.append(place)
    return found
