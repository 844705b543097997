"""A client of Python package indexes: the files of a project, their addresses and digests.

Simple repository API as HTML (PEP 503) and JSON (PEP 691) over the network and from ``file://`` folders, and find-links
folders and pages. An index may answer HTML only, whichever type the request accepts.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from math import prod
from urllib.parse import unquote, urljoin

from packaging.utils import canonicalize_name

from envbuild.core.errors import InputError
from envbuild.core.json_text import json_value
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.host_config import PythonIndexes
from envbuild.net.limits import LIMITS
from envbuild.net.page_trust import PageTrust
from envbuild.net.site import mirror_line, mirrors_setting
from envbuild.net.transport import Page, Transport
from envbuild.net.urls import join, local_path, redact

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
ATTRIBUTES = ("href", "data-requires-python", "data-yanked")
PIECE = 64 << 10  # characters of a page that are read at a time
MAX_TAG = 512 << 10  # characters of a tag, a comment or a script in a page
MAX_LINKS = 200_000  # of a page; the largest projects have some ten thousand files
PARSE_SECONDS = 60  # of a processor for a page
SUFFIXES = (".whl", ".tar.gz", ".zip", ".tar.bz2")
MAX_NAME, MAX_TAGS = 255, 100
MAX_REQUIRES = 500  # characters of the Pythons that a file is for: `packaging` needs seconds for a megabyte
DIGEST = re.compile(r"[0-9a-f]{64}")
SHA256 = re.compile(rf"sha256=({DIGEST.pattern})")


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file: `url` is an address or a path; `sha256` empty when the index does not list it; `size` in bytes, 0 when
    unknown.
    """

    name: str
    url: str
    sha256: str = ""
    requires_python: str = ""
    yanked: bool = False
    size: int = 0


@dataclass(slots=True)
class PackageIndex:
    """All indexes of a site as one, or those of the vendor `origin`. Answers are cached for the life of the object;
    safe to use from several threads."""

    transport: Transport
    indexes: PythonIndexes
    cache: dict[str, list[IndexFile]] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)
    reading: threading.Lock = field(default_factory=threading.Lock)  # of one page: 100 kB of gzip may take 1 GB
    origin: str = "python:"
    in_parts: bool = False  # files are read by ranges, so no digest is compared

    def files(self, project: str) -> list[IndexFile]:
        """Return the files of a project: of the first index that lists it, or of all, in their order, where they are
        one pool; none when no index lists it.

        Raises InputError when an index fails.
        """
        name = str(canonicalize_name(project))
        with self.guard:
            known = self.cache.get(name)
        if known is None:
            known = []
            for place in self.indexes.indexes:
                known += self._simple(place, name)
                if known and not self.indexes.pool:
                    break
            known += [
                file for place in self.indexes.links for file in self._links(place) if is_file_of(file.name, name)
            ]
            with self.guard:
                self.cache[name] = known
        return known

    def _simple(self, index: str, name: str) -> list[IndexFile]:
        page = f"{index.rstrip('/')}/{name}/"
        folder = local_path(index)
        try:
            if folder is None:
                answer = self.transport.read(page, ACCEPT)
            elif (folder / name / "index.html").is_file():
                answer = self.transport.read(page + "index.html")
            else:
                return list(_list_folder(str(folder / name)))
        except NotFoundError:
            return []
        except UnreachableError as error:
            raise self._error(page, f"does not answer for '{name}': {error}") from None
        try:
            return self._read_page(answer)
        except ValueError as error:
            raise self._error(page, f"has a malformed answer for '{name}': {error}") from None

    def _read_page(self, page: Page, *, html: bool = False) -> list[IndexFile]:
        """Return the files that a page lists. Raises ValueError for a malformed one, InputError as `_check_places`."""
        with self.reading:
            if "json" in page.kind and not html:
                return self._check_places(parse_json(page.content, page.url), page.url)
            return self._check_places(parse_html(page.content.decode("utf-8", "replace"), page.url), page.url)

    def _error(self, page: str, fault: str) -> InputError:
        """Return the error of an index whose page cannot be used."""
        what = "the package index" if self.origin == "python:" else f"the package index {self.origin}"
        line = mirror_line(self.origin, "ADDRESS, …")
        return InputError(
            f"{what} {fault}",
            hint=f"configure other indexes in site.yaml:  {mirrors_setting(line)}",
            where=redact(page),
            mirror_lines=(line,),
        )

    def _check_places(self, files: Iterable[IndexFile], page: str) -> list[IndexFile]:
        """Return `files`, which `page` lists. Raise InputError if a page of another machine names files of this one, or
        a page of another user files that are not that user's.

        The same if a page over https names a file over http without its digest: any machine on the way could change it.
        Raises ValueError for a malformed address.
        """
        found, trust = list(files), PageTrust(page)
        for file in found:
            fault = trust.find_fault(file.url, "" if self.in_parts else file.sha256)
            if fault:
                line = mirror_line(self.origin, "ADDRESS, …")
                raise InputError(
                    f"the package index {redact(page)} names {redact(file.url)} for {file.name}: {fault}",
                    hint=f"ask who runs that index; for another one write into site.yaml:  {mirrors_setting(line)}",
                    mirror_lines=(line,),
                )
        return found

    def _links(self, place: str) -> list[IndexFile]:
        key = f"links {place}"
        if key not in self.cache:
            path = local_path(place)
            if path is not None and not path.is_file():
                self.cache[key] = list(_list_folder(str(path)))
            else:
                try:
                    self.cache[key] = self._read_page(self.transport.read(place), html=True)
                except (NotFoundError, UnreachableError, ValueError):
                    self.cache[key] = []  # as pip does: find-links are an addition
        return self.cache[key]


def is_usable_name(name: str) -> bool:
    """Return whether a file name is one of a wheel or an sdist, and no longer than file systems have them.

    A wheel has each combination of its tags (PEP 425): 6 kB of text may have millions, which `packaging` makes."""
    if len(name.encode(errors="replace")) > MAX_NAME or not name.endswith(SUFFIXES):
        return False
    return prod(part.count(".") + 1 for part in name.removesuffix(".whl").split("-")[-3:]) <= MAX_TAGS


def is_file_of(file: str, project: str) -> bool:
    """Return whether a file name is one of `project` (normalized)."""
    return str(canonicalize_name(split_name(file)[0])) == project


def split_name(file: str) -> tuple[str, str]:
    """Return (project, version) of a wheel's or sdist's file name; the version is empty where the name has none."""
    if file.endswith(".whl"):
        parts = file.split("-")
        return parts[0], parts[1] if len(parts) > 2 else ""
    stem = next((file.removesuffix(suffix) for suffix in SUFFIXES if file.endswith(suffix)), file)
    project, _, version = stem.rpartition("-")
    return (project, version) if project else (stem, "")


def _list_folder(folder: str) -> Iterator[IndexFile]:
    path = local_path(folder)
    if path is None or not path.is_dir():
        return
    for file in sorted(path.iterdir()):
        if is_usable_name(file.name) and file.is_file():
            yield IndexFile(file.name, join(folder, file.name), size=file.stat().st_size)


def with_login(url: str, page: str) -> str:
    """Return the address of a file with the login of its page, if it is on the same host: indexes such as GitLab's
    write absolute ones, and pip and uv send the login there, too."""
    scheme, _, rest = page.partition("://")
    login, at, host = rest.partition("/")[0].rpartition("@")
    same = f"{scheme}://{host}/"
    return f"{scheme}://{login}@{host}/{url.removeprefix(same)}" if at and url.startswith(same) else url


def parse_json(content: bytes, page: str) -> Iterator[IndexFile]:
    """Yield the files of a PEP 691 answer. Raises ValueError for one that is malformed.

    A digest or a size that is none is not known, as on a page without them.
    """
    answer = json_value(content)
    files = answer.get("files", []) if isinstance(answer, dict) else None
    if not isinstance(files, list):
        raise ValueError("it has no list of files")
    for file in files:
        if not isinstance(file, dict):
            raise ValueError("a file is not an object")
        name, url, hashes, requires = (file.get(key) for key in ("filename", "url", "hashes", "requires-python"))
        if not isinstance(name, str) or not isinstance(url, str):
            raise ValueError("a file has no name or no address")
        if not is_usable_name(name):
            continue
        sha256, size = hashes.get("sha256") if isinstance(hashes, dict) else "", file.get("size")
        yield IndexFile(
            name,
            with_login(urljoin(page, url), page),
            sha256 if isinstance(sha256, str) and DIGEST.fullmatch(sha256) else "",
            requires if isinstance(requires, str) and len(requires) <= MAX_REQUIRES else "",
            bool(file.get("yanked")),
            size if type(size) is int and 0 <= size <= LIMITS.file else 0,
        )


def parse_html(text: str, page: str) -> Iterator[IndexFile]:
    """Yield the files of a PEP 503 page or of any page with links to files. Raises ValueError for a malformed address,
    and for a page that takes too long or has too much."""
    parser = _Anchors()
    parser.read(text)
    base = urljoin(page, parser.base) if parser.base else page
    for attributes in parser.anchors:
        url, _, fragment = (attributes["href"] or "").partition("#")
        if not url.startswith(("https://", "http://")):  # large pages have absolute addresses, and urljoin is slow
            url = urljoin(base, url)
        name = unquote(url.partition("?")[0].rpartition("/")[2])
        if is_usable_name(name):
            found = SHA256.search(fragment)
            requires = attributes.get("data-requires-python") or ""
            requires = requires if len(requires) <= MAX_REQUIRES else ""
            yield IndexFile(
                name, with_login(url, page), found[1] if found else "", requires, "data-yanked" in attributes
            )


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.anchors: list[dict[str, str | None]] = []
        self.base = ""

    def read(self, text: str) -> None:
        """Read a page. Raises ValueError."""
        end = time.thread_time() + PARSE_SECONDS
        for start in range(0, len(text), PIECE):
            try:
                self.feed(text[start : start + PIECE])
            except AssertionError:  # of html.parser, for a declaration that is not one
                raise ValueError("it is not HTML") from None
            if len(self.rawdata) > MAX_TAG:
                raise ValueError(f"it has a tag of more than {MAX_TAG >> 10} KiB")
            if len(self.anchors) > MAX_LINKS:
                raise ValueError(f"it has more than {MAX_LINKS} links")
            if time.thread_time() > end:
                raise ValueError(f"it takes more than {PARSE_SECONDS} s to read")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value for name, value in attrs if name in ATTRIBUTES}
        if tag == "a" and attributes.get("href"):
            self.anchors.append(attributes)
        elif tag == "base":
            self.base = attributes.get("href") or ""
