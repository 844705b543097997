"""Numbers, addresses, tokens and JSON in answers that no server should send: each ends with an error of the place."""

from __future__ import annotations

import json
import socket
import ssl
from contextlib import suppress

import pytest
from urllib3.exceptions import MaxRetryError, ProxyError, SSLError

from envbuild.net.failures import RefusedError, UnreachableError, describe_error
from envbuild.net.header_number import header_number
from envbuild.net.limits import DownloadLimits
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.registry.auth import Login
from envbuild.net.registry.client import RegistryAddress, RegistryTransport
from envbuild.net.registry.push import Push, UploadStateError
from envbuild.net.registry.referrers import _call
from envbuild.net.registry.upload import send
from envbuild.net.transport import Transport
from tests.support.endless_server import sending
from tests.support.http_server import Handler, serving
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit

WRONG_NUMBERS = ("\xb2", "9" * 5000, "-1", "+1", "1_0", " 1", "")
WRONG_ADDRESSES = ("http://[bad/", "//\0@[::1", "http://a..b/", f"http://{'a' * 70}.x/")


def answering(status: int, headers: dict[str, str], body: bytes = b"{}") -> type[Handler]:
    class Answering(Handler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)
            self.close_connection = True

    return Answering


def test_numbers_of_headers() -> None:
    assert [header_number(text) for text in WRONG_NUMBERS] == [None] * len(WRONG_NUMBERS)
    assert [header_number(text) for text in ("0", "007", "9" * 18)] == [0, 7, 10**18 - 1]


@pytest.mark.parametrize("length", [*WRONG_NUMBERS[:5], "", "2, 2", "2\r\nContent-Length: 3"])
def test_a_malformed_length_is_refused_at_once(length: str) -> None:
    """The server has sent all and does not close the connection."""
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{{}}".encode("latin-1")
    with sending(b"", 60, answer) as url, ends_within(30), pytest.raises(RefusedError, match="Content-Length"):
        Transport(NetworkSettings()).read(url)


def test_a_length_of_chunks_means_nothing() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    with sending(b"", 60, answer) as url, ends_within(30):
        assert Transport(NetworkSettings()).read(url).content == b"{}"


@pytest.mark.parametrize("address", WRONG_ADDRESSES)
def test_a_redirect_to_a_malformed_address(address: str) -> None:
    with serving(answering(302, {"Location": address})) as url, pytest.raises(UnreachableError):
        Transport(NetworkSettings()).read(url)


@pytest.mark.parametrize("host", ["[2001:db8::1]", "255.255.255.255", f"{'a' * 70}.x", "127.0.0.1:9"])
def test_an_error_does_not_repeat_the_address_of_a_redirect(host: str) -> None:
    """It may have a signature that opens a file to everybody who reads the log."""
    limits = DownloadLimits(connect=1)
    with serving(answering(302, {"Location": f"http://{host}/SIGNED/b?X-Signature=SIGNED&more=SIGNED#SIGNED"})) as url:
        with pytest.raises(UnreachableError) as caught:
            Transport(NetworkSettings(), limits=limits).read(url)
        assert "SIGNED" not in str(caught.value)
        with pytest.raises(UnreachableError) as caught:
            send(RegistryTransport(NetworkSettings(), limits=limits), "GET", url)
        assert "SIGNED" not in str(caught.value)


def tls_error(reason: str, number: int) -> MaxRetryError:
    """Return a failure of TLS as requests has it: the number is one of OpenSSL's."""
    error = ssl.SSLError(number, f"[SSL: {reason}] /SIGNED")
    error.reason = reason
    return MaxRetryError(None, "/b?SIGNED", SSLError(error))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MaxRetryError(None, "/b?SIGNED", OSError(113, "x")), "No route to host"),  # type: ignore[arg-type]
        (OSError(5, "x", "/b?SIGNED"), "Input/output error"),
        (tls_error("SSLV3_ALERT_HANDSHAKE_FAILURE", 1), "TLS failed: sslv3 alert handshake failure"),
        (MaxRetryError(None, "/b?SIGNED", ssl.SSLEOFError(8, "/SIGNED")), "the connection broke off"),  # type: ignore[arg-type]
        (socket.gaierror(-5, "No address associated with hostname"), "its name cannot be resolved"),
        (MaxRetryError(None, "/SIGNED", Exception("odd /SIGNED?a")), "odd"),  # type: ignore[arg-type]
        (ProxyError("http://u:SIGNED@x failed", Exception("http://u:SIGNED@x")), "ProxyError"),
        (Exception(), "Exception"),
    ],
)
def test_the_reason_of_an_error_has_no_address(error: Exception, text: str) -> None:
    assert describe_error(error) == text


@pytest.mark.parametrize("address", WRONG_ADDRESSES[2:])
def test_an_upload_to_a_malformed_address(address: str) -> None:
    with pytest.raises(UnreachableError):
        send(RegistryTransport(NetworkSettings()), "GET", address)


@pytest.mark.parametrize("range_", ["0-\xb2", f"0-{'9' * 5000}"])
def test_a_malformed_position_of_an_upload_is_none(range_: str) -> None:
    with serving(answering(204, {"Range": range_}, b"")) as url, suppress(UploadStateError):
        transport = RegistryTransport(NetworkSettings())
        Push(RegistryAddress(url, "a"), transport)._check_position(f"{url}/upload", 5)


@pytest.mark.parametrize("realm", WRONG_ADDRESSES[:1] + WRONG_ADDRESSES[2:])
def test_a_malformed_address_of_a_token_service(realm: str) -> None:
    login = Login(Transport(NetworkSettings()), "x.io")
    with pytest.raises(UnreachableError):
        login.token("x.io", None, {"realm": realm}, "https://x.io/v2/y/manifests/1")


@pytest.mark.parametrize("address", ["http://[::1/x", "http://[x]/y"])
def test_a_list_of_artifacts_that_goes_on_at_a_malformed_address(address: str) -> None:
    link = {"Link": f'<{address}>; rel="next"'}
    with serving(answering(200, link, b'{"manifests": []}')) as url, pytest.raises(RefusedError, match="malformed"):
        _call(RegistryAddress(url, "a"), RegistryTransport(NetworkSettings()), f"sha256:{'0' * 64}", "x")


@pytest.mark.parametrize("token", ["a\r\nX-Other: 1", "\u20ac", "\ud800"])
def test_a_token_that_no_header_can_have(token: str) -> None:
    login = Login(Transport(NetworkSettings()), "x.io")
    body = json.dumps({"token": token}).encode()
    with serving(answering(200, {}, body)) as url, pytest.raises(RefusedError, match="not printable ASCII"):
        login.token("127.0.0.1", None, {"realm": url}, f"{url}/v2/y/manifests/1")


def test_a_token_service_with_deep_json() -> None:
    login = Login(Transport(NetworkSettings()), "x.io")
    with serving(answering(200, {}, b"[" * 200_000)) as url, pytest.raises(UnreachableError, match="without a token"):
        login.token("127.0.0.1", None, {"realm": url}, f"{url}/v2/y/manifests/1")
