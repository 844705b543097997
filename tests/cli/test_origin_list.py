"""``envbuild origins``: the place of each origin, the reason, and whether it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.cli.origin_list import list_origins
from envbuild.core.console import SilentReporter
from envbuild.core.errors import SpecError
from envbuild.core.store.store import Store
from envbuild.net import host_config
from envbuild.net.host_config import PythonIndexes
from envbuild.net.site import Site
from envbuild.net.unit_caches import UnitCache
from envbuild.spec.project import Project
from envbuild.spec.workspace import Workspace
from tests.support.home_files import homes
from tests.support.lock_server import Answers, serve

pytestmark = pytest.mark.unit
RECIPE = """
from dataclasses import dataclass
from typing import ClassVar
from envbuild.sdk import Archive, AptRepository, PythonIndex, Recipe, Sources

@dataclass(frozen=True, kw_only=True)
class Far(Recipe):
    prefix: ClassVar[str] = "/opt/far"

    def sources(self, env):
        repositories = [AptRepository(origin, "./", (), "0" * 40) for origin in ("apt:maker/one", "apt:none")]
        return Sources(
            archives=(Archive("tool", "vendor:maker/tool-1.tar.gz", "tool-1.tar.gz"),),
            repositories=tuple(repositories),
            indexes=(PythonIndex("pip:maker", ("x",)),),
        )
"""


@pytest.fixture
def server() -> Iterator[Answers]:
    with serve() as answers:
        yield answers


@pytest.fixture
def project(small: Project, tmp_path: Path) -> Project:
    assert small.root is not None
    for folder in ("images", "recipes"):
        (tmp_path / folder).mkdir()
    (tmp_path / "images/far.yaml").write_text("schema: 1\ntarget: node\nbase: debian:13\nlayers: {far: {}}\n")
    (tmp_path / "recipes/far.py").write_text(RECIPE)
    (tmp_path / "targets").symlink_to(small.root / "targets")
    return Project(tmp_path)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host_config, "debian_archives", lambda: {"debian:": (str(tmp_path / "archive"),)})
    monkeypatch.setattr(host_config, "pip_indexes", lambda: PythonIndexes((f"file://{tmp_path}/simple",)))


def space(project: Project, tmp_path: Path, **more: object) -> Workspace:
    store = Store.open(tmp_path / "store")
    return Workspace(project, Site(store.root, **more), store, SilentReporter())  # type: ignore[arg-type]


def entries(server: Answers) -> list[dict[str, object]]:
    kinds = ("apt:maker", "pip:maker", "vendor:maker", "gitlab:")
    return [{"origin": kind, "address": f"{server.url}/{kind.partition(':')[0]}"} for kind in kinds]


def test_the_place_and_the_reason_of_each_origin(project: Project, tmp_path: Path, server: Answers) -> None:
    at = space(project, tmp_path, mirrors={"pip:maker": ("/srv/wheels",)}, where="site.yaml")
    with homes(tmp_path / "homes", *entries(server)):
        result, silent = list_origins(["far"], at, probe=False)
    rows = {row["origin"]: row for row in result.data["origins"]}
    assert {origin: row["from"] for origin, row in rows.items()} == {
        "apt:maker/one": "public",
        "apt:none": "",
        "debian:trixie/main": "host",
        "pip:maker": "site",
        "python:": "host",
        "vendor:maker/tool-1.tar.gz": "public",
    }
    assert rows["pip:maker"]["places"] == ["/srv/wheels"]
    assert rows["apt:maker/one"]["places"] == [f"{server.url}/apt/one"]
    assert rows["apt:maker/one"]["because"] == "public home of Maker (maker.yaml)"
    assert rows["apt:none"]["line"] in result.text and rows["apt:none"]["places"] == []
    assert server.asked == [] and not silent
    json.dumps(result.data)


def test_a_probe_requests_what_a_lock_would_read(project: Project, tmp_path: Path, server: Answers) -> None:
    (tmp_path / "archive/dists/trixie").mkdir(parents=True)
    (tmp_path / "archive/dists/trixie/InRelease").touch()
    (tmp_path / "simple").mkdir()
    server.files = {"/apt/one/InRelease": b"x", "/pip/x/": b"x"}
    at = space(project, tmp_path, mirrors={"apt:none": (f"{server.url}/apt/one",)})
    with homes(tmp_path / "homes", *entries(server)):
        result, silent = list_origins(["far"], at, probe=True)
        assert silent  # tool-1.tar.gz
        answers = {row["origin"]: [item["answers"] for item in row["probes"]] for row in result.data["origins"]}
        assert answers.pop("vendor:maker/tool-1.tar.gz") == [False]
        assert set(map(tuple, answers.values())) == {(True,)}
        server.files["/vendor/tool-1.tar.gz"] = b"x"
        assert not list_origins(["far"], at, probe=True)[1]
    assert {path for path, _ in server.asked} == {"/apt/one/InRelease", "/pip/x/", "/vendor/tool-1.tar.gz"}


def test_without_names_all_images_and_all_homes(project: Project, tmp_path: Path, server: Answers) -> None:
    with homes(tmp_path / "homes", *entries(server)):
        result, _ = list_origins([], space(project, tmp_path), probe=False)
    rows = {row["origin"]: row["images"] for row in result.data["origins"]}
    assert rows["gitlab:"] == []  # a home that no image needs
    assert "far" in rows["apt:maker/one"] and "apt:maker" not in rows


def test_an_unknown_image(project: Project, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        list_origins(["nothing"], space(project, tmp_path), probe=False)


def test_caches_of_units_are_listed(project: Project, tmp_path: Path) -> None:
    caches = (UnitCache("ghcr.io/team/cache", None, True),)
    result, _ = list_origins(["far"], space(project, tmp_path, caches=caches), probe=False)
    assert result.data["caches"] == [{"at": "ghcr.io/team/cache", "write": True}]
    assert result.text.startswith("cache of units: ghcr.io/team/cache (also written)\n")
