"""``envbuild origins``: rows of origins with their places, probed on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from envbuild.core.errors import EnvbuildError
from envbuild.core.result import Result
from envbuild.core.text import human_list, table
from envbuild.lock.inputs import requested_origins
from envbuild.lock.request import LockRequest, lock_request
from envbuild.lock.resolve import resolve_as_locked
from envbuild.lock.snapshots import TIME
from envbuild.lock.sources import candidate_places
from envbuild.net.origin_kinds import ARCHIVES, ORIGINS, longest_prefix
from envbuild.net.probe import Answer, Probe, probe_all
from envbuild.net.public_homes import FOUND, Home, find_homes, public_homes
from envbuild.net.site import Site, mirror_line
from envbuild.net.supply import SupplyKind
from envbuild.net.urls import join, local_path, redact
from envbuild.spec.image_spec import load_image_spec
from envbuild.spec.workspace import Workspace

TITLES = {SupplyKind.SITE: "site", SupplyKind.HOST: "host", SupplyKind.PUBLIC: "public", SupplyKind.NONE: "none"}
NAMED = 3  # images named in one line


@dataclass(slots=True)
class Need:
    """An origin: the images that need it, the architecture of the first of them, and a path below it that must exist
    (a Release file, the page of a package)."""

    origin: str
    arch: str = ""
    path: str = ""
    images: list[str] = field(default_factory=list)


def list_origins(names: Sequence[str], workspace: Workspace, *, probe: bool) -> tuple[Result, bool]:
    """Return the origins of images with their places, and whether a probed place does not answer.

    names: images; empty: all images, and the public homes that none of them needs
    """
    site, found = workspace.site, needs_of_images(names, workspace)
    if not names:
        used = {longest_prefix(public_homes(), origin) for origin in found}
        found |= {prefix: Need(prefix) for prefix in public_homes() if prefix not in used}
    rows = [origin_row(site, need) for need in found.values()]
    probes = {need.origin: probes_of(site, need) for need in found.values()} if probe else {}
    answers = probe_all(site, (item for group in probes.values() for item in group))
    for row in rows:
        row["probes"] = [answer_row(answers[item]) for item in probes.get(row["origin"], ())]
    rows.sort(key=lambda row: row["origin"])
    silent = any(row["probes"] and not any(item["answers"] for item in row["probes"]) for row in rows)
    caches = [{"at": cache.at, "write": cache.write} for cache in site.caches]
    lines = [f"cache of units: {cache.at}{' (also written)' if cache.write else ''}" for cache in site.caches]
    return Result({"origins": rows, "caches": caches}, "\n".join([*lines, *text_lines(rows, probe)])), silent


def needs_of_images(names: Sequence[str], workspace: Workspace) -> dict[str, Need]:
    """Return origin → what images need of it. A mistake in one of `names` is raised; other images with one are left
    out, with a warning."""
    found: dict[str, Need] = {}
    for name in names or workspace.project.images():
        try:
            spec = load_image_spec(name, workspace.project)
            request = lock_request(resolve_as_locked(spec, workspace.project))
        except EnvbuildError as error:
            if names:
                raise
            workspace.reporter.warn(f"{name} is left out: {error.findings[0].message} (envbuild check {name})")
            continue
        paths = paths_of_origins(request)
        for origin in requested_origins(request):
            need = found.setdefault(origin, Need(origin, request.arch, paths.get(origin, "")))
            need.images.append(spec.name)
    return found


def paths_of_origins(request: LockRequest) -> dict[str, str]:
    """Return origin → a path below it that must exist."""
    found = {item.origin: release_path(item.suite) for item in request.repositories}
    return found | {index.origin: f"{index.packages[0]}/" for index in request.indexes if index.packages}


def release_path(suite: str) -> str:
    """Return the path of the Release file of a suite (sources.list(5): one that ends in a slash is a folder)."""
    return "InRelease" if suite.endswith("/") else f"dists/{suite}/InRelease"


def origin_row(site: Site, need: Need) -> dict[str, Any]:
    """Return the row of an origin."""
    supply = site.supply(need.origin, need.arch)
    home = home_of(site, need)
    places = [redact(place) for place in site.roots(need.origin, need.arch)]
    if need.origin == "python:":
        python = site.python()
        places = [redact(place) for place in (*python.indexes, *python.links)]
    why = {
        SupplyKind.SITE: f"{site.where or 'site.yaml'}: mirrors of {supply.prefix}",
        SupplyKind.HOST: "pip's configuration" if need.origin == "python:" else "apt's sources",
        SupplyKind.PUBLIC: f"public home of {home.vendor} ({home.file})" if home else "the origin names the host",
        SupplyKind.NONE: "no place is known" if site.use_host else "no mirror, and upstream: false",
    }[supply.by]
    snapshot = supply.by in (SupplyKind.HOST, SupplyKind.PUBLIC) and next(
        (item.snapshot for item in find_homes(need.origin, need.arch) if item.snapshot), ""
    )
    return {
        "origin": need.origin,
        "from": "" if supply.by is SupplyKind.NONE else TITLES[supply.by],
        "places": places,
        "because": why,
        "vendor": home.vendor if home else "",
        "contains": home.contains if home else "",
        "licence": home.licence if home else "",
        "found": home.found if home else "",
        "source": home.source if home else "",
        "hosts": list(home.other_hosts) if home else [],
        "snapshot": snapshot or "",
        "images": need.images,
        "line": "" if places else mirror_line(need.origin),
    }


def home_of(site: Site, need: Need) -> Home | None:
    """Return the public home that an origin is taken from, if it is."""
    if site.supply(need.origin, need.arch).by is not SupplyKind.PUBLIC:
        return None
    return next(iter(find_homes(need.origin, need.arch)), None)


def probes_of(site: Site, need: Need) -> list[Probe]:
    """Return the requests that show whether the places of an origin answer."""
    origin, home = need.origin, home_of(site, need)
    kind, _, rest = origin.partition(":")
    roots = site.roots(origin, need.arch)
    if kind == "python":
        return [Probe(f"{place.rstrip('/')}/", exact=False) for place in site.python().indexes]
    if not need.images:  # a prefix, not an input
        return [Probe(f"{root}/", exact=False) for root in roots if "://" in root]
    if kind == "oci":
        hosts = {"/".join(root.split("/")[:3]) if local_path(root) is None else root for root in roots}
        return [Probe(f"{host}/v2/" if local_path(host) is None else host, exact=False) for host in sorted(hosts)]
    if kind in ARCHIVES:
        path = release_path(rest.partition("/")[0])
        snapshot = origin_row(site, need)["snapshot"].format(
            time=(datetime.now(UTC) - timedelta(days=2)).strftime(TIME)
        )
        slow = [Probe(join(snapshot, path), patient=True)] if snapshot else []
        return [*(Probe(join(root, path)) for root in roots), *slow]
    if need.path:
        linked = [Probe(f"https://{host}/", exact=False) for host in (home.other_hosts if home else ())]
        return [*(Probe(join(root, need.path)) for root in roots), *linked]
    if kind in ORIGINS and not ORIGINS[kind].release:
        return [Probe(place) for place in candidate_places(site, origin, rest.rpartition("/")[2])[:1]]
    return [Probe(root, exact=local_path(root) is None) for root in roots]


def answer_row(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON has it."""
    place = redact(answer.probe.place)
    return {"place": place, "answers": answer.answers, "detail": answer.detail, "seconds": answer.seconds}


def text_lines(rows: Sequence[Mapping[str, Any]], probed: bool) -> list[str]:
    """Return the table, the homes that it names, and the lines for site.yaml that are missing."""
    columns = ["ORIGIN", "FROM", "PLACE", *(["ANSWER"] if probed else []), "IMAGES"]
    cells = []
    for row in rows:
        place = row["places"][0] if row["places"] else "-"
        more = f" and {len(row['places']) - 1} more" if len(row["places"]) > 1 else ""
        answer = [answer_text(row["probes"])] if probed else []
        images = human_list(row["images"], NAMED) or "-"
        cells.append([row["origin"], row["from"] or "none", f"{place}{more}", *answer, images])
    lines = [table(columns, cells)]
    if any(row["vendor"] for row in rows):
        lines += ["public homes:"]
        lines += [
            f"  {row['vendor']}: {row['contains']}\n    licence: {row['licence']}; address from {FOUND[row['found']]}"
            for row in unique(rows)
        ]
    if missing := [row["line"] for row in rows if row["line"] and row["images"]]:
        lines += [
            "lines for site.yaml, with your places:",
            "mirrors:",
            *(f"  {line}" for line in dict.fromkeys(missing)),
        ]
    if not probed:
        lines.append("next: envbuild origins --probe")
    return lines


def unique(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first row of each public home."""
    found = {(row["vendor"], row["contains"]): row for row in reversed(list(rows)) if row["vendor"]}
    return sorted(found.values(), key=lambda row: (row["vendor"], row["contains"]))


def answer_text(probes: Sequence[Mapping[str, Any]]) -> str:
    """Return the answers of the places of one origin in a few words."""
    if not probes:
        return "-"
    texts = [("yes, " if item["answers"] else "no: ") + f"{item['detail']}, {item['seconds']} s" for item in probes]
    return "; ".join(texts)
