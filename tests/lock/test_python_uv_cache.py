"""uv's cache in the store: what an index answered to another site, or before a refresh, decides nothing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from envbuild.lock.model import Lock
from envbuild.lock.python.uv_cache import uv_cache
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.uv_program import uv_version
from tests.support.debian_archive import Signer, stanza
from tests.support.http_server import Handler, serving
from tests.support.lock_server import sha256, wheel
from tests.support.lock_site import MARKS, make, make_site

pytestmark = MARKS
SETTINGS = NetworkSettings()


def test_each_way_to_read_an_index_has_a_cache_of_its_own(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    others = (
        NetworkSettings(insecure=frozenset({"index.example"})),
        NetworkSettings(certificates="/etc/ca.pem"),
        NetworkSettings("http://proxy.example"),
    )
    found = [uv_cache(store, settings, fresh=False) for settings in (SETTINGS, *others)]
    assert len(set(found)) == 4 and uv_cache(store, SETTINGS, fresh=False) == found[0]


def test_a_fresh_cache_is_empty_and_the_one_before_is_removed_later(tmp_path: Path) -> None:
    """Another process may use it as long as uv may run."""
    store = Store.open(tmp_path)
    first = uv_cache(store, SETTINGS, fresh=False)
    (first / "page").touch()
    second = uv_cache(store, SETTINGS, fresh=True)
    assert not list(second.iterdir()) and uv_cache(store, SETTINGS, fresh=False) == second
    assert (first / "page").exists()
    os.utime(second.parent, (time.time() - 7200,) * 2)
    assert uv_cache(store, SETTINGS, fresh=False) == second and not first.exists()


@contextmanager
def false_index(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of an index, and the packages that it falsely states that `demo` requires: for ever."""
    files = [wheel(folder, "demo", "1.0"), wheel(folder, "extra", "6.6")]
    files.append(wheel(folder, "uv", uv_version(), "py3-none-manylinux_2_28_x86_64"))
    named, false = {file.name: file.read_bytes() for file in files}, ["extra"]

    class Answering(Handler):
        def do_GET(self) -> None:
            last = self.path.rstrip("/").rpartition("/")[2]
            listed = [name for name in named if name.split("-")[0] == last]
            body, kind = named.get(last, b""), "application/zip"
            if listed:
                kind = "application/vnd.pypi.simple.v1+json"
                entries = [
                    {"filename": name, "url": f"/f/{name}", "hashes": {"sha256": sha256(named[name])}}
                    | ({"core-metadata": True} if last == "demo" else {})
                    for name in listed
                ]
                body = json.dumps({"meta": {"api-version": "1.1"}, "name": last, "files": entries}).encode()
            elif last.endswith(".metadata"):
                requires = "".join(f"Requires-Dist: {name}\n" for name in false)
                body = f"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n{requires}".encode()
            self.send_response(200 if body else 404)
            for name, value in (("Content-Type", kind), ("Content-Length", str(len(body)))):
                self.send_header(name, value)
            if false:
                self.send_header("Cache-Control", "max-age=365000000, immutable, public")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

    with serving(Answering) as url:
        yield f"{url}/simple", false


@pytest.mark.slow_unit
def test_a_false_answer_of_an_index_does_not_outlive_a_refresh(tmp_path: Path, key: Signer) -> None:
    """Nor an upgrade; nor does it count for a site that reads the same index in another way."""
    base = make_site(tmp_path, key, [stanza("gcc")], [], wheel(tmp_path / "own", "torch", "2.9"))
    request = LockRequest("demo", "debian:13", "debian:13", "amd64", "3.13", {"venv": UnitRequest(python=("demo",))})

    def names(lock: Lock) -> set[str]:
        return {lock.python_files[file].name for file in lock.units["venv"].python}

    with false_index(tmp_path / "files") as (url, false):
        site = replace(base, mirrors={**base.mirrors, "python:": (url,)})
        other = replace(site, store=tmp_path / "other")
        first = make(site, request)
        assert names(first) == names(make(other, request)) == {"demo", "extra"}
        false.clear()
        assert names(make(replace(site, insecure_hosts=("other.example",)), request)) == {"demo"}
        assert names(make(site, request, refresh=True)) == names(make(site, request)) == {"demo"}
        assert names(make(other, request, first, "demo")) == {"demo"}
