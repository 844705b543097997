"""Publishing to a real registry, also behind a proxy that fails."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import PublishError
from envbuild.net.registry import push as push_module
from envbuild.net.registry.reference import parse_reference
from envbuild.net.site import Site
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.registry import Published, open_push, publish_to_registry
from tests.support.local_registry import PASSWORD, USER, Layout, Server, file, htpasswd, serve, skopeo, tar
from tests.support.push_proxy import PushProxy, pushing
from tests.support.token_server import tokens

pytestmark = pytest.mark.registry

BIG = os.urandom(1_300_000)  # more than an answer may have: HEAD names the length of a blob that does not come


@pytest.fixture
def proxy(registry: Server) -> Iterator[PushProxy]:
    with pushing(registry.host) as found:
        yield found


def image(folder: Path, *contents: bytes) -> ImageParts:
    layout = Layout(folder)
    layout.add(layout.image([tar(file("f", content)) for content in contents], compression="none"), "x")
    return ImageParts.read(folder)


def published(parts: ImageParts, reference: str, *, move: bool = False) -> Published:
    found = parse_reference(reference)
    return publish_to_registry(parts, found, open_push(found, Site(Path("/")), 0.01), SilentReporter(), move=move)


def digest_there(host: str, name: str, *options: str) -> str:
    found = skopeo("inspect", "--tls-verify=false", *options, f"docker://{host}/{name}")
    return str(json.loads(found)["Digest"])


def test_an_image_is_there_by_tag_and_digest(tmp_path: Path, registry: Server) -> None:
    parts = image(tmp_path / "1", b"base", BIG)
    made = published(parts, f"{registry.host}/team/app:1")
    assert (made.digest, made.sent, made.present) == (parts.digest, 3, 0)
    assert digest_there(registry.host, "team/app:1") == parts.digest
    assert digest_there(registry.host, f"team/app@{parts.digest}") == parts.digest


def test_only_new_blobs_are_sent(tmp_path: Path, registry: Server, proxy: PushProxy) -> None:
    host = proxy.url.removeprefix("http://")
    published(image(tmp_path / "1", b"base", BIG), f"{host}/app:1")
    proxy.asked.clear()
    two = image(tmp_path / "2", b"base", BIG, b"more")
    made = published(two, f"{host}/app:2")
    assert (made.sent, made.present) == (2, 2)
    assert sum(proxy.sent("PUT")) < 20_000
    proxy.asked.clear()
    again = published(two, f"{host}/app:2")
    assert (again.sent, again.sent_bytes, again.present) == (0, 0, 4)
    assert not proxy.sent("PUT")


def test_a_blob_that_was_deleted_in_the_registry_is_sent_again(tmp_path: Path, registry: Server) -> None:
    """As its administrator deletes one that is damaged, as the hint of `pull` names."""
    parts = image(tmp_path / "1", b"base", BIG)
    published(parts, f"{registry.host}/lost:1")
    blob = max(parts.contents, key=lambda blob: blob.size)
    shutil.rmtree(registry.root / "docker/registry/v2/repositories/lost/_layers/sha256" / blob.digest)
    shutil.rmtree(registry.root / "docker/registry/v2/blobs/sha256" / blob.digest[:2] / blob.digest)
    again = published(parts, f"{registry.host}/lost:1")
    assert (again.sent, again.sent_bytes) == (1, blob.size)
    assert published(parts, f"{registry.host}/lost:1").sent == 0


def test_a_tag_moves_only_on_request(tmp_path: Path, registry: Server) -> None:
    one, two = image(tmp_path / "1", b"one"), image(tmp_path / "2", b"two")
    published(one, f"{registry.host}/app:1")
    with pytest.raises(PublishError) as caught:
        published(two, f"{registry.host}/app:1")
    assert caught.value.exit_code == 8 and "--move" in caught.value.hint
    assert digest_there(registry.host, "app:1") == one.digest
    published(two, f"{registry.host}/app:1", move=True)
    assert digest_there(registry.host, "app:1") == two.digest


@pytest.mark.parametrize("busy", [[429], [503, 500, 502], [429] * 4])
def test_a_busy_registry_gets_the_request_again(
    tmp_path: Path, registry: Server, proxy: PushProxy, busy: list[int]
) -> None:
    proxy.busy = busy
    parts = image(tmp_path / "1", BIG)
    published(parts, f"{proxy.url.removeprefix('http://')}/app:1")
    assert not proxy.busy and digest_there(registry.host, "app:1") == parts.digest


def test_a_registry_that_remains_busy_ends_it_without_a_tag(tmp_path: Path, registry: Server, proxy: PushProxy) -> None:
    proxy.busy = [503] * 1000
    with pytest.raises(PublishError) as caught:
        published(image(tmp_path / "1", BIG), f"{proxy.url.removeprefix('http://')}/app:1")
    assert "HTTP 503" in caught.value.message and caught.value.exit_code == 8
    assert not (registry.root / "docker/registry/v2/repositories/app/_manifests").exists()


@pytest.mark.parametrize(("dropped", "patched"), [(0, 202), (1, 202), (3, 202), (1, 201)])
def test_a_blob_that_a_proxy_refuses_as_a_whole_is_sent_in_chunks(
    tmp_path: Path, registry: Server, proxy: PushProxy, monkeypatch: pytest.MonkeyPatch, dropped: int, patched: int
) -> None:
    """Also when answers are dropped: bytes that the registry has already are not appended twice. ECR answers 201."""
    monkeypatch.setattr(push_module, "CHUNK", 270_000)
    proxy.most, proxy.dropped, proxy.patched = 300_000, dropped, patched
    parts = image(tmp_path / "1", BIG)
    published(parts, f"{proxy.url.removeprefix('http://')}/app:1")
    assert digest_there(registry.host, "app:1") == parts.digest
    assert max(proxy.sent("PATCH")) == 270_000


def test_a_registry_copies_blobs_of_its_other_repositories(tmp_path: Path, registry: Server, proxy: PushProxy) -> None:
    host = proxy.url.removeprefix("http://")
    parts = image(tmp_path / "1", b"base", BIG)
    published(parts, f"{host}/one:1")
    proxy.asked.clear()
    push = open_push(parse_reference(f"{host}/team/two:1"), Site(Path("/")), 0.01)
    push.known = {part.digest: "one" for part in parts.blobs[:-1]} | {parts.blobs[-1].digest: "never/there"}
    made = publish_to_registry(parts, parse_reference(f"{host}/team/two:1"), push, SilentReporter(), move=False)
    last = parts.blobs[-1]
    assert (made.sent, made.sent_bytes) == (
        1,
        last.size,
    )  # the registry has no such blob in the repository that was named
    assert digest_there(registry.host, "team/two:1") == parts.digest
    assert sum(proxy.sent("PUT")) < last.size + 5_000
    assert not list(registry.root.glob("**/team/two/_uploads/*/startedat"))  # an upload that was begun in vain is ended


def test_a_copy_by_the_registry_needs_a_token_for_both_repositories(tmp_path: Path) -> None:
    with tokens(tmp_path / "tokens") as service, serve(tmp_path / "by-token", service.configuration()) as server:
        service.allowed.add("")
        parts = image(tmp_path / "1", b"base", BIG)
        published(parts, f"{server.host}/one:1")
        found = parse_reference(f"{server.host}/two:1")
        push = open_push(found, Site(Path("/")), 0.01)
        push.known = {part.digest: "one" for part in parts.blobs}
        made = publish_to_registry(parts, found, push, SilentReporter(), move=False)
        assert (made.sent, made.present) == (0, 3)
        scopes = [values.get("scope", "") for _, _, values in service.asked]
        assert any("repository:one:pull" in scope and "repository:two:" in scope for scope in scopes)


def test_a_login_is_used_and_a_missing_one_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "private"
    with serve(place, htpasswd(place), f"{USER}:{PASSWORD}") as server:
        parts = image(tmp_path / "1", BIG)
        with pytest.raises(PublishError) as caught:
            published(parts, f"{server.host}/app:1")
        assert caught.value.hint == f"docker login {server.host}"
        (tmp_path / "docker").mkdir()
        auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        (tmp_path / "docker/config.json").write_text(json.dumps({"auths": {server.host: {"auth": auth}}}))
        published(parts, f"{server.host}/app:1")
        assert digest_there(server.host, "app:1", f"--creds={USER}:{PASSWORD}") == parts.digest
        part = {"auths": {f"{server.host}/team": {"auth": auth}}}  # as `podman login HOST/team` writes
        (tmp_path / "docker/config.json").write_text(json.dumps(part))
        published(parts, f"{server.host}/team/app:1")
        assert digest_there(server.host, "team/app:1", f"--creds={USER}:{PASSWORD}") == parts.digest
        with pytest.raises(PublishError):
            published(parts, f"{server.host}/teams/app:1")


def test_a_registry_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match=r"cannot be used; tried: https://127\.0\.0\.1:9"):
        published(image(tmp_path / "1", b"x"), "127.0.0.1:9/app:1")
