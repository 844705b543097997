"""A site: where inputs come from and images go to, on this machine.

``site.yaml`` of the project, else the one of the user's configuration folder, else nothing. What it leaves out is taken
from the host's own configuration (`envbuild.net.host_config`: apt's and pip's), so that a machine on which ``apt-get
install`` and ``pip install`` work is ready.

A mirror is an address or a folder for a prefix of origins (``debian:``, ``github:openucx/``,
``apt:nvidia-cuda``, ``oci:nvcr.io/``); the longest prefix that fits an origin wins. For ``python:`` and ``pip:`` an
address (``https://…/simple``, ``file:///…/simple``) is a simple index, a plain path a folder of files. An origin that
no mirror fits has its default place (`envbuild.net.origin_kinds`, the host's configuration), unless the site specifies
``upstream: false``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.engines import ENGINES
from envbuild.core.errors import InputError
from envbuild.core.yaml_nodes import Node, Scalar
from envbuild.core.yaml_reader import Reader, did_you_mean, short
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.origin_kinds import ARCHIVES, DEFAULT_ADDRESSES, ORIGIN_KINDS, ORIGINS, SIGNED_KINDS
from envbuild.net.urls import join

if TYPE_CHECKING:
    from envbuild.net.host_config import PythonIndexes

RESERVED = ("registry", "images", "partition", "mounts")  # for publish and launch: accepted, and nothing reads them yet
KEYS = (
    "schema", "engine", "store", "upstream", "mirrors", "ca_bundle", "proxy", "insecure_hosts", "debian_keyring",
    "keyrings", "apt", *RESERVED,
)  # fmt: skip
PREFIX = re.compile(r"[a-z][a-z0-9-]*(:.*)?")
PREFIX_ADVICE = (
    "a prefix is a kind of origin, or the beginning of one: debian, python, apt:nvidia-cuda, github:openucx/"
)
SCHEMES = ("https", "http", "file")


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that differs between clusters. `mirrors`: prefix of origins → addresses or folders, in order of
    preference.

    `use_host`: take what `mirrors` does not name from its default place: the host's apt and pip configuration,
    `DEFAULT_ADDRESSES`, the registry that an image reference names (``upstream: false`` in the file turns it off).
    `keyrings`: prefix of origins → file of OpenPGP keys; `debian_keyring` is the older name of the one for
    ``debian:``. `apt`: options for apt-get while locking (``Acquire::Check-Valid-Until``). Nothing reads the
    `RESERVED` ones yet.
    """

    store: Path
    engine: str = "auto"
    mirrors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ca_bundle: Path | None = None
    proxy: str = ""
    insecure_hosts: tuple[str, ...] = ()
    debian_keyring: Path | None = None
    apt: Mapping[str, str] = field(default_factory=dict)
    registry: str = ""
    images: str = ""
    partition: str = ""
    mounts: tuple[str, ...] = ()
    use_host: bool = True
    where: str = ""  # the file it was read from
    keyrings: Mapping[str, Path] = field(default_factory=dict)

    def places(self, origin: str) -> tuple[str, tuple[str, ...]]:
        """Return the rest of `origin` after the longest prefix that has mirrors, and those mirrors; else the rest after
        its kind, and its default place (empty: none is known).
        """
        if prefix := longest_prefix(self.mirrors, origin):
            return origin[len(prefix) :].lstrip("/"), self.mirrors[prefix]
        prefix = origin[: origin.find(":") + 1]
        if self.use_host and prefix in DEFAULT_ADDRESSES:
            return origin[len(prefix) :], (DEFAULT_ADDRESSES[prefix],)
        return origin[len(prefix) :], self._host_archives(prefix)

    def roots(self, origin: str) -> tuple[str, ...]:
        """Return the folders or addresses that *are* `origin`, in the order of the requests: of a distribution's
        archive (``debian:trixie/main``) its mirrors, of anything else (``apt:nvidia-cuda/ubuntu2204``,
        ``pip:pytorch/cu113``, ``oci:nvcr.io/nvidia/pytorch``) what is left of the origin below each of its places.
        """
        rest, places = self.places(origin)
        if not rest or origin.partition(":")[0] in ARCHIVES:
            return places
        return tuple(join(place, rest) for place in places)

    def keyring(self, origin: str) -> Path | None:
        """Return the file of keys that the site configures for a signed archive; None if it configures none."""
        if prefix := longest_prefix(self.keyrings, origin):
            return self.keyrings[prefix]
        if not origin.startswith(("debian:", "debian-security:")):
            return None
        return self.keyrings.get("debian:") or self.debian_keyring  # one set of keys signs both archives

    def _host_archives(self, prefix: str) -> tuple[str, ...]:
        # A site that names its own Debian archive is not mixed with the security archive of the host.
        own = prefix == "debian-security:" and "debian:" in self.mirrors
        if not self.use_host or own or prefix.rstrip(":") not in ARCHIVES:
            return ()
        from envbuild.net import host_config

        return host_config.debian_archives().get(prefix, ())

    def python(self, origin: str = "python:") -> PythonIndexes:
        """Return the Python indexes of ``python:`` (its mirrors, else what pip uses on this machine), or those of a
        vendor (``pip:pytorch/cu113``: its mirrors).
        """
        from envbuild.net import host_config

        insecure, ca_bundle = self.insecure_hosts, str(self.ca_bundle or "")
        if origin == "python:" and self.use_host and origin not in self.mirrors:
            found = host_config.pip_indexes()
            insecure, ca_bundle = (*insecure, *found.insecure), ca_bundle or found.ca_bundle
            return host_config.PythonIndexes(found.indexes, found.links, insecure, ca_bundle)
        roots = self.roots(origin)
        indexes = tuple(place for place in roots if "://" in place)
        links = tuple(place for place in roots if "://" not in place)
        return host_config.PythonIndexes(indexes, links, insecure, ca_bundle)

    def certificates(self) -> str:
        """Return the CA bundle (a file or folder) that downloads are checked against; empty: the program's own."""
        if self.ca_bundle:
            return str(self.ca_bundle)
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            if os.environ.get(name):
                return os.environ[name]
        return self.python().ca_bundle

    def network(self) -> NetworkSettings:
        """Return the settings of a transport."""
        names = (*self.insecure_hosts, *self.python().insecure)
        insecure = frozenset(name.split(":")[0] for name in names)
        return NetworkSettings(self.proxy, insecure, self.certificates())


def load_site(project: Path | None = None) -> Site:
    """Return the site of `project` (a folder), of the user, or of the host. Raises SpecError with every mistake of a
    ``site.yaml``.
    """
    for folder in (project, config_folder()):
        if folder is not None and (folder / "site.yaml").is_file():
            return read_site(folder / "site.yaml")
    return Site(store=store_folder(None))


def read_site(path: Path) -> Site:
    """Read one ``site.yaml``. Folders in it may hold ``~`` and ``$NAME`` and are relative to the file, or to the one
    that a link points at. Raises SpecError.
    """
    reader = Reader()
    top = reader.load(path)
    reader.schema(top, "site")
    entries = reader.table(top, KEYS, "site", "a site")

    def text(key: str) -> str:
        return (reader.text(entries[key], key) or "") if key in entries else ""

    def folder(value: str) -> str:
        return str(path.resolve().parent / Path(os.path.expandvars(value)).expanduser()) if value else ""

    mirrors: dict[str, tuple[str, ...]] = {}
    for full, key, node in _read_prefixes(reader, entries, "mirrors", ORIGIN_KINDS):
        if full in mirrors:
            reader.wrong(key.where, f"'{full}' has mirrors already", "put all of them into one list")
        places = _read_places(reader, node, key.value)
        mirrors[full] = tuple(place if "://" in place else folder(place) for place in places)
    keyrings: dict[str, Path] = {}
    for full, key, node in _read_prefixes(reader, entries, "keyrings", SIGNED_KINDS):
        file = folder(reader.text(node, key.value) or "")
        if full in keyrings:
            reader.wrong(key.where, f"'{full}' has a file of keys already", "put all keys into one file")
        if file and not Path(file).is_file():
            reader.wrong(node.where, f"'{key.value}': there is no {file}")
        keyrings[full] = Path(file)
    engine = reader.choice(entries["engine"], "engine", ("auto", *sorted(ENGINES))) if "engine" in entries else "auto"
    ca_bundle, keyring = folder(text("ca_bundle")), folder(text("debian_keyring"))
    for name, file in (("ca_bundle", ca_bundle), ("debian_keyring", keyring)):
        if file and not Path(file).exists():
            reader.wrong(entries[name].where, f"'{name}': there is no {file}")
    site = Site(
        store=store_folder(folder(text("store")) or None),
        engine=engine or "auto",
        mirrors=mirrors,
        ca_bundle=Path(ca_bundle) if ca_bundle else None,
        proxy=text("proxy"),
        insecure_hosts=reader.texts(entries["insecure_hosts"], "insecure_hosts") if "insecure_hosts" in entries else (),
        debian_keyring=Path(keyring) if keyring else None,
        apt=reader.text_map(entries["apt"], "apt") if "apt" in entries else {},
        registry=text("registry"),
        images=folder(text("images")),
        partition=text("partition"),
        mounts=reader.texts(entries["mounts"], "mounts") if "mounts" in entries else (),
        use_host=reader.value(entries["upstream"], bool, "upstream") is not False if "upstream" in entries else True,
        where=str(path),
        keyrings=keyrings,
    )
    reader.finish()
    return site


def mirror_line(origin: str, place: str = "ADDRESS-OR-FOLDER") -> str:
    """Return the line below ``mirrors:`` of a ``site.yaml`` with which `origin` comes from `place`."""
    kind, _, rest = origin.partition(":")
    parts = {
        "kind": kind,
        "whole": f'"{origin}"',
        "repository": f'"{kind}:{rest.partition("@")[0]}"',
        "first": f'"{kind}:{rest.partition("/")[0]}/"',
    }
    prefix = parts[ORIGINS[kind].mirrored if kind in ORIGINS else "kind"]
    return f"{prefix}: [{place}]"


def mirrors_setting(line: str) -> str:
    """Return the setting of ``site.yaml`` that contains a `mirror_line`."""
    return f"mirrors: {{{line}}}"


def longest_prefix(prefixes: Iterable[str], origin: str) -> str:
    """Return the longest of `prefixes` that `origin` begins with, empty when there is none. A prefix ends where a part
    of a name does: ``github:openucx/ucx`` does not match ``github:openucx/ucx-extra``.
    """
    fitting = [
        prefix
        for prefix in prefixes
        if origin.startswith(prefix)
        and (prefix.endswith((":", "/")) or origin[len(prefix) :][:1] in ("", "/", "@", ":"))
    ]
    return max(fitting, key=len, default="")


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


def _read_places(reader: Reader, node: Node, prefix: str) -> list[str]:
    """Return the addresses and folders of one prefix, as they are written."""
    found = []
    for item in (node,) if isinstance(node, Scalar) else reader.items(node, prefix):
        place = reader.text(item, prefix)
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", place or "")
        if scheme and (scheme[1] not in SCHEMES or "://" not in (place or "")):
            hint = f"write {', '.join(f'{known}://…' for known in SCHEMES)} or a folder"
            reader.wrong(item.where, f"'{prefix}': '{short(place or '')}' is not an address that can be read", hint)
        elif place:
            found.append(place)
    return found


def store_folder(configured: str | None) -> Path:
    """Return ``$ENVBUILD_STORE``, else the folder that the site configures, else the user's cache folder."""
    if chosen := os.environ.get("ENVBUILD_STORE") or configured:
        return Path(chosen).expanduser().absolute()
    cache = _home("XDG_CACHE_HOME", ".cache")
    if cache is None:
        raise InputError("this user has no home folder", "export ENVBUILD_STORE=/a/folder/on/a/local/disk")
    return cache / "envbuild"


def config_folder() -> Path | None:
    """Return the user's configuration folder of envbuild; None for a user without a home, as in many a container."""
    config = _home("XDG_CONFIG_HOME", ".config")
    return config / "envbuild" if config else None


def _home(variable: str, default: str) -> Path | None:
    value = os.environ.get(variable, "")
    if value.startswith("/"):  # the XDG base directory specification: relative paths are to be ignored
        return Path(value)
    try:
        return Path.home() / default
    except RuntimeError:
        return None
