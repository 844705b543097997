"""Jobs of the tiers gpu and fabric: their stored texts, and what their scripts start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import SpecError
from envbuild.gpu.fabric_checks import fabric_steps
from envbuild.gpu.model import FAIL, Outcome
from envbuild.gpu.parts import part_lines
from envbuild.launch.clients import Clients
from envbuild.launch.gpu_tiers import TierRequest, check_request, dry_run_text, make_job, run_tier
from envbuild.launch.launch import Prepared, load_form
from envbuild.launch.trial import choose_form, node_trial, python_of, run_trial, step_trial
from envbuild.spec.launch_profile import Nics
from envbuild.verify.gpu_image import GpuImage
from tests.support.gpu_bench import IB_LOG, job, rank_document
from tests.support.launching import check_script, shipped_target, shipped_workspace, site, torch_image

pytestmark = pytest.mark.unit

STORED = Path(__file__).parent / "trials"
IMAGE = torch_image(layers=("cuda", "ucx", "nccl", "ucc", "torch", "torch-ucc", "openmpi", "nccl-tests", "perftest"))
CHECK = {"name": "aws-ofi-nccl: the provider", "command": "fi_info -p efa", "expect": "efa"}


def prepared(form: str = "srun", target: str = "azure-ndv4", **image: Any) -> Prepared:
    at = site()
    return Prepared(load_form(form), replace(IMAGE, target=target, **image), shipped_target(target), Clients(at.slurm))


def texts(target: str = "azure-ndv4") -> dict[str, str]:
    """Return name of the file → the text of each job."""
    own = job(gpus=8, layers=IMAGE.layers, checks=(CHECK,))
    found = {
        "gpu-srun": node_trial(prepared(target=target), site(), root=False).text,
        "gpu-docker": node_trial(prepared("docker", target), site(), root=False).text,
    }
    for step in fabric_steps(own, 2, "mlx5_ib0", mpi=True):
        assert not step.reason
        name = "-".join(word for word in step.name.lower().replace(":", "").split(" ")[:5])
        found[f"fabric-{name}"] = step_trial(step, prepared(target=target), site(), 2, root=False).text
    return found


@pytest.mark.parametrize("name", texts())
def test_text(name: str, update_golden: bool) -> None:
    text = texts()[name]
    stored = STORED / f"{name}.txt"
    if update_golden:
        stored.write_text(text)
    assert text == stored.read_text()


def test_every_stored_text_is_of_a_job() -> None:
    assert {path.stem for path in STORED.glob("*.txt")} == set(texts())


@pytest.mark.parametrize("name", texts())
def test_scripts_pass_the_shell_and_shellcheck(name: str, tmp_path: Path) -> None:
    check_script(texts()[name], tmp_path)


def test_one_node_does_not_force_the_network_and_several_do() -> None:
    found = texts()
    assert "NCCL_NET=" not in found["gpu-srun"] and "NCCL_NET=" not in found["gpu-docker"]
    forced = [text for name, text in found.items() if name.startswith("fabric-sweep-over-all-nodes-nccl")]
    assert ["NCCL_NET=IB" in text for text in forced] == [True]
    (wrong,) = [text for name, text in found.items() if "a-network" in name]
    assert "NCCL_NET=envbuild-no-such-network" in wrong


def test_a_device_that_this_machine_does_not_have_is_left_out_of_docker() -> None:
    """Docker refuses to start otherwise, and a machine with one GPU has no fabric."""
    text = node_trial(prepared("docker"), site(), root=False).text
    assert ("--device=/dev/infiniband" in text) == Path("/dev/infiniband").exists()


def test_the_warnings_of_a_launch_are_reported_once(tmp_path: Path) -> None:
    """Without its plugin NCCL cannot use EFA in any step."""
    reporter = SilentReporter()
    workspace = shipped_workspace("", tmp_path).with_reporter(reporter)
    own, found = job(fabric="efa", layers=IMAGE.layers), prepared(target="p5-efa")
    assert "srun" in dry_run_text(own, found, TierRequest("fabric", 2), workspace)
    assert [line for line in reporter.lines if "no NCCL plugin for EFA" in line] == reporter.lines[:1] != []


@pytest.mark.parametrize(
    ("layers", "python"),
    [(("torch",), "/opt/venv/bin/python"), (("nccl",), "/usr/bin/python3"), ((), "python3")],
)
def test_the_python_of_an_image(layers: tuple[str, ...], python: str) -> None:
    assert python_of(torch_image(layers=layers, versions={}, env={})) == python


@pytest.mark.parametrize(
    "request_",
    [
        TierRequest("gpu", 2),
        TierRequest("fabric", 1),
        TierRequest("fabric", 2, "docker"),
        TierRequest("gpu", 1, "mpirun"),
    ],
)
def test_requests_that_contradict_their_tier(request_: TierRequest) -> None:
    with pytest.raises(SpecError) as caught:
        check_request(request_)
    assert caught.value.hint


def test_a_job_that_does_not_start_reports_its_last_line() -> None:
    trial = node_trial(prepared(), site(), root=False)
    failing = replace(trial, text="echo starting; echo 'srun: error: no nodes' >&2; exit 1")
    ended = run_trial(failing, "sh", "")
    assert not ended.documents and "exit code 1" in ended.fault and "no nodes" in ended.fault
    assert "is not installed here" in run_trial(trial, "no-such-program", "").fault
    assert choose_form("docker") == "docker"


@pytest.mark.slow_unit
def test_a_job_that_hangs_is_ended() -> None:
    trial = replace(node_trial(prepared(), site(), root=False), text="sleep 1000", limit=1.0)
    assert "did not end within 1 s" in run_trial(trial, "sh", "").fault


def all_reduce_of(folder: Path, monkeypatch: pytest.MonkeyPatch, reports: Sequence[Any]) -> tuple[Outcome, list[str]]:
    """Return the all-reduce over two nodes whose ranks print these reports, and the lines that the user sees."""
    lines = [line for rank, report in enumerate(reports) for line in part_lines(rank, report)]
    (folder / "lines").write_text("\n".join(lines))
    (folder / "srun").write_text(f"#!/bin/sh\necho 'srun: job 7 queued' >&2\nsleep 0.5\ncat {folder}/lines\n")
    (folder / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    times = NotedLines()
    workspace = shipped_workspace("", folder).with_reporter(times)
    own = job(gpus=8, layers=("nccl-tests", "openmpi"), versions={})
    found = run_tier(own, prepared(), TierRequest("fabric", 2), workspace)
    return found.outcomes[0], times.notes


class NotedLines(SilentReporter):
    """A reporter that collects what is noted of a task."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, task: str, text: str) -> None:
        self.notes.append(text)


def test_the_network_that_the_launch_forces_is_that_of_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [asdict(replace(IB_LOG, networks=("Socket",)))]
    reports = [rank_document(rank, node=rank // 8, logs=logs) for rank in range(16)]
    outcome, notes = all_reduce_of(tmp_path, monkeypatch, reports)
    assert outcome.status == FAIL and "NCCL used network Socket, and IB was forced" in outcome.detail
    assert notes[:2] == ["NCCL: all-reduce over all nodes", "srun: job 7 queued"]


@pytest.mark.parametrize(
    "report", [["x"], 7, {}, {"logs": [], "lanes": [], "seconds": "x"}, rank_document(0, devices={"gpus": [{}]})]
)
def test_a_report_of_a_rank_that_is_not_one_is_a_failure(
    report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of a hostile image may print one."""
    outcome, _ = all_reduce_of(tmp_path, monkeypatch, [report] * 16)
    assert outcome.status == FAIL and "the report of a rank is not well-formed" in outcome.detail


CHANGES: dict[str, Any] = {
    "name": "other",
    "gpu": "T4",
    "sm": "7.5",
    "gpus": 4,
    "fabric": "efa",
    "efa": 32,
    "nics": Nics(4, 100, "Ethernet"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_field_of_a_target_that_the_checks_compare_with(name: str) -> None:
    own, target = GpuImage("net", "sha256:0", "azure-ndv4"), shipped_target("azure-ndv4")
    before = make_job(own, target, "gpu", (), {})
    assert make_job(own, replace(target, **{name: CHANGES[name]}), "gpu", (), {}) != before


def test_checks_of_recipes_belong_to_their_tier() -> None:
    checks = tuple({"name": tier, "command": "x", "expect": "", "tier": tier} for tier in ("gpu", "fabric"))
    own = GpuImage("net", "sha256:0", "p5-efa", checks)
    for tier in ("gpu", "fabric"):
        found = make_job(own, shipped_target("p5-efa"), tier, (), {}).checks
        assert [check["name"] for check in found] == [tier]
