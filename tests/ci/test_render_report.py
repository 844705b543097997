"""Reports of pull requests become Markdown of the project: nothing in them can be more than a quoted text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ROOT

pytestmark = pytest.mark.unit
PROGRAM = ROOT / ".github/steps/render_report.py"
GOOD = {
    "schema": 1, "image": "app", "error": "", "sha256": "ab", "size": 34_400_000, "equal": False,
    "built": ["glue"], "cached": ["base"], "reused": [], "verdicts": {"audit": "passed"}, "failures": [],
    "before": {
        "reference": "ghcr.io/a/b:app", "digest": "sha256:cd", "squashfs_sha256": "ef", "squashfs_size": 30_000_000,
    },
    "changes": {"python": {"changed": {"numpy": ["1", "2"]}, "added": {"new": "3"}, "removed": {"old": "4"}}},
    "spec": [],
}  # fmt: skip


def render(folder: Path, *reports: Any) -> str:
    """Return the page of reports; bytes are written as they are."""
    for number, report in enumerate(reports):
        place = folder / f"report-{number:03}"
        place.mkdir()
        content = report if isinstance(report, bytes) else json.dumps(report).encode()
        (place / "report.json").write_bytes(content)
    done = subprocess.run([sys.executable, PROGRAM, "--folder", folder], capture_output=True, text=True, check=True)
    return done.stdout


def outside_of_code(line: str) -> str:
    """Return the parts of a line that are not in a code span."""
    assert line.count("`") % 2 == 0, line
    return "".join(line.split("`")[::2])


def test_a_report_is_a_table(tmp_path: Path) -> None:
    lines = render(tmp_path, GOOD).splitlines()
    assert lines[0] == "### `app`: changed"
    assert "| squashfs file | 34.4 MB (+4.4 MB) |" in lines
    assert "| published now | `ghcr.io/a/b:app` `sha256:cd` |" in lines
    assert "| units | 1 built, 1 cached, 0 reused |" in lines
    assert "| `python` | `numpy` | `1` | `2` |" in lines
    assert "| `python` | `new` | | `3` |" in lines and "| `python` | `old` | `4` | |" in lines


def test_the_same_file_is_not_a_change(tmp_path: Path) -> None:
    """`diff` does not read the layers that are published, so that it does not call the image equal."""
    same = {**GOOD, "changes": {}, "sha256": "ef"}
    lines = render(tmp_path, same).splitlines()
    assert lines[0] == "### `app`: the published squashfs file"


@pytest.mark.parametrize(
    "name",
    [
        "`</code><script>alert(1)</script>",
        "a | b | c",
        "x\n\n# heading @team #1 https://example.org ![](https://example.org/x.png)",
        "``` `` `",
        "\u202eright to left\u2028line\r\x00\x1b[31m",
        "\ud800",
        "<!-- envbuild: images -->",
        "",
    ],
)
def test_hostile_names_are_only_quoted(tmp_path: Path, name: str) -> None:
    changes = {name: {"changed": {name: [name, [name]]}, "added": {name: {name: name}}, "removed": {}}}
    hostile = GOOD | {"image": name, "sha256": name, "verdicts": {name: name}, "failures": [name], "changes": changes}
    hostile |= {"not_compared": name, "before": {"reference": name, "digest": name}}
    page = render(tmp_path, hostile, GOOD | {"image": name, "error": name or "x"})
    assert page.isascii() and all(char >= " " or char == "\n" for char in page)
    plain = {outside_of_code(line) for line in page.splitlines()}
    assert not [line for line in plain if set(line) & set("<>@[]") or "http" in line or "heading" in line]
    assert {line.count("|") for line in plain if line.startswith("| ") and "file" in line} == {3}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"size": -1}, "not a size"),
        ({"size": 1.5}, "not a size"),
        ({"size": True}, "not a size"),
        ({"size": 1 << 70}, "not a size"),
        ({"image": 7}, "not a text: int"),
        ({"error": {"x": 1}}, "not a text: dict"),
        ({"changes": [1]}, "not an object: list"),
        ({"changes": {"python": {"changed": {"a": "1"}}}}, "not a list: str"),
        ({"built": "x"}, "not a list: str"),
    ],
)
def test_a_value_of_another_type_is_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    assert render(tmp_path, GOOD | changes) == f"### A report that is not valid: {reason}\n\n"


def test_files_that_are_not_reports_are_refused(tmp_path: Path) -> None:
    assert "not JSON" in render(tmp_path, b"[" * 100_000)
    (tmp_path / "big").mkdir()
    (tmp_path / "big/report.json").write_bytes(b" " * ((1 << 20) + 1))
    (tmp_path / "link").mkdir()
    (tmp_path / "link/report.json").symlink_to("/etc/passwd")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/report.json")
    (tmp_path / "folder/report.json").mkdir(parents=True)
    page = render(tmp_path)
    assert page.count("### A report that is not valid") == 5 and "root:" not in page
    assert "more than 1048576 bytes" in page and "not a regular file" in page and "not readable" in page


def test_a_page_fits_into_a_comment(tmp_path: Path) -> None:
    many = {f"{number}": ["\U0010ffff" * 100] * 2 for number in range(100)}
    page = render(tmp_path, *[GOOD | {"changes": {"python": {"changed": many}}}] * 60)
    assert 20_000 < len(page) < 61_000 and page.endswith("More images are in the summary of the run.\n")
    assert "And 40 more changes." in page
