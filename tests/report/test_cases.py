"""Reports for CI: valid documents, and what did not run is skipped, never passed."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.report.ctrf import write_ctrf
from envbuild.report.junit import write_junit
from envbuild.report.model import Fault, MatrixPart
from tests.support.reports import full_report, with_texts

pytestmark = pytest.mark.unit

# Element → (attributes that it must have, children in their order), by both schemas: Jenkins' xunit plugin,
# junit-10.xsd, and Windy Road's JUnit.xsd for Ant, which is stricter but for `skipped`.
SUITE = {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "skipped", "time"}
RULES = {
    "testsuites": (set(), r"(testsuite )*"),
    "testsuite": (SUITE, r"properties (testcase )*system-out system-err "),
    "properties": (set(), r"(property )*"),
    "property": ({"name", "value"}, ""),
    "testcase": ({"name", "classname", "time"}, r"(skipped |failure )?"),
    "failure": ({"message", "type"}, ""),
    "skipped": ({"message"}, ""),
    "system-out": (set(), ""),
    "system-err": (set(), ""),
}
NUMBER, TIME = r"\d+", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
VALUES = {
    "time": r"\d{1,9}\.\d{3}",
    "tests": NUMBER,
    "failures": NUMBER,
    "errors": NUMBER,
    "id": NUMBER,
    "timestamp": TIME,
}


def check_junit(text: str) -> ElementTree.Element:
    """Check a document against the rules of both schemas; return its root."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = RULES[element.tag]
        assert set(element.attrib) == attributes, element.tag
        assert re.fullmatch(children, "".join(f"{child.tag} " for child in element)), element.tag
        for name, value in element.attrib.items():
            if element.tag in ("testsuite", "testcase") and name in VALUES:
                assert re.fullmatch(VALUES[name], value), (name, value)
            if name in ("name", "classname"):
                assert value.strip()
    for suite in root:
        cases = suite.findall("testcase")
        assert int(suite.attrib["tests"]) == len(cases)
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
        assert int(suite.attrib["skipped"]) == len(suite.findall("testcase/skipped"))
    return root


def test_a_junit_document_has_every_check_and_its_fix() -> None:
    root = check_junit(write_junit(full_report(), "1"))
    assert [suite.attrib["name"] for suite in root] == ["audit", "run", "gpu", "fabric", "image"]
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.text == "libucp.so.0 is missing; fix: envbuild make net"
    skipped = {case.attrib["name"] for case in root.iter("testcase") if case.find("skipped") is not None}
    assert skipped == {"kernels load", "tier fabric"}


def test_the_time_of_a_document_is_that_of_the_lock() -> None:
    root = check_junit(write_junit(full_report(epoch=1_700_000_000), "1"))
    assert {suite.attrib["timestamp"] for suite in root} == {"2023-11-14T22:13:20"}
    for epoch in (0, -5, 10**15):
        check_junit(write_junit(full_report(epoch=epoch), "1"))


@given(st.text(min_size=1, max_size=80))
def test_any_text_makes_valid_documents(text: str) -> None:
    report = with_texts(full_report(), f"x{text}")
    check_junit(write_junit(report, "1"))
    check_ctrf(json.loads(write_ctrf(report, "1")))


def check_ctrf(document: dict[str, Any]) -> dict[str, Any]:
    """Check a document against what the schema of CTRF requires; return its results."""
    assert set(document) == {"reportFormat", "specVersion", "results"}
    found: dict[str, Any] = document["results"]
    summary, tests = found["summary"], found["tests"]
    assert summary["tests"] == len(tests)
    for state in ("passed", "failed", "skipped"):
        assert summary[state] == sum(test["status"] == state for test in tests)
    for test in tests:
        assert test["name"] and isinstance(test["duration"], int)
        assert set(test) <= {"name", "status", "duration", "suite", "message", "trace", "extra"}
    return found


def test_a_ctrf_document_has_the_same_cases() -> None:
    found = check_ctrf(json.loads(write_ctrf(full_report(), "1")))
    assert found["tool"] == {"name": "envbuild report", "version": "1"}
    by_name = {test["name"]: test for test in found["tests"]}
    assert by_name["link check"]["trace"] == "fix: envbuild make net"
    assert by_name["link check"]["duration"] == 1250
    assert by_name["tier fabric"]["status"] == by_name["kernels load"]["status"] == "skipped"
    assert by_name["version matrix"]["status"] == "passed"
    cases = check_junit(write_junit(full_report(), "1")).iter("testcase")
    assert [case.attrib["name"] for case in cases] == list(by_name)


def test_a_fault_that_no_check_states_is_a_case() -> None:
    report = full_report(faults=(Fault("a.lock is outdated", "images/a.lock", "envbuild lock a"),), checks=())
    root = check_junit(write_junit(report, "1"))
    assert [case.attrib["name"] for case in root.iter("testcase") if case.find("failure") is not None] == [
        "images/a.lock"
    ]


@pytest.mark.parametrize("verdict", ["conflict", "unknown"])
def test_a_conflict_of_the_matrix_is_not_a_pass(verdict: str) -> None:
    matrix = MatrixPart(verdict, "net")
    found = check_ctrf(json.loads(write_ctrf(full_report(matrix=matrix), "1")))
    assert "version matrix" not in {test["name"] for test in found["tests"]}


def test_equal_reports_have_equal_documents() -> None:
    for write in (write_ctrf, write_junit):
        assert write(full_report(), "1") == write(full_report(), "1")
