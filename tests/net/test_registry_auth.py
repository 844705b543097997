"""Logins of registries: their source, and their challenges and token services."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from docker.auth import INDEX_URL

from envbuild.core.errors import InputError
from envbuild.net.limits import DownloadLimits
from envbuild.net.registry.auth import Login, parse_challenges, split_url
from envbuild.net.registry.client import RegistryAddress, Repository
from envbuild.net.registry.docker_config import Credential
from envbuild.net.registry.logins import find_credential
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.fake_registry import Fake, lock
from tests.support.local_registry import descriptor
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit


def test_challenges() -> None:
    text = 'Bearer realm="https://a.example/token",service="b c",scope="repository:x/y:pull,push", Basic realm="z"'
    assert parse_challenges(text) == {
        "bearer": {"realm": "https://a.example/token", "service": "b c", "scope": "repository:x/y:pull,push"},
        "basic": {"realm": "z"},
    }
    assert parse_challenges("basic realm=x") == {"basic": {"realm": "x"}}
    assert parse_challenges("Negotiate") == {}


@pytest.mark.parametrize("rest", ["a" * 8000, "a" * 64_000, "a " * 4000, "," * 64_000, "a" + " " * 8000, ", " * 4000])
def test_a_long_challenge_is_read_in_a_short_time(rest: str) -> None:
    begin = time.process_time()
    assert not parse_challenges(f"Bearer {rest}").get("bearer")
    assert time.process_time() - begin < 1


def test_a_login_is_not_printed() -> None:
    assert "secret" not in repr(Credential("secret-user", "secret", "secret-token", "config.json"))


def test_the_registry_of_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The login of a registry is listed under one host of its domain and used at another (docker.io's is), and nowhere
    else."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    auths = {"https://index.reg.example/v1/": {"auth": "dTpw"}, "plain.example": {"username": "v", "password": "q"}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    for asked, registry in (("index.reg.example", ""), ("api.reg.example", "reg.example")):
        found = find_credential(asked, registry)
        assert found and (found.user, found.password) == ("u", "p")
    assert (found := find_credential("plain.example")) and found.password == "q"
    for asked, registry in (
        ("mirror.example", "reg.example"),
        ("evilreg.example", "reg.example"),
        ("reg.example:5000", ""),
    ):
        assert find_credential(asked, registry) is None


def test_docker_io_has_the_host_of_dockers_own_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"auths": {INDEX_URL: {"auth": "dTpw"}}}))
    site = Site(tmp_path)
    (place,) = Repository(parse_reference("docker.io/debian:13"), site, Transport(site.network())).places
    assert isinstance(place, RegistryAddress) and place.repository == "library/debian"
    name = place.url.removeprefix("https://")
    assert name != "docker.io"
    found = find_credential(name, "docker.io")
    assert found and found.user == "u"
    login = Login(Transport(site.network()), "docker.io")
    assert login.login_error(name, place.url).hint == "docker login docker.io"  # the name that docker itself takes
    closed = Site(tmp_path, use_host=False)
    with pytest.raises(InputError, match=r"no place is known for oci:docker\.io/library/debian"):
        _ = Repository(parse_reference("docker.io/debian:13"), closed, Transport(closed.network())).places


def test_the_password_of_an_address_is_sent_and_never_printed(tmp_path: Path) -> None:
    registry = Fake()
    registry.wants = Credential("user", "p/w").basic
    content = json.dumps({"schemaVersion": 2, "config": descriptor(), "layers": []}).encode()
    registry.answers["/v2/y/manifests/1"] = (200, {}, content)
    with registry.running() as here:
        site = Site(tmp_path / "store", mirrors={"oci:x.io/": (f"http://user:p%2Fw@{here}",)})
        with pytest.raises(InputError, match="HTTP 404") as missing:
            lock(site, "x.io/y:1")
        registry.wants = "Basic another"
        with pytest.raises(InputError, match="the site's address") as wrong:
            lock(site, "x.io/y:1")
    assert ("/v2/y/manifests/1", Credential("user", "p/w").basic) in registry.seen
    for secret in ("p/w", "p%2Fw", Credential("user", "p/w").basic.removeprefix("Basic ")):
        assert secret not in str(missing.value) + str(wrong.value)
        files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
        assert files and not any(secret.encode() in path.read_bytes() for path in files)


def test_endless_answers_of_a_registry_and_of_its_token_service_are_refused(tmp_path: Path) -> None:
    limits = DownloadLimits(token=1000, discarded=1000)
    large = b'{"token": "' + b"x" * 2000 + b'"}'
    registry, service = Fake(), Fake()
    with registry.running() as here, service.running() as there:
        service.answers["/token"] = (200, {}, large)
        challenge = f'Bearer realm="http://{there}/token"'
        registry.answers["/v2/y/manifests/1"] = (401, {"WWW-Authenticate": challenge}, b"x" * 5000)
        site = Site(tmp_path / "store", mirrors={"oci:x.io/": (f"http://{here}",)})
        repository = Repository(parse_reference("x.io/y:1"), site, Transport(site.network(), limits=limits))
        with pytest.raises(InputError, match="more than 1000 bytes"):
            repository.manifest("1")
    assert len(service.seen) == 1


def test_the_query_of_a_token_service_is_extended_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's registry names no service, and its realm has a query of its own: a scope that it wants back as it is."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    scope = "scope=repository:y:pull,push"
    registry = Fake()
    registry.wants = "Bearer given"
    content = json.dumps({"schemaVersion": 2, "config": descriptor(), "layers": []}).encode()
    registry.answers["/v2/y/manifests/1"] = (200, {}, content)
    service = Fake()
    service.answers[f"/proxy_auth?account=x&{scope}"] = (200, {}, b'{"token": "given"}')
    with registry.running() as here, service.running() as there:
        registry.challenge = f'Bearer realm="http://{there}/proxy_auth?account=x&{scope}"'
        site = Site(tmp_path / "store", mirrors={"oci:x.io/": (f"http://{here}",)})
        repository = Repository(parse_reference("x.io/y:1"), site, Transport(site.network()))
        repository.manifest("1")
        # a scope of the header is added to the query of the realm
        registry.challenge += ',scope="repository:y:pull"'
        service.answers[f"/proxy_auth?account=x&{scope}&scope=repository%3Ay%3Apull"] = (200, {}, b'{"token": "given"}')
        Repository(parse_reference("x.io/y:1"), site, Transport(site.network())).manifest("1")
    assert [path for path, _ in service.seen] == list(service.answers)
    assert {login for _, login in service.seen} == {""}


@pytest.mark.parametrize(
    ("path", "repository"),
    [
        ("/v2/team/app/manifests/1", "team/app"),
        ("/prefix/v2/app/blobs/uploads/", "app"),
        ("/v2/a/blobs/b/manifests/1", "a/blobs/b"),
        ("/v2/", ""),
        ("/v2/" * 200_000, ""),  # of a server: a search from each part of it took minutes
    ],
)
def test_the_repository_of_an_address(path: str, repository: str) -> None:
    with ends_within(30):
        assert split_url(f"https://u:p@Host.example:443{path}") == ("https://host.example:443", repository)


def test_schema_1_from_a_registry(tmp_path: Path) -> None:
    registry = Fake()
    registry.answers["/v2/y/manifests/1"] = (200, {}, b'{"schemaVersion": 1}')
    with registry.running() as here, pytest.raises(InputError, match="schema 1"):
        lock(Site(tmp_path / "store", mirrors={"oci:x.io/": (f"http://{here}",)}), "x.io/y:1")
