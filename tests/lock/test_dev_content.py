"""Project folders of a spec: which files are their content, and what a digest depends on."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from envbuild.core.bounded_tar import BoundedTarFile
from envbuild.core.errors import InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.lock import dev_content, dev_files, dev_git
from envbuild.lock.dev_content import add_contents, read_content, with_contents
from envbuild.lock.dev_files import list_files
from envbuild.lock.git.git_program import git_path
from envbuild.spec.dev_project import DevContent, DevProject
from envbuild.spec.trust import check_index
from tests.support.as_user import open_folder
from tests.support.debian_archive import Signer
from tests.support.dev_folder import FILES, fill, project
from tests.support.dev_folder import repo as repo  # a fixture
from tests.support.foreign_projects import BOB, as_user
from tests.support.git_server import Repo, git
from tests.support.lock_project import LockProject
from tests.support.lock_server import wheel
from tests.support.lock_site import MARKS

pytestmark = MARKS


def test_the_digest_is_that_of_names_modes_and_bytes_alone(repo: Repo, tmp_path: Path) -> None:
    first = read_content(project(repo.path)).sha256
    clone = tmp_path / "deep/er/clone"
    clone.parent.mkdir(parents=True)
    subprocess.run(["git", "clone", "-q", repo.path, clone], check=True, umask=0o077)
    for path in clone.rglob("*"):
        os.utime(path, (1, 1))
    if os.geteuid() == 0:
        os.chown(clone / "pyproject.toml", 0, 12345)
    assert (clone / "pyproject.toml").stat().st_mode & 0o777 == 0o600
    assert read_content(project(clone)).sha256 == first
    plain = tmp_path / "plain"
    shutil.copytree(repo.path, plain, ignore=shutil.ignore_patterns(".git"))
    assert read_content(project(plain)).sha256 == first


@pytest.mark.parametrize("place", ["data", "data/deep"])
def test_a_folder_that_becomes_a_link_while_it_is_read_is_not_followed(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the image, which has the folder, exchanges it once it was judged."""
    home = fill(tmp_path / "home", {"deep/key": b"secret", "key": b"secret"})
    top = fill(tmp_path / "p", {"pyproject.toml": FILES["pyproject.toml"], "data/key": b"", "data/deep/key": b""})
    files = dev_content.list_files

    def exchange(project: DevProject) -> list[str]:
        found = files(project)
        shutil.move(top / place, tmp_path / "before")
        (top / place).symlink_to(home / place.removeprefix("data").lstrip("/"))
        return found

    monkeypatch.setattr(dev_content, "list_files", exchange)
    with pytest.raises(SpecError, match="cannot be read"):
        read_content(project(top))


@pytest.mark.parametrize(
    "edit",
    [
        lambda top: (top / "src/mine/__init__.py").write_text("# edited\n"),
        lambda top: (top / "src/mine/__init__.py").chmod(0o755),
        lambda top: (top / "src/mine/__init__.py").rename(top / "src/mine/other.py"),
        lambda top: (top / "src/mine/new.py").touch(),
        lambda top: (top / "src/mine/link.py").symlink_to("__init__.py"),
    ],
    ids=["bytes", "mode", "name", "untracked", "link"],
)
def test_an_edit_changes_the_digest(edit: Callable[[Path], object], repo: Repo) -> None:
    first = read_content(project(repo.path)).sha256
    edit(repo.path)
    assert read_content(project(repo.path)).sha256 != first


def test_what_git_ignores_and_what_a_run_writes_is_left_out(repo: Repo) -> None:
    first = read_content(project(repo.path)).sha256
    more = {"run.log": b"x", "src/mine/__pycache__/a.cpython-313.pyc": b"x", "src/mine.egg-info/PKG-INFO": b"x"}
    fill(repo.path, more)
    assert read_content(project(repo.path)).sha256 == first
    git(repo.path, "add", "-f", "run.log")
    assert "run.log" in list_files(project(repo.path))


def test_without_git_the_folders_of_builds_are_left_out(tmp_path: Path) -> None:
    left_out = dict.fromkeys((".venv/a.py", "build/a.py", "dist/a.whl", ".tox/a", "mine.egg-info/a"), b"")
    fill(tmp_path, {"mine/build/kept.py": b"", "run.py": b"", "run.pyc": b"", **left_out})
    assert list_files(project(tmp_path)) == ["mine/build/kept.py", "run.py"]


def test_a_folder_that_a_work_tree_ignores_has_all_its_files(tmp_path: Path) -> None:
    Repo.make(tmp_path / "home", {".gitignore": b"*\n"})
    folder = fill(tmp_path / "home/mine", {"run.py": b""})
    assert list_files(project(folder)) == ["run.py"]
    fill(folder, {".gitignore": b"*\n"})
    assert list_files(project(folder)) == [".gitignore", "run.py"]


def test_of_a_folder_that_a_work_tree_ignores_its_own_gitignore_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Repo.make(tmp_path / "home", {".gitignore": b"/work/\nrun.*\n"})
    names = ("run.py", ".env", "data/x", "build/y", "my.pem")
    folder = fill(tmp_path / "home/work/mine", dict.fromkeys(names, b""))
    fill(folder, {".gitignore": b".env\n/data\n", "deep/.gitignore": b"*.log\n", "deep/a.log": b"", "deep/b": b""})
    fill(tmp_path / "names", {"config": b"[core]\nexcludesFile = " + bytes(tmp_path / "names/own"), "own": b"*.pem\n"})
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "names/config"))
    # The pattern that ignores the folder matches nothing in it.
    fill(tmp_path / "home/.git/info", {"exclude": b"work/\n/mine/\n"})
    fill(folder, {"work/d.py": b"", "mine/e.py": b""})
    expected = [".gitignore", "deep/.gitignore", "deep/b", "mine/e.py", "run.py", "work/d.py"]
    assert list_files(project(folder)) == expected
    git(tmp_path / "home", "config", "core.excludesFile", str(tmp_path / "names/own"))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    assert list_files(project(folder)) == expected
    Repo.make(folder / "inner", {"c.py": b""})
    assert list_files(project(folder)) == sorted([*expected, "inner/c.py"])


def test_a_work_tree_without_git_on_the_machine_is_reported_at_its_place(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SimpleNamespace(dev=(project(repo.path),))
    monkeypatch.setenv("PATH", str(repo.path))
    git_path.cache_clear()
    with pytest.raises(InputError) as caught:
        with_contents(SimpleNamespace(spec=spec))  # type: ignore[arg-type]
    (finding,) = caught.value.findings
    assert finding.where == "x.yaml:1:1" and finding.hint == "sudo apt install git"
    assert finding.message.startswith("git is not installed;")


def test_a_further_working_tree_has_an_index_of_its_own(repo: Repo, tmp_path: Path) -> None:
    git(repo.path, "worktree", "add", "--quiet", str(tmp_path / "other"))
    fill(tmp_path / "other", {"new.py": b"a = 1"})
    assert list_files(project(tmp_path / "other")) == sorted([*FILES, "new.py"])


def test_a_submodule_is_content(repo: Repo, tmp_path: Path) -> None:
    part = Repo.make(tmp_path / "part", {"words.py": b"a = 1"})
    git(repo.path, "submodule", "--quiet", "add", str(part.path), "vendor/part")
    assert "vendor/part/words.py" in list_files(project(repo.path))
    shutil.rmtree(repo.path / "vendor/part")
    (repo.path / "vendor/part").mkdir()
    assert "vendor/part/words.py" not in list_files(project(repo.path))


def test_a_program_that_a_repository_names_is_not_started(repo: Repo, tmp_path: Path) -> None:
    git(repo.path, "config", "core.fsmonitor", f"touch {tmp_path}/started; true")
    git(repo.path, "config", "filter.x.clean", f"touch {tmp_path}/started; cat")
    (repo.path / ".gitattributes").write_text("* filter=x\n")
    list_files(project(repo.path))
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/etc/passwd", "is a link to an absolute path: /etc/passwd"),
        ("../../secret", "is a link out of the folder: ../../secret"),
        ("self/../../secret", "is a link out of the folder: self/../../secret"),
    ],
)
def test_a_link_out_of_the_folder_is_refused(target: str, message: str, tmp_path: Path) -> None:
    folder = fill(tmp_path / "mine", {"run.py": b""})
    (folder / "sub").mkdir()
    (folder / "sub/self").symlink_to(".")
    (folder / "sub/link").symlink_to(target)
    with pytest.raises(SpecError) as caught:
        read_content(project(folder))
    assert str(caught.value) == (
        f"x.yaml:1:1: the project '../mine': sub/link {message}\nhint: remove it, or name it in .gitignore"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
@pytest.mark.parametrize("name", [".git", ".git/index", ".git/config", ".git/info/exclude"])
def test_what_another_user_writes_of_a_repository_is_refused(name: str) -> None:
    with open_folder() as top:
        repo = Repo.make(top / "mine", FILES)
        (repo.path / ".git/info").mkdir(exist_ok=True)
        (repo.path / ".git/info/exclude").touch()
        os.chown(repo.path / name, BOB, -1)
        with pytest.raises(SpecError, match="the repository is not trusted") as caught:
            list_files(project(repo.path))
        assert {finding.where for finding in caught.value.findings} == {str(repo.path / name)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_a_folder_without_files_of_its_own_is_judged() -> None:
    with open_folder() as top:
        folder = fill(top / "mine", {"src/acme/train/__init__.py": b""})
        os.chown(folder / "src", BOB, -1)
        with pytest.raises(SpecError, match="the project folder is not trusted") as caught:
            list_files(project(folder))
        assert {finding.where for finding in caught.value.findings} == {str(folder / "src")}


def test_many_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev_files, "MOST", 5)
    for number in range(6):
        (tmp_path / str(number)).mkdir()
    with pytest.raises(SpecError, match="cannot be read: more than 5 folders"):
        read_content(project(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_a_plain_user_may_have_the_repository_of_root() -> None:
    with open_folder() as top:
        repo = Repo.make(top / "mine", FILES)
        checked = (repo.path, repo.path / ".git", repo.path / ".git")
        assert as_user("anne", lambda: [(str(check_index(*checked)), "")]) == [("None", "")]


@pytest.mark.parametrize("name", ["../secret/key", "{top}/secret/key", "a/../../secret/key", "link/key"])
def test_a_name_in_an_index_that_leads_out_of_the_folder(name: str, repo: Repo, tmp_path: Path) -> None:
    """git lists what an index has; of ``link/key`` it is the file that a link has replaced since."""
    fill(tmp_path / "secret", {"key": b"private"})
    (repo.path / "link").symlink_to(tmp_path / "secret")
    write_index(repo.path / ".git/index", ["run.py", name.format(top=tmp_path)])
    if name == "link/key":
        with pytest.raises(SpecError, match="link is a link to an absolute path"):
            list_files(project(repo.path))
        (repo.path / "link").unlink()
        fill(tmp_path / "link", {"key": b""})
        (repo.path / "link").symlink_to("sub")
        fill(repo.path / "sub", {"key": b""})
        assert "link/key" not in list_files(project(repo.path))
        return
    with pytest.raises(SpecError, match=r"names a file outside of it: \S*secret/key"):
        list_files(project(repo.path))


def test_a_folder_with_the_files_of_a_repository_is_content(repo: Repo, tmp_path: Path) -> None:
    """A clone may have them as committed files; their index names what it likes."""
    fill(tmp_path / "secret", {"key": b"private"})
    inner = {"HEAD": b"ref: refs/heads/main\n", "objects/x": b"", "refs/x": b"", "run.py": b"a = 1"}
    settings = b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n"
    folder = fill(repo.path / "sub", {**inner, "config": settings})
    write_index(folder / "index", [str(tmp_path / "secret/key")])
    assert list_files(project(folder)) == sorted([*inner, "config", "index"])


def test_a_pipe_that_git_reads_ends_with_an_error(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev_git, "LIMIT", 1)
    os.mkfifo(fill(repo.path / "sub", {"run.py": b""}) / ".gitignore")
    with pytest.raises(SpecError, match=r"git did not list the files of .* in 1 s"):
        list_files(project(repo.path))


def write_index(path: Path, names: list[str]) -> None:
    """Write an index of git, version 2 (gitformat-index(5)), with empty files of these names, which git itself
    refuses to add."""
    body = b"DIRC" + struct.pack(">II", 2, len(names))
    for name in sorted(map(os.fsencode, names)):
        entry = bytes(24) + struct.pack(">I", 0o100644) + bytes(12) + bytes(20) + struct.pack(">H", len(name)) + name
        body += entry + bytes(8 - len(entry) % 8)
    path.write_bytes(body + hashlib.sha1(body, usedforsecurity=False).digest())


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(fill(tmp_path, {"run.py": b""}) / "pipe")
    with pytest.raises(SpecError, match="pipe is not a regular file"):
        read_content(project(tmp_path))


def test_a_folder_with_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, {f"{number}.py": b"" for number in range(5)})
    with (tmp_path / "big.bin").open("wb") as file:
        file.truncate(dev_files.LARGEST)
    (tmp_path / "0.py").write_text("x")
    with pytest.raises(SpecError, match=r"has more than 268.4 MB .*\n?.*hint: name data and results in .gitignore"):
        read_content(project(tmp_path))
    monkeypatch.setattr(dev_files, "MOST", 5)
    with pytest.raises(SpecError, match="has more than 5 files"):
        read_content(project(tmp_path))


def test_files_that_others_can_write_are_refused(tmp_path: Path) -> None:
    fill(tmp_path, {"run.py": b""})
    (tmp_path / "run.py").chmod(0o666)
    with pytest.raises(SpecError, match="the project folder is not trusted: this file can be written by every user"):
        read_content(project(tmp_path))


def test_the_store_gets_the_canonical_tar(repo: Repo, store: Store) -> None:
    (repo.path / "src/mine/__init__.py").chmod(0o755)
    content = read_content(project(repo.path))
    add_contents([content], store)
    with BoundedTarFile.open(store.blob(content.sha256)) as tar:
        found = [(item.name, item.mode, item.uid, item.gid, item.mtime) for item in tar]
    assert len({mtime for *_, mtime in found}) == 1
    assert [(name, mode, uid, gid) for name, mode, uid, gid, _ in found] == [
        ("mine", 0o755, 0, 0),
        ("mine/.gitignore", 0o644, 0, 0),
        ("mine/pyproject.toml", 0o644, 0, 0),
        ("mine/src", 0o755, 0, 0),
        ("mine/src/mine", 0o755, 0, 0),
        ("mine/src/mine/__init__.py", 0o755, 0, 0),
    ]


def test_content_that_changes_meanwhile_is_reported(repo: Repo, store: Store) -> None:
    content = read_content(project(repo.path))
    (repo.path / "src/mine/__init__.py").write_text("edited = True")
    with pytest.raises(InputError, match="changed while it was read"):
        add_contents([content], store)
    assert not store.has_blob(content.sha256)
    assert isinstance(content, DevContent)


@pytest.mark.slow_unit
def test_dependencies_outdate_a_lock_and_code_does_not(tmp_path: Path, key: Signer) -> None:
    at = LockProject(tmp_path, key, spec={"dev": ["../../mine", "../../helper"]})
    at.publish()
    at.index(wheel(tmp_path / "wheels", "other", "1.0"), wheel(tmp_path / "wheels", "taken", "2.0"))
    head = b'[project]\nname = "%s"\nversion = "1"\ndependencies = %s\n'
    mine = fill(tmp_path / "mine", {"pyproject.toml": head % (b"mine", b'["other", "helper>=1"]'), "mine.py": b""})
    fill(tmp_path / "helper", {"pyproject.toml": head % (b"helper", b"[]"), "helper.py": b""})
    locked = tmp_path / "project/images/k.lock"
    assert at.lock().returncode == 0
    first = locked.read_bytes()
    assert b"other-1.0" in first and b"helper" not in first  # a project here is not searched in the index
    (mine / "mine.py").write_text("edited = True\n")
    assert at.lock().returncode == 0 and locked.read_bytes() == first
    (mine / "pyproject.toml").write_bytes(head % (b"mine", b'["other", "taken"]'))
    assert at.lock().returncode == 0 and b"taken-2.0" in locked.read_bytes()
    (mine / "pyproject.toml").write_bytes(head % (b"mine", b'["helper>=2"]'))
    done = at.lock()
    assert done.returncode == 2
    assert "mine 1 requires helper>=2, and '../../helper' is helper 1" in done.stderr
    (mine / "pyproject.toml").write_bytes(head % (b"mine", b'["taken"]'))
    fill(tmp_path / "helper", {"pyproject.toml": head % (b"taken", b"[]")})
    assert at.lock().returncode == 0 and b"taken-2.0" not in locked.read_bytes()


@pytest.mark.slow_unit
def test_the_name_of_a_locked_package_is_refused(tmp_path: Path, key: Signer) -> None:
    at = LockProject(tmp_path, key, {"python-packages": ["asker"]}, spec={"dev": "../../mine"})
    at.publish()
    wheels = tmp_path / "wheels"
    at.index(wheel(wheels, "asker", "1.0", requires=("taken",)), wheel(wheels, "taken", "2.0"))
    named = b'[project]\nname = "%s"\nversion = "1"\n'
    fill(tmp_path / "mine", {"pyproject.toml": named % b"Taken", "taken.py": b""})
    done = at.lock()
    assert done.returncode == 2
    assert "the project '../../mine' has the name of a package of the image: taken 2.0\n" in done.stderr
    assert "hint: rename the project in its pyproject.toml, or remove what requires taken" in done.stderr
    assert not (tmp_path / "project/images/k.lock").exists()
    fill(tmp_path / "mine", {"pyproject.toml": named % b"mine"})
    assert at.lock().returncode == 0
    fill(tmp_path / "mine", {"pyproject.toml": named % b"taken"})
    assert at.lock().returncode == 2  # also where the request for the lock is that of before
