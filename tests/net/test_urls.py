"""Addresses in messages: without logins, even those that are written wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site_file import read_site
from envbuild.net.urls import (
    has_one_host,
    has_raw_login,
    may_have_login,
    redact,
    redact_reference,
    redact_text,
    redact_written,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("url", "one"),
    [
        ("https://user:p%40s@host.example:443/a@b\\c", True),
        ("http://[::1]:80/", True),
        ("https://HOST.example", True),
        ("https://b\u00fccher.example/simple", True),
        ("http://evil.example:80\\@host.example/file", False),
        ("http://evil.example\t@host.example/", False),
        ("http://evil.example\uff3c@host.example/", False),
        ("http://evil.example `@host.example/", False),
        ("http://h%6fst.example/", False),
        ("http://host.example:99999/", False),
        ("http://[bad/", False),
    ],
)
def test_an_address_of_a_server_has_one_host(url: str, one: bool) -> None:
    assert has_one_host(url) == one


@pytest.mark.parametrize(
    ("place", "printed"),
    [
        ("https://user:hush@host.example/simple", "https://host.example/simple"),
        ("https://user:hush@host.example:8443/a@b?token=hush#hush", "https://host.example:8443/a@b"),
        ("https://user@host.example", "https://host.example"),
        ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
        ("https://host.example:443/github@v1", "https://host.example:443/github@v1"),
        ("https://host.example/a@b", "https://host.example/a@b"),
        ("https://user:[hush@host.example/a", "https://host.example/a"),
        # not written as %2F, %3F, %23
        ("https://user:hu/sh@host.example/a", "https://host.example/a"),
        ("https://user:hu?sh@host.example/a", "https://host.example/a"),
        ("https://user:hu#sh@host.example/a", "https://host.example/a"),
        ("/a folder/with@sign", "/a folder/with@sign"),
        ("a:b/with@sign", "a:b/with@sign"),
        ("user:hush@host.example/simple", "host.example/simple"),  # as PIP_INDEX_URL
    ],
)
def test_the_address_in_a_message_has_no_login(place: str, printed: str) -> None:
    assert redact(place) == printed
    assert has_raw_login(place) == (place.startswith("https://user:hu") and place[15] in "/?#")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("user:hush@host.example/a/b:1", "host.example/a/b:1"),
        ("user:hu@sh@host.example/a", "host.example/a"),
        ("docker://user:hush@host.example/a:1", "docker://host.example/a:1"),
        ("host.example:5000/a:1", "host.example:5000/a:1"),
        (f"user:hush@host.example/a@sha256:{'0' * 64}", f"host.example/a@sha256:{'0' * 64}"),
    ],
)
def test_the_name_of_an_image_in_a_message_has_no_login(text: str, printed: str) -> None:
    assert redact_reference(text) == printed
    if "hu" in text:
        with pytest.raises(SpecError) as caught:
            parse_reference(text)
        assert f"'{printed}' is not the reference" in caught.value.message


@pytest.mark.parametrize(
    ("place", "hidden"),
    [
        ("https://user:12/hush@host.example/a", True),
        ("https://user:12?hush@host.example/a", True),
        ("https://user:hu/sh@host.example/a", True),
        ("https://host.example/a@b", False),
        ("https://user:hush@host.example:8443/a@b", False),
        ("http://[::1]:80/a@b", False),
    ],
)
def test_a_login_that_reads_as_a_port_is_hidden_in_what_a_user_wrote(place: str, hidden: bool) -> None:
    assert may_have_login(place) == hidden
    assert redact_written(place) == ("https://host.example/a" if hidden else redact(place))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("failed: `https://u:hush@h.example/x?token=hush`: 404", "failed: `https://h.example/x`: 404"),
        ("(http://h/a?b=hush#c), ftp://u:hush@h/", "(http://h/a), ftp://h/"),
        ("plain? a//b c@d", "plain? a//b c@d"),
        ("a://b://c?hush a://b", "a://b://c a://b"),
    ],
)
def test_addresses_in_a_text_of_a_program_have_no_login_and_no_query(text: str, printed: str) -> None:
    assert redact_text(text) == printed


@pytest.mark.parametrize(
    "line",
    [
        "mirrors: {python: ['https://user:hush/1@host.example/simple']}",
        "mirrors: {python: ['ftp://user:hush@host.example/simple']}",
        "mirrors: {debian: ['https://user:hush#1@host.example/debian']}",
        "mirrors: {python: ['https://user:12/hush@host.example/simple']}",
        "proxy: 'http://user:12/hush@host.example:3128'",
        "proxy: 'ftp://user:hush@host.example'",
        "proxy: 'http://user:hush/1@host.example:3128'",
        "apt: {'Acquire::http::Proxy': 'ftp://user:hush@host.example'}",
        "apt: {'Acquire::http::Proxy::a.example': 'http://user:hush word@host.example'}",
        "apt: {'Acquire::https::Proxy': 'http://user:hush/1@host.example'}",
        "mirrors: {python: ['//user:hush@host.example/p']}",
        "mirrors: {'oci:': ['//user:hush@host.example/p']}",
        "mirrors: {python: ['https//user:hush@host.example/p']}",
        "mirrors: {'oci:': ['https://user:hush@[host.example/x']}",
        "ca_bundle: 'https://user:hu/hush@host.example'",
        # without a scheme
        "proxy: 'user:hush@host.example:3128'",
        "proxy: 'user:hu@hush/1@host.example:3128'",
        "apt: {'Acquire::http::Proxy': 'user:hush@host.example:9'}",
        "mirrors: {debian: ['user:hush@host.example/debian']}",
        "insecure_hosts: ['user:hush@host.example']",
        # an address in the place of a file
        "ca_bundle: 'https://user:hush@host.example/x'",
        "keyrings: {debian: 'http://user:hush@host.example/'}",
        "debian_keyring: 'https://user@hush:hush@host.example/x'",
    ],
)
def test_a_mistake_in_an_address_is_reported_without_its_login(line: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(f"schema: 1\n{line}\n")
    with pytest.raises(SpecError) as caught:
        read_site(tmp_path / "site.yaml")
    (finding,) = caught.value.findings
    assert finding.where.startswith(f"{tmp_path}/site.yaml:2:") and "host.example" in finding.message
    assert "hush" not in f"{finding}"
