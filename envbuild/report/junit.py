"""A report as JUnit XML, one suite for each tier.

There is no standard. The document is valid against both schemas in common use: the one of Jenkins (xunit plugin,
junit-10.xsd) and the one of Ant (JUnit.xsd of Windy Road), which requires properties, a time and a host of each suite.
The time is that of the lock, so that equal inputs have equal bytes.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from envbuild.core.text import printable
from envbuild.report.cases import report_cases
from envbuild.report.model import CheckRow, Report

LATEST = 253402300799  # 9999-12-31T23:59:59, the last second that the schema can write


def write_junit(report: Report, version: str) -> str:
    """Return the document. What did not run is skipped, with its reason. version: of envbuild."""
    cases = report_cases(report)
    root = Element("testsuites")
    for number, name in enumerate(dict.fromkeys(case.tier for case in cases)):
        root.append(suite(report, name, number, [case for case in cases if case.tier == name], version))
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def suite(report: Report, name: str, number: int, cases: Sequence[CheckRow], version: str) -> Element:
    """Return one suite."""
    found = Element(
        "testsuite",
        name=printable(name),
        package=printable(report.name),
        id=str(number),
        timestamp=moment(report.epoch),
        hostname="localhost",
        tests=str(len(cases)),
        failures=str(sum(case.status == "fail" for case in cases)),
        errors="0",
        skipped=str(sum(case.status == "not-run" for case in cases)),
        time=f"{sum(case.seconds for case in cases):.3f}",
    )
    properties = SubElement(found, "properties")
    for key, value in (("envbuild", version), ("verdict", report.verdict.title), *report.facts):
        SubElement(properties, "property", name=printable(key), value=printable(value))
    for case in cases:
        add_case(found, report, case)
    SubElement(found, "system-out").text = "\n".join(map(printable, (report.verdict.text, *report.notes)))
    SubElement(found, "system-err")
    return found


def add_case(parent: Element, report: Report, case: CheckRow) -> None:
    """Add a case to its suite."""
    row = SubElement(
        parent,
        "testcase",
        name=printable(case.name),
        classname=printable(f"{report.name}.{case.tier}"),
        time=f"{case.seconds:.3f}",
    )
    text = printable(case.detail)
    if case.status == "fail":
        failure = SubElement(row, "failure", message=text, type="failure")
        failure.text = f"{text}; fix: {printable(case.fix)}" if case.fix else text
    elif case.status == "not-run":
        SubElement(row, "skipped", message=text)


def moment(epoch: int) -> str:
    """Return a time in UTC without a zone, as the schema requires it."""
    return datetime.datetime.fromtimestamp(min(max(epoch, 0), LATEST), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
