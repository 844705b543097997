"""Configuration of this machine: the Debian archives of apt's sources and the Python indexes of pip's configuration.

Formats: sources.list(5) (one-line and deb822), pip's configuration (pip documentation, "Configuration": files and their
order of precedence, environment variables ``PIP_*`` above all files, ``[install]`` above ``[global]``). Neither program
is run.
"""

from __future__ import annotations

import configparser
import functools
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

RELEASES = (
    "buster",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
)
SUITE = re.compile(rf"({'|'.join(RELEASES)})(-security|-updates|-backports|-proposed-updates|/updates)?")
METHODS = ("http", "https", "file", "copy")
SNAPSHOT = re.compile(r"\d{8}T\d{6}Z")


@dataclass(frozen=True, slots=True)
class PythonIndexes:
    """Sources of Python files: simple indexes in their order, and find-links folders or pages. `pool`: of a name that
    several indexes have the best version is taken, as pip does; else the first index that has a name has all of it:
    another package of that name on a later one is not taken."""

    indexes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    insecure: tuple[str, ...] = ()  # hosts whose certificate is not checked (pip's trusted-host)
    ca_bundle: str = ""
    pool: bool = False


def debian_archives(etc: Path = Path("/etc/apt")) -> dict[str, tuple[str, ...]]:
    """Return ``debian:``, ``debian-security:`` and ``ubuntu:`` → addresses of those archives in apt's sources, in their
    order; other archives are ignored.
    """
    found: dict[str, list[str]] = {}
    for uri, suites, components in apt_sources(etc):
        if "main" not in components:
            continue
        if urlsplit(uri).path.rstrip("/").rpartition("/")[2] in ("ubuntu", "ubuntu-ports"):
            places = found.setdefault("ubuntu:", [])
            places += [uri] if uri not in places else []
            continue
        for suite in suites:
            if not SUITE.fullmatch(suite.rstrip("/")):
                continue
            security = suite.rstrip("/").endswith(("-security", "/updates"))
            places = found.setdefault("debian-security:" if security else "debian:", [])
            if uri not in places and _is_debian(uri, security):
                places.append(uri)
    return {prefix: tuple(places) for prefix, places in found.items() if places}


def _is_debian(uri: str, security: bool) -> bool:
    """Return whether the address ends as a copy of Debian's own archives does (``…/debian``, ``…/debian-security``, a
    snapshot of one).
    """
    parts = [part for part in urlsplit(uri).path.split("/") if part]
    if parts and SNAPSHOT.fullmatch(parts[-1]):
        parts.pop()
    if not parts:
        return security  # the security archive has a host of its own
    return parts[-1] in ("debian", "debian-security", "security")


def apt_sources(etc: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (address, suites, components) of every enabled binary source whose method can be used without apt."""
    parts = sorted((etc / "sources.list.d").glob("*")) if (etc / "sources.list.d").is_dir() else []
    for path in (etc / "sources.list", *parts):
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        if path.suffix == ".list":
            yield from _read_one_line(text)
        elif path.suffix == ".sources":
            yield from _read_deb822(text)


def _read_one_line(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match and _usable(match[1]):
            yield _normalize_uri(match[1]), [match[2]], match[3].split()


def _read_deb822(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    for stanza in re.split(r"\n\s*\n", "\n".join(line for line in text.splitlines() if not line.startswith("#"))):
        fields: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line[:1] in " \t":
                fields[key] = f"{fields.get(key, '')} {line.strip()}"
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.lower()
                fields[key] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        for uri in fields.get("uris", "").split():
            if _usable(uri):
                yield _normalize_uri(uri), fields.get("suites", "").split(), fields.get("components", "").split()


def _usable(uri: str) -> bool:
    return uri.partition(":")[0] in METHODS


def _normalize_uri(uri: str) -> str:
    """Return the address without a trailing slash, a local archive as a path."""
    method, _, rest = uri.partition(":")
    return ("/" + rest.strip("/")) if method in ("file", "copy") else uri.rstrip("/")


@dataclass(frozen=True, slots=True)
class PipTrust:
    """The hosts whose certificate pip does not check, and its CA bundle (empty: its own)."""

    insecure: tuple[str, ...] = ()
    ca_bundle: str = ""


def pip_trust(environ: Mapping[str, str] | None = None) -> PipTrust:
    """Return what ``pip install`` accepts here."""
    options = _pip_options(os.environ if environ is None else environ)
    return PipTrust(tuple(options.get("trusted-host", "").split()), options.get("cert", "").strip())


def pip_indexes(environ: Mapping[str, str] | None = None) -> PythonIndexes:
    """Return the indexes that ``pip install`` uses here. Without a configured index the first one is uv's built-in
    default (`default_index`).
    """
    environ = os.environ if environ is None else environ
    options, trust = _pip_options(environ), pip_trust(environ)
    indexes: list[str] = []
    if options.get("no-index", "").lower() not in ("1", "true", "yes", "on"):
        indexes = [options.get("index-url", "").strip() or default_index(), *options.get("extra-index-url", "").split()]
    return PythonIndexes(
        tuple(dict.fromkeys(index for index in indexes if index)),
        tuple(dict.fromkeys(options.get("find-links", "").split())),
        trust.insecure,
        trust.ca_bundle,
    )


def _pip_options(environ: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for path in _pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError, OSError):
            continue  # pip itself reports what is wrong with it
        for section in ("global", "install"):
            if parser.has_section(section):
                options.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    for key, value in environ.items():
        if key.startswith("PIP_") and value:
            options[key.removeprefix("PIP_").lower().replace("_", "-")] = value
    return options


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    """Return pip's configuration files, the lowest precedence first."""
    chosen = environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return []
    home = Path(environ.get("HOME") or "~").expanduser()
    shared = [
        Path(folder) / "pip" / "pip.conf" for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if folder
    ]
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = [
        *reversed(shared),
        Path("/etc/pip.conf"),
        home / ".pip/pip.conf",
        user / "pip/pip.conf",
        Path(sys.prefix) / "pip.conf",
    ]
    return [*files, Path(chosen)] if chosen else files


@functools.cache
def default_index() -> str:
    """Return the index that uv uses when none is configured, as uv itself prints it (no network); empty when it prints
    none."""
    import tempfile

    from envbuild.core.programs import run_program
    from envbuild.net.uv_program import clean_environment, uv_binary

    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.in"
        empty.touch()
        command = [uv_binary(), "pip", "compile", "--quiet", "--offline", "--no-config", "--no-cache", "--no-header"]
        command += ["--emit-index-url", "--python", sys.executable, str(empty)]
        done = run_program(command, text=True, env=clean_environment())
    found = re.search(r"^--(?:default-index|index-url) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else ""
