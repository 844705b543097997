"""What is done with a made image: exported, verified again, run. Each returns data and a text and prints nothing."""

from __future__ import annotations

import re
import time
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.core.result import Result
from envbuild.core.text import amount, counted
from envbuild.errors import Finding, SpecError
from envbuild.image import Image
from envbuild.outfile import Output
from envbuild.progress import Progress
from envbuild.workspace import Workspace

if TYPE_CHECKING:
    from envbuild.export import Artifact
    from envbuild.squashfs.pack_format import PackFormat

BLOCKS = {"128K": 1 << 17, "256K": 1 << 18, "512K": 1 << 19, "1M": 1 << 20}
REFERENCE = re.compile(r"[a-z0-9][a-z0-9._/:-]*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?")


@dataclass(frozen=True, slots=True)
class Export:
    """What an export is to give, as the command line has it; empty or 0: the default. `compression` of squashfs blocks,
    or of the layers of an OCI layout."""

    to: str
    _: KW_ONLY
    output: Output | None = None
    compression: str = ""
    level: int | None = None
    block: str = ""
    jobs: int = 0
    platform: str = ""
    keep_owners: bool = False
    tag: str = ""
    cache: bool = True
    keep_dev: bool = False
    sha256: bool = False
    keep_layers: bool = False

    def check(self, name: str) -> None:
        """Raises SpecError with every option that does not fit."""
        findings = []
        if self.to not in ("squashfs", "oci", "docker"):
            raise SpecError(f"--to {self.to!r} is no output", hint="the outputs are: squashfs, oci, docker")
        if self.to != "squashfs":
            given = {"--level": self.level, "--block": self.block, "--jobs": self.jobs, "--platform": self.platform}
            given |= {"--keep-owners": self.keep_owners, "--keep-dev": self.keep_dev, "--no-cache": not self.cache}
            given |= {"--keep-layers": self.keep_layers}
            findings += [
                Finding(f"{option} has no meaning with --to {self.to}", hint="leave it out, or use --to squashfs")
                for option, value in given.items()
                if value not in (None, "", 0, False)
            ]
            if self.to == "docker" and self.output is not None:
                hint = "leave it out, or use --tag NAME:TAG"
                findings.append(Finding("-o has no meaning with --to docker", hint=hint))
            if self.compression not in ("", "gzip", "zstd", "none"):
                findings.append(
                    Finding(f"--compression {self.compression!r} is unknown", hint="it is gzip, zstd or none")
                )
        elif self.tag:
            findings.append(Finding("--tag has no meaning with --to squashfs", hint="leave it out, or use --to docker"))
        if self.tag and not REFERENCE.fullmatch(self.tag):
            hint = f"write it as {name}:latest, in lower case"
            findings.append(Finding(f"--tag {self.tag!r} is no image reference", hint=hint))
        if findings:
            raise SpecError.of(findings)

    def form(self) -> PackFormat:
        """How squashfs blocks are compressed. Raises SpecError."""
        from envbuild.squashfs.codec import DEFAULTS, LEVELS
        from envbuild.squashfs.pack_format import PackFormat

        codec = self.compression or PackFormat().codec
        if codec not in LEVELS:
            raise SpecError(f"--compression {codec!r} is unknown", hint=f"it is {', '.join(LEVELS)}")
        level = DEFAULTS[codec] if self.level is None else self.level
        levels = LEVELS[codec]
        if level not in levels:
            hint = f"use a level from {levels[0]} to {levels[-1]}" if len(levels) > 1 else "leave --level out"
            raise SpecError(f"{codec} has no level {level}", hint=hint)
        if self.block and self.block.upper() not in BLOCKS:
            raise SpecError(f"--block {self.block!r} is no block size", hint=f"it is {', '.join(BLOCKS)}")
        return PackFormat(codec, level, BLOCKS[self.block.upper()] if self.block else PackFormat().block)


def export_foreign(source: str, export: Export, workspace: Workspace) -> Result:
    """Somebody else's image as squashfs."""
    from envbuild.convert import Options, convert
    from envbuild.squashfs.export import Manner

    if export.to != "squashfs":
        target = "docker-daemon:NAME:TAG" if export.to == "docker" else "oci:DIR"
        raise SpecError(
            f"--to {export.to} is for images of the project",
            hint=f"--to squashfs, or: skopeo copy {source} {target}",
        )
    manner = Manner(export.keep_owners, foreign=True, keep_dev=export.keep_dev)
    options = Options(
        export.form(), export.jobs, export.platform, manner, export.cache, export.sha256, export.keep_layers
    )
    if export.output:
        export.output.prepare(source)
    done = convert(source, workspace, options, export.output)
    artifact = done.artifact
    data = {
        "source": done.reference,
        "origin": done.origin,
        "config": done.identity,
        "path": str(artifact.path),
        "sha256": artifact.sha256,
        "size": artifact.size,
        "layers": [asdict(layer) for layer in done.layers],
        "repairs": list(artifact.messages),
        "seconds": done.seconds,
        "up_to_date": done.up_to_date,
    }
    packed = sum(not layer.cached for layer in done.layers)
    work = (
        "up to date, nothing to do"
        if done.up_to_date
        else (f"{counted(packed, 'layer')} packed, {len(done.layers) - packed} packed before, in {done.seconds:.0f} s")
    )
    return Result(data, f"{done.reference}: {work}\n{told(artifact)}")


def told(artifact: Artifact) -> str:
    """Where a file is, and how to start it."""
    path = artifact.path.resolve()
    digest = f"  sha256: {artifact.sha256}\n" if artifact.sha256 else ""
    return (
        f"{artifact.path}\n{digest}  size:   {amount(artifact.size)}\n"
        f"  start:  srun --container-image={path} --pty bash"
    )


def squashfs_output(image: Image, export: Export, progress: Progress) -> Result:
    """The squashfs file of a made image: a copy of what `make` wrote, or one of another compression."""
    from envbuild.export import Artifact, write
    from envbuild.squashfs.copying import copy_file
    from envbuild.squashfs.export import Manner, writing
    from envbuild.squashfs.pack_format import PackFormat
    from envbuild.squashfs.writer import image_file

    began, form = time.monotonic(), export.form()
    path = Path(image.made.artifact)
    packed = form != PackFormat() or export.keep_owners or export.keep_dev
    if packed:
        from envbuild.convert import Options, suffix

        manner = Manner(export.keep_owners, keep_dev=export.keep_dev)
        more = suffix(Options(form, manner=manner))
        own = path.with_name(f"{path.name.removesuffix('.sqsh')}{more}.sqsh")
        out = export.output.file(own.name) if export.output else own
        store, progress.output = progress.workspace.store, out
        artifact = write(
            image.plan, image.layers, image.lock, store, progress, out, form, manner, export.jobs, export.sha256
        )
    else:
        if export.output is not None:
            progress.output = output = export.output.file(path.name)
            progress.start("squashfs", f"squashfs {output.name}: copying {amount(path.stat().st_size)}")
            progress.advance("squashfs", 0, path.stat().st_size)
            with writing(output), image_file(output) as (file, temporary):
                copy_file(path, file)
                temporary.chmod(0o644)  # another mode is enroot's "Invalid image format" for every other user
                path = temporary.replace(output)
            progress.finish("squashfs")
        artifact = Artifact(path, image.made.sha256, path.stat().st_size, image.made.messages)
    layers = [{"diff_id": layer.diff_id, "bytes": layer.size} for layer in image.layers]
    data = {
        "path": str(artifact.path),
        "sha256": artifact.sha256,
        "size": artifact.size,
        "layers": layers,
        "repairs": list(artifact.messages),
        "seconds": round(time.monotonic() - began, 1),
    }
    return Result(data, told(artifact))


def write_output(image: Image, export: Export, progress: Progress) -> Result:
    """One output of a made image."""
    from envbuild.lock.lockfile import lock_digest

    workspace, short = progress.workspace, lock_digest(image.lock)[7:19]
    if export.to == "squashfs":
        return squashfs_output(image, export, progress)
    if export.to == "oci":
        from envbuild.oci.layout import write_layout

        own = workspace.store.root / "artifacts" / f"{image.plan.image}-{short}.oci"
        out = export.output.path if export.output else own
        progress.output = out
        progress.start("oci", f"OCI layout {out.name}")
        layout = write_layout(
            image.layers,
            image.plan.config,
            out,
            workspace.store,
            epoch=image.plan.epoch,
            name=image.plan.image,
            compression=export.compression or "gzip",
        )
        progress.finish("oci")
        data = {"path": str(out), "manifest": layout.manifest_digest, "config": layout.config_digest}
        return Result(
            data,
            f"{out}\n  manifest: {layout.manifest_digest}\n"
            f"  copy:     skopeo copy oci:{out} docker://REGISTRY/{image.plan.image}:{short}",
        )
    from envbuild.oci.docker import load

    reference = export.tag or f"{image.plan.image}:{short}"
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
