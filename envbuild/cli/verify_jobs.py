"""``envbuild verify`` with --tier gpu, --tier fabric, --read or --pack: its options are checked, its answer printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from envbuild.cli.options import show
from envbuild.cli.verify_tiers import pack_tier, read_tier, verify_tier
from envbuild.core.errors import Finding, SpecError
from envbuild.launch.gpu_tiers import TierRequest
from envbuild.spec.workspace import open_workspace


def verify_measured(
    name: str,
    tiers: tuple[str, ...],
    nodes: int,
    form: str,
    read: str,
    *,
    dry_run: bool,
    as_json: bool,
    others: Mapping[str, object],
) -> None:
    """Answer for a tier that runs on nodes, or for a file that one wrote. `others`: options without a meaning here."""
    check_measured(name, tiers, read, bool(nodes or form or dry_run), others)
    with open_workspace(names=[name]) as workspace:
        if read:
            answer = read_tier(name, read, workspace)
        else:
            answer = verify_tier(name, TierRequest(tiers[0], nodes or 1, form, dry_run), workspace)
    show(answer.data, as_json, answer.text)
    if answer.code:
        raise typer.Exit(answer.code)


def check_measured(name: str, tiers: tuple[str, ...], read: str, has_job: bool, others: Mapping[str, object]) -> None:
    """Raise SpecError with every option that has no meaning here."""
    job = next((tier for tier in tiers if tier in ("gpu", "fabric")), "gpu")
    findings = [
        Finding(f"{option} has no meaning here", hint="leave it out") for option, value in others.items() if value
    ]
    if read and (tiers or has_job):
        findings.append(Finding("--read starts no job", hint=f"envbuild verify --read {read}"))
    elif not read and len(tiers) > 1:
        what = f"--tier {' --tier '.join(tiers)}: jobs on nodes run apart from other checks"
        findings.append(Finding(what, hint=f"type --tier {job} alone"))
    if not read and not name:
        findings.append(Finding("verify needs the name of an image", hint=f"envbuild verify NAME --tier {job}"))
    if findings:
        raise SpecError.of(findings)


def pack_checks(name: str, tiers: tuple[str, ...], file: str, *, as_json: bool, others: Mapping[str, object]) -> None:
    """Write the checks of one node as one file."""
    check_measured(name, tiers, "", False, others)
    if tiers != ("gpu",):
        raise SpecError("--pack writes the checks of one node", hint="type --tier gpu --pack FILE")
    with open_workspace(names=[name]) as workspace:
        answer = pack_tier(name, Path(file), workspace)
    show(answer.data, as_json, answer.text)
