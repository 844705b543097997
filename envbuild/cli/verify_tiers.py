"""``envbuild verify --tier gpu``, ``--tier fabric`` and ``--read``: the answer, its text and the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.core.digest import reported_digest
from envbuild.core.errors import EngineError, VerifyError
from envbuild.core.file_marks import mark_files
from envbuild.core.shell import shell_word
from envbuild.core.text import amount, printable
from envbuild.gpu.model import NOT_RUN
from envbuild.launch.gpu_package import write_package
from envbuild.launch.gpu_tiers import TierRequest, dry_run_text, prepare_tier, run_tier
from envbuild.spec.target import load_target
from envbuild.spec.workspace import Workspace
from envbuild.verify.contents.squashfs_path import find_squashfs_file
from envbuild.verify.floor_verdict import audit_results
from envbuild.verify.gpu_image import read_gpu_image
from envbuild.verify.measured import Measured, change_lines, check_image, last_evidence, read_measured, store_evidence
from envbuild.verify.results import AuditResult, Status

MARKS = {Status.PASS: "ok", Status.FAIL: "FAILED", Status.NOT_RUN: "not run"}


@dataclass(frozen=True, slots=True)
class TierAnswer:
    """The answer of the command: data for ``--json``, text, and exit code."""

    data: Mapping[str, Any]
    text: str
    code: int


def verify_tier(name: str, request: TierRequest, workspace: Workspace) -> TierAnswer:
    """Run a tier of an image, store the evidence, and return the answer. Raises as `prepare_tier`."""
    job, prepared = prepare_tier(name, request, workspace)
    if request.dry_run:
        text = dry_run_text(job, prepared, request, workspace)
        return TierAnswer({"image": job.image, "tier": request.tier, "text": text}, text, 0)
    file = find_squashfs_file(name)
    marks, sha256 = mark_files([file] if file else []), digest_of(file, workspace)
    measured = run_tier(job, prepared, request, workspace)
    # The job takes hours. A new link to the file changes its mark, too.
    if file and mark_files([file]) != marks and digest_of(file, workspace) != sha256:
        raise VerifyError("the file was exchanged or changed while the job ran", "run the command again", str(file))
    return report(measured, workspace, sha256)


def pack_tier(name: str, out: Path, workspace: Workspace) -> TierAnswer:
    """Write the checks of one node as one file. Raises as `write_package`."""
    package = write_package(name, out, workspace)
    data = {"file": str(out), "bytes": package.size, "packed": package.packed, "left_out": package.left_out}
    lines = [f"{out}: {amount(package.size)}, with {', '.join(package.packed) or 'no program of the image'}"]
    lines += [f"  not in it: {reason}" for reason in package.left_out]
    lines += [f"  copy it to a machine with a GPU and type: python3 {shell_word(out.name)}"]
    return TierAnswer(data, "\n".join([*lines, "  then here: envbuild verify --read gpu-evidence.json"]), 0)


def read_tier(name: str, file: str, workspace: Workspace) -> TierAnswer:
    """Read evidence that a machine elsewhere wrote, store it, and return the answer.

    name: the image; empty: the one that the evidence names. Raises VerifyError for a file that is truncated, of another
    lock or target, or not well-formed.
    """
    path = Path(file)
    measured = read_measured(path)
    image = read_gpu_image(name or str(measured.document["image"]), workspace)
    check_image(measured, image.lock, image.target, path)
    return report(measured, workspace, digest_of(find_squashfs_file(name) if name else None, workspace))


def digest_of(file: Path | None, workspace: Workspace) -> str:
    """Return the sha256 (hex) of the squashfs file that was named: evidence is of its bytes; empty for an image."""
    return reported_digest(file, workspace.reporter) if file else ""


def report(measured: Measured, workspace: Workspace, sha256: str = "") -> TierAnswer:
    """Compare figures with their floors, store the evidence, and return the answer. `sha256`: of the squashfs file that
    was named."""
    document = measured.document
    target = load_target(str(document["target"]), workspace.project)
    results = list(audit_results(measured.outcomes, target))
    ran = any(outcome.status != NOT_RUN for outcome in measured.outcomes)
    before = last_evidence(measured, workspace.store, sha256)
    changes = change_lines(measured, before)
    path = store_evidence(measured, workspace.store, sha256) if ran else None
    failed = any(result.status == Status.FAIL for result in results)
    code = VerifyError.exit_code if failed else 0 if ran else EngineError.exit_code
    data = {
        **{key: document[key] for key in ("image", "lock", "target", "tier", "date", "place")},
        "results": [result_data(result) for result in results],
        "counts": {status.value: sum(result.status == status for result in results) for status in Status},
        "transport": {outcome.name: outcome.transport for outcome in measured.outcomes if outcome.transport},
        "changes": changes,
        "evidence": str(path) if path else "",
    }
    return TierAnswer(data, "\n".join(text_lines(data, results)), code)


def result_data(result: AuditResult) -> dict[str, str]:
    """Return a result as JSON has it."""
    values = {"name": result.name, "status": result.status.value, "detail": result.detail, "hint": result.hint}
    return {key: value for key, value in values.items() if value}


def text_lines(data: Mapping[str, Any], results: Sequence[AuditResult]) -> list[str]:
    """Return the answer for a terminal: a verdict, each result, the changes, and where the evidence is."""
    counts = data["counts"]
    gpus = data["place"].get("gpus") or []
    node = printable(f"{len(gpus)} x {gpus[0]}") if gpus else "no GPU"
    title = f"{data['image']}, tier {data['tier']}, target {data['target']}: {node}"
    lines = [
        f"{title}; {counts['pass']} passed, {counts['fail']} failed, {counts['not-run']} not run",
        *(f"  {MARKS[result.status]:8} {printable(result.name)}: {printable(result.detail)}" for result in results),
    ]
    lines += [f"  hint: {printable(result.hint)}" for result in results if result.status == Status.FAIL and result.hint]
    lines += [f"  transport of {printable(name)}: {transport_text(facts)}" for name, facts in data["transport"].items()]
    lines += [f"  change: {printable(line)}" for line in data["changes"]]
    return [*lines, f"  evidence: {data['evidence'] or 'not stored: no check ran'}"]


def transport_text(facts: Mapping[str, Any]) -> str:
    """Return the facts about a transport on one line."""
    parts = []
    for key, value in facts.items():
        items = [f"{name} {count}" for name, count in value.items()] if isinstance(value, dict) else value
        listed = ", ".join(map(str, items)) if isinstance(items, list) else str(items)
        parts.append(f"{key} {listed}")
    return printable("; ".join(parts))
