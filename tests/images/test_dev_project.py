"""An image with a project folder: mounted in `run`, copied by `make`, verified."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.image_project import Cli

pytestmark = pytest.mark.images

SPEC = """schema: 1
description: code under work
target: cpu
base: debian:13
python: "3.13"
layers: {}
dev: ../../mine
"""
PYPROJECT = """[project]
name = "mine"
version = "0.1"
dependencies = ["iniconfig>=2"]
[project.scripts]
train = "mine:main"
"""
CODE = (
    f"# {uuid.uuid4()}: the store may be that of an earlier run\n"
    + "import iniconfig\nVALUE = {}\ndef main():\n    print('value', VALUE)\n"
)


def built(output: str) -> set[str]:
    return {line.split()[1] for line in output.splitlines() if " built in " in line}


def test_an_edit_is_seen_at_once_and_rebuilds_one_unit(tmp_path: Path, store: Path) -> None:
    code = tmp_path / "mine/src/mine.py"
    code.parent.mkdir(parents=True)
    code.write_text(CODE.format(1))
    (tmp_path / "mine/pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "project/images").mkdir(parents=True)
    (tmp_path / "project/images/work.yaml").write_text(SPEC)
    cli = Cli(tmp_path / "project", store)
    cli.run("lock", "work")
    made = cli.json("make", "work")
    assert cli.run("run", "work", "--", "train").stdout == "value 1\n"
    code.write_text(CODE.format(2))
    for words in (("work",), ("work", "--live")):
        seen = cli.run("run", *words, "--", "train")
        assert seen.stdout == "value 2\n" and not built(seen.stderr)
    cli.run("run", "work", "--", "sh", "-c", "! touch /opt/dev/mine/written")
    cli.run("run", "work", "--writable-dev", "--", "touch", "/opt/dev/mine/written")
    (tmp_path / "mine/written").unlink()
    assert cli.run("run", made["artifact"], "--", "train").stdout == "value 1\n"
    before = Path(made["artifact"]).stat()
    layers = cli.json("make", "work", "--to", "layers")
    assert set(layers["built"]) == {"dev-mine", "glue"} and layers["engine"] == made["engine"]
    assert Path(made["artifact"]).stat().st_ino == before.st_ino  # no file is written
    again = cli.json("make", "work")
    assert Path(again["artifact"]).stat().st_ino != before.st_ino
    assert again["built"] == [] and again["layers"] == layers["layers"] and again["lock"] == made["lock"]
    assert cli.run("run", again["artifact"], "--", "train").stdout == "value 2\n"
    check_removed_layer(cli, tmp_path / "shared", layers["layers"][-1])
    cli.run("verify", again["artifact"])
    evidence = json.loads(Path(again["evidence"]).read_text())
    inside = json.loads(cli.run("show", again["artifact"], "--cat", "/etc/envbuild/resolution.json").stdout)
    assert inside["dev"] == [{"name": "mine", "version": "0.1", "content": evidence["dev"]["mine"]}]
    check_order(cli, code, evidence["layers"])


def test_a_folder_that_contains_its_own_lock_is_made_at_once(tmp_path: Path, store: Path) -> None:
    """The command writes the lock, which is content of the project folder."""
    code = tmp_path / "mine/mine/__init__.py"
    code.parent.mkdir(parents=True)
    code.write_text(CODE.format(1))
    (tmp_path / "mine/pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "mine/images").mkdir()
    (tmp_path / "mine/images/own.yaml").write_text(SPEC.replace("../../mine", ".."))
    cli = Cli(tmp_path / "mine", store)
    made = cli.json("make", "own", "--to", "layers")
    assert "dev-mine" in made["built"] and (tmp_path / "mine/images/own.lock").is_file()
    assert cli.json("make", "own", "--to", "layers")["built"] == []


def check_removed_layer(cli: Cli, shared: Path, layer: str) -> None:
    """Remove a layer while a command runs in it: that is reported, and the next command makes it again."""
    shared.mkdir()
    folder = cli.store / "layers" / layer.removeprefix("sha256:")
    wait = "touch /mnt/begun; until [ -e /mnt/go ]; do sleep 0.02; done; exit 3"

    def remove() -> None:
        while not (shared / "begun").exists():
            time.sleep(0.02)
        shutil.rmtree(folder)
        (shared / "go").touch()

    with ThreadPoolExecutor(1) as pool:
        removal = pool.submit(remove)
        ran = cli.run("run", "work", "--live", "--bind", f"{shared}:/mnt", "--", "sh", "-c", wait, check=False)
        removal.result()
    assert ran.returncode == 3 and f"{folder}/tree was removed while the command ran" in ran.stderr
    ran = cli.run("run", "work", "--live", "--", "train")
    assert ran.stdout == "value 2\n" and "was removed" not in ran.stderr


def check_order(cli: Cli, code: Path, layers: list[str]) -> None:
    """Compare the layers of the same content at another time; code that cannot be imported fails."""
    code.unlink()
    code.write_text(CODE.format(2))
    assert cli.json("make", "work")["up_to_date"]
    cli.run("make", "work", "--check")
    evidence = json.loads(Path(cli.json("make", "work")["evidence"]).read_text())
    assert evidence["layers"] == layers
    code.write_text(CODE.format(2).replace("iniconfig", "missing"))
    broken = cli.run("make", "work", check=False)
    assert broken.returncode == 7 and "dev: mine of mine 0.1" in broken.stderr
