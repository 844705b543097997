"""Commits from servers: requests, old and static ones, passwords, proxies, certificates, ssh."""

from __future__ import annotations

import base64
import os
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest

from envbuild.core.errors import InputError
from envbuild.core.store.store import Store
from envbuild.lock.git import remote
from envbuild.lock.git.git_program import run_git
from envbuild.lock.git.http_access import http_options
from envbuild.lock.git.lock_commit import lock_commit
from envbuild.lock.git.remote import RemoteRepository
from envbuild.lock.git.repositories import find_repositories
from envbuild.net.limits import DownloadLimits
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.spec.recipe import Git
from tests.support.git_server import Repo, Served, certify, git, serve_git
from tests.support.git_site import MARKS, ORIGIN, Desk, git_source
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import server as server  # a fixture
from tests.support.http_server import Handler, serving

pytestmark = MARKS


@pytest.mark.slow_unit
def test_only_the_commit_is_fetched_once(demo: Repo, tmp_path: Path, server: Served) -> None:
    demo.commit({"big2": os.urandom(10_000)})
    demo.commit({"small": b"x"})
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url)
    found = desk.lock(git_source(demo))
    (cache,) = (tmp_path / "s/git").iterdir()
    assert git(cache, "rev-list", "--count", demo.head) == "1"
    assert not (cache / "hooks").exists()
    asked = len(server.asked)
    desk.store.blob(found.sha256).unlink()
    desk.obtain(found)
    assert not [line for line in server.asked[asked:] if ".tar" not in line]  # all but the finished tarball is here


@pytest.mark.slow_unit
def test_without_the_network_the_cache_serves(demo: Repo, tmp_path: Path) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    with serve_git(tmp_path / "served") as server:
        desk = Desk(tmp_path / "s", github=server.url)
        found = desk.lock(git_source(demo, tag="v1"))
    assert desk.lock(git_source(demo, tag="v1")) == found
    (line,) = desk.reporter.lines
    assert f"cannot verify that v1 still is {demo.head[:12]}" in line and "connection refused" in line


@pytest.mark.slow_unit
def test_an_old_server_that_serves_only_named_commits(demo: Repo, tmp_path: Path, server: Served) -> None:
    server.old = True
    tagged, expected = git_source(demo, tag="v1"), Desk(tmp_path / "x", github=tmp_path / "work").lock(git_source(demo))
    demo.commit({"more": b"x"})
    unnamed = git_source(demo)
    demo.commit({"more": b"y"})
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url)
    assert desk.lock(tagged).sha256 == expected.sha256
    assert desk.content(desk.lock(unnamed), "more") == b"x"
    assert desk.lock(replace(tagged, tag="")) == expected


@pytest.mark.slow_unit
def test_a_server_of_static_files(demo: Repo, tmp_path: Path, server: Served) -> None:
    server.plain = True
    git(demo.bare(tmp_path / "served/demo/demo.git"), "update-server-info")
    desk = Desk(tmp_path / "s", github=server.url)
    assert desk.lock(git_source(demo, tag="v1")) == Desk(tmp_path / "x", github=tmp_path / "work").lock(
        git_source(demo)
    )
    assert not desk.reporter.lines


@pytest.mark.slow_unit
def test_many_packs_of_a_server_of_static_files(demo: Repo, tmp_path: Path, server: Served) -> None:
    """Each is a file of its own, to which the limit of a file holds."""
    server.plain = True
    bare = demo.bare(tmp_path / "served/demo/demo.git")
    git(bare, "repack", "-a", "-d", "-q")
    for number in range(4):
        name = demo.commit({f"large{number}": os.urandom(1 << 20)})
        git(demo.path, "push", "--quiet", f"file://{bare}", "HEAD:refs/heads/main")
        git(bare, "repack", "-d", "-q")
    git(bare, "update-server-info")
    assert len(list((bare / "objects/pack").glob("*.pack"))) == 5 and name == demo.head
    desk = Desk(tmp_path / "s", github=server.url)
    transport = Transport(desk.site.network(), limits=DownloadLimits(file=2 << 20))
    for _ in range(2):
        with pytest.raises(InputError, match="the repositories of the source have more than 2 MiB"):
            lock_commit(desk.site, transport, desk.store, desk.reporter, git_source(demo), {})
        assert sum(path.stat().st_size for path in (tmp_path / "s/git").rglob("*") if path.is_file()) < 1 << 20
    assert desk.lock(git_source(demo)).size > 4 << 20


@pytest.mark.slow_unit
def test_names_of_a_server_are_not_files_of_the_store(
    demo: Repo, tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each branch a file, in as many folders as its name has parts; too many are not fetched."""
    wanted = git_source(demo)
    demo.commit({"more": b"y"})
    for number in range(30):
        git(demo.path, "branch", "/".join([f"deep{number}", *"abcdefgh"]))
    server.old = True
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url)
    monkeypatch.setattr(remote, "MAX_REFS", 20)
    with pytest.raises(InputError, match="has more than 20 branches and tags"):
        desk.lock(wanted)
    monkeypatch.setattr(remote, "MAX_REFS", 200)
    assert desk.lock(wanted).sha256
    (whole,) = (tmp_path / "s/git").glob("*-whole")
    assert not list((whole / "refs").iterdir())
    names = git(whole, "for-each-ref", "--format=%(refname)").split()
    assert 30 < len(names) < 40
    assert {name.rpartition("/")[0] for name in names} == {"refs/whole", "refs/envbuild"}


def test_a_server_that_sends_too_much(demo: Repo, tmp_path: Path, server: Served) -> None:
    """In any number of objects; nothing of it remains."""
    for number in range(3):
        demo.commit({f"large{number}": os.urandom(1 << 20)})
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url)
    transport = Transport(desk.site.network(), limits=DownloadLimits(file=2 << 20))
    with pytest.raises(InputError, match="the repositories of the source have more than 2 MiB"):
        lock_commit(desk.site, transport, desk.store, desk.reporter, git_source(demo), {})
    assert sum(path.stat().st_size for path in (tmp_path / "s").rglob("*") if path.is_file()) < 1 << 20
    assert desk.lock(git_source(demo)).size > 3 << 20


def test_the_disk_of_a_server_is_not_that_of_the_store(demo: Repo, tmp_path: Path) -> None:
    """git prints the text of a server, and another place may have the commit."""

    class Lying(Handler):
        def do_GET(self) -> None:
            lines = (b"# service=git-upload-pack\n", None, b"ERR x\nNo space left on device\n")
            body = b"".join(b"%04x%s" % (len(line) + 4, line) if line else b"0000" for line in lines)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    demo.commit({"file": b"x"})
    expected = Desk(tmp_path / "x", github=tmp_path / "work").lock(git_source(demo))
    with serving(Lying) as url:
        desk = Desk(tmp_path / "s").map("github:", url, tmp_path / "work")
        assert desk.lock(git_source(demo)).sha256 == expected.sha256


def test_a_message_of_a_server_has_no_login(demo: Repo, tmp_path: Path) -> None:
    """It may repeat what it got, and a log would have it."""

    class Repeating(Handler):
        def do_GET(self) -> None:
            login = self.headers.get("Authorization", "")
            text = f"ERR {login} {base64.b64decode(login.partition(' ')[2]).decode()}\n".encode()
            lines = (b"# service=git-upload-pack\n", None, text)
            body = b"".join(b"%04x%s" % (len(line) + 4, line) if line else b"0000" for line in lines)
            self.send_response(200 if login else 401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Repeating) as url, pytest.raises(InputError, match=r"Basic \*\*\*") as caught:
        Desk(tmp_path / "s", github=url.replace("://", "://me:s3cret@")).lock(git_source(demo))
    assert "s3cret" not in str(caught.value) and base64.b64encode(b"me:s3cret").decode() not in str(caught.value)


@pytest.mark.slow_unit
def test_leftovers_of_a_killed_git_have_no_effect(demo: Repo, tmp_path: Path, server: Served) -> None:
    """Its locks, and references that a power cut emptied: an earlier release wrote a file for each."""
    bare = demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github=server.url)
    desk.lock(git_source(demo))
    (cache,) = (tmp_path / "s/git").iterdir()
    for number, packed in enumerate((b"", b"", b"not a reference\n")):
        demo.commit({"more": b"%d" % number})
        git(bare, "fetch", "--quiet", "origin")
        for name in ("shallow.lock", "HEAD.lock", "packed-refs.lock", f"refs/envbuild/{demo.head}.lock"):
            (cache / name).parent.mkdir(exist_ok=True)
            (cache / name).touch()
        (cache / f"refs/envbuild/{demo.head}").touch()
        if packed:
            (cache / "packed-refs").write_bytes(packed)
        assert desk.content(desk.lock(git_source(demo)), "more") == b"%d" % number


@pytest.mark.slow_unit
def test_the_folder_of_git_on_another_disk(demo: Repo, tmp_path: Path, server: Served) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    with TemporaryDirectory(dir="/dev/shm") as memory:
        desk = Desk(tmp_path / "s", github=server.url)
        (desk.store.root / "git").symlink_to(memory)
        locked = desk.lock(git_source(demo))
        assert list(Path(memory).glob("*/objects/pack/*.pack"))
        shutil.rmtree(tmp_path / "served/demo/demo.git")
        desk.store.blob(locked.sha256).unlink()
        desk.obtain(locked)  # without a server


@pytest.mark.slow_unit
def test_password(demo: Repo, tmp_path: Path, server: Served) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    server.password = "me:s3cr/t"
    host = server.url.removeprefix("http://")
    Desk(tmp_path / "s", github=f"http://me:s3cr%2Ft@{host}").lock(git_source(demo, tag="v1"))
    for number, place in enumerate((f"http://me:wr0ng@{host}", server.url)):
        with pytest.raises(InputError, match="HTTP 401: it requires a password") as caught:
            Desk(tmp_path / f"t{number}", github=place).lock(git_source(demo))
        assert "wr0ng" not in str(caught.value)


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("CORP\\nina", "a\\tb\\\\c"),
        ("me", "é"),
        ("mé", "€uro"),
        ("-n", "p%20x"),
        ("token", ""),
        ("token", None),
        ("m", " a=b&c?# "),
    ],
)
def test_logins_of_any_signs(
    user: str, password: str | None, demo: Repo, tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell passes them to git, and they are sent in UTF-8."""
    monkeypatch.setenv("NETRC", "/dev/null")
    demo.bare(tmp_path / "served/demo/demo.git")
    server.password = f"{user}:{password or ''}"
    login = ":".join(quote(word, safe="") for word in (user, password) if word is not None)
    Desk(tmp_path / "s", github=server.url.replace("//", f"//{login}@")).lock(git_source(demo, tag="v1"))


@pytest.mark.slow_unit
def test_proxy(demo: Repo, tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's, whichever the environment names."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    demo.bare(tmp_path / "served/demo/demo.git")
    desk = Desk(tmp_path / "s", github="http://forge.invalid")
    desk.site = replace(desk.site, proxy=server.url)
    desk.lock(git_source(demo, tag="v1"))
    assert "POST http://forge.invalid/demo/demo.git/git-upload-pack" in server.asked


def test_the_host_of_an_address_of_this_machine_is_named_for_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """curl before 7.86 reads no networks in no_proxy."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    transport = Transport(Site(tmp_path, use_host=False).network())
    variables, _ = http_options(transport, "http://me:hush@127.0.0.2:81/demo.git")
    assert variables["no_proxy"].split(",")[0] == "127.0.0.2"


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
@pytest.mark.slow_unit
def test_certificates(demo: Repo, tmp_path: Path) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    key, certificate = certify(tmp_path)
    with serve_git(tmp_path / "served", key, certificate) as server:
        desk = Desk(tmp_path / "s", github=server.url)
        with pytest.raises(InputError, match="its certificate is not trusted"):
            desk.lock(git_source(demo))
        for number, trust in enumerate(({"ca_bundle": certificate}, {"insecure_hosts": ("127.0.0.1",)})):
            other = Desk(tmp_path / f"t{number}", github=server.url)
            other.site = replace(other.site, **trust)
            other.lock(git_source(demo, tag="v1"))


@pytest.mark.parametrize("place", ["ssh://me@host{root}", pytest.param("me@host:{root}", marks=pytest.mark.slow_unit)])
def test_ssh(demo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    demo.bare(tmp_path / "served/demo/demo.git")
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin/ssh"  # what a login on the other machine would run, here
    ssh.write_text('#!/bin/sh\nfor last; do :; done\necho "$*" >>"$0.log"\neval "$last"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    address = place.format(root=tmp_path / "served")
    found = Desk(tmp_path / "s", github=address).lock(git_source(demo, tag="v1"))
    assert found == Desk(tmp_path / "x", github=tmp_path / "work").lock(git_source(demo))
    assert "me@host" in (tmp_path / "bin/ssh.log").read_text()
    with pytest.raises(InputError, match="does not appear to be a git repository"):
        Desk(tmp_path / "t", github=address).lock(Git("x", "github:demo/none", demo.head))


@pytest.mark.slow_unit
@pytest.mark.parametrize("place", ["helper://host{root}", "helper::{root} ://x", "helper::{root}", "me@helper::{root}"])
def test_an_address_never_chooses_a_program(
    demo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """git starts git-remote-WORD for the addresses WORD://… and WORD::…."""
    (tmp_path / "bin").mkdir()
    helper = tmp_path / "bin/git-remote-helper"
    helper.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with pytest.raises(InputError, match="is not available"):
        Desk(tmp_path / "s", github=place.format(root=tmp_path / "served")).lock(git_source(demo, tag="v1"))
    assert not (tmp_path / "ran").exists()


def test_an_alias_of_a_repository_is_no_protocol(demo: Repo, tmp_path: Path) -> None:
    """A name in GIT_ALLOW_PROTOCOL permits a program git-remote-NAME, and an alias answers for one."""
    for name in ("none", "x", ""):
        git(demo.path, "config", f"alias.remote-{name}", f"!touch {tmp_path}/started")
        done = run_git(demo.path / ".git", "ls-remote", f"{name}::place")
        assert done.returncode and b"not allowed" in done.stderr
    assert not (tmp_path / "started").exists()


def test_repository_of_another_host(tmp_path: Path) -> None:
    def addresses(site: Site) -> list[str]:
        found = find_repositories(site, Transport(site.network()), Store(tmp_path), "git:git.example.org/a/b", print)
        return [address for place in found if isinstance(place, RemoteRepository) for address in place.addresses]

    assert addresses(Site(tmp_path, mirrors={"python:": ()})) == [
        "https://git.example.org/a/b.git",
        "https://git.example.org/a/b",
    ]
    assert addresses(Site(tmp_path, mirrors={"python:": ()}, use_host=False)) == []
    mirrored = Site(tmp_path, mirrors={"python:": (), "git:git.example.org/": ("https://mirror.example.org/x/",)})
    assert addresses(mirrored) == ["https://mirror.example.org/x/a/b.git", "https://mirror.example.org/x/a/b"]


def test_a_server_that_does_not_run(demo: Repo, tmp_path: Path) -> None:
    with serve_git(tmp_path) as server:
        url = server.url
    desk = Desk(tmp_path / "s").map("github:", tmp_path / "none", tmp_path, url)
    with pytest.raises(InputError) as caught:
        desk.lock(git_source(demo))
    assert caught.value.message == (
        f"the source {ORIGIN}@{demo.head} (demo-{demo.head[:12]}.tar) is not available; tried:\n"
        f"  {tmp_path}/none: no such folder\n"
        f"  {tmp_path}: contains no git repository demo/demo.git, demo/demo, demo.git, demo\n"
        f"  {url}/demo/demo: connection refused"
    )
    assert caught.value.hint == (
        f'write into site.yaml:  mirrors: {{"{ORIGIN}": [FOLDER-OR-ADDRESS]}}  and put a clone of that repository there'
    )
