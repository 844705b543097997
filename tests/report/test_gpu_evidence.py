"""Reports of images with evidence of the tiers gpu and fabric: their results, and bandwidths with their floors."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from envbuild.cli.verify_tiers import read_tier
from envbuild.core.store.store import Store
from envbuild.gpu.fabric_checks import fabric_steps, judge_step
from envbuild.gpu.model import GPU, LONGEST_CURVE, PASS, Curve, Figure, Outcome
from envbuild.gpu.node_checks import run_checks
from envbuild.gpu.sealed import evidence_document
from envbuild.lock.lockfile import parse_lock
from envbuild.lock.model import lock_digest
from envbuild.report.file_report import report_file
from envbuild.report.html.answers import DRAWN
from envbuild.report.html.page import MAX_BYTES, write_page
from envbuild.report.junit import write_junit
from envbuild.report.model import BANDWIDTH, Report
from envbuild.spec.workspace import Workspace
from envbuild.verify.evidence import Evidence
from envbuild.verify.results import QUOTED, AuditResult, Status
from envbuild.verify.stored_evidence import write_own_evidence
from tests.support.gpu_bench import bench, eight_ranks, job, program, rank_document, recorded
from tests.support.image_pair import lock_text
from tests.support.launching import shipped_workspace, write_squashfs

pytestmark = pytest.mark.unit

TEXT = lock_text("1.19", "2.0", "a" * 40).decode()
LOCK = lock_digest(parse_lock(TEXT, Path("x")))
OWN = {"image": "small", "lock": LOCK, "target": "h100-ib"}
NODE = {"gpus": ["NVIDIA H100 80GB HBM3"] * 8, "driver": "580.95.05", "nodes": 1}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    found = shipped_workspace("", tmp_path)
    Store.open(found.store.root)
    return found


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return a file with a lock inside, of a target whose nodes have floors."""
    record = json.dumps({"image": "small", "target": "h100-ib", "versions": {}})
    return write_squashfs(tmp_path, {"etc/envbuild/lock.yaml": TEXT, "etc/envbuild/resolution.json": record})


def keep(image: Path, workspace: Workspace, outcomes: Sequence[Outcome], day: int = 1, tier: str = GPU) -> None:
    """Write evidence as the program on a node does, and store it as verify does."""
    date = f"2026-01-{day:02}T00:00:00Z"
    document = evidence_document(job(**OWN, tier=tier), outcomes, date, "envbuild 0", NODE)
    path = image.parent / "gpu-evidence.json"
    path.write_text(json.dumps(document))
    read_tier(str(image), str(path), workspace)


def node_outcomes(folder: Path, busbw: float) -> list[Outcome]:
    """Return the results of a node whose programs print what was recorded."""
    program(folder, "all_reduce_perf", eight_ranks(busbw))
    program(folder, "nvbandwidth", recorded("nvbandwidth.txt"))
    return run_checks(bench(folder, 8, layers=("nccl-tests",), versions={}), lambda line: None)


def fabric_outcomes() -> list[Outcome]:
    """Return the results of two steps whose ranks print what was recorded."""
    own = job(**OWN, gpus=2, net="IB", tier="fabric", layers=("torch", "torch-ucc", "nccl-tests"))
    texts = {"nccl-tests": recorded("nccl-tests.two-nodes.txt"), "sweep": recorded("sweep.txt")}
    steps = [
        step
        for step in fabric_steps(own, 2, "", mpi=True)
        if step.kind in texts and "ucc" not in step.name and "gloo" not in step.name
    ]
    return [
        judge_step(step, {rank: rank_document(rank, texts[step.kind]) for rank in range(4)}, own, 4, 2)
        for step in steps
    ]


def states(report: Report) -> dict[str, str]:
    return {tier.name: tier.state.partition(":")[0] for tier in report.tiers}


def test_results_of_the_tiers_are_checks_and_failures_are_faults(
    image: Path, workspace: Workspace, tmp_path: Path
) -> None:
    keep(image, workspace, node_outcomes(tmp_path, 459.0))
    keep(image, workspace, fabric_outcomes(), tier="fabric")
    report = report_file(image, workspace)
    assert states(report) == {"audit": "not run", "run": "not run", "gpu": "failed", "fabric": "passed"}
    (floor,) = [fault for fault in report.faults if "node_allreduce_busbw" in fault.text]
    assert "459 GB/s; at least 460 GB/s (node_allreduce_busbw)" in floor.text and floor.where == "tier gpu"
    seconds = {(row.tier, row.name): row.seconds for row in report.checks}
    assert seconds["fabric", "NCCL: all-reduce over all nodes"] == 3.0
    assert seconds["fabric", "NCCL: all-reduce over all nodes: reaches the floor"] == 0.0
    cases = re.findall(r'<testcase name="([^"]+)" classname="small.fabric"', write_junit(report, "1"))
    assert "NCCL: all-reduce over all nodes: reaches the floor" in cases


def test_a_curve_has_its_floor_and_where_it_was_measured(image: Path, workspace: Workspace, tmp_path: Path) -> None:
    keep(image, workspace, node_outcomes(tmp_path, 475.1))
    keep(image, workspace, fabric_outcomes(), tier="fabric")
    report = report_file(image, workspace)
    node, peer, nodes, *sweeps = report.series
    assert node.points == ((8, 0.0), (64, 0.0), (16 << 30, 475.1))
    assert node.floor and node.floor.value == 460.0 and "Azure NDv5" in node.floor.because
    assert node.source == "8 x NVIDIA H100 80GB HBM3, 1 node, driver 580.95.05, envbuild 0, 2026-01-01T00:00:00Z"
    assert (peer.points, peer.floor and peer.floor.value) == (((0, 276.07),), 335.0)
    assert nodes.floor and nodes.floor.value == 368.0 and "derived" in nodes.floor.because
    assert [one.floor for one in sweeps] == [None, None]
    page = write_page(report, "1")
    assert page.count('class="chart"') == 4  # a measurement without a size is not drawn
    assert "475.1 GB/s at 16 GiB, floor 460 GB/s" in page and "276.07 GB/s, floor 335 GB/s" in page
    assert BANDWIDTH in report.missing and report.missing[BANDWIDTH] not in page


def test_the_newest_evidence_of_the_same_lock_and_target_counts(image: Path, workspace: Workspace) -> None:
    for day, value in ((2, 470.0), (1, 480.0)):
        figure = Figure("node_allreduce_busbw", value, "GB/s", 16 << 30, 8)
        keep(image, workspace, [Outcome("NCCL", GPU, PASS, "x", figures=(figure,))], day)
    (series,) = report_file(image, workspace).series
    assert series.points == ((16 << 30, 470.0),)
    record = json.dumps({"image": "small", "target": "p5-efa", "versions": {}})
    files = {"etc/envbuild/lock.yaml": TEXT, "etc/envbuild/resolution.json": record}
    other = report_file(write_squashfs(image.parent, files), workspace)
    assert other.series == () and states(other)["gpu"] == "not run"
    assert "no evidence of tier gpu or fabric" in other.missing[BANDWIDTH]


def test_a_floor_that_is_not_for_the_figure_is_not_compared(image: Path, workspace: Workspace) -> None:
    figure = Figure("node_allreduce_busbw", 470.0, "Gb/s", 16 << 30, 8)
    keep(image, workspace, [Outcome("NCCL", GPU, PASS, "x", figures=(figure,))])
    report = report_file(image, workspace)
    assert [one.floor for one in report.series] == [None]
    assert [check.status for check in report.checks] == ["pass", "not-run"]
    assert "no floor is compared with it" in write_page(report, "1")


def test_jobs_replace_what_verify_could_not_run_of_their_tier(image: Path, workspace: Workspace) -> None:
    left = [AuditResult(f"NCCL of {tier}", Status.NOT_RUN, "x", tier) for tier in ("gpu", "fabric")]
    digest = f"sha256:{hashlib.sha256(image.read_bytes()).hexdigest()}"
    passed = AuditResult("links", Status.PASS, "x")
    write_own_evidence(
        Evidence("small", LOCK, (), digest, results=(left[0], passed, left[1])), Store.open(workspace.store.root)
    )
    keep(image, workspace, [Outcome("NCCL of gpu", GPU, PASS, "8 GPUs", seconds=2.5)])
    report = report_file(image, workspace)
    assert [(row.tier, row.name, row.status, row.seconds) for row in report.checks] == [
        ("audit", "links", "pass", 0.0),
        ("gpu", "NCCL of gpu", "pass", 2.5),
        ("fabric", "NCCL of fabric", "not-run", 0.0),
    ]
    assert report.verdict.title == "verified in part"


def test_evidence_without_a_figure_states_it(image: Path, workspace: Workspace) -> None:
    keep(image, workspace, [Outcome("kernel", GPU, PASS, "x")])
    report = report_file(image, workspace)
    assert report.missing[BANDWIDTH] == "not run: the evidence of tier gpu has no measured bandwidth"
    assert report.missing[BANDWIDTH].removeprefix("not run: ") in write_page(report, "1")


@pytest.mark.slow_unit
@pytest.mark.parametrize("text", ["a", "<&>\u202e" * (QUOTED // 4)])
def test_much_evidence_makes_no_large_page(text: str, image: Path, workspace: Workspace) -> None:
    points = tuple((size, 1e29 / size) for size in range(1, LONGEST_CURVE + 1))
    curves = tuple(Curve(f"{text} {number}", "GB/s", points) for number in range(10))
    figure = Figure("node_allreduce_busbw", 1e29 / LONGEST_CURVE, "GB/s", LONGEST_CURVE, 8)
    keep(image, workspace, [Outcome(text, GPU, PASS, text, figures=(figure,), curves=curves) for _ in range(10)])
    report = report_file(image, workspace)
    page = write_page(report, "1")
    assert len(report.series) == 10 * 10
    assert [one.title for one in report.series[:10]] == [f"{text} (tier gpu)"] * 10  # figures come first
    assert len(page.encode()) <= MAX_BYTES
    assert page.count('class="chart"') == DRAWN
    assert f"{len(report.series) - DRAWN} other curves, each at its largest size" in page
