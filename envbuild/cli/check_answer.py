"""``envbuild check``: requests from image names or from words such as ``torch=2.8``, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from envbuild.core.errors import ConflictError, Finding, SpecError
from envbuild.core.yaml_reader import closest
from envbuild.lock.lock_head import LockHead, read_head
from envbuild.lock.request import lock_request
from envbuild.matrix.answer.check import check
from envbuild.matrix.answer.report import answer_data, answer_text, brief_lines
from envbuild.matrix.answer.verdict import VERDICTS, Answer
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.matrix.facts.fact_table import FactTable
from envbuild.matrix.facts.waiver import Waiver
from envbuild.matrix.solve.request import Ask, locked_asks, override_asks, parse_request
from envbuild.spec.image_spec import ImageSpec, fill_versions, load_image_spec
from envbuild.spec.matrix_request import image_request
from envbuild.spec.pick_versions import image_waivers, satisfied_conditions
from envbuild.spec.project import Project, is_valid_name
from envbuild.spec.resolve import check_compatible, resolve
from envbuild.spec.target import Target
from envbuild.spec.target import load_target as load_target

LISTS = "the images: envbuild list; the components: envbuild matrix show"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """An answer for a user or a program.

    image: the name of the image ("" for words).
    refusals: why its recipes are incompatible with it, reported instead of the facts.
    why: a component; because: what prevents a newer version of it.
    """

    matrix: FactTable
    answer: Answer
    title: str
    image: str = ""
    refusals: tuple[Finding, ...] = ()
    why: str = ""
    because: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        return "conflict" if self.refusals else self.answer.verdict

    @property
    def code(self) -> int:
        """The exit code."""
        return VERDICTS[self.verdict]

    @property
    def data(self) -> dict[str, Any]:
        """The answer for ``--json``."""
        refusals = [{"text": one.message, "where": one.where, "hint": one.hint} for one in self.refusals]
        head = {"image": self.image, "verdict": self.verdict, "exit_code": self.code, "refusals": refusals}
        why = {"why": {"component": self.why, "because": list(self.because)}} if self.why else {}
        return {**answer_data(self.answer), **head, **why}

    @property
    def text(self) -> str:
        """The whole answer as text."""
        if self.refusals:
            return "\n".join([f"conflict: {self.title}", *(f"\n{one}" for one in self.refusals)])
        return "\n".join(
            [answer_text(self.answer, self.matrix, self.title), *([""] if self.why else []), *self.because]
        )

    def line(self, width: int) -> str:
        """Return the verdict as one line, and under it what prevents the image.

        width: characters of the longest image name in the list.
        """
        head = f"{self.verdict:<11}  {self.image:<{width}}"
        found = [str(one) for one in self.refusals] or brief_lines(self.answer)
        if self.code:
            return "\n".join([head.rstrip(), *(f"  {row}" for one in found for row in one.splitlines())])
        return "  ".join([head, *found]).rstrip()


def check_requested(
    words: Sequence[str], everything: bool, why: str, waived: Sequence[str] = ()
) -> tuple[list[CheckResult], list[Finding]]:
    """Return the answers for all images with `everything`, for the images among `words`, or for words such as
    ``torch=2.0.1``; and the findings of images that cannot be read.

    why: a component; the answers then explain why it is not newer.
    waived: facts that the answer about words leaves out.
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
        return check_images(list(project.images()) if everything else words, why)
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


def check_words(words: Sequence[str], project: Project, why: str = "", waived: Sequence[str] = ()) -> CheckResult:
    """Return the answer to words such as ``torch=2.0.1 gpu=H100``.

    why: a component; the answer then explains why it is not newer.
    waived: facts that the answer leaves out.
    Raises SpecError.
    """
    matrix = load_fact_table(project.facts())
    names = [*project.images(), *(component.name for component in matrix.components if not component.hidden)]
    strange = [word for word in words if word.isprintable() and is_valid_name(word) and word not in matrix.number]
    if strange:
        raise SpecError.of(
            Finding(f"no image and no component is called '{word}'", hint=closest(word, names) or LISTS)
            for word in strange
        )
    asks = parse_request(words, matrix)
    waivers = tuple(Waiver(fact, "of --waive", "--waive") for fact in dict.fromkeys(waived))
    answer = check(matrix, asks, waivers)
    because = why_not_newer(matrix, asks, why, waivers) if why else ()
    return CheckResult(matrix, answer, " ".join(words), why=why, because=because)


def check_images(names: Sequence[str], why: str = "") -> tuple[list[CheckResult], list[Finding]]:
    """Return the answers for images, and the findings of those that cannot be read.

    An image is checked as it is locked, or as its spec requests if it has no current lock; `why` uses the specs.
    """
    results: list[CheckResult] = []
    wrong: list[Finding] = []
    for name in names:
        try:
            results.append(check_image(name, why))
        except SpecError as error:
            wrong += error.findings
    return results, wrong


def check_image(name: str, why: str = "") -> CheckResult:
    """Return the answer for one image. A refusal of its recipes is reported alone: it is the plainer answer.

    Raises SpecError.
    """
    project = Project.of(name)
    matrix = matrix_of(project.facts())
    spec = load_image_spec(name, project)
    target = load_target(spec.target, project)
    lock = read_head(project.lock_path(spec.path))
    asks = image_request(spec, target, matrix)
    refusals: tuple[Finding, ...] = ()
    try:
        current = is_current(lock, spec, target)
    except ConflictError as error:
        current, refusals = False, error.findings
    answer = Answer("conflict", asks)
    if not refusals:
        locked = locked_asks(lock.settled if current else lock.chosen, matrix)
        answer = check(matrix, override_asks(asks, locked), image_waivers(spec), satisfied_conditions(spec))
    if not (refusals or current):
        refusals = refused(spec, target, answer)
    title = f"{spec.name} ({'as locked' if current else 'as its spec requests; it has no current lock'})"
    because = why_not_newer(matrix, asks, why, image_waivers(spec)) if why and not refusals else ()
    return CheckResult(matrix, answer, title, spec.name, refusals, why, because)


def why_not_newer(
    matrix: FactTable, asks: Sequence[Ask], component: str, waivers: Sequence[Waiver] = ()
) -> tuple[str, ...]:
    """Return why a component is not newer. Raises SpecError for an unknown component."""
    from envbuild.matrix.answer.conflict import explain_not_newer

    return tuple(explain_not_newer(matrix, asks, component, waivers))


def refused(spec: ImageSpec, target: Target, answer: Answer) -> tuple[Finding, ...]:
    """Return why the recipes are incompatible with the image, given the versions that were picked."""
    try:
        check_compatible(fill_versions(spec, answer.chosen) if not answer.exit_code else spec, target)
    except ConflictError as error:
        return error.findings
    return ()


@cache
def matrix_of(folders: tuple[Path, ...]) -> FactTable:
    """Return the matrix of these folders, loaded once for all images of a command."""
    return load_fact_table(folders)


def is_current(lock: LockHead, spec: ImageSpec, target: Target) -> bool:
    """Return whether a lock matches its spec. Raises ConflictError if the recipes are incompatible."""
    return bool(lock.inputs) and lock.inputs == lock_request(resolve(fill_versions(spec, lock.chosen), target)).digest()


def exit_code(results: Sequence[CheckResult]) -> int:
    """Return the exit code for several answers: a conflict counts before an unknown combination."""
    return next((code for code in (3, 9) if any(result.code == code for result in results)), 0)


def overview(results: Sequence[CheckResult]) -> str:
    """Return the answers as one line each, what prevents an image below it, and the summary."""
    width = max(len(result.image) for result in results)
    return "\n".join([*(result.line(width) for result in results), "", summary(results)])


def summary(results: Sequence[CheckResult]) -> str:
    """Return the number of images of each verdict, and the command that shows more."""
    counts = {verdict: sum(one.verdict == verdict for one in results) for verdict in VERDICTS}
    kinds = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return f"{len(results)} images: {kinds}; facts of one: envbuild check NAME"
