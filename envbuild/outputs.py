"""What is done with a made image: exported, verified again, run. Each returns data and a text and prints nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from envbuild import make as steps
from envbuild.errors import SpecError
from envbuild.image import Image, Result, made_image, squashfs_file
from envbuild.lock.lockfile import lock_digest
from envbuild.workspace import Workspace

REFERENCE = re.compile(r"[a-z0-9][a-z0-9._/:-]*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?")

# A squashfs file starts as enroot starts it: its /etc/environment, then its /etc/rc under a login shell.
START = """\
if [ -r /etc/environment ]; then while IFS= read -r line; do export "$line"; done < /etc/environment; fi
if [ -s /etc/rc ]; then exec /bin/sh -l /etc/rc "$@"; fi
if [ $# -gt 0 ]; then exec "$@"; fi
exec /bin/sh
"""


def export_image(
    name: str, to: str, workspace: Workspace, *, output: Path | None, compression: str, tag: str
) -> Result:
    """Squashfs, OCI layout, or an image in the Docker Engine. Makes the image first when it is not made."""
    if to not in ("squashfs", "oci", "docker"):
        raise SpecError(f"--to {to!r} is no output", hint="the outputs are: squashfs, oci, docker")
    if compression not in ("gzip", "zstd", "none"):
        raise SpecError(f"--compression {compression!r} is unknown", hint="it is gzip, zstd or none")
    if tag and not REFERENCE.fullmatch(tag):
        raise SpecError(f"--tag {tag!r} is no image reference", hint=f"write it as {name}:latest, in lower case")
    steps.make(name, workspace, steps.Options())
    with workspace.store.lock("gc", shared=True):
        return write_output(made_image(name, workspace), to, workspace, output, compression, tag)


def write_output(
    image: Image, to: str, workspace: Workspace, output: Path | None, compression: str, tag: str
) -> Result:
    """One output of a made image."""
    short = lock_digest(image.lock)[7:19]
    if to == "squashfs":
        path = Path(image.made.artifact)
        if output is not None:
            output = output / path.name if output.is_dir() else output
            output.parent.mkdir(parents=True, exist_ok=True)
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
    from envbuild.verify.evidence import document, raise_for, summary
    from envbuild.verify.image import verify_file, verify_made

    file = squashfs_file(name)
    if file:
        evidence = verify_file(file, workspace)
        raise_for(evidence)
        return Result(document(evidence), "\n".join(summary(evidence)))
    path, evidence, data = verify_made(made_image(name, workspace), workspace)
    raise_for(evidence)
    return Result(data, "\n".join([*summary(evidence), f"  evidence: {path}"]))


def run_image(name: str, command: Sequence[str], workspace: Workspace, *, network: bool, binds: Sequence[str]) -> int:
    """Run a command in a made image or a squashfs file; returns its exit code."""
    from envbuild.engines.embedded import run_in

    pairs = [bind_pair(bind) for bind in binds]
    file = squashfs_file(name)
    if file:
        argv = ["/bin/sh", "-c", START, "sh", *command]
        store, talk = workspace.store, workspace.talk
        code, _ = run_in(file, argv, env=None, store=store, network=network, binds=pairs, talk=talk)
        return code
    image = made_image(name, workspace)
    trees = [workspace.store.layer_tree(layer.diff_id) for layer in image.layers]
    argv = list(command) or list(image.plan.config.cmd)
    code, _ = run_in(trees, argv, env=dict(image.plan.config.env), store=workspace.store, network=network, binds=pairs)
    return code


def bind_pair(bind: str) -> tuple[str, str]:
    """``SRC[:DST]`` as two absolute paths. Raises SpecError for a source that is not there."""
    source, _, target = bind.partition(":")
    path = Path(source).expanduser().absolute()
    if not path.exists():
        raise SpecError(f"--bind {bind}: {path} does not exist", hint="--bind takes a folder of this machine")
    return str(path), target or str(path)
