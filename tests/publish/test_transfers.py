"""Transfers of blobs from registries that are busy, cut connections, ignore ranges, or keep blobs on another host."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path

import pytest

from envbuild.core.errors import InputError, PublishError
from envbuild.net.failures import UnreachableError
from envbuild.net.lanes import Lanes
from envbuild.net.miss import MissKind
from envbuild.net.registry.client import LONGEST_REQUESTED
from envbuild.net.registry.reference import parse_reference
from envbuild.net.registry.upload import persist
from envbuild.net.site import Site
from envbuild.net.transport import retry_delay
from envbuild.publish import pull as pull_module
from envbuild.publish.image_parts import ImageParts
from envbuild.publish.registry import open_push
from tests.support.cutting_proxy import Cutter, cutting
from tests.support.foreign_images import layers, noise
from tests.support.local_registry import PASSWORD, USER, Layout, Server, file, htpasswd, serve, tar
from tests.support.published import built, publish, pull
from tests.support.push_proxy import pushing

pytestmark = pytest.mark.registry


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_module, "FIRST_PAUSE", 0.01)


def host_of(proxy: Cutter) -> str:
    return proxy.url.removeprefix("http://")


def test_a_download_resumes_only_what_is_the_same(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    with cutting(registry.host) as proxy:
        proxy.cuts, proxy.least = [100_000, 500_000], 1_000_000
        assert pull(f"{host_of(proxy)}/app:1", tmp_path / "b")["sha256"] == sha256
        resumed = [
            (path, condition) for (path, wanted), condition in zip(proxy.asked, proxy.conditions, strict=True) if wanted
        ]
        assert len(resumed) == 2 and all(condition == f'"{path.rpartition("/")[2]}"' for path, condition in resumed)


@pytest.mark.parametrize("busy", [[429] * 3, [503, 500, 502, 504], [408, 425]])
def test_a_busy_registry_gets_the_same_request_again(tmp_path: Path, registry: Server, busy: list[int]) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    with cutting(registry.host) as proxy:
        name = f"{host_of(proxy)}/app:1"
        proxy.busy = list(busy)
        assert pull(name, tmp_path / "b")["sha256"] == sha256 and not proxy.busy


def test_a_blob_on_another_host_gets_no_login(tmp_path: Path) -> None:
    place = tmp_path / "private"
    with (
        serve(place, htpasswd(place), f"{USER}:{PASSWORD}") as server,
        cutting(server.host) as storage,
        cutting(server.host) as front,
    ):
        auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        (tmp_path / "docker").mkdir()
        logins = {host: {"auth": auth} for host in (server.host, host_of(front), host_of(storage))}
        (tmp_path / "docker/config.json").write_text(json.dumps({"auths": logins}))
        parts, artifacts, _ = built(tmp_path / "a", layers())
        publish(parts, artifacts, f"{server.host}/app:1")
        front.elsewhere = storage.url
        with pytest.raises(InputError, match="app"):  # the storage requires a login itself, and gets none
            pull(f"{host_of(front)}/app:1", tmp_path / "b")
        assert any(front.logins) and storage.logins and not any(storage.logins)


def test_a_redirected_download_resumes_at_the_registry(tmp_path: Path, registry: Server) -> None:
    """An address of a storage service ends after some minutes."""
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    with cutting(registry.host) as storage, cutting(registry.host) as front:
        front.elsewhere, storage.cuts, storage.least = storage.url, [100_000], 1_000_000
        assert pull(f"{host_of(front)}/app:1", tmp_path / "b")["sha256"] == sha256
        assert [wanted for _, wanted in front.asked if wanted] == ["bytes=100000-"]


def test_fewer_downloads_at_a_time_after_too_many_requests(tmp_path: Path, registry: Server) -> None:
    contents = [*layers(), *(tar(file(f"f{number}", noise(1_100_000, number))) for number in range(12))]
    parts, artifacts, sha256 = built(tmp_path / "a", contents)
    publish(parts, artifacts, f"{registry.host}/app:1")
    with cutting(registry.host) as proxy:
        proxy.pause = 0.3
        pull(f"{host_of(proxy)}/app:1", tmp_path / "b")
        usual, proxy.most[:] = max(proxy.most), []
        proxy.busy = [0, *[429] * 8]  # the document of the squashfs file comes first
        assert pull(f"{host_of(proxy)}/app:1", tmp_path / "c")["sha256"] == sha256
        assert usual > 4 >= max(proxy.most)


def test_lanes_are_halved_once_for_all_that_were_running() -> None:
    lanes, gate, begun = Lanes(8), threading.Barrier(8), threading.Barrier(8)

    def work() -> None:
        with lanes.lane():
            gate.wait()
            with lanes.rest():
                begun.wait()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (lanes.limit, lanes.running) == (4, 0)
    with lanes.rest():  # of a thread without a lane
        assert lanes.limit == 4
    for _ in range(4):
        with lanes.lane(), lanes.rest():
            pass
    assert (lanes.limit, lanes.running) == (1, 0)


def test_an_upload_that_is_refused_frees_its_lane() -> None:
    lanes, seen = Lanes(4), list[tuple[int, int]]()

    def request() -> str:
        if len(seen) < 2:
            seen.append((lanes.limit, lanes.running))
            raise UnreachableError("HTTP 429", kind=MissKind.RATE_LIMITED)
        return "done"

    with lanes.lane():
        assert persist(request, 0.01, lanes) == "done"
    assert seen == [(4, 1), (2, 1)] and (lanes.limit, lanes.running) == (1, 0)


def test_fewer_uploads_at_a_time_after_too_many_requests(tmp_path: Path, registry: Server) -> None:
    layout = Layout(tmp_path / "layout")
    layout.add(layout.image([tar(file("f", noise(100_000, number))) for number in range(6)], compression="none"), "x")
    parts = ImageParts.read(tmp_path / "layout")
    with pushing(registry.host) as proxy:
        reference = parse_reference(f"{proxy.url.removeprefix('http://')}/app:1")
        push, proxy.busy = open_push(reference, Site(Path("/")), 0.01), [429]
        for part in parts.contents:
            with push.lanes.lane():
                push.blob(part.open, part.digest, part.size)
        assert push.lanes.limit == 2 and not proxy.busy


def test_no_upload_begins_after_a_refusal(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    with pushing(registry.host) as proxy:
        proxy.busy = [403] * 100
        with pytest.raises(PublishError, match="HTTP 403"):
            publish(parts, artifacts, f"{proxy.url.removeprefix('http://')}/app:1")
        assert sum(method == "POST" for method, _, _ in proxy.asked) <= 5


def test_a_registry_may_request_five_minutes() -> None:
    assert (retry_delay("200"), retry_delay("200", LONGEST_REQUESTED), retry_delay("900", LONGEST_REQUESTED)) == (
        60,
        200,
        300,
    )
