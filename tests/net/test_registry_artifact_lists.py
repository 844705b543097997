"""Lists of the artifacts of an image that a registry has: their pages and limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.net.failures import RefusedError
from envbuild.net.registry import referrers
from envbuild.net.registry.client import RegistryAddress
from envbuild.net.registry.referrers import list_referrers
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from tests.support.local_registry import DIGEST

pytestmark = pytest.mark.unit


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
