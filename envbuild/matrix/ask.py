"""Requests as people make them, from the names of images or from words, to answers in words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from envbuild.errors import Finding, SpecError
from envbuild.fields import did_you_mean
from envbuild.image import Result
from envbuild.lock.lockfile import Head, read_head
from envbuild.matrix.check import Answer, check
from envbuild.matrix.compiled import load_matrix
from envbuild.matrix.conflict import why_not
from envbuild.matrix.masks import Matrix
from envbuild.matrix.report import plain, text
from envbuild.matrix.request import of_image, of_words, overlaid, picked
from envbuild.project import Project, valid_name
from envbuild.resolve import lock_request, resolve
from envbuild.settle import met, waived
from envbuild.spec import ImageSpec, filled, load
from envbuild.target import Target
from envbuild.target import load as load_target

LISTS = "the images: envbuild list; the components: envbuild matrix show"


def check_words(words: Sequence[str], project: Project, why: str = "") -> Result:
    """The answer to ``torch=2.0.1 gpu=H100``; `why`: a component of which is told why it is not newer. Raises
    SpecError."""
    matrix = load_matrix(project.facts())
    names = [*project.images(), *(component.name for component in matrix.components if not component.hidden)]
    strange = [word for word in words if word.isprintable() and valid_name(word) and word not in matrix.number]
    if strange:
        hints = [(word, did_you_mean(word, names, "")) for word in strange]
        raise SpecError.of(
            Finding(f"no image and no component is called '{word}'", hint=hint if hint.startswith("did") else LISTS)
            for word, hint in hints
        )
    asks = of_words(words, matrix)
    return told(matrix, check(matrix, asks), " ".join(words), why, why_not(matrix, asks, why) if why else [])


def check_images(names: Sequence[str], why: str = "") -> tuple[list[Result], list[Finding]]:
    """The answers for images: as they are locked, or as their specs ask where there is no current lock; `why` looks at
    what the specs ask. And what is wrong with those that cannot be read."""
    results: list[Result] = []
    wrong: list[Finding] = []
    for name in names:
        try:
            results.append(check_image(name, why))
        except SpecError as error:
            wrong += error.findings
    return results, wrong


def check_image(name: str, why: str) -> Result:
    """The answer for one image. Raises SpecError."""
    project = Project.of(name)
    folders = project.facts()
    matrix = matrix_of(folders)
    spec = load(name, project)
    target = load_target(spec.target, project)
    lock = read_head(project.lock_path(spec.path))
    current = is_current(lock, spec, target)
    asks = of_image(spec, target, matrix)
    locked = picked(lock.settled if current else lock.chosen, matrix)
    answer = check(matrix, overlaid(asks, locked), waived(spec), met(spec))
    title = f"{spec.name} ({'as locked' if current else 'as its spec asks; it has no current lock'})"
    return told(matrix, answer, title, why, why_not(matrix, asks, why, waived(spec)) if why else [])


@cache
def matrix_of(folders: tuple[Path, ...]) -> Matrix:
    """The matrix of these folders, loaded once for all images of a command."""
    return load_matrix(folders)


def is_current(lock: Head, spec: ImageSpec, target: Target) -> bool:
    """Whether a lock answers what the spec asks for."""
    return bool(lock.inputs) and lock.inputs == lock_request(resolve(filled(spec, lock.chosen), target)).digest()


def told(matrix: Matrix, answer: Answer, title: str, why: str, because: Sequence[str]) -> Result:
    """The answer as data and text."""
    data, words = plain(answer), text(answer, matrix, title)
    if why:
        data["why"] = {"component": why, "because": list(because)}
        words += "\n\n" + "\n".join(because)
    return Result(data, words)
