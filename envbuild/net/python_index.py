"""A client of Python package indexes: the files of a project, their addresses and digests.

Simple repository API as HTML (PEP 503) and JSON (PEP 691) over the network and from ``file://`` folders, and find-links
folders and pages. An index may answer HTML only, whichever type the request accepts.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from packaging.utils import canonicalize_name

from envbuild.core.errors import InputError
from envbuild.core.json_text import json_value
from envbuild.net.failures import NotFoundError, UnreachableError
from envbuild.net.host_config import PythonIndexes
from envbuild.net.site import mirror_line, mirrors_setting
from envbuild.net.transport import Transport
from envbuild.net.urls import join, local_path, redact

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
SUFFIXES = (".whl", ".tar.gz", ".zip", ".tar.bz2")
SHA256 = re.compile(r"sha256=([0-9a-f]{64})")


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
    origin: str = "python:"

    def files(self, project: str) -> list[IndexFile]:
        """Return the files of a project on all indexes, in the order of the indexes; none when no index lists it.

        Raises InputError when an index fails.
        """
        name = str(canonicalize_name(project))
        with self.guard:
            known = self.cache.get(name)
        if known is None:
            known = [file for place in self.indexes.indexes for file in self._simple(place, name)]
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
            what = "the package index" if self.origin == "python:" else f"the package index {self.origin}"
            line = mirror_line(self.origin, "ADDRESS, …")
            raise InputError(
                f"{what} does not answer for '{name}': {error}",
                hint=f"configure other indexes in site.yaml:  {mirrors_setting(line)}",
                where=redact(page),
                mirror_lines=(line,),
            ) from None
        if "json" in answer.kind:
            return self._check_places(parse_json(answer.content, answer.url), answer.url)
        return self._check_places(parse_html(answer.content.decode("utf-8", "replace"), answer.url), answer.url)

    def _check_places(self, files: Iterable[IndexFile], page: str) -> list[IndexFile]:
        """Return `files`, which `page` lists. Raise InputError if a page of another machine names files of this one.

        The same if a page over https names a file over http without its digest: any machine on the way could change it.
        """
        found = list(files)
        if local_path(page) is not None:
            return found
        for file in found:
            fault, scheme = "", urlsplit(file.url).scheme
            if scheme not in ("https", "http"):
                fault = "only an index on this machine may name its files"
            elif scheme == "http" and page.startswith("https://") and not file.sha256:
                fault = "an index with https may name a file without https only with its sha256"
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
                    answer = self.transport.read(place)
                    listed = parse_html(answer.content.decode("utf-8", "replace"), answer.url)
                    self.cache[key] = self._check_places(listed, answer.url)
                except (NotFoundError, UnreachableError):
                    self.cache[key] = []  # as pip does: find-links are an addition
        return self.cache[key]


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
        if file.name.endswith(SUFFIXES) and file.is_file():
            yield IndexFile(file.name, join(folder, file.name), size=file.stat().st_size)


def parse_json(content: bytes, page: str) -> Iterator[IndexFile]:
    """Yield the files of a PEP 691 answer."""
    for file in json_value(content).get("files", ()):
        if file["filename"].endswith(SUFFIXES):
            yield IndexFile(
                file["filename"],
                urljoin(page, file["url"]),
                file.get("hashes", {}).get("sha256", ""),
                file.get("requires-python") or "",
                bool(file.get("yanked")),
                file.get("size") or 0,
            )


def parse_html(text: str, page: str) -> Iterator[IndexFile]:
    """Yield the files of a PEP 503 page or of any page with links to files."""
    parser = _Anchors()
    parser.feed(text)
    base = urljoin(page, parser.base) if parser.base else page
    for attributes in parser.anchors:
        url, _, fragment = (attributes["href"] or "").partition("#")
        if not url.startswith(("https://", "http://")):  # large pages have absolute addresses, and urljoin is slow
            url = urljoin(base, url)
        name = unquote(url.partition("?")[0].rpartition("/")[2])
        if name.endswith(SUFFIXES):
            found = SHA256.search(fragment)
            requires = attributes.get("data-requires-python") or ""
            yield IndexFile(name, url, found[1] if found else "", requires, "data-yanked" in attributes)


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.anchors: list[dict[str, str | None]] = []
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "a" and attributes.get("href"):
            self.anchors.append(attributes)
        elif tag == "base":
            self.base = attributes.get("href") or ""
