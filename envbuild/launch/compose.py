"""Composition of variables: image < launch < target < site < command line. Different values need a reason."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.core.errors import Finding, SpecError
from envbuild.core.shell import shell_word
from envbuild.launch.model import OWNERS, Setting

HINTS = {
    "site": "give the reason in site.yaml: env: {{{name}: {{value: {value}, because: …}}}}",
    "command line": "give the reason: -e {pair} --because TEXT",
}


def compose(claims: Iterable[Setting]) -> tuple[Setting, ...]:
    """Return the variables of a job, sorted by name; each has the value of its last owner, and what that replaces.

    Raises SpecError for each variable that an owner sets to another value than one before it, without a reason.
    """
    found: dict[str, Setting] = {}
    findings: list[Finding] = []
    for claim in sorted(claims, key=lambda item: OWNERS.index(item.owner)):
        before = found.get(claim.name)
        if before and before.value != claim.value:
            if not claim.because:
                findings.append(conflict(before, claim))
            claim = claim._replace(replaces=(*before.replaces, (before.owner, before.value)))
        elif before:
            claim = claim._replace(replaces=before.replaces, because=claim.because or before.because)
        found[claim.name] = claim
    if findings:
        raise SpecError.of(findings)
    return tuple(found[name] for name in sorted(found) if found[name].owner != "image")


def conflict(before: Setting, claim: Setting) -> Finding:
    """Return the finding for a value that replaces another one without a reason."""
    known = f" ({before.because})" if before.because else ""
    message = f"{claim.name}: the {claim.owner} sets {claim.value!r}, and the {before.owner} {before.value!r}{known}"
    pair = shell_word(f"{claim.name}={claim.value}")
    hint = HINTS.get(claim.owner, "").format(name=claim.name, value=claim.value, pair=pair)
    return Finding(message, hint=hint)
