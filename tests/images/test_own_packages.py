"""An image with a wheel of the project, and a project in a repository: locked, built without network, verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.git_server import Repo, git
from tests.support.image_project import Cli
from tests.support.lock_server import wheel

pytestmark = pytest.mark.images

SPEC = """schema: 1
description: packages of no index
target: cpu
base: debian:13
python: "3.13"
layers:
  python-packages:
    - ./wheels/local_thing-0.3-py3-none-any.whl
    - "acme @ git+https://github.com/demo/acme@v1.2#subdirectory=python"
"""
PYPROJECT = b"""[build-system]
requires = ["setuptools>=77", "setuptools-scm>=8"]
build-backend = "setuptools.build_meta"
[project]
name = "Acme"
dynamic = ["version"]
dependencies = ["tomli-w>=1"]
[tool.setuptools_scm]
root = ".."
[tool.setuptools]
packages = ["acme"]
[tool.setuptools.package-data]
acme = ["*.txt"]
"""
SETUP = b"import shutil\nfrom setuptools import setup\nshutil.copy('../part/words.txt', 'acme/')\nsetup()\n"
MODULE = b"import tomli_w\nfrom pathlib import Path\nwords = Path(__file__).with_name('words.txt').read_text()\n"
PROGRAM = "import acme, importlib.metadata as m; print(acme.words, m.version('acme'), m.version('local-thing'))"


def test_it_is_built_with_its_submodule_and_runs(tmp_path: Path, store: Path) -> None:
    part = Repo.make(tmp_path / "git/demo/part", {"words.txt": b"of the submodule"})
    files = {"python/pyproject.toml": PYPROJECT, "python/setup.py": SETUP, "python/acme/__init__.py": MODULE}
    acme = Repo.make(tmp_path / "git/demo/acme", files)
    acme.link("part", "../part", part.head)
    git(acme.path, "tag", "v1.2")
    folder = tmp_path / "project"
    wheel(folder / "images/wheels", "local_thing", "0.3", requires=("iniconfig>=2", "acme>=1"))
    (folder / "images/own.yaml").write_text(SPEC)
    (folder / "site.yaml").write_text(f"schema: 1\nmirrors: {{github: [{tmp_path}/git]}}\n")
    cli = Cli(folder, store)
    cli.run("lock", "own")
    made = cli.run("make", "own")
    assert "verify:   not run" not in made.stdout
    found = cli.run("run", "own", "--", "/opt/venv/bin/python", "-c", PROGRAM).stdout
    assert found == "of the submodule 1.2 0.3\n"
    wheel(folder / "images/wheels", "local_thing", "0.3", requires=("iniconfig>=1", "acme>=1"))
    changed = cli.run("make", "own", check=False)
    assert changed.returncode == 4 and "is outdated" in changed.stderr
    try_an_edit(cli, store)


def try_an_edit(cli: Cli, store: Path) -> None:
    """Compare what `run --live` starts with the finished image, after it locked and built what changed."""
    before = {path.name: path.lstat() for path in (store / "artifacts").iterdir()}
    look = "env | grep -v -e ^SHLVL= | sort; pwd; id; find /etc /opt /usr /root /var -xdev | sort"
    done = cli.run("run", "own", "--live", "--", "/bin/sh", "-c", look)
    assert "own.lock is outdated" in done.stderr and "/opt/venv/bin/python" in done.stdout
    assert {path.name: path.lstat() for path in (store / "artifacts").iterdir()} == before  # no file is written
    again = cli.run("run", "own", "--live", "--", "/bin/sh", "-c", look)
    assert again.stdout == done.stdout and "built" not in again.stderr
    made = cli.json("make", "own", "--no-verify")
    assert cli.run("run", "own", "--", "/bin/sh", "-c", look).stdout == done.stdout
    # The finished file: the same environment, mounts, folder and tree, setuid bits included, but for enroot's files.
    look = (
        "env | grep -v ^_= | sort; pwd; id; cut -d' ' -f5 /proc/self/mountinfo | sort; "
        "find / -xdev -path /proc -prune -o -printf '%p %y %m\\n' | sort"
    )
    live = cli.run("run", "own", "--live", "--", "/bin/sh", "-c", look).stdout.splitlines()
    file = cli.run("run", made["artifact"], "--", "/bin/sh", "-c", look).stdout.splitlines()
    assert any(line.split()[-1] == "4755" for line in live)
    assert set(live) <= set(file)
    assert {line.split()[0] for line in file} - {line.split()[0] for line in live} == {
        "/etc/envbuild/export.json", "/etc/fstab", "/etc/rc", "/etc/rc.local",
    }  # fmt: skip
    assert cli.run("run", "own", "--live", "--", "/bin/sh", "-c", "exit 3", check=False).returncode == 3
