"""The outputs of a report."""

from __future__ import annotations

from collections.abc import Callable

from envbuild.core.late_import import import_object
from envbuild.report.model import Report

FORMS = {  # value of --to → function, end of the file's name
    "html": ("envbuild.report.html.page:write_page", ".html"),
    "ctrf": ("envbuild.report.ctrf:write_ctrf", ".ctrf.json"),
    "junit": ("envbuild.report.junit:write_junit", ".junit.xml"),
}


def write_form(report: Report, form: str, version: str) -> str:
    """Return the text of a report in a form of `FORMS`. version: of envbuild."""
    write: Callable[[Report, str], str] = import_object(FORMS[form][0])
    return write(report, version)
