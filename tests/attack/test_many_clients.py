"""Many clients pull one image at the same time, several of them into one store: no error, and a store fetches each blob
once.

ENVBUILD_ATTACK_N decides how many there are: from 50 on eight stores with eight clients each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from envbuild.core.digest import file_digest
from tests.support.command import ROOT
from tests.support.cutting_proxy import cutting
from tests.support.foreign_images import layers, noise
from tests.support.local_registry import Server, file, tar
from tests.support.published import built, publish
from tests.support.registry_fixtures import no_logins as no_logins
from tests.support.registry_fixtures import registry as registry

pytestmark = pytest.mark.registry

STORES, CLIENTS = (8, 8) if int(os.environ.get("ENVBUILD_ATTACK_N", "1")) >= 50 else (2, 4)


def test_many_clients_of_several_stores_fetch_each_blob_once_per_store(tmp_path: Path, registry: Server) -> None:
    more = [tar(file(f"more-{number}", noise(3_000_000, number + 9))) for number in range(4)]
    parts, artifacts, sha256 = built(tmp_path / "a", [*layers(), *more])
    publish(parts, artifacts, f"{registry.host}/app:1")
    started: list[tuple[int, subprocess.Popen[str]]] = []
    with ExitStack() as stack:
        doors = [stack.enter_context(cutting(registry.host)) for _ in range(STORES)]
        for client in range(CLIENTS):
            for store, door in enumerate(doors):
                words = ["pull", f"{door.url.removeprefix('http://')}/app:1", "--json"]
                words += ["-o", str(tmp_path / f"{store}-{client}.sqsh")] if client % 2 else []
                environment = {
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "ENVBUILD_STORE": str(tmp_path / f"store-{store}"),
                }
                process = subprocess.Popen(
                    [sys.executable, "-m", "envbuild", *words],
                    env=environment, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )  # fmt: skip
                started.append((store, process))
        made = []
        for store, process in started:
            output, errors = process.communicate()
            assert process.returncode == 0, (store, errors)
            made.append(json.loads(output))
    assert {item["sha256"] for item in made} == {sha256}
    assert {file_digest(Path(path)) for path in {item["path"] for item in made}} == {sha256}
    for store, door in enumerate(doors):
        fetched = Counter(path.rpartition("/")[2] for path, _ in door.asked)
        assert len(fetched) >= 6, f"store {store}"  # packs, tables, the list of packs
        assert set(fetched.values()) == {1}, f"store {store}: {fetched}"
