"""Evidence: what was verified of one artifact, as a file, as lines for the terminal, and as an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from envbuild.core.errors import Finding, VerifyError
from envbuild.core.store.store import write_json
from envbuild.verify.results import AuditResult, Status
from envbuild.verify.run_inspector import PYTHON
from envbuild.verify.tiers import TIERS

SCHEMA = 1
SUFFIX = ".evidence.json"  # of the file
INSPECTED_BY = f"the image's own {PYTHON}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The results of verify for one artifact.

    `lock` and `artifact` are digests (``sha256:<hex>``), `layers` diff ids, bottom first. `messages` are those of the
    build and export that the user should know. `results` are in the order in which they were found. `box`: what
    protected this machine from the image's programs while they ran (`seccomp`, `keyring`, `cgroup`: in force or not).
    `checked`: with what all bytes of the file were compared. `inspected_by`: the program that read the content: one of
    the image itself, so a malicious image can forge the results of the audit. `sources`: unit of the image → the
    entry of a cache that it is from; the others were built in the store. `seconds`: part of the verification → how long
    it took; parts run at the same time. `dev`: project folder of the spec → the digest of its content.
    """

    image: str
    lock: str
    layers: tuple[str, ...]
    artifact: str
    messages: tuple[str, ...] = ()
    results: tuple[AuditResult, ...] = field(default=())
    box: Mapping[str, bool] = field(default_factory=dict)
    checked: tuple[str, ...] = ()
    inspected_by: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    dev: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """Name of the file, after the artifact's own."""
        return f"{self.image}-{self.lock.removeprefix('sha256:')[:12]}{SUFFIX}"

    @property
    def is_foreign(self) -> bool:
        """Return whether it is of a file that was not built where it was verified."""
        return bool(self.inspected_by) and not self.checked

    @property
    def failures(self) -> tuple[AuditResult, ...]:
        return tuple(result for result in self.results if result.status == Status.FAIL)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return tier → status → how many, for all four tiers."""
        return count_results(self.results)

    def tiers(self) -> dict[str, str]:
        """Return tier → ``passed``, ``failed``, ``partly: …`` or ``not run: …``. A tier without a check did not run."""
        return tier_states(self.results)


def count_results(results: Sequence[AuditResult]) -> dict[str, dict[str, int]]:
    """Return tier → status → how many, for all four tiers."""
    counts = {tier: {status.value: 0 for status in Status} for tier in TIERS}
    for result in results:
        counts[result.tier][result.status.value] += 1
    return counts


def tier_states(results: Sequence[AuditResult]) -> dict[str, str]:
    """Return tier → ``passed``, ``failed``, ``partly: …`` or ``not run: …``."""
    return {tier: _tier(tier, counts, results) for tier, counts in count_results(results).items()}


def _tier(tier: str, counts: Mapping[str, int], results: Sequence[AuditResult]) -> str:
    skipped = sorted({item.detail for item in results if item.tier == tier and item.status == Status.NOT_RUN})
    if counts["fail"]:
        return "failed"
    if not counts["pass"]:
        return f"not run: {'; '.join(skipped) or 'no check of this tier'}"
    return f"partly: {counts['not-run']} not run ({'; '.join(skipped)})" if skipped else "passed"


def evidence_document(evidence: Evidence) -> dict[str, Any]:
    """Return the JSON document. Of the machine and the moment it contains `box` and `seconds` alone."""
    value = asdict(evidence)
    if not evidence.dev:
        del value["dev"]
    value["results"] = [{key: str(text) for key, text in asdict(result).items() if text} for result in evidence.results]
    return {"schema": SCHEMA, "tiers": evidence.tiers(), "counts": evidence.counts(), **value}


def write_evidence(evidence: Evidence, folder: Path) -> Path:
    """Write the file into `folder`; return its path."""
    path = folder / evidence.file_name
    write_json(path, evidence_document(evidence))
    return path


def summary_lines(evidence: Evidence) -> list[str]:
    """Return lines for the terminal: the counts, each failure, and each tier that did not run or not fully."""
    passed = sum(result.status == Status.PASS for result in evidence.results)
    lines = [f"{evidence.image}: {passed} passed, {len(evidence.failures)} failed"]
    lines += [f"FAILED {result.tier}: {result.name}: {result.detail.splitlines()[0]}" for result in evidence.failures]
    for tier, state in evidence.tiers().items():
        if state not in ("passed", "failed"):
            lines.append(f"{tier} ({TIERS[tier]}): {state}")
    if evidence.is_foreign:
        lines.append(forgery_line(evidence))
    return lines


def forgery_line(evidence: Evidence) -> str:
    """Return what limits the evidence of a file that was not built here."""
    return f"read by {evidence.inspected_by}: a malicious file can forge these results"


def raise_failures(evidence: Evidence) -> None:
    """Raise VerifyError that lists every failure, if there is one (a check that did not run did not fail)."""
    if evidence.failures:
        where = evidence.image
        raise VerifyError.of(
            Finding(f"{result.name}: {result.detail}", f"{where} ({result.tier})", result.hint)
            for result in evidence.failures
        )
