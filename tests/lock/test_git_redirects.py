"""Repositories that a server redirects: git goes where envbuild's own request ended, with the login that it had."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from tests.support.git_server import Repo, Served, certify, serve_git
from tests.support.git_site import MARKS, Desk, git_source
from tests.support.git_site import demo as demo  # a fixture
from tests.support.git_site import server as server  # a fixture
from tests.support.netrc_file import LOGIN, write_netrc

pytestmark = [*MARKS, pytest.mark.slow_unit]
USER = ":".join(LOGIN)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Served]:
    """Yield a second server of the same repositories, which requires the login of ~/.netrc."""
    with serve_git(tmp_path / "served") as served:
        served.url, served.password = served.url.replace("127.0.0.1", "localhost"), USER
        yield served


def test_a_redirect_over_http_gets_no_login_of_netrc(
    demo: Repo, tmp_path: Path, server: Served, other: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither from envbuild nor from git, whichever of the two the server redirects."""
    write_netrc(tmp_path / "home", monkeypatch)
    demo.bare(tmp_path / "served/demo/demo.git")
    for number, redirected in enumerate(("envbuild", "git/", "")):

        def redirect(path: str, agent: str, redirected: str = redirected) -> str:
            own = "envbuild" in agent
            return other.url + path if not redirected or own is (redirected == "envbuild") else ""

        server.redirect = redirect
        with pytest.raises(InputError, match="is not available"):
            Desk(tmp_path / f"s{number}", github=server.url).lock(git_source(demo, tag="v1"))
    assert set(other.logins) == {""}


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_the_certificate_of_another_host_is_checked(
    demo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host without a check of its certificate can redirect git alone."""
    write_netrc(tmp_path / "home", monkeypatch)
    demo.bare(tmp_path / "served/demo/demo.git")
    key, certificate = certify(tmp_path)
    with (
        serve_git(tmp_path / "served", key, certificate) as unchecked,
        serve_git(tmp_path / "served", key, certificate) as checked,
    ):
        place = checked.url.replace("127.0.0.1", "localhost")
        for number, word in enumerate(("git/", "envbuild")):
            unchecked.redirect = lambda path, agent, word=word: (  # type: ignore[misc]
                place + path if agent.startswith("git/") and ("envbuild" in agent) is (word == "envbuild") else ""
            )
            desk = Desk(tmp_path / f"s{number}", github=unchecked.url)
            desk.site = replace(desk.site, insecure_hosts=("127.0.0.1",))
            with pytest.raises(InputError, match="is not available"):
                desk.lock(git_source(demo, tag="v1"))
    assert checked.asked == []


def test_a_repository_that_moved_is_found(demo: Repo, tmp_path: Path, server: Served) -> None:
    """On its own host with the login of the address, and on another one without."""
    demo.bare(tmp_path / "served/demo/demo.git")
    server.password = "me:s3cr/t"
    server.redirect = lambda path, _: path.replace("/old/", "/") if path.startswith("/old/") else ""
    place = server.url.replace("://", "://me:s3cr%2Ft@")
    found = Desk(tmp_path / "s", github=f"{place}/old").lock(git_source(demo, tag="v1"))
    with serve_git(tmp_path / "served") as elsewhere:
        server.redirect = lambda path, _: elsewhere.url.replace("127.0.0.1", "localhost") + path
        assert Desk(tmp_path / "t", github=place).lock(git_source(demo)) == found
    assert elsewhere.asked and set(elsewhere.logins) == {""}


def test_a_redirect_to_a_web_page_is_not_followed(demo: Repo, tmp_path: Path, server: Served) -> None:
    """Forges redirect programs other than git to a page for their login."""
    demo.bare(tmp_path / "served/demo/demo.git")
    server.redirect = lambda path, agent: (
        "/demo/demo.git/HEAD?signin" if "info/refs" in path and "envbuild" in agent else ""
    )
    Desk(tmp_path / "s", github=server.url).lock(git_source(demo, tag="v1"))


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_git_gets_the_login_of_netrc_over_https(demo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_netrc(tmp_path / "home", monkeypatch, "127.0.0.1")
    demo.bare(tmp_path / "served/demo/demo.git")
    key, certificate = certify(tmp_path)
    with serve_git(tmp_path / "served", key, certificate) as served:
        served.password = USER
        desk = Desk(tmp_path / "s", github=served.url)
        desk.site = replace(desk.site, ca_bundle=certificate)
        desk.lock(git_source(demo, tag="v1"))
    assert "Basic " + base64.b64encode(USER.encode()).decode() in served.logins
