"""Registries that refuse a push, and two publishers of one tag: exit code 8, a cause, and no tag that was moved."""

from __future__ import annotations

import base64
import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, cast

import pytest

from envbuild.core.console import RecordingReporter, SilentReporter
from envbuild.core.errors import InputError, PublishError
from envbuild.net.registry.push import Push
from envbuild.net.registry.reference import parse_reference
from envbuild.net.registry.upload import RegistryAnswer, send
from envbuild.net.site import Site
from envbuild.publish.image_parts import BlobContent, ImageParts
from envbuild.publish.pull import pull_image
from envbuild.publish.registry import Published, open_push, publish_to_registry
from tests.support import token_server
from tests.support.foreign_images import layers, noise, workspace
from tests.support.local_registry import Layout, Server, file, serve, skopeo, tar
from tests.support.published import built, publish, pull
from tests.support.tls import make_certificates
from tests.support.token_server import Tokens, tokens

pytestmark = pytest.mark.registry

LAYERS = layers()[:1]  # with a shell


class SlowBlob:
    """A blob that calls `during` when it is read."""

    start = 0

    def __init__(self, blob: BlobContent, during: Callable[[], object]) -> None:
        self.blob, self.digest, self.size, self.during = blob, blob.digest, blob.size, during

    def open(self) -> IO[bytes]:
        self.during()
        return self.blob.open()  # type: ignore[return-value]


def image(folder: Path, content: bytes) -> ImageParts:
    layout = Layout(folder)
    layout.add(layout.image([tar(file("f", content))], compression="none"), "x")
    return ImageParts.read(folder)


def refused(call: Callable[[], object]) -> PublishError:
    with pytest.raises(PublishError) as caught:
        call()
    assert caught.value.exit_code == 8
    return caught.value


def tagged(server: Server, name: str) -> str:
    found = skopeo("inspect", "--tls-verify=false", f"docker://{server.host}/{name}")
    return str(json.loads(found)["Digest"])


def has_no_tag(server: Server, name: str) -> bool:
    return not (server.root / f"docker/registry/v2/repositories/{name}/_manifests/tags").exists()


def test_a_registry_that_refuses_artifacts_is_named_and_gets_no_tag(tmp_path: Path) -> None:
    parts, artifacts, _ = built(tmp_path / "a", LAYERS)
    with serve(tmp_path / "registry", "policy: {repository: {classes: [image]}}\n") as server:
        error = refused(lambda: publish(parts, artifacts, f"{server.host}/app:1"))
        assert "takes the image and refuses the artifact with its squashfs file: HTTP 403" in error.message
        assert "docker login" not in error.hint and "--to oci:DIR" in error.hint
        assert has_no_tag(server, "app")


def test_a_read_only_registry(tmp_path: Path) -> None:
    with serve(tmp_path / "registry", storage="maintenance: {readonly: {enabled: true}}") as server:
        error = refused(lambda: publish(image(tmp_path / "1", b"x"), [], f"{server.host}/app:1"))
        assert "HTTP 405" in error.message and "read-only" in error.hint


@pytest.fixture
def by_token(tmp_path: Path) -> Iterator[tuple[Tokens, Server]]:
    """Yield a registry with its token service, which accepts the login of the user's file."""
    with tokens(tmp_path / "tokens") as service, serve(tmp_path / "by-token", service.configuration()) as server:
        login = base64.b64encode(b"user:word").decode()
        (tmp_path / "docker").mkdir()
        (tmp_path / "docker/config.json").write_text(json.dumps({"auths": {server.host: {"auth": login}}}))
        service.allowed.add(f"Basic {login}")
        yield service, server


def expired(service: Tokens, scopes: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a token that ended ten minutes ago."""
    with monkeypatch.context() as changed:
        changed.setattr(token_server, "time", SimpleNamespace(time=lambda: time.time() - 900))
        return Tokens.sign(service, scopes)


def test_a_token_that_ends_during_a_push_is_renewed(
    tmp_path: Path, by_token: tuple[Tokens, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, server = by_token
    parts, reference = image(tmp_path / "1", b"x"), parse_reference(f"{server.host}/app:1")
    push = open_push(reference, Site(Path("/")), 0.01)
    login, old = push.transport.login, expired(service, ["repository:app:pull,push"], monkeypatch)
    assert login
    first, *others = parts.contents
    slow = SlowBlob(first, lambda: login.known.update({(server.url, "app"): f"Bearer {old}"}))
    made = publish_to_registry(replace(parts, contents=[slow, *others]), reference, push, SilentReporter(), move=False)
    assert made.sent == 2 and login.known[server.url, "app"] != f"Bearer {old}"


def test_a_token_of_another_thread_may_have_no_right_for_a_request(
    tmp_path: Path, by_token: tuple[Tokens, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tokens end at once: the first request that notices it is perhaps one that only reads."""
    service, server = by_token
    push = open_push(parse_reference(f"{server.host}/app:1"), Site(Path("/")), 0.01)
    login, key = push.transport.login, (server.url, "app")
    assert login
    login.known[key] = f"Bearer {expired(service, ['repository:app:pull,push'], monkeypatch)}"
    other = f"Bearer {service.sign(['repository:app:pull'])}"

    class Body(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            login.known[key] = other
            return super().read(size)

    body = Body(b"x" * 1000)
    sent = send(
        push.transport,
        "POST",
        f"{server.url}/v2/app/blobs/uploads/",
        {"Content-Length": "1000"},
        cast("io.RawIOBase", body),
    )
    assert sent.status == 202


def test_a_login_that_may_only_pull_is_reported_as_such(
    tmp_path: Path, by_token: tuple[Tokens, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, server = by_token
    monkeypatch.setattr(
        service, "sign", lambda scopes: Tokens.sign(service, [f"{item.rpartition(':')[0]}:pull" for item in scopes])
    )
    error = refused(lambda: publish(image(tmp_path / "1", b"x"), [], f"{server.host}/app:1"))
    assert re.search(r"may not do that \(repository:app:(pull,push|push,pull)\)", error.message)
    assert "does not accept" not in error.message
    assert error.hint == f"docker login {server.host}" and has_no_tag(server, "app")


def test_a_new_token_that_has_ended_is_no_fault_of_the_login(
    tmp_path: Path, by_token: tuple[Tokens, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, server = by_token
    monkeypatch.setattr(service, "sign", lambda scopes: expired(service, scopes, monkeypatch))
    error = refused(lambda: publish(image(tmp_path / "1", b"x"), [], f"{server.host}/app:1"))
    assert "the token that its own token service has just issued" in error.message and "clocks" in error.hint
    with pytest.raises(InputError, match="has just issued") as caught:
        pull(f"{server.host}/app:1", tmp_path / "b")
    assert caught.value.exit_code == 10 and "clocks" in caught.value.hint


def test_a_private_authority_is_needed_and_named(tmp_path: Path) -> None:
    """podman and skopeo pull with the file of the site, too."""
    parts, artifacts, sha256 = built(tmp_path / "a", LAYERS)
    right, _ = make_certificates(tmp_path / "right")
    wrong, _ = make_certificates(tmp_path / "wrong")
    at = workspace(tmp_path / "b")
    with serve(tmp_path / "registry", tls=right.parent) as server:
        name = f"{server.host}/app:1"

        def publish_with(authority: Path | None) -> Published:
            found, site = parse_reference(name), Site(Path("/"), ca_bundle=authority)
            push = open_push(found, site, 0.01)
            return publish_to_registry(parts, found, push, SilentReporter(), move=False, artifacts=artifacts)

        for authority in (None, wrong):
            error = refused(lambda authority=authority: publish_with(authority))  # type: ignore[misc]
            assert "its certificate is not trusted" in error.message and "ca_bundle" in error.hint
            with pytest.raises(InputError, match="its certificate is not trusted") as caught:
                pull_image(name, None, replace(at, site=replace(at.site, ca_bundle=authority)))
            assert caught.value.exit_code == 10
        assert publish_with(right).digest == parts.digest
        made = pull_image(name, None, replace(at, site=replace(at.site, ca_bundle=right))).data
        assert made["sha256"] == sha256
        (tmp_path / "trust").mkdir()
        (tmp_path / "trust/ca.crt").write_bytes(right.read_bytes())
        skopeo("copy", f"--src-cert-dir={tmp_path}/trust", f"docker://{name}", f"oci:{tmp_path}/copy:1")
        assert parts.digest in (tmp_path / "copy/index.json").read_text()


def test_a_tag_that_appeared_while_blobs_were_sent_is_not_moved(tmp_path: Path, registry: Server) -> None:
    one, two = image(tmp_path / "1", b"one"), image(tmp_path / "2", b"two")
    name = f"{registry.host}/app:1"
    slow = replace(one, contents=[SlowBlob(one.contents[0], lambda: publish(two, [], name)), *one.contents[1:]])
    error = refused(lambda: publish(slow, [], name))
    assert "exists with another digest" in error.message and "--move" in error.hint
    assert tagged(registry, "app:1") == two.digest
    assert publish(one, [], name, move=True).sent == 0 and tagged(registry, "app:1") == one.digest


def test_a_tag_that_another_publisher_writes_at_once_is_noticed(
    tmp_path: Path, registry: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = image(tmp_path / "1", b"one"), image(tmp_path / "2", b"two")
    name, put = f"{registry.host}/app:1", Push.manifest

    def both(push: Push, content: bytes, kind: str, tag: str) -> RegistryAnswer:
        answer = put(push, content, kind, tag)
        if tag == "1" and content == one.manifest:
            put(push, two.manifest, two.kind, tag)
        return answer

    publish(two, [], f"{registry.host}/app:2")
    monkeypatch.setattr(Push, "manifest", both)
    error = refused(lambda: publish(one, [], name))
    assert two.digest in error.message and "another publisher used the same tag" in error.hint


def test_two_publishers_of_one_tag_leave_a_whole_image(tmp_path: Path, registry: Server) -> None:
    made = {
        number: built(tmp_path / str(number), [*LAYERS, tar(file("f", noise(20_000, number)))]) for number in (1, 2)
    }
    name, gate, done = f"{registry.host}/app:1", threading.Barrier(2), list[int]()

    def publish_one(number: int) -> None:
        gate.wait()
        try:
            publish(*made[number][:2], name)
        except PublishError:
            return
        done.append(number)

    threads = [threading.Thread(target=publish_one, args=[number]) for number in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner = next(number for number, (parts, *_) in made.items() if parts.digest == tagged(registry, "app:1"))
    assert winner in done or not done
    assert pull(name, tmp_path / "b")["sha256"] == made[winner][2]


def test_a_host_whose_certificate_is_not_checked_is_reported_by_every_command(tmp_path: Path) -> None:
    """`publish` sends a login there; what `pull` takes by a tag is what the network answers."""
    parts, artifacts, _ = built(tmp_path / "a", LAYERS)
    right, _ = make_certificates(tmp_path / "right")
    with serve(tmp_path / "registry", tls=right.parent) as server:
        name = f"{server.host}/app:1"
        reporter = RecordingReporter(SilentReporter())
        at = workspace(tmp_path / "b")
        at = replace(at, site=replace(at.site, insecure_hosts=("127.0.0.1",))).with_reporter(reporter)
        push = open_push(parse_reference(name), at.site, 0.01)
        publish_to_registry(parts, parse_reference(name), push, reporter, move=False, artifacts=artifacts)
        assert [line for line in reporter.take_warnings() if "certificate of 127.0.0.1 is not checked" in line]
        at = at.with_reporter(reporter)
        pull_image(name, None, at)
        assert (
            len([line for line in reporter.take_warnings() if "certificate of 127.0.0.1 is not checked" in line]) == 1
        )
