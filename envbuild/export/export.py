"""The exports: an image of the project in any of `envbuild.export.formats`, a third-party image as squashfs."""

from __future__ import annotations

from dataclasses import asdict

from envbuild.core.errors import SpecError
from envbuild.core.late_import import import_object
from envbuild.core.result import Result
from envbuild.core.text import counted
from envbuild.export.built_image import BuiltImage
from envbuild.export.formats import FORMATS
from envbuild.export.options import ExportOptions
from envbuild.export.progress import Progress
from envbuild.export.project_image import describe_squashfs
from envbuild.spec.workspace import Workspace


def prepare_output(options: ExportOptions, source: str) -> None:
    """Check that the image `source` can be written to the path of -o. Raises SpecError and PublishError."""
    check = FORMATS[options.to].check_output
    if options.output and check:
        import_object(check)(options.output.path, source)
    elif options.output:
        options.output.prepare(source)


def write_output(image: BuiltImage, options: ExportOptions, progress: Progress) -> Result:
    """Write one output of a built image."""
    result: Result = import_object(FORMATS[options.to].writer)(image, options, progress)
    return result


def export_foreign(source: str, options: ExportOptions, workspace: Workspace) -> Result:
    """Export a third-party image as squashfs."""
    from envbuild.export.foreign_image import convert_image

    form = FORMATS[options.to]
    if not form.from_packs:
        other = f", or: skopeo copy {source} {form.copy_to}" if form.copy_to else ""
        raise SpecError(f"--to {options.to} is for images of the project", hint=f"--to squashfs{other}")
    _ = options.pack_format
    if options.output:
        options.output.prepare(source)
    done = convert_image(source, workspace, options)
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
    return Result(data, f"{done.reference}: {work}\n{describe_squashfs(artifact)}")
