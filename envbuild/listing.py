"""What there is: the images, what is inside one, the store's size. Each returns data and a text and prints nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from envbuild.core.result import Result
from envbuild.core.text import amount, human_list, table
from envbuild.errors import EnvbuildError, LockError
from envbuild.lock.lockfile import lock_digest, read_lock
from envbuild.lock.request import lock_request
from envbuild.lock.resolve import resolve_as_locked, resolve_image
from envbuild.lock.update import current_lock
from envbuild.record import finished
from envbuild.resolve import Resolution
from envbuild.spec import load
from envbuild.supply import requested, supplier
from envbuild.verify.contents.squashfs_path import squashfs_file
from envbuild.workspace import Workspace
from envbuild.yamlfile import shown

NAMING = "a name is made of a-z, 0-9, '.', '_' and '-', and begins with a letter or digit"
NAMED = 4  # origins that a line of `list` names


def list_images(workspace: Workspace) -> Result:
    """Every image of the project and those that ship with envbuild; of those without a lock, what the lock takes from
    where.
    """
    rows: list[dict[str, Any]] = []
    for name in workspace.project.images():
        row = {"name": name, "target": "", "lock": "", "made": "", "description": "", "needs": [], "needs_mirror": []}
        rows.append(row)
        try:
            resolution = resolve_as_locked(load(name, workspace.project), workspace.project)
            state = lock_state(resolution, workspace)
        except EnvbuildError as error:
            row["description"] = str(error.findings[0]).partition("\nhint: ")[0]  # envbuild check NAME tells it whole
            continue
        done = finished(resolution, workspace) if state == "current" else None
        made = done.artifact if done else ""
        row |= {"target": resolution.target.name, "lock": state, "made": made}
        row["description"] = resolution.spec.description
        if state == "none":
            row |= needs(resolution, workspace)
    for path in workspace.project.misnamed():
        what = "an image's file ends in .yaml" if path.suffix == ".yml" else NAMING
        workspace.talk.warn(f"{shown(path)} is no image by its name: {what}")
    columns = ("name", "target", "lock", "made", "description")
    cells = [[row[column] for column in columns] for row in short_made(rows)]
    text = table([column.upper() for column in columns], cells)
    return Result(rows, "\n".join([text, *unlocked(rows)]))


def needs(resolution: Resolution, workspace: Workspace) -> dict[str, list[str]]:
    """What stands between an image and its lock: `needs` are the origins that neither a mirror of the site nor this
    machine's apt and pip supply, `needs_mirror` those of them whose name stands for no public place either.
    """
    return lacking(suppliers(resolution, workspace))


def suppliers(resolution: Resolution, workspace: Workspace) -> dict[str, str]:
    """Origin → who supplies it here (`envbuild.supply.supplier`), of all that the lock of an image asks for."""
    return {origin: supplier(workspace.site, origin) for origin in requested(lock_request(resolution))}


def lacking(found: Mapping[str, str]) -> dict[str, list[str]]:
    """What `needs` gives, of origins whose suppliers are known."""
    return {
        "needs": [origin for origin, by in found.items() if by != "mirror"],
        "needs_mirror": [origin for origin, by in found.items() if not by],
    }


def unlocked(rows: list[dict[str, Any]]) -> list[str]:
    """Lines for people: the next thing to do for each image that has no lock."""
    lines = []
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        if row["lock"] != "none":
            continue
        network = [origin for origin in row["needs"] if origin not in row["needs_mirror"]]
        without = human_list(row["needs_mirror"], NAMED)
        parts = [f"needs mirrors of {without}" if without else f"envbuild lock {row['name']}"]
        if network:
            parts.append(f"takes {human_list(network, NAMED)} from the network")
        lines.append(f"  {row['name']:{width}}  {'; '.join(parts)}")
    return ["not locked (mirrors are named in site.yaml):", *lines] if lines else []


def lock_state(resolution: Resolution, workspace: Workspace) -> str:
    """none, current, outdated or damaged."""
    path = workspace.project.lock_path(resolution.spec.path)
    if not path.is_file():
        return "none"
    try:
        return "current" if read_lock(path).inputs == lock_request(resolution).digest() else "outdated"
    except LockError:
        return "damaged"


def short_made(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "made": "yes" if row["made"] else "no"} for row in rows]


def show_image(name: str, workspace: Workspace) -> Result:
    """Units of an image with their keys and where they stand, and the versions that its lock holds; without a lock what
    its spec says (`envbuild.showspec`); of a squashfs file where it came from and what it holds
    (`envbuild.showfile`)."""
    file = squashfs_file(name)
    if file:
        from envbuild.showfile import show_file

        return show_file(file)
    resolution = resolve_image(name, workspace)
    if not workspace.project.lock_path(resolution.spec.path).is_file():
        from envbuild.showspec import show_spec

        return show_spec(name, resolution, workspace)
    from envbuild.plan.planner import make_plan

    lock = current_lock(resolution, workspace)
    plan = make_plan(resolution, lock)
    keys = plan.keys()
    done = finished(resolution, workspace)
    units: list[dict[str, Any]] = []
    for unit in plan.units:
        record = workspace.store.unit(keys[unit.name])
        product = (
            record.layer.diff_id
            if record and record.layer
            else ", ".join(file for file, _ in record.wheels)
            if record
            else ""
        )
        units.append(
            {
                "unit": unit.name,
                "key": keys[unit.name][:12],
                "in_image": unit.in_image,
                "stands_on": list(plan.needs(unit)),
                "product": product,
                "size": record.layer.size if record and record.layer else 0,
                "seconds": round(record.seconds, 1) if record else 0.0,
            }
        )
    data = {
        "image": lock.image,
        "target": resolution.target.name,
        "base": lock.base,
        "lock": lock_digest(lock),
        "epoch": lock.epoch,
        "versions": dict(lock.versions),
        "env": dict(plan.config.env),
        "units": units,
        "made": asdict(done) if done else None,
    }
    rows = [
        [
            u["unit"],
            u["key"],
            "image" if u["in_image"] else "build",
            amount(u["size"]) if u["size"] else "",
            f"{u['seconds']} s",
            short(str(u["product"])),
        ]
        for u in units
    ]
    head = (
        f"{lock.image}: {resolution.spec.description}\n"
        f"  target {resolution.target.name}, base {lock.base}, lock {lock_digest(lock)[7:19]}\n"
    )
    versions = "".join(f"  {component} {version}\n" for component, version in sorted(lock.versions.items()))
    made = f"  squashfs {done.artifact}\n" if done else f"  not made: envbuild make {name}\n"
    return Result(data, head + versions + made + table(["UNIT", "KEY", "PART", "SIZE", "TOOK", "PRODUCT"], rows))


def short(digest: str) -> str:
    return digest[:19] if digest.startswith("sha256:") else digest


def store_usage(workspace: Workspace) -> Result:
    """Bytes on disk by kind of content."""
    from envbuild.collect import usage

    sizes = usage(workspace.store)
    total = sum(sizes.values())
    rows = [[kind, amount(size)] for kind, size in sizes.items()] + [["total", amount(total)]]
    return Result({**sizes, "total": total}, f"{workspace.store.root}\n" + table(["WHAT", "SIZE"], rows))


def store_collect(workspace: Workspace, *, dry_run: bool, everything: bool) -> Result:
    """Remove what no made image needs."""
    from envbuild.collect import collect

    removed, freed = collect(workspace.store, workspace.talk, dry_run=dry_run, everything=everything)
    verb = "would remove" if dry_run else "removed"
    return Result(
        {"removed": removed, "bytes": freed, "dry_run": dry_run}, f"{verb} {len(removed)} items, {amount(freed)}"
    )
