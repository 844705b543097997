"""Logins of registries: their source, the hosts that receive them, and those that must not."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from docker.auth import INDEX_URL

from envbuild.core.console import SilentReporter
from envbuild.core.errors import InputError
from envbuild.core.store.store import Store
from envbuild.lock.base_image.lock_base import lock_base
from envbuild.net.download import Transfer
from envbuild.net.failures import RefusedError, UnreachableError
from envbuild.net.limits import DownloadLimits
from envbuild.net.registry import referrers
from envbuild.net.registry.auth import Login, parse_challenges, split_url
from envbuild.net.registry.client import RegistryAddress, Repository
from envbuild.net.registry.docker_config import Credential
from envbuild.net.registry.logins import find_credential
from envbuild.net.registry.push import Push
from envbuild.net.registry.reference import parse_reference
from envbuild.net.registry.referrers import list_referrers
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.http_server import Handler, serving
from tests.support.local_registry import DIGEST, descriptor
from tests.support.netrc_file import write_netrc
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


@pytest.mark.parametrize("link", ["http://x.io/more", "https://y.io/more", "https://x.io:444/more"])
def test_the_next_page_of_a_list_of_artifacts_is_on_the_same_host(link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def page(transport: Transport, url: str) -> tuple[bytes, str]:
        asked.append(url)
        return b'{"manifests": [{"artifactType": "a"}]}', f'<{link}>; rel="next"'

    monkeypatch.setattr(referrers, "_page", page)
    transport = Transport(Site(Path("/")).network())
    assert len(list_referrers(RegistryAddress("https://x.io", "y"), transport, f"sha256:{DIGEST}", "a")) == 1
    assert len(asked) == 1


@pytest.mark.parametrize(("pages", "entries", "size"), [(1, 10_001, 2), (20, 600, 2), (20, 2, 600_000)])
def test_a_list_of_artifacts_has_a_limit_over_all_its_pages(
    pages: int, entries: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.dumps({"manifests": [{"a": "x" * size}] * entries}).encode()
    asked: list[str] = []

    def page(transport: Transport, url: str) -> tuple[bytes, str]:
        asked.append(url)
        return content, f'<https://x.io/{len(asked)}>; rel="next"'

    monkeypatch.setattr(referrers, "_page", page)
    monkeypatch.setattr(RegistryAddress, "manifest", lambda *_: b'{"manifests": []}')
    transport = Transport(Site(Path("/")).network())
    if pages == 1:
        with pytest.raises(RefusedError, match="more than 10000 entries"):
            referrers._entries(content)
    list_referrers(RegistryAddress("https://x.io", "y"), transport, f"sha256:{DIGEST}", "a")
    assert len(asked) < 20


class Fake:
    """A server that answers by path: (status, headers, body). `seen`: path and Authorization of every request."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, str]] = []
        self.wants = ""
        self.challenge = 'Basic realm="x"'

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        fake = self

        class Answering(Handler):
            def do_GET(self) -> None:
                login = self.headers.get("Authorization", "")
                fake.seen.append((self.path, login))
                status, headers, body = fake.answers.get(self.path, (404, {}, b""))
                if fake.wants and login != fake.wants:
                    status, headers, body = 401, {"WWW-Authenticate": fake.challenge}, b""
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                self.do_GET()

            do_HEAD, do_PUT, do_PATCH, do_DELETE = do_GET, do_POST, do_POST, do_GET

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


def lock(site: Site, reference: str) -> None:
    store = Store.open(site.store)
    transport = Transport(site.network())
    transfer = Transfer(transport, store, pause=0.01)
    lock_base(
        reference, "amd64", site, transport, transfer, store, SilentReporter(),
        previous=None, distribution="debian:13", python="3.13",
    )  # fmt: skip
