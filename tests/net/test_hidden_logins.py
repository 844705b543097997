"""Logins in texts that a server wrote."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from envbuild.net.hidden_logins import header_words, hide_logins
from envbuild.net.registry.upload import read_errors
from tests.support.netrc_file import LOGIN, write_netrc

pytestmark = pytest.mark.unit
PLACE = "https://us%40r:p%2Fw%3Along@mirror.example/debian"
HEADER = base64.b64encode(b"us@r:p/w:long").decode()


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("502 us@r:p/w:long", "502 ***"),
        ("502 us%40r:p%2Fw%3Along", "502 ***"),
        (f"Authorization: Basic {HEADER} User-Agent: x", "Authorization: Basic *** User-Agent: x"),
        ("it was p/w:long", "it was ***"),
        ("us@r may not read mirror.example", "us@r may not read mirror.example"),
    ],
)
def test_no_form_of_a_login_remains(text: str, hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", "/dev/null")
    assert hide_logins(text, [PLACE, "/srv/debian", ""]) == hidden


def test_logins_of_proxies_and_of_netrc_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_netrc(tmp_path, monkeypatch, "any.example")
    monkeypatch.setenv("https_proxy", "http://me:proxy-password@proxy.example:3128")
    assert hide_logins(f"{LOGIN[1]} proxy-password", ()) == "*** ***"


def test_a_token_is_hidden_where_it_is_the_name_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", "/dev/null")
    token = "ghp_0123456789abcdef0123"
    for login in (token, f"{token}:x-oauth-basic"):
        assert hide_logins(f"bad {token}", [f"https://{login}@forge.example/"]) == "bad ***"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("bad password 'b': a:b of a", "bad password '***': *** of a"),
        ("an error of abba and ab", "an error of abba and ab"),
        ("b", "***"),
        ("502 b/c", "502 ***/c"),
    ],
)
def test_short_logins_are_hidden_where_they_are_whole_words(
    text: str, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are parts of other words."""
    monkeypatch.setenv("NETRC", "/dev/null")
    assert hide_logins(text, ["https://a:b@mirror.example/"]) == hidden


@pytest.mark.parametrize(
    "proxy", ["http://[bad", "http://me:proxy-password@[bad", "http://me:proxy-password@x:y/", "me:proxy-password@x"]
)
def test_a_malformed_proxy_hides_no_error(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", "/dev/null")
    monkeypatch.setenv("http_proxy", proxy)
    assert hide_logins("proxy-password failed", ()) == ("*** failed" if "@" in proxy else "proxy-password failed")


def test_errors_of_a_registry_have_no_login() -> None:
    content = b'{"errors": [{"code": "DENIED", "message": "Basic %s us@r:p/w:long"}]}' % HEADER.encode()
    assert read_errors(content, header_words(f"Basic {HEADER}"))[1] == "DENIED Basic *** ***"
    assert read_errors(b'{"errors": [{"message": "bad token abcdef"}]}', header_words("Bearer abcdef"))[1] == (
        "bad token ***"
    )
