"""Answers of registries to uploads: addresses, sizes and errors that are not as the specification has them."""

from __future__ import annotations

import json

import pytest

from envbuild.net.failures import RefusedError, UnreachableError
from envbuild.net.registry.upload import RegistryAnswer, persist, read_errors, requested_pause
from envbuild.net.transport import DEFAULT_DELAY, retry_delay

pytestmark = pytest.mark.unit


def answer(url: str = "https://registry.example/v2/a/blobs/uploads/", **headers: str) -> RegistryAnswer:
    return RegistryAnswer(202, url, {name.replace("_", "-"): value for name, value in headers.items()}, b"")


def test_an_address_may_be_relative_and_have_parameters() -> None:
    assert answer(Location="/v2/a/blobs/uploads/1?state=x").location == (
        "https://registry.example/v2/a/blobs/uploads/1?state=x"
    )
    assert answer(Location="https://storage.example/1").location == "https://storage.example/1"


@pytest.mark.parametrize("location", ["http://registry.example/1", "http://[bad", "gopher://x/1", "file:///etc/passwd"])
def test_an_address_that_leads_elsewhere_is_refused(location: str) -> None:
    with pytest.raises(RefusedError):
        _ = answer(Location=location).location


@pytest.mark.parametrize(
    ("value", "size"), [("5242880", 5242880), ("", 0), ("-1", 0), ("x", 0), ("9" * 30, 0), ("²", 0), ("9" * 5000, 0)]
)
def test_the_smallest_chunk(value: str, size: int) -> None:
    assert answer(OCI_Chunk_Min_Length=value).smallest_chunk == size


def test_errors_of_registries_and_of_proxies() -> None:
    assert read_errors(b'{"errors": [{"code": "DENIED", "message": "no"}]}') == (("DENIED",), "DENIED no")
    for content in (b"", b"<html>", b"[]", b'{"errors": 5}', b'{"errors": [5]}', b"[" * 200_000):
        assert read_errors(content) == ((), "")


def test_an_error_of_a_registry_is_one_line() -> None:
    content = json.dumps({"errors": [{"code": "X\nhint: y", "message": "a\r\nb"}]}).encode()
    assert read_errors(content)[1] == "X\\nhint: y a\\r\\nb"


def test_pauses_that_servers_request_have_a_limit() -> None:
    assert [requested_pause(text) for text in ("7", "100000", "", "soon", "-1", "²")] == [7, 300, 0, 0, 0, 0]
    assert [retry_delay(text) for text in ("7", "²", "9" * 5000)] == [7, DEFAULT_DELAY, DEFAULT_DELAY]


def test_what_does_not_change_is_not_repeated() -> None:
    calls = []

    def refused() -> None:
        calls.append(1)
        raise RefusedError("no")

    def busy() -> None:
        calls.append(1)
        raise UnreachableError("HTTP 503")

    with pytest.raises(RefusedError):
        persist(refused, 0)
    assert len(calls) == 1
    with pytest.raises(UnreachableError):
        persist(busy, 0)
    assert len(calls) == 6
