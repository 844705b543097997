"""Logins of package archives in the file that apt reads them from."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import InputError
from envbuild.lock.debian.apt import AptSource
from envbuild.lock.debian.logins import auth_text, check_logins

pytestmark = pytest.mark.unit


def test_addresses_for_apt_have_no_login() -> None:
    source = AptSource("apt:x", "http://us%40r:p%2Fw@host:81/a b/", "./", (), Path("/k"))
    assert source.line("amd64") == "deb [arch=amd64 signed-by=/k] http://host:81/a%20b /\n"
    assert source.printed_address == "http://host:81/a b"


def test_one_login_of_a_host_is_for_all_its_paths() -> None:
    places = ("http://us%40r:p%2Fw@host:81/debian", "http://us%40r:p%2Fw@host:81/vendor", "https://other/x", "/srv/a@b")
    assert auth_text(places) == "machine http://host:81 login us@r password p/w\n"


def test_different_logins_of_a_host_are_for_their_paths() -> None:
    """apt uses the first entry whose path begins the address."""
    places = ("http://a:1@host/debian", "http://b:2@host/debian-security", "http://host/open", "http://:3@host2")
    assert auth_text(places).splitlines() == [
        "machine http://host/debian-security login b password 2",
        "machine http://host/debian login a password 1",
        "machine http://host2 password 3",
    ]


@pytest.mark.parametrize("login", ["a%20b:c", "a:b%0Ac", "a:%09"])
def test_a_login_that_would_end_a_word_is_refused(login: str) -> None:
    check_logins("apt:x", ["https://a:b%2F@host/x", "/srv/a b"])
    with pytest.raises(InputError, match="https://host/x for apt:x") as caught:
        check_logins("apt:x", [f"https://{login}@host/x"])
    assert login not in f"{caught.value.findings[0]}"
