"""Logins of ~/.netrc: the addresses that get one, and those that a server or the network could choose."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from envbuild.net.failures import RefusedError
from envbuild.net.netrc_login import has_netrc_login, netrc_login
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.transport import Transport
from tests.support.http_server import Handler, serving
from tests.support.netrc_file import LOGIN, write_netrc
from tests.support.tls import make_certificates
from tests.support.tools import require_tools

pytestmark = pytest.mark.unit
HEADER = "Basic " + base64.b64encode(":".join(LOGIN).encode()).decode()


@contextmanager
def server(tls: object = None, location: str = "", status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server on localhost, which redirects to `location`, and the logins that it got."""
    logins: list[str] = []

    class Answering(Handler):
        def do_GET(self) -> None:
            logins.append(self.headers.get("Authorization", ""))
            self.send_response(302 if location else status)
            for name, value in (("Content-Length", "0"), *([("Location", location)] if location else [])):
                self.send_header(name, value)
            self.end_headers()

    with serving(Answering, tls) as url:  # type: ignore[arg-type]
        yield url.replace("127.0.0.1", "localhost"), logins


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("https://forge.example/x", LOGIN),
        ("https://forge.example:8443/x", LOGIN),
        ("http://forge.example/x", None),
        ("http://forge.example:443/x", None),
        ("http://localhost:8000/x", LOGIN),
        ("https://other.example/x", None),
    ],
)
def test_a_login_of_netrc_is_sent_over_https_or_to_this_machine(
    url: str, login: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_netrc(tmp_path, monkeypatch, "forge.example", "localhost")
    assert netrc_login(url) == login
    assert has_netrc_login(url) is ("other" not in url)


@pytest.mark.parametrize("secure", [False, True])
def test_a_redirect_to_another_host_gets_no_login_of_netrc(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over http any machine on the way could read the login of any host of the file; over https a server could name a
    private file of the user, and what it is for would be locked under another name."""
    require_tools("openssl")
    write_netrc(tmp_path / "home", monkeypatch)
    authority, tls = make_certificates(tmp_path / "tls")
    transport = Transport(NetworkSettings(certificates=str(authority)))
    with (
        server(tls if secure else None, status=401) as (there, logins),
        server(location=f"{there}/f") as (mirror, first),
    ):
        with pytest.raises(RefusedError, match="is not sent where an address redirects to"):
            transport.read(mirror.replace("localhost", "127.0.0.1") + "/f")
        assert (first, logins) == ([""], [""])
        with pytest.raises(RefusedError, match=r"HTTP 401$"):
            transport.read(there)  # the site itself names this host
    assert logins[1:] == [HEADER]


@pytest.mark.parametrize(
    ("first", "last", "header"),
    [
        ("http://forge.example/x", "https://forge.example/x", HEADER),
        ("http://forge.example/x", "https://forge.example:8443/x", None),
        ("http://other.example/x", "https://forge.example/x", None),
        ("http://forge.example/x", "http://forge.example/y", None),
    ],
)
def test_a_redirect_to_https_on_the_same_host_gets_the_login(
    first: str, last: str, header: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_netrc(tmp_path, monkeypatch, "forge.example")
    request, answer = requests.Request("GET", last).prepare(), requests.Response()
    answer.request = requests.Request("GET", first).prepare()
    for history, expected in (([], header), ([answer], None)):
        request.headers.pop("Authorization", None)
        answer.history = history  # of a later redirect, the host may be chosen by the one before
        Transport(NetworkSettings()).session().rebuild_auth(request, answer)
        assert request.headers.get("Authorization") == expected


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("me:p%2Fw@", "me:p/w"),
        ("m%C3%A9:%E2%82%AC@", "mé:€"),
        ("alice:@", "alice:"),
        ("alice@", ":".join(LOGIN)),  # whose password the file has
        ("token@", "token:"),
        (":@", ":".join(LOGIN)),
    ],
)
def test_the_login_of_an_address_is_used_instead_of_that_of_netrc(
    written: str, sent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_netrc(tmp_path, monkeypatch)
    with server() as (url, logins):
        Transport(NetworkSettings()).read(url.replace("://", f"://{written}"))
    assert logins == ["Basic " + base64.b64encode(sent.encode()).decode()]


def test_a_login_in_the_address_of_a_redirect_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", "/dev/null")
    with server() as (there, logins), server(location=there.replace("://", "://x:y@")) as (mirror, _):
        Transport(NetworkSettings()).read(mirror)
    assert logins == [""]


def test_a_refusal_states_that_a_login_was_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_netrc(tmp_path, monkeypatch, "mirror.invalid")
    with (
        server(status=401) as (proxy, logins),
        pytest.raises(RefusedError, match=r"of ~/.netrc for it is not sent without https"),
    ):
        Transport(NetworkSettings(proxy)).read("http://mirror.invalid/file")
    assert logins == [""]
