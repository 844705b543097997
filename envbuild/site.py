"""A site: where inputs come from and images go to, on this machine.

``site.yaml`` of the project, else the one of the user's configuration folder, else nothing. What it leaves out is taken
from the host's own configuration (`envbuild.lock.host`: apt's and pip's), so that a machine on which ``apt-get
install`` and ``pip install`` work is ready.

A mirror is an address or a folder that stands for a prefix of origins (``debian:``, ``python:``, ``github:openucx/``);
the longest prefix that fits an origin wins. For ``python:`` an address (``https://…/simple``, ``file:///…/simple``) is
a simple index, a plain path a folder of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.errors import InputError
from envbuild.fields import Reader, did_you_mean, short
from envbuild.yamlfile import Node, Scalar

KEYS = (
    "schema", "engine", "store", "mirrors", "ca_bundle", "proxy", "insecure_hosts", "debian_keyring", "apt",
    "registry", "images", "partition", "mounts",
)  # fmt: skip
SOURCE_KINDS = ("github", "gitlab", "file", "mirror")  # of origins that a recipe may name
KINDS = ("debian", "debian-security", "python", *SOURCE_KINDS)
PREFIX = re.compile(r"[a-z][a-z0-9-]*(:.*)?")
PREFIX_ADVICE = "a prefix is a kind of origin, or the beginning of one: debian, python, github:openucx/"
SCHEMES = ("https", "http", "file")


@dataclass(frozen=True, slots=True)
class PythonIndexes:
    """Where Python files are: simple indexes (the first is the default one) and find-links folders or pages."""

    indexes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    insecure: tuple[str, ...] = ()  # hosts whose certificate is not checked (pip's trusted-host)
    ca_bundle: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that differs between places. `mirrors`: prefix of origins → addresses or folders, in order of
    preference.

    `use_host`: take what `mirrors` does not name from the host's apt and pip configuration. `apt` holds options for
    apt-get while locking (``Acquire::Check-Valid-Until``). `images` is the folder that squashfs images are published
    to.
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

    def places(self, origin: str) -> tuple[str, tuple[str, ...]]:
        """What is left of `origin` after the longest prefix that has mirrors, and those mirrors (none: the host knows
        no place).
        """
        fitting = [prefix for prefix in self.mirrors if origin.startswith(prefix)]
        if fitting:
            prefix = max(fitting, key=len)
            return origin[len(prefix) :], self.mirrors[prefix]
        prefix = origin[: origin.find(":") + 1]
        return origin[len(prefix) :], self._host_archives(prefix)

    def _host_archives(self, prefix: str) -> tuple[str, ...]:
        # A site that names its own Debian archive is not mixed with the security archive of the host.
        if not self.use_host or prefix not in ("debian:", "debian-security:") or "debian:" in self.mirrors:
            return ()
        from envbuild.lock import host

        return host.debian_archives().get(prefix, ())

    def python(self) -> PythonIndexes:
        """The Python indexes: those of the ``python:`` mirrors, else what pip uses on this machine."""
        from envbuild.lock import host

        mirrors = self.mirrors.get("python:")
        if mirrors is not None or not self.use_host:
            given = mirrors or ()
            return PythonIndexes(
                tuple(place for place in given if "://" in place),
                tuple(place for place in given if "://" not in place),
                self.insecure_hosts,
                str(self.ca_bundle or ""),
            )
        found = host.pip_indexes()
        return PythonIndexes(
            found.indexes, found.links, (*self.insecure_hosts, *found.insecure), str(self.ca_bundle or found.ca_bundle)
        )

    def certificates(self) -> str:
        """The CA bundle (a file or folder) that downloads are checked against; empty: the program's own."""
        if self.ca_bundle:
            return str(self.ca_bundle)
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            if os.environ.get(name):
                return os.environ[name]
        return self.python().ca_bundle


def load_site(project: Path | None = None) -> Site:
    """The site of `project` (a folder), of the user, or of the host. Raises SpecError with every mistake of a
    ``site.yaml``.
    """
    for folder in (project, config_folder()):
        if folder is not None and (folder / "site.yaml").is_file():
            return read_site(folder / "site.yaml")
    return Site(store=store_folder(None))


def read_site(path: Path) -> Site:
    """One ``site.yaml``. Folders in it may hold ``~`` and ``$NAME`` and are relative to the file. Raises SpecError."""
    reader = Reader()
    top = reader.load(path)
    reader.schema(top, "site")
    entries = reader.table(top, KEYS, "site", "a site")

    def text(key: str) -> str:
        return (reader.text(entries[key], key) or "") if key in entries else ""

    def folder(value: str) -> str:
        return str(path.parent.absolute() / Path(os.path.expandvars(value)).expanduser()) if value else ""

    mirrors: dict[str, tuple[str, ...]] = {}
    if "mirrors" in entries:
        for prefix, (key, node) in reader.entries(entries["mirrors"], "mirrors").items():
            if fault := _prefix_fault(prefix):
                reader.wrong(key.where, *fault)
                continue
            # In YAML the colon of ``debian: [...]`` ends the key, so it is given back.
            full = prefix if ":" in prefix else f"{prefix}:"
            if full in mirrors:
                reader.wrong(key.where, f"'{full}' has mirrors already", "put all of them into one list")
            places = _places(reader, node, prefix)
            mirrors[full] = tuple(place if "://" in place else folder(place) for place in places)
    engine = reader.choice(entries["engine"], "engine", ("auto", *engines())) if "engine" in entries else "auto"
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
        where=str(path),
    )
    reader.finish()
    return site


def engines() -> tuple[str, ...]:
    """Names of the engines, by their modules: importing those would take longer than reading a site."""
    import pkgutil

    from envbuild import engines as package
    from envbuild.engines.choose import NOT_ENGINES

    return tuple(info.name for info in pkgutil.iter_modules(package.__path__) if info.name not in NOT_ENGINES)


def _prefix_fault(prefix: str) -> tuple[str, str] | None:
    """What is wrong with a key of `mirrors`, and the hint."""
    kind, _, rest = prefix.partition(":")
    if not PREFIX.fullmatch(prefix):
        return f"'{short(prefix)}' is not a prefix of origins", PREFIX_ADVICE
    if kind not in KINDS:
        return f"'{short(prefix)}' begins no origin", did_you_mean(kind, KINDS, "origins begin with one of")
    if kind == "python" and rest:
        return f"'{short(prefix)}': the indexes of Python packages are the same for all", "write python: [ADDRESS, …]"
    return None


def _places(reader: Reader, node: Node, prefix: str) -> list[str]:
    """Addresses and folders of one prefix, as they are written."""
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
    """``$ENVBUILD_STORE``, else what the site says, else the user's cache folder."""
    if chosen := os.environ.get("ENVBUILD_STORE") or configured:
        return Path(chosen).expanduser().absolute()
    return _home("XDG_CACHE_HOME", ".cache") / "envbuild"


def config_folder() -> Path:
    """The user's configuration folder of envbuild."""
    return _home("XDG_CONFIG_HOME", ".config") / "envbuild"


def _home(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    if value.startswith("/"):  # the XDG base directory specification: relative paths are to be ignored
        return Path(value)
    try:
        return Path.home() / default
    except RuntimeError as error:
        raise InputError("this user has no home folder", "export ENVBUILD_STORE=/a/folder/on/a/local/disk") from error
