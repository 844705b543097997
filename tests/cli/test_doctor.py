"""``envbuild doctor`` on this machine: answers, exit codes, mistakes; and its single file, without envbuild."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envbuild.cli.doctor_gather import LARGEST, gather
from envbuild.core.errors import SpecError
from envbuild.doctor.model import FAIL, NOT_RUN, PASS, Need, Result, read_need
from envbuild.doctor.script import single_file
from envbuild.matrix import FACTS as FACTS_FOLDER
from envbuild.matrix.facts.compile import load_fact_table
from envbuild.spec.project import Project
from envbuild.spec.target import load_target
from envbuild.verify.host_comparison import image_results
from envbuild.verify.host_image import HostImage
from tests.support.command import ROOT, envbuild, refused
from tests.support.python_3_8 import check_python_3_8

pytestmark = pytest.mark.unit


def test_the_answer_has_facts_counts_and_results() -> None:
    done = envbuild("doctor", "--json")
    data = json.loads(done.stdout)
    serious = [row for row in data["results"] if row["status"] == "fail" and row["severity"] != "minor"]
    assert done.returncode == (7 if serious else 0)
    assert data["facts"]["kernel"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert sum(data["counts"].values()) == len(data["results"])
    assert {row["status"] for row in data["results"]} <= {PASS, FAIL, NOT_RUN}


def test_a_target_whose_devices_are_missing_fails() -> None:
    done = envbuild("doctor", "h100-ib", "--json")
    results = {row["check"]: row for row in json.loads(done.stdout)["results"]}
    assert done.returncode == 7
    assert results["nvidia-driver"]["status"] == results["rdma-ports"]["status"] == "fail"
    assert "error" not in json.loads(done.stdout)


def test_mistakes_are_refused_with_a_hint(tmp_path: Path) -> None:
    refused(envbuild("doctor", "h100-bi"), 2, "h100-ib")
    refused(envbuild("doctor", "--as", "nagios"), 2, "nhc")
    refused(envbuild("doctor", "--print-script", "--ctrf"), 2, "choose one")
    refused(envbuild("doctor", "--without", "nvlinks"), 2, "nvlinks")
    refused(envbuild("doctor", "--only-hardware"), 2, "--as nhc")
    refused(envbuild("doctor", "--log", str(tmp_path / "none")), 2, "No such file")
    refused(envbuild("doctor", "--gather", str(tmp_path)), 2, "has 0 answers of envbuild doctor, and two are needed")
    refused(envbuild("doctor", "--gather", str(tmp_path / "none")), 2, "is not a folder")
    refused(envbuild("doctor", "--image", "no-image"), 2, "no-image")
    refused(envbuild("check", "torch", "--host"), 2, "--host is for images")


def test_the_driver_of_a_site_is_what_the_doctor_expects(tmp_path: Path) -> None:
    (tmp_path / "envbuild").mkdir()
    (tmp_path / "envbuild/site.yaml").write_text('schema: 1\ntargets: {h100-ib: {driver: "595.45.04"}}\n')
    for option in (("h100-ib",), ("--image", "h100-nccl")):
        data = json.loads(envbuild("doctor", *option, "--json", XDG_CONFIG_HOME=str(tmp_path)).stdout)
        assert data["need"]["driver"] == "595.45.04"


def test_the_store_of_a_site_is_checked(tmp_path: Path) -> None:
    (tmp_path / "envbuild").mkdir()
    (tmp_path / "envbuild/site.yaml").write_text(f"schema: 1\nstore: {tmp_path}/store\n")
    data = json.loads(envbuild("doctor", "--json", XDG_CONFIG_HOME=str(tmp_path), ENVBUILD_STORE="").stdout)
    (row,) = [row for row in data["results"] if row["check"] == "image-store"]
    assert f"{tmp_path}/store" in row["detail"] or row["status"] == NOT_RUN


def test_the_driver_of_a_target_is_named_where_this_machine_has_none() -> None:
    driver = load_target("h100-ib", Project.find(ROOT)).driver
    done = envbuild("check", "h100-nccl", "--host")
    assumed = f"on this machine, with the target's driver=={driver}, which it does not have (as locked)" in done.stdout
    assert assumed is not Path("/sys/module/nvidia/version").exists()


def test_a_log_is_part_of_the_results(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"\xff n1 NCCL WARN NET/IB : Got completion with error 12, opcode 0\n")
    done = envbuild("doctor", "--log", str(log), "--json")
    rows = [row for row in json.loads(done.stdout)["results"] if row["group"] == "log"]
    assert (done.returncode, rows[0]["check"], rows[0]["status"]) == (7, "completion-error-12", "fail")


def test_nodes_of_a_folder_are_compared(tmp_path: Path) -> None:
    data = json.loads(envbuild("doctor", "--json").stdout)
    data["results"] = []
    for name in ("n1", "n2", "n3"):
        facts = {**data["facts"], "host": name, "kernel": "5.4.0" if name == "n3" else data["facts"]["kernel"]}
        (tmp_path / f"{name}.json").write_text(json.dumps({**data, "facts": facts}))
    (tmp_path / "n4.json").write_text('{"facts": {"host"')
    done = envbuild("doctor", "--gather", str(tmp_path), "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 7
    assert [(one["node"], one["fact"]) for one in answer["outliers"]] == [("n3", "kernel")]
    assert answer["unread"] == {"n4.json": "not valid JSON, or truncated"}


def test_a_folder_with_more_files_than_nodes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.cli.doctor_gather.MOST", 3)
    for number in range(4):
        (tmp_path / f"{number}.json").touch()
    with pytest.raises(SpecError, match="more than 3 files"):
        gather(str(tmp_path))


def test_what_another_user_put_into_the_folder_is_named_and_not_waited_for(tmp_path: Path) -> None:
    facts = {"host": "n1", "kernel": "6.8.0"}
    for name in ("n1", "n2"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"schema": 1, "facts": {**facts, "host": name}}))
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "large.json").write_bytes(b" " * (LARGEST + 1))
    (tmp_path / "loop.json").symlink_to("loop.json")
    found = gather(str(tmp_path))
    assert found.nodes == ("n1", "n2")
    assert found.unread == {
        "fifo.json": "not a regular file",
        "large.json": "the file is larger than 4 MiB",
        "loop.json": "Too many levels of symbolic links",
    }


def test_the_single_file_answers_as_the_command_does(tmp_path: Path) -> None:
    script = tmp_path / "doctor.py"
    script.write_text(envbuild("doctor", "h100-ib", "--print-script").stdout)
    run = [sys.executable, "-I", str(script), "--json"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    own, command = json.loads(done.stdout), json.loads(envbuild("doctor", "h100-ib", "--json").stdout)
    assert done.returncode == 7
    assert {row["check"]: row["status"] for row in own["results"]} == {
        row["check"]: row["status"] for row in command["results"]
    }
    assert own.keys() == command.keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["doctor.py"]


def test_the_single_file_imports_nothing_beside_it(tmp_path: Path) -> None:
    """It is copied to /tmp of nodes, where others can put files, and started as root."""
    (tmp_path / "doctor.py").write_text(single_file(Need(), "1.0"))
    for name in ("json", "shutil", "importlib", "dataclasses", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('code of another user')\n")
    python = [sys.executable, "-B", str(tmp_path / "doctor.py"), "--json"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(python, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["results"] and "another user" not in done.stderr


def test_the_single_file_in_a_pipe_that_ends(tmp_path: Path) -> None:
    (tmp_path / "doctor.py").write_text(single_file(Need(), "1.0"))
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -I doctor.py --json | head -c 1"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("{", "")


def test_the_need_of_the_single_file_is_the_target_s() -> None:
    need = Need(source="true-false", nvidia=True)
    line = next(line for line in single_file(need, "1.0").splitlines() if line.startswith("NEED = "))
    assert read_need(ast.literal_eval(line.partition(" = ")[2])) == need


def test_the_single_file_has_the_syntax_of_python_3_8() -> None:
    text = single_file(Need(), "1.0")
    ast.parse(text, feature_version=(3, 8))
    check_python_3_8(ROOT / "envbuild" / "doctor")


FACTS: dict[str, Any] = {
    "kernel": "6.8.0-31-generic", "nvidia": {"driver": "580.95.05"}, "neuron": {"driver": ""},
    "programs": {"slurm": "", "enroot": ""}, "network": {"ofed": "24.10-0.7.0", "ports": [{}]},
}  # fmt: skip


def compared(versions: dict[str, str], driver: str) -> dict[str, Result]:
    facts = {**FACTS, "nvidia": {"driver": driver}}
    return {
        one.check: one
        for one in image_results(facts, HostImage("mine", versions, "2.41"), load_fact_table([FACTS_FOLDER]))
    }


def test_the_driver_is_compared_with_the_cuda_of_an_image() -> None:
    assert compared({"cuda": "13.2"}, "580.95.05")["image-driver"].status == PASS
    assert compared({"cuda": "13.2"}, "535.86.10")["image-driver"].status == FAIL
    assert compared({"cuda": "13.2"}, "")["image-needs"].status == FAIL


def test_what_no_fact_compares_is_not_run() -> None:
    found = compared({"rdma-core": "56.1"}, "580.95.05")
    assert found["image-ofed"].status == NOT_RUN
    assert (
        image_results(FACTS, HostImage("mine", fault="it has no lock"), load_fact_table([FACTS_FOLDER]))[0].status
        == NOT_RUN
    )


def test_an_image_of_another_target_is_reported() -> None:
    target = load_target("p5-efa", Project())
    image = HostImage("mine", {}, "2.41", target=target)
    for name, status in (("p5-efa", PASS), ("h100-ib", FAIL)):
        found = image_results(FACTS, image, load_fact_table([FACTS_FOLDER]), name)
        assert found[0].check == "image-target" and found[0].status == status
    assert "image-target" not in {one.check for one in image_results(FACTS, image, load_fact_table([FACTS_FOLDER]))}


def test_an_image_of_the_project_is_compared_with_this_machine() -> None:
    done = envbuild("doctor", "--image", "h100-nccl", "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["target"]) == (7, "h100-ib")
    assert [row for row in data["results"] if row["group"] == "image"]
    answer = json.loads(envbuild("check", "h100-nccl", "--host", "--json").stdout)["answers"][0]
    requested = {one["component"]: one["text"] for one in answer["request"]}
    assert requested["kernel"].endswith(".".join(data["facts"]["kernel"].split(".")[:2]))


def test_the_single_file_names_the_python_that_it_needs(tmp_path: Path) -> None:
    """Red Hat 8 has Python 3.6: a SyntaxError of its import named nothing that helps."""
    script = tmp_path / "doctor.py"
    script.write_text(single_file(Need(), "1"))
    ast.parse(script.read_text(), feature_version=(3, 6))
    code = f"import sys; sys.version_info = (3, 6); exec(open({str(script)!r}).read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: Python >= 3.8 is needed, and this is 3.6")


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    script = tmp_path / "doctor.py"
    script.write_text(single_file(Need(), "1"))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, str(script)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        5, "error: the report cannot be written: No space left on device",
    )  # fmt: skip
