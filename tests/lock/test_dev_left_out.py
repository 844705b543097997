"""Project folders of a spec: files that the user ignores, and those with secrets, are never content."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from envbuild.core.signing.key_file import has_private_key, lock_key, parse_box
from envbuild.lock.dev_files import list_files
from tests.support.dev_folder import fill, project
from tests.support.dev_folder import repo as repo  # a fixture
from tests.support.foreign_projects import BOB
from tests.support.git_server import Repo, git
from tests.support.lock_site import MARKS
from tests.support.site_forms import SITES

pytestmark = MARKS


@pytest.mark.parametrize("where", [".gitconfig", ".config/git/config", "named", "included", "of remote", "variable"])
def test_what_the_user_ignores_in_all_repositories_is_left_out(
    where: str, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    text = b"[core]\n\texcludesFile = ~/own names\n"
    fill(home, {"own names": b".env\n*.pem\n", where: text})
    if where == "named":
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / where))
    if where == "included":
        fill(home, {".gitconfig": b"[include]\n\tpath = included\n"})
    if where == "of remote":
        git(repo.path, "remote", "add", "origin", "https://git.example/mine.git")
        condition = b'[includeIf "hasconfig:remote.*.url:https://git.example/**"]\n\tpath = "of remote"\n'
        fill(home, {".gitconfig": condition})
    if where == "variable":
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.excludesFile")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(home / "own names"))
    before = list_files(project(repo.path))
    fill(repo.path, {".env": b"TOKEN=x", "deep/id.pem": b"key", "seen": b""})
    assert list_files(project(repo.path)) == sorted([*before, "seen"])
    fill(repo.path, {".gitignore": b"!.env\n"})  # the repository decides
    assert ".env" in list_files(project(repo.path))
    git(repo.path, "config", "core.excludesFile", "/dev/null")
    assert ("deep/id.pem" in list_files(project(repo.path))) is (where != "variable")  # which takes precedence


BASE64 = base64.b64encode(bytes(range(150))).decode()
PEM = f"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n{BASE64}\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n"
KEYS = {
    "a.key": f"\n{PEM}",
    "bom.key": f"\ufeff{PEM}",
    "line.key": PEM.replace("\n", " "),
    "secrets.yaml": "key: |\n  " + PEM.replace("\n", "\n  "),
    "secrets.json": json.dumps({"key": PEM}),
    "long.key": "#" * 9000 + f"\n{PEM}",
    "old.key": PEM.replace("SIGSTORE", "COSIGN"),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", [".gitconfig", ".config/git/ignore"])
def test_under_sudo_the_settings_of_the_user_who_called_it_count(
    name: str, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = fill(tmp_path / "home", {"names": b".env\n"}) / "names"
    fill(tmp_path / "home", {name: b".env\n" if name.endswith("ignore") else b"[core]\nexcludesFile = " + bytes(names)})
    monkeypatch.setattr("pwd.getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "home")))
    monkeypatch.setenv("HOME", str(tmp_path / "root"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "root/.config"))  # as `sudo -E` passes it on
    monkeypatch.setenv("SUDO_UID", str(BOB))
    fill(repo.path, {".env": b"TOKEN=x"})
    os.chown(repo.path, BOB, -1)
    assert ".env" not in list_files(project(repo.path))
    os.chown(repo.path, 0, -1)  # a work tree of root itself
    assert ".env" in list_files(project(repo.path))
    monkeypatch.delenv("SUDO_UID")
    assert ".env" in list_files(project(repo.path))


@pytest.mark.parametrize("with_git", [True, False])
def test_site_files_and_private_keys_are_left_out(with_git: bool, repo: Repo) -> None:
    folder = repo.path
    if not with_git:
        shutil.rmtree(folder / ".git")
    before = list_files(project(folder))
    other = {
        "web/site.yaml": b"title: mine\n", "team.pub": b"-----BEGIN PUBLIC KEY-----\n",
        "src/keys.py": b'BEGIN, END = "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----", "-----END ENCRYPTED '
        b'SIGSTORE PRIVATE KEY-----"\n',
        "src/site.yaml": b"db:\n  schema: 1\n", "deep/site.yaml": b"db: &x {schema: 2}\nother: *x\n",
    }  # fmt: skip
    sites = {f"{number}/site.yaml": content for number, content in enumerate(SITES)}
    keys = {f"deep/{name}": text.encode() for name, text in KEYS.items()}
    fill(folder, {**keys, **sites, **other, "site-here.yaml": b"schema: 1\n"})
    (folder / "site.yaml").symlink_to("site-here.yaml")
    fill(folder.parent / "disk", {"site.yaml": b"schema: 1\n"})
    (folder / "web/own").mkdir()
    (folder / "web/own/site.yaml").symlink_to(folder.parent / "disk/site.yaml")  # as docs/sites.md has it
    assert list_files(project(folder)) == sorted([*before, *other])


def test_keys_that_sign_are_found() -> None:
    """What `publish --sign` reads as a key is one that no image gets."""
    key = lock_key(b"x", "").decode()
    forms = (key, f"\ufeff{key}", key.replace("\n", " "), key.replace("\n", "\n  "), f"{'#' * 9000}\n{key}")
    forms += (key.replace("\n", "\n# "), key.replace("\n", "\n> "), json.dumps(key.splitlines()))
    for text in (form.encode() for form in forms):
        assert parse_box(text) and has_private_key(text)
