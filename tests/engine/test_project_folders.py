"""Folders of the machine in a command: project folders (`dev:`) with their repositories, and what is mounted below."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from envbuild.build.engines.embedded.run_command import run_in_root
from envbuild.core.errors import SpecError
from envbuild.core.store.store import Store
from envbuild.lock.dev_repositories import project_mounts
from tests.support import tiny_root as kit

pytestmark = pytest.mark.engine


def test_a_submodule_of_a_project_folder_cannot_be_exchanged(tmp_path: Path) -> None:
    """The mount on its .git was read-only, and the folder with it could be renamed."""
    store = Store.open(tmp_path / "store")
    built = kit.build(store, kit.unit("a", "true"))
    trees = [store.layer_tree(layer.diff_id) for layer in built.layers]
    top, inner = tmp_path / "mine", tmp_path / "inner"
    setting = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    for folder in (inner, top):
        folder.mkdir()
        subprocess.run(["git", "init", "-q", folder], check=True)
        (folder / "x.py").touch()
    subprocess.run(["git", "-C", inner, "add", "."], check=True)
    subprocess.run(["git", "-C", inner, *setting, "commit", "-qm", "x"], check=True)
    subprocess.run(["git", "-C", top, *setting, "submodule", "--quiet", "add", inner, "a/b"], check=True)
    tries = "mv a c; mv a/b a/c; rm -rf a/b; echo gitdir: x > a/b/.git; touch .git/x; mv .git x; touch a/b/new"
    binds = project_mounts([(top, "/opt/dev/mine")], writable=True)
    code = run_in_root(trees, ["/bin/sh", "-c", f"cd /opt/dev/mine; {tries}"], env={}, store=store, binds=binds)
    assert code == 0
    assert sorted(path.name for path in top.iterdir()) == [".git", ".gitmodules", "a", "x.py"]
    assert (top / "a/b/.git").read_text().startswith("gitdir: ../../.git/modules/")
    assert sorted(path.name for path in (top / "a/b").iterdir()) == [".git", "new"]


def test_a_folder_of_a_project_that_becomes_a_link_shows_no_other_folder(tmp_path: Path) -> None:
    """A program of another run, which has the project folder too, exchanges it while this run starts."""
    store = Store.open(tmp_path / "store")
    built = kit.build(store, kit.unit("a", "true"))
    trees = [store.layer_tree(layer.diff_id) for layer in built.layers]
    top, home = tmp_path / "mine", tmp_path / "home"
    for folder in (top / "evil", home):
        subprocess.run(["git", "init", "-q", folder], check=True)
    binds = project_mounts([(top, "/opt/dev/mine")], writable=True)
    assert ("", "/opt/dev/mine/evil", False) in binds
    shutil.move(top / "evil", tmp_path / "before")
    (top / "evil").symlink_to(home)
    with pytest.raises(SpecError, match="/opt/dev/mine/evil: No such file or directory"):
        run_in_root(trees, ["/bin/sh", "-c", "true"], env={}, store=store, binds=binds)


def test_a_project_folder_is_read_only_and_shows_edits(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    built = kit.build(store, kit.unit("a", "true"))
    trees = [store.layer_tree(layer.diff_id) for layer in built.layers]
    top = tmp_path / "mine"
    (top / "a").mkdir(parents=True)
    (top / "a/x.py").write_text("1")
    code = run_in_root(
        trees,
        ["/bin/sh", "-c", "cd /opt/dev/mine; echo 2 > a/x.py; echo 3 > new; mv a b; read it < a/x.py; [ $it = 1 ]"],
        env={},
        store=store,
        binds=project_mounts([(top, "/opt/dev/mine")]),
    )
    assert code == 0
    assert sorted(path.name for path in top.rglob("*")) == ["a", "x.py"] and (top / "a/x.py").read_text() == "1"


@pytest.mark.parametrize("read_only", [True, False])
def test_file_systems_below_a_folder_are_mounted_with_it(read_only: bool, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, who may mount")
    store = Store.open(tmp_path / "store")
    built = kit.build(store, kit.unit("a", "true"))
    trees = [store.layer_tree(layer.diff_id) for layer in built.layers]
    data = tmp_path / "mine/with blank/data"
    data.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", data], check=True)
    try:
        (data / "there").touch()
        text = "cd '/mine/with blank/data' && [ -e there ] && echo x > new"
        binds = [(str(tmp_path / "mine"), "/mine", read_only)]
        code = run_in_root(trees, ["/bin/sh", "-c", text], env={}, store=store, binds=binds)
        assert (code == 0, (data / "new").exists()) == (not read_only, not read_only)
    finally:
        subprocess.run(["umount", data], check=True)
