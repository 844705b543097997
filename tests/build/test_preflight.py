"""The checks before the first download: everything that is missing is one error, and nothing was fetched by then."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.build.forecast import Forecast
from envbuild.build.plan.units import Unit
from envbuild.build.preflight import check_before_fetch
from envbuild.build.steps import Step
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError, InputError
from envbuild.core.store.store import Store
from envbuild.lock.inputs import list_inputs
from envbuild.lock.model import BaseImage, Lock, PythonFile, SourceFile
from envbuild.net.site import Site
from tests.support.fetching import PATH, deb, site
from tests.support.lock_server import Answers, serve
from tests.support.stored_inputs import lock

pytestmark = pytest.mark.unit
GB = 1_000_000_000
FORECAST = Forecast(("base",), 1, 1, 1, 1, 1, 10, None)
WHEEL = PythonFile("demo-1.0-py3-none-any.whl", "demo", "1.0", 5, "c" * 64)
ARCHIVE = SourceFile("x.tar.gz", "file:x.tar.gz", "d" * 64, 7)
COMMIT = SourceFile("y.tar", f"github:demo/y@{'1' * 40}", "e" * 64, 7, git=True)
REQUEST: Any = SimpleNamespace(source_places=lambda: {"x.tar.gz": "images/app.yaml:7:3"})


@pytest.fixture
def server() -> Iterator[Answers]:
    with serve() as answers:
        yield answers


@pytest.fixture
def closed() -> Iterator[str]:
    """Return an address at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


class ReporterOfTasks(SilentReporter):
    def start(self, task: str, text: str) -> None:
        self.info(text)


def check(
    at: Site,
    store: Store,
    wanted: Lock,
    forecast: Forecast = FORECAST,
    *units: Unit,
    kind: type[SilentReporter] = SilentReporter,
) -> list[str]:
    """Check; return the lines that were reported."""
    reporter = kind()
    workspace: Any = SimpleNamespace(site=at, store=store, reporter=reporter)
    check_before_fetch(forecast, units, list_inputs(wanted), wanted, REQUEST, workspace)
    return reporter.lines


def whole(*entries: Any) -> Lock:
    wanted = lock(*(entry for entry in entries if not isinstance(entry, (PythonFile, SourceFile))))
    python = {entry.file: entry for entry in entries if isinstance(entry, PythonFile)}
    return replace(
        wanted,
        python_files=python,
        sources={entry.file: entry for entry in entries if isinstance(entry, SourceFile)},
    )


def test_all_that_is_missing_is_one_error(server: Answers, closed: str, store: Store) -> None:
    server.faults[f"/{PATH}"] = [401]
    at = Site(
        store.root,
        mirrors={"debian:": (server.url,), "python:": (f"{closed}/simple",), "github:": (closed,)},
        use_host=False,
    )
    needs_memory = Unit("apex", "apex", (Step("true"),), memory_gb=1e6)
    forecast = replace(FORECAST, least=20 * GB, free=GB)
    with pytest.raises(InputError) as caught:
        check(at, store, whole(deb(b"x"), WHEEL, ARCHIVE, COMMIT), forecast, needs_memory)
    text = str(caught.value)
    assert caught.value.exit_code == 10 and len(caught.value.findings) == 6, text
    for part in (
        "HTTP 401",
        "demo-1.0-py3-none-any.whl",
        "images/app.yaml:7:3",
        f"github:demo/y@{'1' * 40}",
        "apex cannot be built here",
        "at least 20.0 GB are needed, and 1.0 GB are free",
    ):
        assert part in text
    assert not any(store.has_blob(entry.sha256) for entry in list_inputs(whole(deb(b"x"), WHEEL, ARCHIVE)))
    assert [path for path, _ in server.asked] == [f"/{PATH}"]


def test_places_that_answer_are_no_reason(server: Answers, store: Store, tmp_path: Path) -> None:
    """A file that left its archive is in a snapshot service; one place of two is enough."""
    assert check(site(store, server.url), store, lock(deb(b"x"))) == []
    assert check(site(store, str(tmp_path)), store, lock(deb(b"x"))) == []
    server.faults[f"/b/{PATH}"] = [401, 401]
    server.files[f"/c/{PATH}"] = b"x"
    assert check(site(store, f"{server.url}/b", f"{server.url}/c"), store, lock(deb(b"x"))) == []
    with pytest.raises(InputError, match="HTTP 401"):
        check(site(store, f"{server.url}/b"), store, lock(deb(b"x")))


def test_the_requests_are_announced(server: Answers, store: Store) -> None:
    server.files[f"/{PATH}"] = b"x"
    found = check(site(store, server.url), store, lock(deb(b"x")), kind=ReporterOfTasks)
    assert found == ["checking the places of 1 origin"]


def test_one_file_of_an_origin_is_requested_and_the_others_are_counted(server: Answers, store: Store) -> None:
    server.faults[f"/{PATH}"] = [401]
    wanted = lock(deb(b"long"), deb(b"x", "a", "pool/a.deb"), deb(b"y", "b", "pool/b.deb"))
    with pytest.raises(InputError, match="and 2 other files of debian:trixie/main"):
        check(site(store, server.url), store, wanted)
    assert len(server.asked) == 1


def test_a_registry_that_does_not_have_the_base_is_found(closed: str, store: Store, tmp_path: Path) -> None:
    image = BaseImage("ghcr.io/demo/base:1", "a" * 64, "b" * 64, (("c" * 64, 9, ""),), "debian:13")
    with pytest.raises(InputError, match=r"ghcr\.io/demo/base") as caught:
        check(site(store, **{"oci": (str(tmp_path),)}), store, replace(lock(), base_image=image))
    assert len(caught.value.findings) == 1


def test_disk_and_memory_alone_are_errors_of_the_engine(store: Store) -> None:
    with pytest.raises(EngineError, match="too little space for this build: at least 11 B"):
        check(site(store), store, lock(), replace(FORECAST, least=11))
    assert check(site(store), store, lock(), replace(FORECAST, least=10)) == []


def test_a_disk_that_may_get_full_is_a_warning(store: Store) -> None:
    (line,) = check(site(store), store, lock(), replace(FORECAST, peak=11))
    assert "may get full: about 11 B are needed at most, and 10 B are free" in line
