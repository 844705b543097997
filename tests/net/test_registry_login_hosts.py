"""The hosts that receive a login of a registry, and those that must not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import requests

from envbuild.core.errors import InputError
from envbuild.net.failures import RefusedError, UnreachableError
from envbuild.net.registry.auth import Login
from envbuild.net.registry.client import RegistryAddress, Repository
from envbuild.net.registry.docker_config import Credential
from envbuild.net.registry.push import Push
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.fake_registry import Fake, lock
from tests.support.local_registry import DIGEST, descriptor
from tests.support.netrc_file import write_netrc

pytestmark = pytest.mark.unit


def test_no_login_is_sent_over_plain_http(tmp_path: Path) -> None:
    """A registry with https that names a token service without it."""
    login = Login(Transport(Site(tmp_path).network()), "x.io")
    with pytest.raises(RefusedError, match="without https"):
        login.token("x.io", Credential("u", "p"), {"realm": "http://auth.x.io/token"}, "https://x.io/v2/y/manifests/1")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "0.0.0.0", "127.1", "[::ffff:127.0.0.1]"]
)
def test_a_registry_may_not_name_a_token_service_of_this_machine(host: str, tmp_path: Path) -> None:
    """It would get what that answers as a token; the own registry of this machine may."""
    login = Login(Transport(Site(tmp_path).network()), "x.io")
    for scheme in ("http", "https"):
        with pytest.raises(RefusedError, match="a token service of this machine"):
            login.token("x.io", None, {"realm": f"{scheme}://{host}:9/token"}, f"{scheme}://x.io/v2/y/manifests/1")
    with pytest.raises(UnreachableError):  # nothing listens there
        login.token("x.io", None, {"realm": "http://127.0.0.1:9/token"}, "http://localhost:5000/v2/y/manifests/1")


@pytest.mark.parametrize("kind", ["password", "token"])
def test_a_login_over_plain_http_goes_to_no_other_host(tmp_path: Path, kind: str) -> None:
    login = Login(Transport(Site(tmp_path).network()), "x.io")
    credential = Credential("u", "p") if kind == "password" else Credential("", "", token="t")
    elsewhere, here = Fake(), Fake()
    with elsewhere.running() as there, here.running() as own:
        realm = f"http://{there.replace('127.0.0.1', 'localhost')}/token"
        with pytest.raises(RefusedError):
            login.token("x.io", credential, {"realm": realm}, f"http://{own}/v2/y/manifests/1")
        here.answers["/token"] = (200, {}, b'{"token": "given"}')
        if kind == "password":
            token = login.token("x.io", credential, {"realm": f"http://{own}/token"}, f"http://{own}/v2/y/manifests/1")
            assert token == "given" and here.seen == [("/token", credential.basic)]
    assert elsewhere.seen == []


@pytest.mark.parametrize("token", ["", "t"])
def test_a_token_service_may_not_redirect_to_another_host(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry gets what it answers: a service in the user's network could issue a token of the user."""
    write_netrc(tmp_path / "home", monkeypatch)
    login = Login(Transport(Site(tmp_path).network()), "x.io")
    service, inner = Fake(), Fake()
    with service.running() as there, inner.running() as within:
        inner.answers["/jwt/auth"] = (200, {}, b'{"token": "of another service"}')
        place = f"http://{within.replace('127.0.0.1', 'localhost')}/jwt/auth"
        service.answers["/token"] = (302, {"Location": place}, b"")
        credential = Credential("", "", token=token) if token else None
        with pytest.raises((RefusedError, UnreachableError)):
            login.token(there, credential, {"realm": f"http://{there}/token"}, f"http://{there}/v2/y/manifests/1")
        service.answers["/token"] = (307, {"Location": "/other"}, b"")
        service.answers["/other"] = (200, {}, b'{"token": "own"}')
        if not token:
            values = {"realm": f"http://{there}/token"}
            assert login.token(there, None, values, f"http://{there}/v2/y/manifests/1") == "own"
    assert inner.seen == []


def test_an_address_with_two_hosts_gets_no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``requests`` finds the login of one host, and connects to the other: of a page, a redirect, a token service."""
    write_netrc(tmp_path / "home", monkeypatch)
    transport, evil, first = Transport(Site(tmp_path).network()), Fake(), Fake()
    with evil.running() as there, first.running() as here:
        two = f"http://{there}\\@localhost/file"
        evil.answers["/%5C@localhost/file"] = evil.answers["/file"] = (200, {}, b"{}")
        first.answers["/file"] = (302, {"Location": two}, b"")
        for url in (two, f"http://{here}/file"):
            with pytest.raises((RefusedError, UnreachableError)):
                transport.read(url)
        login = Login(transport, "x.io")
        for realm in (f"http://{there}\\@{here}/token", f"http://{here}/file"):
            with pytest.raises((RefusedError, UnreachableError)):
                login.token(here, Credential("u", "p"), {"realm": realm}, f"http://{here}/v2/y/manifests/1")
    assert evil.seen == []


def test_a_token_service_redirects_a_few_times(tmp_path: Path) -> None:
    login, service = Login(Transport(Site(tmp_path).network()), "x.io"), Fake()
    with service.running() as there, pytest.raises(UnreachableError):
        service.answers["/token"] = (302, {"Location": "/token"}, b"")
        login.token(there, None, {"realm": f"http://{there}/token"}, f"http://{there}/v2/y/manifests/1")
    assert len(service.seen) <= 6


def test_a_redirect_of_a_registry_gets_no_login_of_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_netrc(tmp_path / "home", monkeypatch)
    registry, elsewhere = Fake(), Fake()
    with registry.running() as here, elsewhere.running() as there:
        place = f"http://{there.replace('127.0.0.1', 'localhost')}/file"
        registry.answers["/v2/y/manifests/1"] = (302, {"Location": place}, b"")
        elsewhere.answers["/file"] = (200, {}, b"{}")
        site = Site(tmp_path / "store", mirrors={"oci:x.io/": (f"http://{here}",)})
        Repository(parse_reference("x.io/y:1"), site, Transport(site.network())).manifest("1")
    assert elsewhere.seen == [("/file", "")]


def test_a_registry_with_https_may_not_name_a_token_service_without(tmp_path: Path) -> None:
    login, service = Login(Transport(Site(tmp_path).network()), "x.io"), Fake()
    with service.running() as there, pytest.raises(RefusedError, match="without https"):
        service.answers["/token"] = (200, {}, b'{"token": "given"}')
        login.token("x.io", None, {"realm": f"http://{there}/token"}, "https://x.io/v2/y/manifests/1")
    assert service.seen == []


def test_a_login_for_https_is_not_sent_over_http(tmp_path: Path) -> None:
    """A registry behind a proxy may name addresses of its own without https: for the next page of a list."""
    login = Login(Transport(Site(tmp_path).network()), "x.io", frozenset({"https://x.io"}))
    login.known["https://x.io", ""] = "Basic secret"
    for address, header in (("https://x.io/v2/", "Basic secret"), ("http://x.io/v2/", None)):
        request = requests.Request("GET", address).prepare()
        assert login(request).headers.get("Authorization") == header


def test_a_login_is_not_sent_to_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries redirect to other hosts for blobs; one that requires a login there gets none."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    registry, elsewhere = Fake(), Fake()
    elsewhere.wants = "Basic anything"
    login = Credential("u", "p").basic
    registry.wants = login
    content = json.dumps({"schemaVersion": 2, "config": descriptor(), "layers": []}).encode()
    with registry.running() as here, elsewhere.running() as there:
        auths = {host: {"auth": login.removeprefix("Basic ")} for host in (here, there)}
        (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
        registry.answers["/v2/y/manifests/1"] = (200, {}, content)
        blob = f"/v2/y/blobs/sha256:{DIGEST}"
        registry.answers[blob] = (307, {"Location": f"http://{there}/blob"}, b"")
        site = Site(tmp_path / "store", mirrors={"oci:x.io/": (f"http://{here}",)})
        with pytest.raises(InputError, match="HTTP 401"):
            lock(site, "x.io/y:1")
    assert elsewhere.seen == [("/blob", "")]
    assert registry.seen == [
        ("/v2/y/manifests/1", ""),
        ("/v2/y/manifests/1", login),
        (blob, login),
    ]


def test_an_address_for_an_upload_on_another_host_gets_no_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry names any address; the user's login for another registry would let it overwrite files."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    registry, elsewhere = Fake(), Fake()
    registry.wants = elsewhere.wants = Credential("u", "p").basic
    (tmp_path / "blob").write_bytes(b"x")
    with registry.running() as here, elsewhere.running() as there:
        auths = {host: {"auth": registry.wants.removeprefix("Basic ")} for host in (here, there)}
        (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
        registry.answers["/v2/y/blobs/uploads/"] = (202, {"Location": f"http://{there}/pypi/x.whl"}, b"")
        site = Site(tmp_path / "store", mirrors={"oci:x.io/": (f"http://{here}",)})
        repository = Repository(parse_reference("x.io/y:1"), site, Transport(site.network()))
        (place,) = repository.places
        assert isinstance(place, RegistryAddress)
        with pytest.raises(RefusedError, match="HTTP 401"):
            Push(place, repository.transport, pause=0).blob((tmp_path / "blob").open, DIGEST, 1)
    assert {login for _, login in elsewhere.seen} == {""} and registry.seen[-1][1] == registry.wants
