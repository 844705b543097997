"""Reports for terminals, CI, the health check of a site; several nodes compared."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.doctor.comparison_text import comparison_text
from envbuild.doctor.ctrf import ctrf_data
from envbuild.doctor.examination import Examination, run_check
from envbuild.doctor.health_check import health_lines, unknown_line
from envbuild.doctor.host import Host
from envbuild.doctor.main import missing_folder, mount_command
from envbuild.doctor.model import FAIL, NOT_RUN, SCHEMA, Need, Result, not_applicable, not_run
from envbuild.doctor.outliers import compare_nodes
from envbuild.doctor.report_text import joined, report_text, summary_line
from tests.support.node_files import Node, result_of

pytestmark = pytest.mark.unit


@pytest.fixture
def healthy(tmp_path: Path) -> Examination:
    node = Node(tmp_path / "healthy")
    node.add_gpus()
    node.add_ports()
    node.add_slurm()
    return node.examine()


@pytest.fixture
def sick(tmp_path: Path) -> Examination:
    node = Node(tmp_path / "sick")
    node.add_gpus("550.54.15")
    node.add_ports()
    node.write_port("mlx5_1", state="1: DOWN", physical="3: Disabled")
    return node.examine()


def test_a_report_has_every_result_and_the_command_of_each_failure(sick: Examination) -> None:
    text = report_text(sick)
    for result in sick.results:
        assert result.check in text
    for failure in sick.failures:
        assert f"fix: {failure.fix}" in text
    assert text.splitlines()[-1].startswith("not ready for h100x2: ")


def test_what_did_not_run_has_the_command_that_makes_it_possible(healthy: Examination) -> None:
    assert [one.fix for one in healthy.results if one.check == "gdrcopy"] == ["modprobe gdrdrv"]
    assert "        to run it: modprobe gdrdrv" in report_text(healthy).splitlines()


def test_not_run_is_never_ready(tmp_path: Path) -> None:
    assert not report_text(Node(tmp_path).examine(Need())).splitlines()[-1].startswith("ready")


def test_ctrf_counts_what_it_lists(sick: Examination) -> None:
    minor = Result(FAIL, "x", "minor", "y", "clock", "machine")
    sick = sick.with_results([minor])
    report = ctrf_data(sick, "1.0")
    summary, tests = report["results"]["summary"], report["results"]["tests"]
    assert summary["tests"] == len(tests) == len(sick.results)
    for state in ("passed", "failed", "skipped", "other"):
        assert summary[state] == sum(test["status"] == state for test in tests)
    assert [test["name"] for test in tests if test["status"] == "other"] == ["clock"]
    json.dumps(report)
    durations = {test["name"]: test["duration"] for test in tests}
    assert durations["link-errors"] >= 200  # its pause
    assert durations["gdrcopy"] < durations["link-errors"]


def test_a_healthy_node_is_silent_in_a_health_check(healthy: Examination) -> None:
    assert health_lines(healthy, "nhc") == health_lines(healthy, "healthcheck") == []


def test_a_health_check_prints_a_line_each_and_the_command_that_drains(sick: Examination) -> None:
    lines = health_lines(sick, "nhc")
    assert {"nvidia-driver", "rdma-ports"} <= {line.split(": ")[1] for line in lines}
    assert all(line.isascii() and line.startswith("envbuild_doctor: ") for line in lines)
    command = shlex.split(health_lines(sick, "healthcheck")[-1])
    assert command[:4] == ["scontrol", "update", "NodeName=n1", "State=DRAIN"]
    assert command[4].startswith("Reason=envbuild doctor: ")


def test_the_command_that_drains_has_the_name_of_slurm(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write("proc/77/limits", "Max locked memory  65536  65536 bytes")
    node.add_ports()
    found = node.examine(SLURMD_NODENAME="gpu 01;x")
    command = shlex.split(health_lines(found, "healthcheck")[-1])
    assert command[2] == "NodeName=gpu 01;x"


def test_a_node_that_is_drained_is_not_drained_again(tmp_path: Path) -> None:
    """A second reason would replace the administrator's."""
    node = Node(tmp_path)
    node.add_gpus()
    node.add_ports()
    node.add_slurm()
    node.prints("scontrol", "scontrol.lines.txt")
    assert "slurm-node" in {one.check for one in node.examine().serious}
    assert health_lines(node.examine(), "healthcheck") == []
    node.write_port("mlx5_1", state="1: DOWN", physical="3: Disabled")
    lines = health_lines(node.examine(), "healthcheck")
    assert [line.split(":")[0] for line in lines] == ["rdma-ports"]  # and no command
    node.program("scontrol", "echo 'NodeName=n1 State=IDLE* CfgTRES=cpu=1,gres/gpu=2'")
    assert health_lines(node.examine(), "healthcheck")[-1].startswith("scontrol update NodeName=n1 ")


def test_the_reason_names_hardware_first(tmp_path: Path) -> None:
    """Slurm's reason is cut, and the event of the GPU was lost behind the texts of programs."""
    node = Node(tmp_path)
    node.add_gpus()
    node.add_ports()
    node.add_slurm()
    node.program("nvidia-smi", f"echo 'Unable to determine the device handle: {'x' * 150}' >&2; exit 15")
    node.write("dev/kmsg", "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
    for kind in ("nhc", "healthcheck"):
        assert "xid: XID 79" in health_lines(node.examine(), kind)[0]
    assert "Reason=envbuild doctor: xid: XID 79" in shlex.split(health_lines(node.examine(), "healthcheck")[-1])[4]


def test_a_container_that_slurm_did_not_start_names_no_node(sick: Examination) -> None:
    found = replace(sick, facts={**sick.facts, "slurm_node": ""})
    assert health_lines(found, "healthcheck")[-1].startswith("# scontrol update NodeName=NODE ")


def test_checks_that_did_not_run_for_one_reason_are_one_line() -> None:
    rows = [
        replace(not_run("nvidia-smi is not installed"), check="a"), Result(FAIL, "x", "minor", "y", "b"),
        replace(not_run("nvidia-smi is not installed"), check="c"), replace(not_run("another"), check="d"),
        Result(FAIL, "x", "minor", "y", "e"),
    ]  # fmt: skip
    assert [row.check for row in joined(rows)] == ["a, c", "b", "d", "e"]


def test_the_last_line_has_no_failure_only_without_one(healthy: Examination) -> None:
    minor = Result(FAIL, "x", "minor", "y", "b", "machine")
    passed = replace(healthy, results=tuple(one for one in healthy.results if one.status == "pass"))
    assert summary_line(passed).startswith("ready for ")
    assert summary_line(passed.with_results([minor])).startswith("ready, with minor failures for ")
    absent = passed.with_results([replace(not_applicable("no EFA"), check="efa")])
    assert summary_line(absent).startswith("ready for ")
    assert "0 not known, 1 do not apply" in summary_line(absent)
    unknown = absent.with_results([replace(not_run("z"), check="nvlink")])
    assert summary_line(unknown).startswith("no failure for ")
    assert summary_line(unknown).endswith("; not known: nvlink")
    assert summary_line(unknown.with_results([minor])).startswith("no serious failure for ")


def test_json_states_what_drains_and_what_does_not_apply(sick: Examination) -> None:
    rows = {row["check"]: row for row in sick.data()["results"]}
    assert (rows["nvidia-driver"]["severity"], rows["nvidia-driver"]["drains"]) == ("administrator", True)
    assert (rows["efa"]["status"], rows["efa"]["applies"], rows["efa"]["drains"]) == ("not-run", False, False)
    assert rows["xid"]["applies"]


def test_a_machine_without_gpus_has_no_unknown_ones(tmp_path: Path) -> None:
    found = Node(tmp_path).examine(Need())
    assert {result.group for result in found.unknown}.isdisjoint({"GPU", "Neuron"})
    assert "GPU" in {result.group for result in Node(tmp_path / "x").examine().unknown}


def test_a_check_that_this_python_cannot_import_did_not_run(
    healthy: Examination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python built without libffi has no ctypes."""
    monkeypatch.setitem(sys.modules, "envbuild.doctor.checks.clock", None)
    found = run_check("clock", Host(), Need())
    assert [(one.check, one.status) for one in found] == [("clock", NOT_RUN)]
    assert "ModuleNotFoundError" in found[0].detail


def test_what_a_user_can_fix_drains_no_node(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_gpus()
    node.add_ports()
    node.add_slurm()
    node.write_gpu("0000:43:00.0", 1, "NVIDIA A100-SXM4-80GB")
    found = node.examine()
    assert "gpu-count" in {one.check for one in found.serious}
    assert health_lines(found, "nhc") == []


def answers(found: Examination, **changed: str) -> dict[str, Any]:
    """Return the answers of three nodes; `changed`: facts of the third."""
    documents = {}
    for name in ("n1", "n2", "n3"):
        facts = json.loads(json.dumps({**found.facts, "host": name}))
        documents[f"{name}.json"] = {"schema": SCHEMA, **replace(found, facts=facts).data()}
    documents["n3.json"]["facts"] |= changed
    return documents


def test_equal_nodes_have_no_outlier(healthy: Examination) -> None:
    found = compare_nodes(answers(healthy), {})
    assert found.equal, found
    assert found.nodes == ("n1", "n2", "n3")


def test_one_firmware_one_clock_and_one_link_are_outliers(healthy: Examination) -> None:
    documents = answers(healthy, kernel="5.15.0")
    facts = documents["n2.json"]["facts"]
    facts["network"]["ports"][1] |= {"rate": 200, "firmware": "28.39.1002"}
    facts["nvidia"]["gpus"][0]["max_clocks"]["sm"] = "1410 MHz"
    found = compare_nodes(documents, {})
    assert [(one.node, one.fact, one.value, one.usual) for one in found.outliers] == [
        ("n3", "kernel", "5.15.0", "6.8.0-31-generic"),
        ("n2", "network.ports[mlx5_1:1].firmware", "28.39.1002", "28.41.1000"),
        ("n2", "network.ports[mlx5_1:1].rate", "200", "400"),
        ("n2", "nvidia.gpus[0000:1b:00.0].max_clocks.sm", "1410 MHz", "1980 MHz"),
    ]
    assert "not all equal" in comparison_text(found)


def test_a_missing_gpu_or_port_is_one_line_beside_the_count(healthy: Examination) -> None:
    documents = answers(healthy)
    facts = documents["n2.json"]["facts"]
    del facts["nvidia"]["gpus"][0], facts["network"]["ports"][1]
    found = compare_nodes(documents, {})
    assert [(one.node, one.fact, one.value, one.usual) for one in found.outliers] == [
        ("n2", "network.ports.count", "1", "2"),
        ("n2", "network.ports[mlx5_1:1]", "nothing", "there"),
        ("n2", "nvidia.gpus.count", "1", "2"),
        ("n2", "nvidia.gpus[0000:1b:00.0]", "nothing", "there"),
    ]


def test_gpus_have_their_number_where_the_buses_of_nodes_differ(healthy: Examination) -> None:
    documents = answers(healthy)
    gpus = documents["n2.json"]["facts"]["nvidia"]["gpus"]
    gpus[1] |= {"bus": "0001:00:00.0", "power_limit": "300 W"}
    found = compare_nodes(documents, {})
    assert [(one.node, one.fact) for one in found.outliers] == [("n2", "nvidia.gpus[1].power_limit")]


def test_texts_of_a_file_are_on_the_line_of_their_node(healthy: Examination) -> None:
    documents = answers(healthy, kernel="5.15.0\n3 nodes compared: all equal")
    documents["n2.json"]["facts"]["a\nX"] = "v"
    text = comparison_text(compare_nodes(documents, {"c\n.json": "not JSON"}))
    assert [line.partition(":")[0] for line in text.split("\n")] == ["c .json", "n2", "n3", "3 nodes compared"]
    assert text.endswith("3 nodes compared: not all equal")


def test_without_a_majority_every_value_is_listed(healthy: Examination) -> None:
    documents = answers(healthy, kernel="5.15.0")
    documents["n2.json"]["facts"]["kernel"] = "6.1.0"
    found = compare_nodes(documents, {})
    assert [(one.node, one.usual) for one in found.outliers] == [("n1", ""), ("n2", ""), ("n3", "")]


@pytest.mark.parametrize(("facts", "why"), [
    ({"a" * 101: "b"}, "keys are too long for those of a node"),
    ({"a": ["b" * 1000] * 2000}, "facts are too large for those of a node"),
    ({"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}}}}}}}, "nested too deeply"),
])  # fmt: skip
def test_facts_that_no_node_has_are_not_compared(facts: dict[str, Any], why: str, healthy: Examination) -> None:
    documents = answers(healthy)
    documents["n3.json"]["facts"] |= facts
    found = compare_nodes(documents, {})
    assert (found.nodes, found.unread) == (("n1", "n2"), {"n3.json": why})


def test_facts_that_are_nested_too_deeply_are_not_compared(healthy: Examination) -> None:
    documents = answers(healthy)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    documents["n3.json"]["facts"]["deep"] = deep
    found = compare_nodes(documents, {})
    assert (found.nodes, found.unread) == (("n1", "n2"), {"n3.json": "nested too deeply"})


def test_other_files_and_failures_are_not_equal(healthy: Examination, sick: Examination) -> None:
    documents = answers(healthy)
    documents["n3.json"] = {**documents["n3.json"], **sick.data(), "facts": documents["n3.json"]["facts"]}
    documents |= {
        "list.json": [],
        "copy.json": documents["n1.json"],
        "new.json": {**documents["n1.json"], "schema": 99},
    }
    found = compare_nodes(documents, {"bad.json": "truncated"})
    assert set(found.unread) == {"bad.json", "list.json", "copy.json", "new.json"}
    assert found.unread["new.json"] == "of schema 99, and this envbuild reads 1"
    assert "rdma-ports" in found.failures["n3"]
    assert not found.equal


def test_a_machine_without_proc_or_sys_has_the_command_that_mounts_it(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert (missing_folder(host), mount_command("/proc")) == ("/proc", "mount -t proc proc /proc")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "stat").touch()
    assert (missing_folder(host), mount_command("/sys")) == ("/sys", "mount -t sysfs sysfs /sys")


def test_a_line_has_its_whole_fix_and_a_reason_is_short(healthy: Examination) -> None:
    failure = Result(FAIL, "x", "hardware", "y" * 300, "b", "GPU")
    found = healthy.with_results([failure])
    line, command = health_lines(found, "healthcheck")
    assert "y" * 300 in line and len(shlex.split(command)[4]) < 200


def test_a_log_is_judged_alone_where_its_job_did_not_run(sick: Examination) -> None:
    row = [replace(not_run("z"), check="network", group="log")]
    assert len(sick.with_log(row).results) == len(sick.results) + 1
    assert sick.with_log(row).results[:-1] == sick.results
    login = replace(sick, facts={**sick.facts, "place": "login node"})
    assert login.with_log(row).results == tuple(row)
    laptop = {**sick.facts, "place": "machine without Slurm"}
    assert replace(sick, facts=laptop).with_log(row).serious
    laptop |= {"nvidia": {"on_bus": 0, "driver": ""}, "neuron": {"devices": 0}}
    assert not replace(sick, facts=laptop).with_log(row).serious


def test_one_difference_of_all_gpus_is_one_line_and_minor_failures_are_listed(healthy: Examination) -> None:
    documents = answers(healthy)
    for gpu in documents["n2.json"]["facts"]["nvidia"]["gpus"]:
        gpu["vbios"] = "1.2"
    documents["n3.json"]["results"] = [{"check": "xid", "status": "fail", "severity": "minor"}]
    found = compare_nodes(documents, {})
    lines = comparison_text(found).splitlines()
    assert [line.partition(" (")[0] for line in lines if line.startswith("n2: ")] == [
        "n2: nvidia.gpus[2 alike: 0000:1b:00.0, 0000:43:00.0].vbios is 1.2"
    ]
    assert "n3: minor: xid" in lines
    assert "n3" not in found.failures


def test_a_health_check_names_devices_that_are_not_known(node: Node, healthy: Examination) -> None:
    node.program("nvidia-smi", "echo 'Attached GPUs : 2'")
    assert "gpu-memory-errors" in unknown_line(node.examine())
    assert "gpu-memory-errors" not in unknown_line(healthy)


def test_nvidia_smi_does_not_load_the_driver(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.add_gpus()
    shutil.rmtree(node.root / "sys/module/nvidia")
    shutil.rmtree(node.root / "proc/driver")
    node.program("nvidia-smi", f"echo loaded > {tmp_path}/loaded")
    found = node.examine()
    assert not (tmp_path / "loaded").exists()
    assert result_of(found, "nvidia-driver").status == FAIL
    assert result_of(found, "gpu-pcie").detail == "the NVIDIA driver is not loaded"


def test_an_administrator_is_not_sent_to_one(sick: Examination) -> None:
    for user, words in (("root", "[administrator]"), ("user", "[ask an administrator]")):
        text = report_text(replace(sick, facts={**sick.facts, "user": user}))
        assert words in text


def test_the_last_line_names_the_failures_with_the_worst_first(sick: Examination) -> None:
    found = sick.with_results([Result(FAIL, "x", "hardware", "y", "xid", "GPU")])
    line = summary_line(found)
    assert line.index("; hardware: xid") < line.index("; administrator: nvidia-driver") < line.index("; not known: ")
