"""Errors for missing inputs: a source that is in no known place, or something that cannot be in any place.

The first is fixed in the site configuration: everything else is fetched before it is reported, so that nothing remains
to do but to name a place. The second is usually a mistake in the spec or in a recipe, and is reported at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from envbuild.core.errors import EnvbuildError, Finding, InputError
from envbuild.core.shell import shell_word
from envbuild.lock.entry_grammar import COMMIT
from envbuild.net.miss import Miss, MissKind
from envbuild.net.origin_kinds import ARCHIVES
from envbuild.net.site import Site, mirror_line, mirrors_setting

PLACEHOLDER = "FOLDER-OR-ADDRESS"


class InvalidInputError(InputError):
    """An input that does not exist, so that no other place would help: the archives and indexes answer, and none of
    them has a package of that name; or a tag names another commit than the recipe."""


def combine_errors(errors: Iterable[EnvbuildError]) -> EnvbuildError:
    """Return all findings as one error. Inputs that are not available decide its type, because only they may become
    available without a change of the spec."""
    found = list(errors)
    ranked = (InvalidInputError, InputError)
    kind = next((kind for kind in ranked if any(isinstance(error, kind) for error in found)), type(found[0]))
    return kind.of(dict.fromkeys(finding for error in found for finding in error.findings))


def fixable_in_site_config(errors: Iterable[EnvbuildError]) -> bool:
    """Return whether all errors are inputs without a place, which lines in site.yaml can fix."""
    return all(isinstance(error, InputError) and not isinstance(error, InvalidInputError) for error in errors)


def site_lines(errors: Iterable[EnvbuildError], site: Site) -> list[str]:
    """Return the lines of one ``site.yaml`` that all hints together require, each once.

    A new file also gets its first lines. A single line for an existing file is left out: the hint itself has it."""
    requested = [line for error in errors for finding in error.findings for line in finding.mirror_lines]
    lines = [f"  {line}" for line in dict.fromkeys(requested)]
    if lines and not site.where:
        return ["schema: 1", "mirrors:", *lines]
    return ["mirrors:", *lines] if len(lines) > 1 else []


def not_available_error(
    origin: str, file: str, sha256: str, misses: Sequence[Miss], *, image: str = "NAME", where: str = ""
) -> InputError:
    """Return the error for a source that is in no place.

    misses: each place that was tried, with the cause
    image, where: the image that requires the source, and the place in its spec
    """
    digest = f" (sha256 {sha256})" if sha256 else ""
    if any(miss.kind is MissKind.MISMATCH for miss in misses) and not is_commit(origin):
        line = mirror_line(origin, PLACEHOLDER)
        return InputError(
            f"the source {origin} ({file}) is not available: its content is not what was locked{digest}; "
            f"{describe_misses(misses)}",
            "the file was changed in that place: review what changed. To use the new file, correct the sha256 in the "
            f"recipe, or if the recipe has none:  envbuild lock {image} --upgrade {shell_word(file)};  to use the "
            f"locked file, name a place that still has it in site.yaml:  {mirrors_setting(line)}",
            where,
            mirror_lines=(line,),
        )
    message = f"the source {origin} ({file}){digest} is not available; {describe_misses(misses)}"
    return InputError.of([replace(source_finding(message, origin, file), where=where)])


def describe_misses(misses: Iterable[Miss]) -> str:
    """Return the places that were tried, as the end of a message."""
    lines = [str(miss) for miss in misses] or ["no place: the site names no mirror for it"]
    return "tried:" + "".join(f"\n  {line}" for line in lines)


def is_commit(origin: str) -> bool:
    """Return whether the origin of a lock's source is a commit."""
    return COMMIT.fullmatch(origin.rpartition("@")[2]) is not None


def source_finding(message: str, origin: str, file: str) -> Finding:
    """Return `message`, of a source that is in no place, with the line of site.yaml that would supply it."""
    line = mirror_line(origin, PLACEHOLDER)
    if origin.partition(":")[0] in ARCHIVES:
        # Only the file's own folder: the packages of that archive must still come from their present place.
        line = f'"{origin.rpartition("/")[0]}": [{PLACEHOLDER}]'
    what = "a clone of that repository" if is_commit(origin) else file
    return Finding(message, "", f"write into site.yaml:  {mirrors_setting(line)}  and put {what} there", (line,))
