"""The proxy of a request, and the hosts whose certificates are not checked."""

from __future__ import annotations

import pytest
import requests

from envbuild.net.failures import RefusedError
from envbuild.net.network_settings import NetworkSettings, direct_hosts, host_names
from envbuild.net.transport import Transport

pytestmark = pytest.mark.unit
DIRECT = {"http": "", "https": ""}
PROXY = "http://proxy.example:3128"
THROUGH = {"http": PROXY, "https": PROXY}


@pytest.mark.parametrize(
    ("proxy", "url", "found"),
    [
        (PROXY, "https://registry.example/v2/", THROUGH),
        (PROXY, "https://inside.example/v2/", DIRECT),
        (PROXY, "https://a.inside.example:5000/v2/", DIRECT),
        (PROXY, "http://localhost:5001/v2/", DIRECT),
        (PROXY, "http://127.0.0.2/v2/", DIRECT),
        (PROXY, "http://[::1]:5000/v2/", DIRECT),
        (PROXY, "http://localhost.example/v2/", THROUGH),
        ("", "http://localhost:5001/v2/", DIRECT),
        ("", "https://inside.example/v2/", None),
        ("", "https://registry.example/v2/", None),
    ],
)
def test_this_machine_and_the_hosts_of_no_proxy_are_reached_directly(
    monkeypatch: pytest.MonkeyPatch, proxy: str, url: str, found: object
) -> None:
    """A login for a registry of this machine is not encrypted on its way."""
    monkeypatch.setenv("NO_PROXY", "inside.example")
    monkeypatch.delenv("no_proxy", raising=False)
    assert NetworkSettings(proxy).proxies(url) == found


@pytest.mark.parametrize(
    ("lower", "upper", "found"),
    [
        ("", "", "localhost,127.0.0.1,127.0.0.0/8,::1,[::1]"),
        ("a.example, ::1", "B.example", "a.example,::1,B.example,localhost,127.0.0.1,127.0.0.0/8,[::1]"),
        ("a.example,*", "", "*"),
    ],
)
def test_programs_reach_this_machine_directly(
    monkeypatch: pytest.MonkeyPatch, lower: str, upper: str, found: str
) -> None:
    monkeypatch.setenv("no_proxy", lower)
    monkeypatch.setenv("NO_PROXY", upper)
    assert direct_hosts() == {"no_proxy": found, "NO_PROXY": found}


def test_the_host_of_a_place_that_is_used_is_named_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """apt, and older releases of curl, read no networks."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    places = ("http://me:hush@127.0.0.2:81/debian", "https://outside.example/", "http://[::1", "/srv/mirror")
    assert direct_hosts(*places)["no_proxy"].split(",")[0] == "127.0.0.2"
    assert "outside" not in direct_hosts(*places)["NO_PROXY"]


@pytest.mark.parametrize(
    ("proxy", "url", "found"),
    [
        (PROXY, "http://127.0.0.1:81/", ""),
        (PROXY, "http://outside.example/", PROXY),
        ("", "http://127.0.0.1:81/", ""),
        ("", "http://outside.example/", "http://of-environment.example"),
    ],
)
def test_a_redirect_has_the_proxy_of_its_own_host(
    monkeypatch: pytest.MonkeyPatch, proxy: str, url: str, found: str
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://of-environment.example")
    session = Transport(NetworkSettings(proxy)).session()
    for before in ({"http": "", "https": ""}, THROUGH, None):
        redirected = requests.Request("GET", url).prepare()
        assert session.rebuild_proxies(redirected, before).get("http") == found


@pytest.mark.parametrize(
    ("trusted", "url", "unchecked"),
    [
        ("index.example", "https://index.example/simple", True),
        ("index.example", "https://index.example:8443/simple", True),
        ("index.example", "https://other.example/simple", False),
        ("index.example:8443", "https://index.example:8443/simple", True),
        ("index.example:8443", "https://index.example/simple", False),
        ("index.example:443", "https://INDEX.example/simple", True),
        ("index.example:80", "http://index.example/simple", True),
        ("index.example:443", "http://index.example/simple", False),
        ("[::1]:8443", "https://[::1]:8443/simple", True),
        ("[::1]:8443", "https://[::1]/simple", False),
        ("index.example:x", "https://index.example/simple", False),
        ("", "file:///simple", False),
    ],
)
def test_a_trusted_host_with_a_port_is_that_port_alone(trusted: str, url: str, unchecked: bool) -> None:
    assert NetworkSettings(insecure=host_names([trusted])).is_insecure(url) is unchecked


@pytest.mark.parametrize("proxy", ["http://bob:hush@", "http://", "http://:3128"])
def test_a_proxy_without_a_host_is_refused(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`requests` has a TypeError for it."""
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    transport = Transport(NetworkSettings())
    with pytest.raises(RefusedError, match="the address of the proxy has no host"), transport.get("https://h.invalid/"):
        pass
