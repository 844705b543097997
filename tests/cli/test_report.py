"""``envbuild report``: where it writes, what it prints, its mistakes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from tests.support.command import envbuild, refused
from tests.support.launching import write_squashfs

pytestmark = pytest.mark.unit

RECORD = {"image": "net", "target": "azure-ndv4", "order": ["nccl", "torch"], "versions": {"torch": "2.15.0"}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "site.yaml").write_text(f"schema: 1\nstore: {tmp_path}/store\n")
    write_squashfs(tmp_path, {"etc/envbuild/resolution.json": json.dumps(RECORD)})
    return tmp_path


def report(project: Path, *words: str) -> CompletedProcess[str]:
    return envbuild("report", *words, cwd=project)


def test_the_page_is_on_stdout(project: Path) -> None:
    done = report(project, "./net.sqsh")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<!DOCTYPE html>\n<html")
    assert done.stdout.endswith("</html>\n")


def test_a_file_is_written_and_named(project: Path) -> None:
    done = report(project, "net.sqsh", "-o", "page.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"  report: {project}/page.html"
    assert (project / "page.html").read_text() == report(project, "net.sqsh").stdout
    assert (project / "page.html").stat().st_mode & 0o777 == 0o644
    before = os.umask(0o077)
    try:
        assert report(project, "net.sqsh", "-o", "page.html").returncode == 0
    finally:
        os.umask(before)
    assert (project / "page.html").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("form", "name"), [("html", "net.html"), ("ctrf", "net.ctrf.json"), ("junit", "net.junit.xml")]
)
def test_a_folder_gets_a_file_with_the_name_of_the_image(project: Path, form: str, name: str) -> None:
    (project / "out").mkdir()
    assert report(project, "net.sqsh", "--to", form, "-o", "out").returncode == 0
    assert [path.name for path in (project / "out").iterdir()] == [name]


def test_results_for_ci(project: Path) -> None:
    ctrf = json.loads(report(project, "net.sqsh", "--to", "ctrf").stdout)
    assert ctrf["results"]["summary"]["skipped"] == ctrf["results"]["summary"]["tests"] == 4
    junit = ElementTree.fromstring(report(project, "net.sqsh", "--to", "junit").stdout.encode())
    assert [suite.attrib["name"] for suite in junit] == ["audit", "run", "gpu", "fabric"]


def test_json_has_what_the_page_has(project: Path) -> None:
    answer = json.loads(report(project, "net.sqsh", "--json", "-o", "page.html").stdout)
    assert (answer["schema"], answer["name"], answer["report"]) == (1, "net", f"{project}/page.html")
    assert answer["verdict"]["kind"] == "open"
    assert answer["components"] == [{"name": "torch", "version": "2.15.0", "origin": ""}]
    assert {tier["name"] for tier in answer["tiers"]} == {"audit", "run", "gpu", "fabric"}
    assert answer["facts"]["target"] == "azure-ndv4"


def test_mistakes_are_reported_together(project: Path) -> None:
    done = report(project, "net.sqsh", "--to", "htlm", "-o", "none/")
    refused(done, 2, "error: --to htlm is not known", "did you mean 'html'?", "-o none/: there is no such folder")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["none.sqsh"], 2, "error: none.sqsh cannot be read"),
        (["none"], 2, "error: "),
        (["net.sqsh", "-o", "pipe"], 2, "error: -o pipe is not a file"),
        (
            ["net.sqsh", "-o", "none/page.html"],
            8,
            "error: -o none/page.html cannot be written: No such file or directory",
        ),
        (["docker://registry.example/a:1"], 2, "is not a squashfs file yet"),
    ],
)
def test_mistakes(project: Path, words: list[str], code: int, text: str) -> None:
    os.mkfifo(project / "pipe")
    refused(report(project, *words), code, text)
