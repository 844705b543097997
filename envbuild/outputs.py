"""What the commands besides `make` give: exports, runs, lists, the store's usage. Each returns data and a text;
nothing is printed here."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envbuild import make as steps
from envbuild.console import amount
from envbuild.errors import EnvbuildError, LockError, SpecError
from envbuild.lock.lockfile import Lock, lock_digest, read_lock
from envbuild.plan.units import Plan
from envbuild.resolve import Resolution, lock_request
from envbuild.store import LayerRecord, read_json
from envbuild.workspace import Workspace


# A squashfs file starts as enroot starts it: its /etc/environment, then its /etc/rc under a login shell.
START = """\
if [ -r /etc/environment ]; then while IFS= read -r line; do export "$line"; done < /etc/environment; fi
if [ -s /etc/rc ]; then exec /bin/sh -l /etc/rc "$@"; fi
if [ $# -gt 0 ]; then exec "$@"; fi
exec /bin/sh
"""


@dataclass(frozen=True, slots=True)
class Result:
    """A command's answer, for scripts and for people."""

    data: Any
    text: str


def is_squashfs(name: str) -> bool:
    """Whether NAME is a finished file, not a spec."""
    path = Path(name)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"hsqs"


@dataclass(frozen=True, slots=True)
class Image:
    """A made image: everything about it that is in the project and the store."""

    resolution: Resolution
    lock: Lock
    plan: Plan
    made: steps.Made
    layers: tuple[LayerRecord, ...]


def made_image(name: str, workspace: Workspace) -> Image:
    """The image `name` as it was made. Raises LockError or EnvbuildError with the command that makes it."""
    resolution = steps.resolved(name, workspace)
    if not workspace.project.lock_path(resolution.spec.path).is_file():
        raise LockError(f"{resolution.spec.name} has no lock", hint=f"envbuild make {name}")
    lock = steps.locked(resolution, workspace)
    made = steps.finished(steps.record_path(resolution, lock, workspace), steps.Options(verify=False))
    if made is None:
        raise EnvbuildError(
            f"{resolution.spec.name} is not made, or something changed since", hint=f"envbuild make {name}"
        )
    layers = tuple(LayerRecord(**read_json(workspace.store.layer_path(layer) / "layer.json")) for layer in made.layers)
    return Image(resolution, lock, steps.planned(resolution, lock), made, layers)


def export_image(
    name: str, to: str, workspace: Workspace, *, output: Path | None, compression: str, tag: str
) -> Result:
    """Squashfs, OCI layout, or an image in the Docker Engine. Makes the image first when it is not made."""
    if to not in ("squashfs", "oci", "docker"):
        raise SpecError(f"--to {to!r} is no output", hint="the outputs are: squashfs, oci, docker")
    if compression not in ("gzip", "zstd", "none"):
        raise SpecError(f"--compression {compression!r} is unknown", hint="it is gzip, zstd or none")
    steps.make(name, workspace, steps.Options(verify=False))
    image = made_image(name, workspace)
    short = lock_digest(image.lock)[7:19]
    if to == "squashfs":
        path = Path(image.made.artifact)
        if output is not None:
            output = output / path.name if output.is_dir() else output
            temporary = output.with_name(f".{output.name}.part")
            shutil.copyfile(path, temporary)
            temporary.chmod(0o644)  # another mode is enroot's "Invalid image format" for every other user
            path = temporary.replace(output)
        data = {"path": str(path), "sha256": image.made.sha256}
        return Result(
            data, f"{path}\n  sha256: {image.made.sha256}\n  start:  srun --container-image={path.resolve()} --pty bash"
        )
    if to == "oci":
        from envbuild.oci.layout import write_layout

        out = output or workspace.store.root / "artifacts" / f"{image.plan.image}-{short}.oci"
        layout = write_layout(
            image.layers,
            image.plan.config,
            out,
            workspace.store,
            epoch=image.plan.epoch,
            name=image.plan.image,
            compression=compression,
        )
        data = {"path": str(out), "manifest": layout.manifest_digest, "config": layout.config_digest}
        return Result(
            data,
            f"{out}\n  manifest: {layout.manifest_digest}\n"
            f"  copy:     skopeo copy oci:{out} docker://REGISTRY/{image.plan.image}:{short}",
        )
    from envbuild.oci.docker import load

    reference = tag or f"{image.plan.image}:{short}"
    identity = load(
        image.layers,
        image.plan.config,
        workspace.store,
        epoch=image.plan.epoch,
        reference=reference,
        talk=workspace.talk,
    )
    return Result(
        {"reference": reference, "id": identity},
        f"{reference}\n  id:    {identity}\n  start: docker run --rm -it {reference}",
    )


def verify_image(name: str, workspace: Workspace) -> Result:
    """Audit and run a made image again, or audit a squashfs file against the lock inside it."""
    from envbuild.verify.evidence import raise_for, summary
    from envbuild.verify.image import verify_made

    image = made_image(name, workspace)
    path, evidence, data = verify_made(image, workspace)
    raise_for(evidence)
    return Result(data, "\n".join([*summary(evidence), f"  evidence: {path}"]))


def run_image(name: str, command: Sequence[str], workspace: Workspace, *, network: bool, binds: Sequence[str]) -> int:
    """Run a command in a made image or a squashfs file; returns its exit code."""
    from envbuild.engines.embedded import run_in

    pairs = [(source, target or source) for source, _, target in (bind.partition(":") for bind in binds)]
    if is_squashfs(name):
        argv = ["/bin/sh", "-c", START, "sh", *command]
        code, _ = run_in(
            Path(name).resolve(), argv, env=None, store=workspace.store, network=network, binds=pairs, talk=workspace.talk
        )
        return code
    image = made_image(name, workspace)
    trees = [workspace.store.layer_tree(layer.diff_id) for layer in image.layers]
    argv = list(command) or list(image.plan.config.cmd)
    code, _ = run_in(trees, argv, env=dict(image.plan.config.env), store=workspace.store, network=network, binds=pairs)
    return code


def list_images(workspace: Workspace) -> Result:
    """Every image of the project and those that ship with envbuild."""
    rows = []
    for name in workspace.project.images():
        try:
            resolution = steps.resolved(name, workspace)
        except EnvbuildError as error:
            rows.append({"name": name, "target": "", "lock": "", "made": "", "description": str(error.findings[0])})
            continue
        path = workspace.project.lock_path(resolution.spec.path)
        state, made = "none", ""
        if path.is_file():
            lock = read_lock(path)
            state = "current" if lock.inputs == lock_request(resolution).digest() else "outdated"
            done = steps.finished(steps.record_path(resolution, lock, workspace), steps.Options(verify=False))
            made = done.artifact if done else ""
        rows.append(
            {
                "name": name,
                "target": resolution.target.name,
                "lock": state,
                "made": made,
                "description": resolution.spec.description,
            }
        )
    return Result(
        rows,
        table(
            ["NAME", "TARGET", "LOCK", "MADE", "DESCRIPTION"], [[*map(str, row.values())] for row in short_made(rows)]
        ),
    )


def short_made(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{**row, "made": "yes" if row["made"] else "no"} for row in rows]


def show_image(name: str, workspace: Workspace) -> Result:
    """Units of an image with their keys and where they stand, and the versions that its lock holds; or a squashfs
    file's superblock."""
    if is_squashfs(name):
        from envbuild.squashfs import describe

        data = describe(Path(name))
        return Result(data, "\n".join(f"{key}: {value}" for key, value in data.items()))
    resolution = steps.resolved(name, workspace)
    lock = steps.locked(resolution, workspace)
    plan = steps.planned(resolution, lock)
    keys = plan.keys()
    done = steps.finished(steps.record_path(resolution, lock, workspace), steps.Options(verify=False))
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


def table(head: list[str], rows: list[list[Any]]) -> str:
    """Columns for people, two blanks apart."""
    lines = [head, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


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
