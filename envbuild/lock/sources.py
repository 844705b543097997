"""Sources by origin: archives, where a site may have them, and their digests; commits are
`envbuild.lock.git.lock_commit`'s.

An origin names what a source is, not where it is stored: ``github:openucx/ucx@v1.20.1``, ``file:ucx-1.20.1.tar.gz``,
``mirror:path/below/it``, ``debian:pool/main/p/…`` (below the roots of the Debian archive), ``vendor:NAME/path`` (below
a vendor's download area). What a site's mirror holds below a prefix is tried in the shapes in which such mirrors exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace

from envbuild.core.console import Reporter
from envbuild.core.errors import EnvbuildError, Finding, InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.core.text import amount, human_list
from envbuild.lock.git.commit_hint import UNKNOWN, CommitHint
from envbuild.lock.git.lock_commit import lock_commit
from envbuild.lock.git.lock_project import lock_project
from envbuild.lock.inputs import ImageBlob, Input
from envbuild.lock.missing_inputs import combine_errors, not_available_error
from envbuild.lock.model import DebianFile, SourceFile
from envbuild.net.download import DownloadError, Transfer
from envbuild.net.origin_kinds import LOCAL, ORIGINS
from envbuild.net.site import Site, mirror_line, mirrors_setting
from envbuild.net.supply import SupplyKind
from envbuild.net.transport import Transport
from envbuild.net.urls import join
from envbuild.spec.recipe import Archive, Git, GitProject

FORGE = re.compile(r"(?P<kind>[a-z-]+):(?P<repository>[^@]+)@(?P<tag>.+)")
GZIP = (".tar.gz", ".tgz")
PARALLEL = 4
NAMED = 4  # files that a message lists


def candidate_places(site: Site, origin: str, file: str) -> list[str]:
    """Return the addresses and paths, in the order of their use, at which the site's mirrors may have `origin` as a
    file named `file`.
    """
    supply = site.supply(origin)
    names = _candidate_paths(origin, supply.rest, file, supply.by is SupplyKind.PUBLIC)
    found = [join(place, name) for place in supply.places for name in names]
    return list(dict.fromkeys(found))


def _candidate_paths(origin: str, rest: str, file: str, home: bool) -> list[str]:
    """Return paths below a place: the public `home`, or a mirror.

    rest: the part of the origin after the mirror's key
    """
    forge = FORGE.fullmatch(origin)
    kind = ORIGINS.get(forge["kind"]) if forge else None
    if forge is None or kind is None or not kind.release:
        # Of the Debian archive, and of a vendor's area, the origin is the whole path; folders may hold just the file.
        names = [rest, file] if rest.rpartition("/")[2] == file else [rest, f"{rest}/{file}", file]
        return [name.lstrip("/") for name in names if name]
    tag, below = forge["tag"], rest.removesuffix(f"@{forge['tag']}")
    # A released tarball (made by the project, so with its configure script) is better than one that the forge makes of
    # the tree.
    release, made = (path.format(tag=tag, file=file) for path in (kind.release, kind.tarball))
    names = [f"{below}/{release}"]
    if not home:
        last = forge["repository"].rpartition("/")[2]
        names += [f"{below}/{file}", f"{last}/{file}", f"{below}@{tag}/{file}"]
    if made and file.endswith(GZIP):
        names.append(f"{below}/{made}")
    if not home:
        names.append(file)
    return [name.lstrip("/") for name in names]


def lock_source(site: Site, transfer: Transfer, archive: Archive, known: Mapping[str, SourceFile]) -> SourceFile:
    """Return the archive with its digest: of the recipe, else of `known` (file name → an earlier lock's entry), else of
    the downloaded file. Raises InputError.
    """
    earlier = known.get(archive.file)
    digest = archive.sha256.lower()
    if earlier and not earlier.git and earlier.origin == archive.origin and digest in ("", earlier.sha256):
        return earlier
    if digest:
        return SourceFile(archive.file, archive.origin, digest)
    places = candidate_places(site, archive.origin, archive.file)
    try:
        sha256, size = transfer.obtain(places)
    except DownloadError as error:
        raise not_available_error(archive.origin, archive.file, "", error.misses) from None
    return SourceFile(archive.file, archive.origin, sha256, size)


def lock_sources(
    site: Site,
    transport: Transport,
    transfer: Transfer,
    store: Store,
    reporter: Reporter,
    archives: Iterable[Archive],
    gits: Iterable[Git],
    known: Mapping[str, SourceFile],
    *,
    projects: Iterable[GitProject] = (),
    where: Mapping[str, str] | None = None,
    commit_hints: Mapping[str, CommitHint] | None = None,
    resolved: list[Input] | None = None,
) -> dict[str, SourceFile]:
    """Return file name → entry, of all sources of an image; the same one may be named several times.

    where: file name → the place in the spec that requires it
    commit_hints: file name → where the user changes its commit (`envbuild.lock.commit_origin`)
    resolved: gets the sources that were locked, if others were not

    Everything that is available is fetched first. Then all failures are raised as one InputError. Raises SpecError for
    two sources of one file name, EngineError (the store).
    """

    def lock_one(source: Archive | Git | GitProject) -> SourceFile | EnvbuildError:
        try:
            if isinstance(source, GitProject):
                return lock_project(site, transport, store, reporter, source, known)
            if isinstance(source, Git):
                hint = (commit_hints or {}).get(source.file, UNKNOWN)
                return lock_commit(site, transport, store, reporter, source, known, hint)
            return lock_source(site, transfer, source, known)
        except InputError as error:
            return error.at((where or {}).get(source.file, ""))

    wanted = [*merge_sources([*archives, *gits]), *dict.fromkeys(projects)]
    pool = ThreadPoolExecutor(PARALLEL)
    try:
        futures = [pool.submit(lock_one, source) for source in wanted]
        wait(futures, return_when=FIRST_EXCEPTION)
        failed = next((error for future in futures if future.done() and (error := future.exception())), None)
        if failed:
            transfer.stop.set()
            raise failed
        answers = [future.result() for future in futures]
    except BaseException:  # an interruption: the others need not continue
        transfer.stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    found = [answer for answer in answers if isinstance(answer, SourceFile)]
    if errors := [answer for answer in answers if isinstance(answer, EnvbuildError)]:
        if resolved is not None:
            resolved += found
        raise combine_errors(errors)
    return {answer.file: answer for answer in found}


def merge_sources(sources: Iterable[Archive | Git]) -> list[Archive | Git]:
    """Return each of `sources` once: with the digest that one recipe has, with the submodules that any recipe requires.

    Raises SpecError for different sources of one file name.
    """
    found: dict[str, Archive | Git] = {}
    for source in sources:
        have = found.setdefault(source.file, source)
        if isinstance(have, Git) and isinstance(source, Git):
            same = (have.origin, have.commit) == (source.origin, source.commit)
            found[source.file] = replace(
                have,
                tag=have.tag or source.tag,
                submodules=tuple(sorted({*have.fetched_submodules, *source.fetched_submodules})),
                left_out=have.left_out or source.left_out,
            )
        elif isinstance(have, Archive) and isinstance(source, Archive):
            digests = {item.sha256.lower() for item in (have, source)} - {""}
            same = have.origin == source.origin and len(digests) < 2
            found[source.file] = replace(have, sha256="".join(digests))
        else:
            same = False
        if not same:
            raise SpecError(
                f"two different sources are named {source.file}: {_source_text(have)} and {_source_text(source)}",
                hint="give one of them another file name in its recipe",
            )
    return list(found.values())


def _source_text(source: Archive | Git) -> str:
    return f"{source.origin}@{source.commit}" if isinstance(source, Git) else f"{source.origin} {source.sha256}".strip()


def no_mirror_findings(
    name: str, entries: Sequence[Input], where: Mapping[str, str], *, public: bool = True
) -> list[Finding]:
    """Return the findings for all inputs of the origin `name`, which has no place here: one for each source, because
    the user must provide it; one for all packages, files or images together.

    where: file name of a source → the place in the spec that requires it
    public: whether the site uses public homes
    """
    first = entries[0]
    if isinstance(first, SourceFile):
        found = [
            not_available_error(name, entry.file, entry.sha256, [], where=where.get(entry.file, ""))
            for entry in entries
        ]
        return [error.findings[0] for error in found]
    size, line = amount(sum(entry.size for entry in entries)), mirror_line(name)
    if isinstance(first, ImageBlob) and name.startswith(f"oci:{LOCAL}/"):
        message = f"the base image {first.reference} ({size}) is of no registry, and is not in the store"
        hint = (
            "envbuild make NAME, if it is an image of the project; run envbuild lock where its file is; "
            f"or write a folder of fetch --to:  {mirrors_setting(line)}"
        )
        return [Finding(message, "", hint, (line,))]
    if isinstance(first, ImageBlob):
        message = f"no place is known for {name}, which provides the base image {first.reference} ({size})"
        hint = f"write a registry or a folder of OCI layouts into site.yaml:  {mirrors_setting(line)}"
        return [Finding(message, "", hint, (line,))]
    kind = "Debian package" if isinstance(first, DebianFile) else "Python file"
    kind = f"1 {kind}" if len(entries) == 1 else f"{len(entries)} {kind}s"
    listed = human_list((entry.file for entry in entries), NAMED)
    message = f"no place is known for {name}, which provides {kind} ({size}): {listed}"
    program = "install debootstrap, which names one, or " if public and name.startswith("debian") else ""
    return [Finding(message, "", f"{program}write one into site.yaml:  {mirrors_setting(line)}", (line,))]
