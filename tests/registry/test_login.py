"""Registries that require a login: basic authentication and tokens, from every place where docker stores logins."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import InputError
from envbuild.core.store.store import Store
from envbuild.net.download import Transfer
from envbuild.net.registry.client import obtain_blob
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support import local_registry as kit
from tests.support.local_registry import PASSWORD, USER, Layout, Lock, Server, serve
from tests.support.token_server import SERVICE, Tokens, tokens

pytestmark = pytest.mark.registry
IMAGE = "docker.io/some/base:1"
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
WRONG = base64.b64encode(f"{USER}:secret-and-wrong".encode()).decode()


def config(tmp_path: Path, **value: Any) -> None:
    """Write docker's config.json."""
    (tmp_path / "docker").mkdir(exist_ok=True)
    (tmp_path / "docker/config.json").write_text(json.dumps(value))


@pytest.fixture
def protected(private: Server, layout: Layout) -> Server:
    """Return a registry with a login that has the image."""
    layout.add(layout.image([kit.system()]))
    private.push(f"oci:{layout.path}", "some/base:1")
    return private


def test_a_login_in_config_json(protected: Server, lock: Lock, tmp_path: Path) -> None:
    config(tmp_path, auths={"other.example": {"auth": WRONG}, protected.host: {"auth": BASIC}})
    assert lock(IMAGE, protected.url).image.python["numpy"] == "1.26"


@pytest.mark.parametrize("key", ["http://{}", "https://{}/v1/", "{}/some"])
def test_other_ways_to_write_the_host(protected: Server, lock: Lock, tmp_path: Path, key: str) -> None:
    config(tmp_path, auths={key.format(protected.host): {"auth": BASIC}})
    assert lock(IMAGE, protected.url).image.python["numpy"] == "1.26"


def test_a_login_in_the_address(protected: Server, lock: Lock) -> None:
    assert lock(IMAGE, f"http://{USER}:{PASSWORD}@{protected.host}").image.python["numpy"] == "1.26"
    with pytest.raises(InputError) as caught:
        lock(IMAGE.replace("1", "2"), f"http://{USER}:{PASSWORD}@{protected.host}")
    assert PASSWORD not in str(caught.value) and protected.host in caught.value.message


def test_no_login(protected: Server, lock: Lock, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        lock(IMAGE, protected.url)
    assert caught.value.message == (
        f"the image {IMAGE} is not available; tried:\n  {protected.url}/some/base: it requires a login, and "
        f"{tmp_path}/docker/config.json has none for it; run: docker login {protected.host}"
    )
    assert caught.value.hint == f"docker login {protected.host}"


def test_a_wrong_login(protected: Server, lock: Lock, tmp_path: Path) -> None:
    config(tmp_path, auths={protected.host: {"auth": WRONG}})
    with pytest.raises(InputError) as caught:
        lock(IMAGE, protected.url)
    assert caught.value.message.endswith(
        f"it does not accept the login that {tmp_path}/docker/config.json has for it; run: "
        f"docker login {protected.host}"
    )
    assert caught.value.hint == f"docker login {protected.host}"
    assert "secret" not in str(caught.value) and WRONG not in str(caught.value)


@pytest.mark.parametrize("text", ["{", '{"auths": {"HOST": {"auth": "%"}}}'])
def test_a_damaged_config(protected: Server, lock: Lock, tmp_path: Path, text: str) -> None:
    config(tmp_path)
    (tmp_path / "docker/config.json").write_text(text.replace("HOST", protected.host))
    with pytest.raises(InputError, match=r"config\.json (cannot be read: it is not JSON|is malformed)"):
        lock(IMAGE, protected.url)


def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Install a credential helper called ``test``."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/docker-credential-test"
    program.write_text(f"#!/bin/sh\nread -r server\n[ $1 = get ] || exit 9\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")


ANSWER = json.dumps({"ServerURL": "x", "Username": USER, "Secret": PASSWORD})


@pytest.mark.parametrize("way", ["credHelpers", "credsStore"])
def test_credential_helpers(
    protected: Server, lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    helper(tmp_path, monkeypatch, f"[ $server = {protected.host} ] && echo '{ANSWER}'")
    if way == "credHelpers":
        config(tmp_path, credHelpers={protected.host: "test"}, auths={protected.host: {"auth": WRONG}})
    else:
        config(tmp_path, credsStore="test", auths={protected.host: {}})
    assert lock(IMAGE, protected.url).image.python["numpy"] == "1.26"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo credentials not found in native keychain; exit 1", "it requires a login, and"),
        ("echo a secret; exit 3", r"docker-credential-test, which .*config\.json names, failed with exit code 3$"),
        ("echo a secret", "printed an answer that is not a login"),
    ],
)
def test_credential_helpers_that_fail(
    protected: Server, lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: str
) -> None:
    helper(tmp_path, monkeypatch, script)
    config(tmp_path, credsStore="test")
    with pytest.raises(InputError, match=f"(?m){expected}") as caught:
        lock(IMAGE, protected.url)
    assert "secret" not in str(caught.value)


def test_a_helper_that_is_not_installed(protected: Server, lock: Lock, tmp_path: Path) -> None:
    config(tmp_path, credHelpers={protected.host: "nowhere"})
    with pytest.raises(InputError, match="names docker-credential-nowhere, and PATH has no such program"):
        lock(IMAGE, protected.url)


# tokens
@pytest.fixture
def service(tmp_path: Path) -> Iterator[Tokens]:
    with tokens(tmp_path / "tokens") as running:
        yield running


@pytest.fixture
def by_token(tmp_path: Path, service: Tokens, layout: Layout) -> Iterator[Server]:
    """Yield a registry that sends its readers to the service, with the image."""
    layout.add(layout.image([kit.system(), kit.tar(kit.file("second"))]))
    with serve(tmp_path / "by-token", login=f"{USER}:{PASSWORD}") as open_to_all:
        open_to_all.push(f"oci:{layout.path}", "some/base:1")
    with serve(tmp_path / "by-token", service.configuration()) as server:
        yield server


def test_anonymous_tokens(by_token: Server, service: Tokens, lock: Lock) -> None:
    service.allowed.add("")
    assert lock(IMAGE, by_token.url).image.python["numpy"] == "1.26"
    wanted = {"service": SERVICE, "scope": "repository:some/base:pull"}
    assert service.asked == [("GET", "", wanted)], "one token does for manifest, configuration and layers"


def test_tokens_for_a_login(by_token: Server, service: Tokens, lock: Lock, tmp_path: Path) -> None:
    service.allowed.add(f"Basic {BASIC}")
    config(tmp_path, auths={by_token.host: {"auth": BASIC}})
    assert lock(IMAGE, by_token.url).image.python["numpy"] == "1.26"
    config(tmp_path, auths={by_token.host: {"auth": WRONG}})
    with pytest.raises(InputError, match="it does not accept the login"):
        lock(IMAGE, by_token.url)
    config(tmp_path)
    with pytest.raises(InputError, match="it requires a login"):
        lock(IMAGE, by_token.url)


def test_identity_tokens(by_token: Server, service: Tokens, lock: Lock, tmp_path: Path) -> None:
    """As Azure's registries have them: config.json holds a refresh token, and no password."""
    service.allowed.add("refresh")
    empty_login = base64.b64encode(b"00000000-0000-0000-0000-000000000000:").decode()
    config(tmp_path, auths={by_token.host: {"auth": empty_login, "identitytoken": "refresh"}})
    assert lock(IMAGE, by_token.url).image.python["numpy"] == "1.26"
    method, login, values = service.asked[0]
    assert (method, login) == ("POST", "")
    assert values == {
        "grant_type": "refresh_token",
        "client_id": "envbuild",
        "refresh_token": "refresh",
        "service": SERVICE,
        "scope": "repository:some/base:pull",
    }


def test_a_service_that_is_down(by_token: Server, service: Tokens, lock: Lock, tmp_path: Path) -> None:
    place = by_token.url
    real, service.sign = service.sign, lambda scopes: ""  # type: ignore[method-assign]
    service.allowed.add("")
    with pytest.raises(InputError, match="its token service answers without a token"):
        lock(IMAGE, place)
    service.sign = real  # type: ignore[method-assign]
    assert lock(IMAGE, place).image.python["numpy"] == "1.26"


def test_a_token_that_ran_out_is_renewed(
    by_token: Server, service: Tokens, lock: Lock, store: Store, tmp_path: Path
) -> None:
    service.allowed.add("")
    image = lock(IMAGE, by_token.url).image
    from envbuild.net.registry.client import Repository
    from envbuild.net.registry.reference import parse_reference

    site = Site(store.root, mirrors={"oci:docker.io/": (by_token.url,)})
    repository = Repository(parse_reference(IMAGE), site, Transport(site.network()))
    login = repository.transport.login
    assert login
    login.known[by_token.host, "some/base"] = f"Bearer {service.sign(['repository:other:pull'])}"
    assert repository.manifest(f"sha256:{image.digest}")
    assert "other" not in login.known[by_token.host, "some/base"]


# one blob at a time, as fetching a lock does it
def test_every_part_of_a_locked_image(
    by_token: Server, service: Tokens, lock: Lock, store: Store, tmp_path: Path
) -> None:
    service.allowed.add("")
    image = lock(IMAGE, by_token.url).image
    site = Site(store.root, mirrors={"oci:docker.io/": (by_token.url,)})
    other = Store.open(tmp_path / "other")
    transfer = Transfer(Transport(site.network()), other, pause=0.01)
    parts = [(image.digest, 0), (image.config, 0), *((digest, size) for digest, size, _ in image.layers)]
    for digest, size in parts:
        obtain_blob(site, transfer.transport, transfer, IMAGE, digest, size)
        assert other.has_blob(digest)
