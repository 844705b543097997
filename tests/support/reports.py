"""Reports for tests: one with every section, and every text of a report replaced by another one."""

from __future__ import annotations

import dataclasses
from typing import Any

from envbuild.report.model import (
    CheckRow,
    Cited,
    Component,
    Fault,
    MatrixPart,
    Origin,
    Package,
    Part,
    Report,
    StartLine,
    Step,
    TierRow,
    Verdict,
    Waived,
)
from envbuild.report.series import Floor, FloorRow, Series

KEYS = {"kind", "status", "group", "parts_are"}  # not texts: the code chooses by them
POINTS = tuple((1 << shift, 1.5 * (shift - 19)) for shift in range(20, 34))


def full_report(**changes: Any) -> Report:
    """Return a report with something in every section."""
    report = Report(
        name="net",
        description="an image for tests",
        verdict=Verdict("bad", "1 fault", "2 checks passed; not run: fabric"),
        facts=(("target", "h100-ib"), ("lock", f"sha256:{'a' * 64}")),
        faults=(Fault("link check: libucp.so.0 is missing", "tier audit", "envbuild make net"),),
        checks=(
            CheckRow("link check", "audit", "fail", "libucp.so.0 is missing", "envbuild make net", 1.25),
            CheckRow("one copy", "audit", "pass", "4 libraries compared"),
            CheckRow("ranks start", "run", "pass", "2 ranks", "", 0.4),
            CheckRow("kernels load", "gpu", "not-run", "this machine has no GPU"),
        ),
        tiers=(
            TierRow("audit", "no GPU needed", "failed", 1),
            TierRow("run", "on the CPU", "passed", 1),
            TierRow("gpu", "one node with GPUs", "not run: this machine has no GPU"),
            TierRow("fabric", "several nodes", "not run: no second node"),
        ),
        components=(Component("torch", "2.15.0", "index"), Component("ucx", "1.20.1", "github:openucx/ucx")),
        origins=(Origin("debian:trixie/main", 100, 123_456_789), Origin("pip", 3, 0)),
        parts=(Part("base", 150_000_000, "12 files"), Part("venv", 3_000_000_000), Part("glue", 1)),
        steps=(Step("ucx", 48.2, "build"), Step("base", 20.0, "build", "from cache"), Step("audit", 2.0, "verify")),
        matrix=MatrixPart(
            "conditional",
            "net (as locked)",
            (
                Cited("driver.native", "condition", "no PTX is compiled", "upstream-docs: release notes", "2026-11-21"),
                Cited("torch.cuda", "fact", "torch 2.15 comes with CUDA 13.2", "metadata: wheel", "2026-11-20"),
            ),
            (Waived("apex.torch", "tried on our nodes"),),
            2,
            "2026-11-20",
        ),
        series=(Series("all-reduce, 2 nodes", "GB/s", POINTS, Floor(18.0, "a health check"), "node 1, 2026-11-20"),),
        floors=(FloorRow("node_allreduce_busbw", 460.0, "GB/s", "a health check"),),
        packages=(
            Package("libc6", "2.41", "deb", "debian:trixie/main", "b" * 64),
            Package("torch", "2.15.0", "pypi", "", ""),
        ),
        start=(
            StartLine("srun", "srun \\\n  true", "envbuild launch net -- …"),
            StartLine("docker", "", "", "no reference"),
        ),
        notes=("openmpi: from Debian",),
        epoch=1_795_252_544,
    )  # fmt: skip
    return dataclasses.replace(report, **changes)


def with_texts(report: Report, text: str) -> Report:
    """Return a report each text of which is `text`."""
    return dataclasses.replace(report, **{
        field.name: replaced(getattr(report, field.name), text)
        for field in dataclasses.fields(report)
        if field.name not in KEYS
    })  # fmt: skip


def replaced(value: Any, text: str) -> Any:
    """Return a value of a report with other texts."""
    if isinstance(value, str):
        return text
    if hasattr(value, "_replace"):
        names = [name for name in value._fields if name not in KEYS]
        return value._replace(**{name: replaced(getattr(value, name), text) for name in names})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(value, **{name: replaced(getattr(value, name), text) for name in names})
    if isinstance(value, tuple):
        return tuple(replaced(item, text) for item in value)
    if isinstance(value, dict):
        return {key: replaced(item, text) for key, item in value.items()}
    return value
