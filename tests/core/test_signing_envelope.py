"""Envelopes of DSSE and bundles of Sigstore, compared with securesystemslib and with the fields of their formats."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope as OtherEnvelope
from securesystemslib.signer import SSlibKey

from envbuild.core.signing.envelope import (
    BUNDLE,
    encode_bundle,
    parse_bundle,
    parse_envelope,
    pre_authentication_encoding,
    sign_payload,
)
from envbuild.core.signing.key_file import Signer
from envbuild.core.signing.public_keys import TrustedKey, read_public_key
from envbuild.core.signing.statement import PAYLOAD, Subject, encode_statement, parse_statement
from tests.support.signing import new_key

pytestmark = pytest.mark.unit
STATEMENT = encode_statement([Subject("app", "a" * 64)], "https://sigstore.dev/cosign/sign/v1", {})


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Signer, TrustedKey, Path]:
    signer, public = new_key(tmp_path_factory.mktemp("keys") / "a.key")
    return signer, read_public_key(public), public


@given(st.binary(max_size=200), st.text(max_size=30))
def test_what_is_signed_is_that_of_securesystemslib(payload: bytes, kind: str) -> None:
    assert pre_authentication_encoding(kind, payload) == OtherEnvelope(payload, kind, {}).pae()


def test_securesystemslib_verifies_an_envelope(keys: tuple[Signer, TrustedKey, Path]) -> None:
    signer, _, public = keys
    value = sign_payload(STATEMENT, signer)
    other = OtherEnvelope.from_dict(json.loads(json.dumps(value)))
    key = SSlibKey(signer.hint, "ecdsa", "ecdsa-sha2-nistp256", {"public": public.read_text()})
    assert list(other.verify([key], 1)) == [signer.hint]
    value["payload"] = base64.b64encode(STATEMENT + b" ").decode()
    with pytest.raises(Exception, match="signatures"):
        OtherEnvelope.from_dict(value).verify([key], 1)


def test_a_bundle_has_the_fields_of_its_format(keys: tuple[Signer, TrustedKey, Path]) -> None:
    """sigstore_bundle.proto: one key with its hint, one envelope with one signature of the same hint."""
    signer, trusted, _ = keys
    value = json.loads(encode_bundle(STATEMENT, signer))
    assert value["mediaType"] == BUNDLE and set(value) == {"mediaType", "verificationMaterial", "dsseEnvelope"}
    assert value["verificationMaterial"] == {"publicKey": {"hint": signer.hint}}
    envelope = value["dsseEnvelope"]
    assert set(envelope) == {"payload", "payloadType", "signatures"} and envelope["payloadType"] == PAYLOAD
    (signature,) = envelope["signatures"]
    assert set(signature) == {"sig", "keyid"} and signature["keyid"] == signer.hint
    assert base64.b64decode(signature["sig"])[0] == 0x30  # ASN.1, not r and s alone
    assert len(base64.b64decode(signer.hint)) == 32
    found = parse_bundle(encode_bundle(STATEMENT, signer))
    assert found.signed_by([trusted]) is trusted and found.payload == STATEMENT
    assert encode_bundle(STATEMENT, signer) == encode_bundle(STATEMENT, signer)


def test_a_changed_payload_type_or_signature_does_not_count(keys: tuple[Signer, TrustedKey, Path]) -> None:
    signer, trusted, _ = keys
    good = sign_payload(STATEMENT, signer)
    signature = base64.b64decode(good["signatures"][0]["sig"])
    for change in (
        {"payload": base64.b64encode(STATEMENT[:-1]).decode()},
        {"payloadType": PAYLOAD + "x"},
        {"signatures": [{"sig": base64.b64encode(signature[:-1] + bytes([signature[-1] ^ 1])).decode()}]},
        {"signatures": [{"sig": "", "keyid": signer.hint}]},
    ):
        assert parse_envelope({**good, **change}).signed_by([trusted]) is None
    assert parse_envelope(good).signed_by([]) is None


def test_base64_of_an_envelope_may_be_url_safe(keys: tuple[Signer, TrustedKey, Path]) -> None:
    signer, trusted, _ = keys
    text = json.dumps(sign_payload(STATEMENT, signer)).replace("+", "-")
    value: dict[str, Any] = json.loads(text)
    value["payloadType"] = PAYLOAD
    value["signatures"][0]["sig"] = value["signatures"][0]["sig"].replace("/", "_")
    assert parse_envelope(value).signed_by([trusted]) is trusted


ENVELOPE = {"payload": "e30=", "payloadType": PAYLOAD, "signatures": [{"sig": "AA=="}]}


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"mediaType": BUNDLE},
        {"mediaType": BUNDLE, "messageSignature": {}},
        {"mediaType": "application/json", "dsseEnvelope": ENVELOPE},
        {"mediaType": BUNDLE, "dsseEnvelope": []},
        {"mediaType": BUNDLE, "dsseEnvelope": {**ENVELOPE, "signatures": []}},
        {"mediaType": BUNDLE, "dsseEnvelope": {**ENVELOPE, "signatures": ENVELOPE["signatures"] * 2}},  # type: ignore[operator]
        {"mediaType": BUNDLE, "dsseEnvelope": {**ENVELOPE, "payload": "???"}},
        {"mediaType": BUNDLE, "dsseEnvelope": {**ENVELOPE, "payload": 1}},
        {"mediaType": BUNDLE, "dsseEnvelope": {**ENVELOPE, "payloadType": 1}},
        {"mediaType": BUNDLE, "dsseEnvelope": {**ENVELOPE, "payloadType": "\ud800"}},
    ],
)
def test_a_malformed_bundle_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"not|without"):
        parse_bundle(json.dumps(value).encode())


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{", b"\xff", b'{"_type":"x"}', b'{"_type":[]}'])
def test_a_malformed_statement_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse_statement(content)
