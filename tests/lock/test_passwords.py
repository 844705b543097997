"""Passwords of mirrors while ``envbuild lock`` runs for real: of package archives, package indexes and repositories.

Another user reads all processes and files meanwhile. Servers refuse, fail and redirect, too.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.as_user import open_folder
from tests.support.curious_user import Curious, curious_user
from tests.support.debian_archive import Signer, publish, stanza
from tests.support.git_server import Repo
from tests.support.lock_project import LockProject
from tests.support.lock_server import simple_index, wheel
from tests.support.lock_site import MARKS
from tests.support.private_server import PrivateServer, serve_private

pytestmark = [*MARKS, pytest.mark.slow_unit]

USER, PASSWORD, WRONG = "us@r", "hush1/hush2:hush3@hush4", "shush5/shush6"
RECIPE = '''"""Something of every private place."""
from dataclasses import dataclass
from typing import ClassVar
from envbuild.sdk import AptRepository, Git, PythonIndex, Recipe, Runtime, Sources

@dataclass(frozen=True, kw_only=True)
class Private(Recipe):
    """Something of every private place."""

    prefix: ClassVar[str] = "/opt/private"

    def sources(self, env):
        return Sources(
            debian=("vendor-tool",),
            git=(Git("widget", "github:demo/widget", "{commit}", "v1"),),
            repositories=(AptRepository("apt:vendor", "./", (), "{key}", "key.asc"),),
            indexes=(PythonIndex("pip:own", ("owned",)),),
        )

    def runtime(self, env):
        return Runtime(python=("demo", "owned"))

    def build(self, env):
        return []
'''
# Kind of input → the prefix of its paths on the server.
KINDS = {"archive": "debian/", "vendor": "vendor/", "index": "simple/", "own index": "own/", "git": "git/"}


@dataclass
class Case:
    """A project whose inputs are all on a server with a login, and a server that must not get it."""

    project: LockProject
    server: PrivateServer
    other: PrivateServer

    def mirrors(self, **passwords: str) -> dict[str, list[str]]:
        """Return the mirrors of its site; `passwords`: another one for a kind."""
        prefixes = {"archive": "debian", "vendor": "apt:vendor", "index": "python", "own index": "pip:own"}
        found = {
            prefix: [self.server.address(KINDS[kind].rstrip("/"), passwords.get(kind, ""))]
            for kind, prefix in prefixes.items()
        }
        return {**found, "github": [self.server.address("git", passwords.get("git", ""))]}

    def lock(self, *options: str, store: str = "store") -> tuple[subprocess.CompletedProcess[str], Curious]:
        """Lock while another user looks."""
        with curious_user(self.project.folder, secrets()) as seen:
            done = self.project.lock(*options, store=store)
        return done, seen


def secrets() -> list[str]:
    """Return the parts of the passwords, and the headers that are made of them."""
    parts = [f"hush{number}" for number in range(1, 7)]
    return parts + [base64.b64encode(f"{USER}:{password}".encode()).decode() for password in (PASSWORD, WRONG)]


@pytest.fixture(scope="module")
def inputs(key: Signer) -> Iterator[Path]:
    """Yield a folder with an archive, a vendor's, two indexes and a repository."""
    with open_folder() as folder:
        project = LockProject(folder, key)
        project.publish([stanza("pkone")])
        project.index(
            wheel(folder / "wheels", "demo", "1.0", requires=("other",)), wheel(folder / "wheels", "other", "2.0")
        )
        for page in (folder / "simple").rglob("index.html"):  # addresses of the server instead of file://
            page.write_text(page.read_text().replace(folder.as_uri(), ""))
        owned = wheel(folder / "owned", "owned", "1.0")
        simple_index(folder / "own", [owned])
        page = folder / "own/owned/index.html"
        page.write_text(page.read_text().replace(folder.as_uri(), ""))
        publish(folder / "vendor", "./", [stanza("vendor-tool", folder=".")], key)
        (folder / "vendor/key.asc").write_bytes(key.armored)
        repo = Repo.make(folder / "work", {"setup.py": b"x"})
        repo.bare(folder / "git/demo/widget.git")
        yield folder


@pytest.fixture
def case(inputs: Path, key: Signer) -> Iterator[Case]:
    with open_folder() as folder, ExitStack() as stack:
        server = stack.enter_context(serve_private(inputs, USER, PASSWORD))
        other = stack.enter_context(serve_private(inputs))
        text = RECIPE.replace("{commit}", Repo(inputs / "work").head).replace("{key}", key.fingerprint)
        project = LockProject(folder, key, {"debian-packages": ["pkone"], "private": {}}, recipes={"private": text})
        case = Case(project, server, other)
        project.mirrors = case.mirrors()
        yield case


def check_kept(case: Case, done: subprocess.CompletedProcess[str], seen: Curious) -> None:
    """Fail if a password is in the output or the lock, was seen by another user, or remains where others can read."""
    assert seen.found == set()
    lock = case.project.folder / "project/images/k.lock"
    texts = [done.stdout, done.stderr, lock.read_text() if lock.exists() else ""]
    assert [secret for secret in secrets() for text in texts if secret in text] == []
    for path in case.project.folder.rglob("*"):
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets()):
            assert path.stat().st_mode & 0o077 == 0, path
            assert path.name in ("site.yaml", "auth.conf", "apt.conf")
    assert case.other.logins == [] or {login for _, login in case.other.logins} == {""}


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_lock_from_private_places_keeps_the_password(case: Case, options: tuple[str, ...]) -> None:
    done, seen = case.lock(*options)
    assert done.returncode == 0, done.stderr
    assert {"uv", "git", "apt-get"} <= seen.programs and seen.rounds > 10
    for prefix in KINDS.values():
        assert case.server.authorization in {
            login for path, login in case.server.logins if path.startswith(f"/{prefix}")
        }
    check_kept(case, done, seen)
    if os.geteuid() == 0 and not seen.read_files:
        pytest.skip("other users cannot reach the folder of temporary files: only processes were compared")


@pytest.mark.parametrize("refusal", [500, 403, "redirect", "wrong password"])
@pytest.mark.parametrize("kinds", [("archive", "index", "git"), ("vendor", "own index")])
def test_places_that_refuse_keep_the_password(case: Case, kinds: tuple[str, ...], refusal: int | str) -> None:
    if refusal == "wrong password":
        case.project.mirrors = case.mirrors(**dict.fromkeys(kinds, WRONG))
    else:
        case.server.refused = tuple(f"/{KINDS[kind]}" for kind in kinds)
        case.server.refusal = case.other.url if refusal == "redirect" else refusal
    done, seen = case.lock("--json")
    if refusal == "redirect":
        assert {path.split("/")[1] for path, _ in case.other.logins} >= {KINDS[kind].rstrip("/") for kind in kinds}
    else:
        assert done.returncode == 10, done.stderr
        assert len(json.loads(done.stdout)["error"]["findings"]) >= len(kinds)
    check_kept(case, done, seen)


def test_the_password_of_a_proxy_does_not_leave_it(case: Case) -> None:
    """The server is the proxy for names that do not resolve; it has no password itself."""
    login = case.server.address("").rstrip("/")
    case.server.proxy = True
    case.project.mirrors = {
        prefix: [place.replace(login, "http://mirror.invalid") for place in places]
        for prefix, places in case.mirrors().items()
    }
    case.project.site = {"proxy": login}
    done, seen = case.lock()
    assert done.returncode == 0, done.stderr
    check_kept(case, done, seen)
    case.project.site = {"proxy": login.replace("hush3", "hush5")}
    done, seen = case.lock("--refresh", store="other")
    assert done.returncode == 10, done.stderr
    check_kept(case, done, seen)


@pytest.mark.parametrize("of_site", [True, False])
def test_no_proxy_gets_what_is_for_this_machine(case: Case, of_site: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to it are not encrypted, and have its logins."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    if of_site:
        case.project.site = {"proxy": case.other.url}
    else:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, case.other.url)
    done = case.project.lock()
    assert case.other.logins == []
    assert done.returncode == 0, done.stderr
    for prefix in KINDS.values():
        assert any(path.startswith(f"/{prefix}") for path, _ in case.server.logins)


def test_a_login_with_a_blank_is_refused_where_apt_would_read_it(case: Case) -> None:
    case.project.mirrors = case.mirrors(vendor="hush5 hush6")
    done, seen = case.lock()
    assert done.returncode == 10 and "apt:vendor" in done.stderr
    check_kept(case, done, seen)
