"""What a locking lacks: a source that no place gives, or something that no place could give.

The first is a matter of the site: everything else is fetched before it is told, so that nothing is left to do but to
name a place. The second is a mistake of the spec or of a recipe more often than not, and is told at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.errors import EnvbuildError, InputError
from envbuild.site import Site


class WrongInput(InputError):
    """What is asked for is not so, and no other place would help: the archives and indexes answer, and none of them has
    a package of that name; a tag names another commit than the recipe."""


def together(errors: Iterable[EnvbuildError]) -> EnvbuildError:
    """All findings as one error: what cannot be had decides over its kind, because only that may change by itself."""
    found = list(errors)
    ranked = (WrongInput, InputError)
    kind = next((kind for kind in ranked if any(isinstance(error, kind) for error in found)), type(found[0]))
    return kind.of(dict.fromkeys(finding for error in found for finding in error.findings))


def only_the_site(errors: Iterable[EnvbuildError]) -> bool:
    """Whether nothing stands in the way but sources without a place."""
    return all(isinstance(error, InputError) and not isinstance(error, WrongInput) for error in errors)


def site_lines(errors: Iterable[EnvbuildError], site: Site) -> list[str]:
    """The lines of one ``site.yaml`` that the hints of all findings ask for, each once, and those that a file which is
    not there yet begins with; none where it is a single one of a file that is there, which the hint itself has."""
    asked = [line for error in errors for finding in error.findings for line in finding.mirror_lines]
    lines = [f"  {line}" for line in dict.fromkeys(asked)]
    if lines and not site.where:
        return ["schema: 1", "mirrors:", *lines]
    return ["mirrors:", *lines] if len(lines) > 1 else []
