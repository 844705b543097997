"""Numbers, addresses, tokens and JSON in answers that no server should send: each ends with an error of the place."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from envbuild.net.failures import RefusedError, UnreachableError
from envbuild.net.header_number import header_number
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.registry.auth import Login
from envbuild.net.registry.client import RegistryAddress, RegistryTransport
from envbuild.net.registry.push import Push, UploadStateError
from envbuild.net.registry.upload import send
from envbuild.net.transport import Transport
from tests.support.http_server import Handler, serving

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


@pytest.mark.parametrize("length", WRONG_NUMBERS[:2])
def test_a_malformed_length(length: str) -> None:
    with serving(answering(200, {"Content-Length": length})) as url, suppress(UnreachableError):
        assert Transport(NetworkSettings()).read(url).content == b"{}"


@pytest.mark.parametrize("address", WRONG_ADDRESSES)
def test_a_redirect_to_a_malformed_address(address: str) -> None:
    with serving(answering(302, {"Location": address})) as url, pytest.raises(UnreachableError):
        Transport(NetworkSettings()).read(url)


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
