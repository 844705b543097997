"""Images on top of an image of the project, and of an archive of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.image_project import Cli
from tests.support.tools import tool

pytestmark = pytest.mark.images

BELOW = """
schema: 1
description: the image below
target: cpu
base: debian:13
layers:
  python-packages: ["packaging==24.0", "click==8.1.7"]
"""
ABOVE = BELOW.replace("base: debian:13", "base: below").replace('"packaging==24.0", ', '"packaging>=24.1", ')
ARCHIVE = BELOW.replace("base: debian:13", 'base: ../below.tar\npython: "3.13"\ndistribution: debian:13')
CODED = BELOW.replace("base: debian:13\nlayers:", "base: below\ndev: ../code\nlayers:")
SHOW = "import click, packaging, sys; print(click.__version__, packaging.__version__ > '24.0', sys.prefix)"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Cli:
    folder = tmp_path_factory.mktemp("own-base")
    (folder / "images").mkdir()
    for name, text in (("below", BELOW), ("above", ABOVE), ("archive", ARCHIVE), ("coded", CODED)):
        (folder / "images" / f"{name}.yaml").write_text(text)
    (folder / "code/mine").mkdir(parents=True)
    (folder / "code/mine/__init__.py").touch()
    cli = Cli(folder, store)
    cli.run("make", "below", "--no-verify")
    return cli


def test_its_venv_is_extended_and_the_image_verified(cli: Cli) -> None:
    """What is required in the version that the base has remains; what is required in another is replaced."""
    made = cli.json("make", "above")
    assert made["evidence"]
    assert cli.run("run", "above", "--", "python", "-c", SHOW).stdout == "8.1.7 True /opt/venv\n"
    listed = cli.run("run", "above", "--", "sh", "-c", "ls -d /opt/venv/lib/*/site-packages/packaging-*").stdout
    assert len(listed.split()) == 1, "the replaced version left its metadata"


def test_an_archive_of_the_same_image_results_in_the_same_packages(cli: Cli) -> None:
    cli.run("export", "below", "--to", "oci", "-o", "below.oci")
    copy = [tool("skopeo"), "copy", "--quiet", "oci:below.oci", "docker-archive:below.tar:below:1"]
    subprocess.run(copy, cwd=cli.project, check=True)
    made = cli.json("make", "archive")
    assert made["evidence"]
    assert cli.run("run", "archive", "--", "python", "-c", SHOW).stdout == "8.1.7 False /opt/venv\n"


def test_an_image_below_that_was_made_again_is_reported_and_locked_again_on_request(cli: Cli) -> None:
    spec = cli.project / "images/below.yaml"
    cli.run("make", "above", "coded", "--no-verify")
    assert "earlier" not in cli.run("make", "above", "--no-verify", "--locked").stderr
    spec.write_text(BELOW.replace("  python", "  script: {run: [echo new > text], into: /opt/text}\n  python"))
    cli.run("make", "below", "--no-verify", "--lock")
    before = cli.run("make", "above", "--no-verify")
    assert "above is on an earlier below, which was made again since: envbuild lock above" in before.stderr
    assert cli.json("make", "above", "--no-verify")["up_to_date"]
    required = cli.run("make", "above", "--no-verify", "--locked", check=False)
    assert required.returncode == 4
    assert "above.lock would change, because the base of above did" in required.stderr
    assert not cli.json("make", "above", "--no-verify", "--lock")["up_to_date"]
    assert cli.run("run", "above", "--", "cat", "/opt/text/text").stdout == "new\n"
    assert cli.run("run", "coded", "--live", "--", "cat", "/opt/text/text").stdout == "new\n"
    assert "earlier" not in cli.run("make", "above", "--no-verify", "--locked").stderr


def test_a_lock_on_an_image_below_that_is_not_built_remains(cli: Cli) -> None:
    """As on a site without a network, which has the layers of the image below, and not what it is built from."""
    spec = cli.project / "images/below.yaml"
    cli.run("make", "below", "--no-verify", "--lock")
    cli.run("make", "above", "coded", "--no-verify", "--lock")
    lock = (cli.project / "images/above.lock").read_bytes()
    spec.write_text(spec.read_text().replace("click==8.1.7", "click==8.1.8"))
    unknown = "is on the present below is not known: below is not built here, or changed since (envbuild make below)"
    for option in ("--lock", "--locked"):
        assert unknown in cli.run("make", "above", "--no-verify", option).stderr
    for name in ("above", "coded"):
        done = cli.run("run", name, "--live", "--", "cat", "/opt/text/text")
        assert unknown in done.stderr and done.stdout == "new\n"
    assert (cli.project / "images/above.lock").read_bytes() == lock


def test_another_store_gets_the_image_below_from_its_build(cli: Cli, tmp_path: Path) -> None:
    """As a colleague, or CI, after a clone of the project: the locks are there, and the images are not."""
    cli.run("make", "below", "above", "--no-verify", "--lock")
    project = tmp_path / "clone"
    shutil.copytree(cli.project / "images", project / "images")
    other = Cli(project, tmp_path / "store")
    locks = {path.name: path.read_bytes() for path in project.glob("images/*.lock")}
    refused = other.run("make", "above", "--no-verify", check=False)
    assert (
        refused.returncode == 10 and "below is not built here, or changed since (envbuild make below)" in refused.stderr
    )
    other.run("make", "below", "--no-verify")
    assert other.json("make", "above", "--no-verify")["sha256"] == cli.json("make", "above", "--no-verify")["sha256"]
    assert locks == {path.name: path.read_bytes() for path in project.glob("images/*.lock")}
