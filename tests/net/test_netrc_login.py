"""Logins of ~/.netrc: the addresses that get one, and those that a server or the network could choose."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from envbuild.net.failures import RefusedError
from envbuild.net.netrc_login import is_withheld, netrc_login
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
    assert is_withheld(url) is url.startswith("http://forge")


def test_a_redirect_over_http_gets_no_login_of_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any machine on the way to a mirror over http can redirect to any host of the file, without https."""
    write_netrc(tmp_path, monkeypatch)
    with server() as (there, logins), server(location=f"{there}/file") as (mirror, first):
        Transport(NetworkSettings()).read(mirror.replace("localhost", "127.0.0.1") + "/file")
    assert (first, logins) == ([""], [""])


def test_a_redirect_over_https_gets_a_login_only_if_the_certificate_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_tools("openssl")
    write_netrc(tmp_path / "home", monkeypatch)
    authority, tls = make_certificates(tmp_path / "tls")
    checked = NetworkSettings(certificates=str(authority))
    unchecked = NetworkSettings(insecure=frozenset({"localhost"}))
    with server(tls) as (there, logins), server(location=f"{there}/file") as (mirror, _):
        for settings in (checked, unchecked):
            Transport(settings).read(mirror.replace("localhost", "127.0.0.1") + "/file")
        Transport(unchecked).read(there)  # the site itself names this host
    assert logins == [HEADER, "", HEADER]


def test_the_login_of_an_address_is_used_instead_of_that_of_netrc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_netrc(tmp_path, monkeypatch)
    with server() as (url, logins):
        Transport(NetworkSettings()).read(url.replace("://", "://me:p%2Fw@"))
    assert logins == ["Basic " + base64.b64encode(b"me:p/w").decode()]


def test_a_refusal_states_that_a_login_was_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_netrc(tmp_path, monkeypatch, "mirror.invalid")
    with (
        server(status=401) as (proxy, logins),
        pytest.raises(RefusedError, match=r"HTTP 401 \(the login of ~/.netrc is not sent"),
    ):
        Transport(NetworkSettings(proxy)).read("http://mirror.invalid/file")
    assert logins == [""]
