"""Logins of registries: their source, the hosts that receive them, and those that must not."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.auth import INDEX_URL

from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError
from envbuild.core.store.store import Store
from envbuild.lock.base_image.lock_base import lock_base
from envbuild.net.download import Transfer
from envbuild.net.failures import RefusedError
from envbuild.net.limits import DownloadLimits
from envbuild.net.registry.auth import Login, parse_challenges
from envbuild.net.registry.client import RegistryAddress, Repository
from envbuild.net.registry.docker_config import Credential, find_credential
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.http_server import Handler, serving
from tests.support.local_registry import DIGEST, descriptor

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


def test_no_login_is_sent_over_plain_http(tmp_path: Path) -> None:
    """A registry with https that names a token service without it."""
    login = Login(Transport(Site(tmp_path).network()), "x.io")
    with pytest.raises(RefusedError, match="without https"):
        login.token(
            "x.io", Credential("u", "p"), {"realm": "http://127.0.0.1:9/token"}, "https://x.io/v2/y/manifests/1"
        )


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


class Fake:
    """A server that answers by path: (status, headers, body). `seen`: path and Authorization of every request."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, str]] = []
        self.wants = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        fake = self

        class Answering(Handler):
            def do_GET(self) -> None:
                login = self.headers.get("Authorization", "")
                fake.seen.append((self.path, login))
                status, headers, body = fake.answers.get(self.path, (404, {}, b""))
                if fake.wants and login != fake.wants:
                    status, headers, body = 401, {"WWW-Authenticate": 'Basic realm="x"'}, b""
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        with serving(Answering) as url:
            yield url.removeprefix("http://")


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


def test_schema_1_from_a_registry(tmp_path: Path) -> None:
    registry = Fake()
    registry.answers["/v2/y/manifests/1"] = (200, {}, b'{"schemaVersion": 1}')
    with registry.running() as here, pytest.raises(InputError, match="schema 1"):
        lock(Site(tmp_path / "store", mirrors={"oci:x.io/": (f"http://{here}",)}), "x.io/y:1")


def lock(site: Site, reference: str) -> None:
    store = Store.open(site.store)
    transport = Transport(site.network())
    transfer = Transfer(transport, store, pause=0.01)
    lock_base(
        reference, "amd64", site, transport, transfer, store, SilentReporter(),
        previous=None, distribution="debian:13", python="3.13",
    )  # fmt: skip
