"""Files that no image may contain, and files that every image needs.

A rule is a row of `RULES`: title, faults found in the report, what was compared, how to fix a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from envbuild.verify.declared_contents import Expectations
from envbuild.verify.results import AuditResult, Status, join_items, judge, split_faults

Report = Mapping[str, Any]

ALWAYS = ("/bin/sh is there", "no device nodes")  # also if the base image has them: the image cannot be used
RULES: tuple[tuple[str, Callable[[Report], Sequence[str]], str, str], ...] = (
    (
        "compiled Python files fit their sources",
        lambda report: [*report["pyc"]["stale"], *report["pyc"]["damaged"]],
        "time and size in each header",
        "something changed file times after installation: export SOURCE_DATE_EPOCH in every step that installs Python",
    ),
    (
        "/bin/sh is there",
        lambda report: [] if report["shell"] else ["no executable /bin/sh"],
        "enroot and pyxis start images with it",
        "add debian-packages: [dash] to the spec's layers",
    ),
    (
        "no host keys of ssh",
        lambda report: report["host_keys"],
        "/etc/ssh/ssh_host_*",
        "every container of the image would have the same identity: remove them in the step",
    ),
    (
        "no device nodes",
        lambda report: report["devices"],
        "all folders but /dev",
        "unsquashfs cannot make them without root: remove them in the step",
    ),
    (
        "nothing is left over",
        lambda report: report["leftovers"],
        "the list of files that units remove",
        "remove them in the step that makes them",
    ),
)


def file_results(report: Report, expected: Expectations) -> Iterator[AuditResult]:
    """Yield the result of every rule of `RULES`, and the files with special rights for information."""
    for name, faults, compared, hint in RULES:
        counted, note = split_faults(
            report, {text: text for text in faults(report)}, expected.complete or name in ALWAYS
        )
        yield judge(name, counted, f"{compared}{note}", hint)
    unsticky = [text for text in report["open_folders"] if not int(text.rsplit(" ", 1)[1], 8) & 0o1000]
    yield AuditResult(
        "rights",
        Status.PASS,
        f"for information: setuid or setgid: {join_items(report['setuid'], 40) or 'none'}; "
        f"folders that everybody may write without the sticky bit: {join_items(unsticky) or 'none'}",
    )
