"""The findings for archives of Debian packages that apt cannot read, from apt's own words about each place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from envbuild.core.distributions import Distribution
from envbuild.core.errors import Finding
from envbuild.lock.debian.apt import AptSource
from envbuild.lock.debian.repositories import PackageRepository
from envbuild.lock.debian.signing_keys import keyring_line
from envbuild.net.site import mirror_line, mirrors_setting


def unreachable_findings(
    distribution: Distribution, failures: Mapping[str, list[str]], failed: Iterable[PackageRepository]
) -> list[Finding]:
    """Return one finding for the distribution's archive and for each repository that cannot be read, with the
    answer of each of its places."""
    name = distribution.family.capitalize()
    findings = []
    owners: dict[str, list[str]] = {}
    for repository in failed:
        addresses = [repository.source(number).printed_address for number in range(len(repository.places))]
        owners.setdefault(repository.origin if repository.origin.startswith("apt:") else "", []).extend(addresses)
    for archive, places in owners.items():
        lines = [line for place in dict.fromkeys(places) for line in failures.get(place, ())]
        what = f"package repository {archive}" if archive else f"{name} archive"
        text = "\n".join(lines or failures.get("", ())) or "no place is known for it"
        findings.append(unreadable_finding(distribution, what, archive, text))
    return findings


def unreadable_finding(distribution: Distribution, what: str, archive: str, text: str) -> Finding:
    """Return the finding for a repository that apt cannot read, with apt's error (`text`); `archive` is empty for
    the distribution's own."""
    message = f"the {what} cannot be read:\n{text}"
    if "not valid yet" in text:
        line = 'apt: {"Acquire::Check-Date": "false"}'
        hint = f"set this machine's clock; if it cannot be right, write into site.yaml:  {line}"
        return Finding(message, hint=hint)
    if "is expired" in text:
        line = 'apt: {"Acquire::Check-Valid-Until": "false"}'
        return Finding(message, hint=f"if the mirror is frozen on purpose, write into site.yaml:  {line}")
    if "EXPKEYSIG" in text and archive:
        hint = "its key is out of date; vendors renew keys, so download it again:  envbuild lock NAME --refresh"
        return Finding(message, hint=hint)
    main = archive or distribution.archives[0]
    if "NOSPLIT" in text:
        line = mirror_line(main, "ADDRESS")
        hint = "a web page answers instead of the archive, perhaps one for a login: open the address in a browser, "
        hint += f"or name another place in site.yaml:  {mirrors_setting(line)}"
        return Finding(message, hint=hint, mirror_lines=(line,))
    # What could not be fetched is "not signed" in apt's words, too.
    if "NO_PUBKEY" in text or ("not signed" in text and "Failed to fetch" not in text):
        keys = f"name the mirror's keys in site.yaml:  {keyring_line(main)}"
        own = f"sudo apt install {distribution.keyring_package}, or {keys}"
        return Finding(message, hint=keys if archive else own)
    line = mirror_line(main, "ADDRESS")
    return Finding(message, hint=f"name another place in site.yaml:  {mirrors_setting(line)}", mirror_lines=(line,))


def failures_by_place(text: str, sources: Iterable[AptSource]) -> dict[str, list[str]]:
    """Return place (as apt prints it) → the lines of apt's `text` that name it; lines that name none are under ""."""
    places = sorted({source.printed_address for source in sources}, key=len, reverse=True)
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        plain = f"{unquote(line)} "
        named = (place for place in places if f"{place} " in plain or f"{place}/" in plain)
        found.setdefault(next(named, ""), []).append(line)
    if len(found) > 1:
        found.pop("", None)  # "Some index files failed to download", and the like
    return found
