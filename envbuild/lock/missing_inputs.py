"""What a locking lacks: a source that no place gives, or something that no place could give.

The first is a matter of the site: everything else is fetched before it is told, so that nothing is left to do but to
name a place. The second is a mistake of the spec or of a recipe more often than not, and is told at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from envbuild.core.errors import EnvbuildError, Finding, InputError
from envbuild.net.miss import Miss, MissKind
from envbuild.net.site import ARCHIVES, Site, mirror_line, mirrors_setting

COMMIT = re.compile(r"[0-9a-f]{40}")
PLACEHOLDER = "FOLDER-OR-ADDRESS"


class InvalidInputError(InputError):
    """What is asked for is not so, and no other place would help: the archives and indexes answer, and none of them has
    a package of that name; a tag names another commit than the recipe."""


def combine_errors(errors: Iterable[EnvbuildError]) -> EnvbuildError:
    """All findings as one error: what cannot be had decides over its kind, because only that may change by itself."""
    found = list(errors)
    ranked = (InvalidInputError, InputError)
    kind = next((kind for kind in ranked if any(isinstance(error, kind) for error in found)), type(found[0]))
    return kind.of(dict.fromkeys(finding for error in found for finding in error.findings))


def fixable_in_site_config(errors: Iterable[EnvbuildError]) -> bool:
    """Whether nothing stands in the way but sources without a place."""
    return all(isinstance(error, InputError) and not isinstance(error, InvalidInputError) for error in errors)


def site_lines(errors: Iterable[EnvbuildError], site: Site) -> list[str]:
    """The lines of one ``site.yaml`` that the hints of all findings ask for, each once, and those that a file which is
    not there yet begins with; none where it is a single one of a file that is there, which the hint itself has."""
    asked = [line for error in errors for finding in error.findings for line in finding.mirror_lines]
    lines = [f"  {line}" for line in dict.fromkeys(asked)]
    if lines and not site.where:
        return ["schema: 1", "mirrors:", *lines]
    return ["mirrors:", *lines] if len(lines) > 1 else []


def not_available_error(
    origin: str, file: str, sha256: str, misses: Sequence[Miss], *, image: str = "NAME", where: str = ""
) -> InputError:
    """The error for a source that no place has: `misses` say why. `image` wants it, at `where` of its spec."""
    digest = f" (sha256 {sha256})" if sha256 else ""
    if any(miss.kind is MissKind.MISMATCH for miss in misses) and not is_commit(origin):
        line = mirror_line(origin, PLACEHOLDER)
        return InputError(
            f"the source {origin} ({file}) cannot be had, because its content is not what was locked{digest}; "
            f"{describe_misses(misses)}",
            "the file was changed where it lies: look at what changed. To take it as it is now, correct the sha256 in "
            f"the recipe, or where the recipe has none:  envbuild lock {image} --upgrade {file};  to keep what was "
            f"locked, name a place that still has it in site.yaml:  {mirrors_setting(line)}",
            where,
            mirror_lines=(line,),
        )
    message = f"the source {origin} ({file}){digest} cannot be had; {describe_misses(misses)}"
    return InputError.of([replace(source_finding(message, origin, file), where=where)])


def describe_misses(misses: Iterable[Miss]) -> str:
    """Where something was looked for, as the end of a message."""
    lines = [str(miss) for miss in misses] or ["nowhere: the site names no mirror for it"]
    return "looked at:" + "".join(f"\n  {line}" for line in lines)


def is_commit(origin: str) -> bool:
    """Whether the origin of a lock's source is a commit."""
    return COMMIT.fullmatch(origin.rpartition("@")[2]) is not None


def source_finding(message: str, origin: str, file: str) -> Finding:
    """Return `message`, of a source that no place has, with the line of site.yaml that would supply it."""
    line = mirror_line(origin, PLACEHOLDER)
    if origin.partition(":")[0] in ARCHIVES:
        # No more than the file's own folder: the packages of that archive are to come from where they do.
        line = f'"{origin.rpartition("/")[0]}": [{PLACEHOLDER}]'
    what = "a clone of that repository" if is_commit(origin) else file
    return Finding(message, "", f"write into site.yaml:  {mirrors_setting(line)}  and put {what} there", (line,))
