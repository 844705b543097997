"""Checks that are commands, and the evidence that is made of all results."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from envbuild import inspector
from envbuild.core.errors import VerifyError
from envbuild.spec.recipe import Check
from envbuild.verify import evidence, run_inspector
from envbuild.verify.evidence import Evidence
from envbuild.verify.recipe_checks import run_check, run_checks
from envbuild.verify.results import AuditResult, Status

pytestmark = pytest.mark.unit


def run_here(argv: Sequence[str]) -> tuple[int, str]:
    """Run a command on this machine as in an image."""
    run = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return run.returncode, run.stdout


def test_a_check_needs_exit_code_and_output() -> None:
    assert run_check(Check("x", "echo version 2.30.7", r"^version 2\.30"), run_here).status == Status.PASS
    assert run_check(Check("x", "printf 'a\\n2.30.7\\nb\\n'", r"^2\.30\.7$"), run_here).status == Status.PASS
    assert run_check(Check("x", "true"), run_here).status == Status.PASS
    other = run_check(Check("x", "echo version 2.27.3", r"version 2\.30"), run_here)
    assert other.status == Status.FAIL
    assert other.detail.endswith("echo version 2.27.3\n  version 2.27.3")
    failed = run_check(Check("x", "echo version 2.30.7; seq 30 >&2; exit 3", "version"), run_here)
    assert failed.status == Status.FAIL
    assert failed.detail.startswith("exit code 3 of: echo")
    assert failed.detail.splitlines()[1:] == [f"  {number}" for number in range(16, 31)]
    assert "not a regular expression" in run_check(Check("x", "true", "("), run_here).detail


def test_tiers_that_need_hardware_are_not_run_with_a_reason() -> None:
    ran: list[Sequence[str]] = []

    def runner(argv: Sequence[str]) -> tuple[int, str]:
        ran.append(argv)
        return 0, ""

    checks = [
        Check("a", "true", tier="audit"),
        Check("b", "true"),
        Check("c", "x", tier="gpu"),
        Check("d", "x", tier="fabric"),
    ]
    results = run_checks(checks, runner, reasons={"gpu": "no GPU on this machine"})
    assert [(result.name, result.status, result.tier) for result in results] == [
        ("a", Status.PASS, "audit"),
        ("b", Status.PASS, "run"),
        ("c", Status.NOT_RUN, "gpu"),
        ("d", Status.NOT_RUN, "fabric"),
    ]
    assert [result.detail for result in results[2:]] == ["no GPU on this machine", "tier fabric was not requested"]
    assert ran == [["/bin/sh", "-c", "true"]] * 2


def test_tiers_without_a_runner_are_not_run() -> None:
    checks = [Check("c", "x", tier="gpu"), Check("d", "x", tier="fabric")]
    results = run_checks(checks, lambda argv: (1, "must not run"))
    tiers = Evidence("x", "", (), "", (), tuple(results)).tiers()
    assert [tiers[tier].partition(": envbuild verify NAME --tier ")[::2] for tier in ("gpu", "fabric")] == [
        ("not run: it needs a node with GPUs", "gpu"),
        ("not run: it needs several nodes", "fabric -N 2"),
    ]


RESULTS = (
    AuditResult("libraries are found", Status.PASS, "12 needs"),
    AuditResult("no device nodes", Status.FAIL, "/opt/null (all folders)\nmore", hint="remove them"),
    AuditResult("ucx_info", Status.PASS, "exit code 0", "run"),
    AuditResult("all-reduce", Status.NOT_RUN, "no GPU on this machine", "gpu"),
)
EVIDENCE = Evidence("h100-ucc", "sha256:" + "ab" * 32, ("sha256:1", "sha256:2"), "sha256:3", ("a message",), RESULTS)


def test_evidence_file_is_the_same_each_time_and_holds_every_result(tmp_path: Path) -> None:
    path = evidence.write_evidence(EVIDENCE, tmp_path)
    assert path.name == "h100-ucc-abababababab.evidence.json"
    first = path.read_bytes()
    assert evidence.write_evidence(EVIDENCE, tmp_path).read_bytes() == first
    value = json.loads(first)
    assert (value["layers"], value["messages"]) == (["sha256:1", "sha256:2"], ["a message"])
    assert tuple(AuditResult(**{**item, "status": Status(item["status"])}) for item in value["results"]) == RESULTS


def test_tiers_are_passed_only_when_all_of_them_ran() -> None:
    assert EVIDENCE.tiers() == {
        "audit": "failed",
        "run": "passed",
        "gpu": "not run: no GPU on this machine",
        "fabric": "not run: no check of this tier",
    }
    partly = Evidence("x", "", (), "", (), (RESULTS[2], AuditResult("y", Status.NOT_RUN, "no stub driver", "run")))
    assert partly.tiers()["run"] == "partly: 1 not run (no stub driver)"


def test_summary_names_failures_and_skipped_tiers() -> None:
    assert evidence.summary_lines(EVIDENCE) == [
        "h100-ucc: 2 passed, 1 failed",
        "FAILED audit: no device nodes: /opt/null (all folders)",
        "gpu (one node with GPUs): not run: no GPU on this machine",
        "fabric (several nodes): not run: no check of this tier",
    ]


def test_failures_are_one_error_and_skipped_checks_are_not() -> None:
    with pytest.raises(VerifyError) as caught:
        evidence.raise_failures(EVIDENCE)
    assert caught.value.exit_code == 7
    assert [finding.hint for finding in caught.value.findings] == ["remove them"]
    assert "no device nodes: /opt/null" in str(caught.value)
    evidence.raise_failures(Evidence("x", "", (), "", (), (RESULTS[0], RESULTS[3])))


def test_the_program_fits_one_argument_and_imports_only_the_standard_library() -> None:
    assert len(run_inspector.inspector_program({"singles": ["libnccl"]}).encode()) < 128 * 1024
    folder = Path(inspector.__path__[0])
    assert {path.stem for path in folder.glob("*.py")} == {
        *map(run_inspector.module_name, run_inspector.MODULES),
        "__init__",
    }
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 11))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= sys.stdlib_module_names
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert str(node.module).split(".")[0] in sys.stdlib_module_names
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1  # of itself


def test_an_image_without_python_is_reported() -> None:
    with pytest.raises(VerifyError, match="exit code 127") as caught:
        run_inspector.inspect_image(lambda argv: (127, "exec: no such file"))
    assert "python3" in caught.value.hint
    with pytest.raises(VerifyError):
        run_inspector.inspect_image(lambda argv: (0, "no document"))
