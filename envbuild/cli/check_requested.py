"""``envbuild check``: the images, or the words, that a command line is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild.cli.check_result import CheckResult
from envbuild.cli.check_words import check_words
from envbuild.core.errors import Finding, SpecError
from envbuild.spec.project import Project


def check_requested(
    words: Sequence[str], everything: bool, why: str, waived: Sequence[str] = (), host: Mapping[str, Any] | None = None
) -> tuple[list[CheckResult], list[Finding]]:
    """Return the answers for all images with `everything`, for the images among `words`, or for words such as
    ``torch=2.0.1``; and the findings of images that cannot be read.

    why: a component; the answers then explain why it is not newer.
    waived: facts that the answer about words leaves out.
    host: the facts of a machine on which the images are to run.
    Raises SpecError.
    """
    if everything and words:
        raise SpecError("--all takes every image", hint="leave out the names")
    if not everything and not words:
        raise SpecError("nothing to check", hint="envbuild check h100-nccl, or: envbuild check gpu=H100 torch=2.8")
    project = Project.find()
    if everything or name_images(words, project):
        if waived:
            hint = f"write under waivers of the spec: - {{fact: {waived[0]}, reason: …}}"
            raise SpecError("--waive is for components: an image has its waivers, with reasons, in its spec", hint)
        from envbuild.cli.check_images import check_images  # reads specs, recipes and locks, which words do without

        return check_images(list(project.images()) if everything else words, why, host)
    if host is not None:
        raise SpecError(
            "--host is for images", hint="envbuild check NAME --host; for words: driver=580.65.06 kernel=6.8"
        )
    return [check_words(words, project, why, waived)], []


def name_images(words: Sequence[str], project: Project) -> bool:
    """Return whether the words of a command line are images. Raises SpecError for a mixture, and for the path of an
    image without its ending."""
    names = set(project.images())
    images = [word for word in words if word in names or word.endswith((".yaml", ".yml"))]
    if images and len(images) != len(words):
        other = next(word for word in words if word not in images)
        raise SpecError(
            f"'{other}' is not an image, and images are checked separately from words", hint="envbuild check NAME…"
        )
    for word in words if not images else ():
        if "/" in word and Path(f"{word}.yaml").is_file():
            raise SpecError(f"'{word}' is not an image", hint=f"envbuild check {word}.yaml")
    return bool(images)
