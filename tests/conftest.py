"""Options of the test suite."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import QUICK
from tests.support.longest_first import LongestFirst

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

pytest_plugins = ["tests.support.fixtures"]

# The time of an example depends on the load of the machine: it is not a verdict. A commit gets the same verdict every
# time: its examples do not change. `pytest --hypothesis-profile=search` searches for new ones, and
# `quick` tries few.
SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("envbuild", derandomize=True, **SLOW)
settings.register_profile("quick", derandomize=True, max_examples=QUICK, **SLOW)
settings.register_profile("search", derandomize=False, print_blob=True, **SLOW)
settings.load_profile("envbuild")

# What the tests serve is on this machine, where the proxy that its environment may name cannot reach it.
if (direct := os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "") != "*":
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, (direct, "127.0.0.1", "localhost")))

# A run in the background of a shell script, as of `make test &`, ignores SIGINT, and so would all that it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Hide the envbuild settings of the user who runs the tests, not those of pip, git and podman."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    if hasattr(config, "workerinput") or not (own / "envbuild").exists():
        return
    folder = Path(tempfile.mkdtemp(prefix="config-"))
    folder.chmod(0o755)  # tests that run as another user look into it
    for path in own.iterdir():
        if path.name != "envbuild":
            (folder / path.name).symlink_to(path)
    os.environ["XDG_CONFIG_HOME"] = str(folder)  # for the workers, too
    config.add_cleanup(lambda: shutil.rmtree(folder))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the stored texts again instead of comparing")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hide from the garbage collector what no run ever frees: thousands of tests, and the modules that they use."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return LongestFirst(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Return whether the stored texts are written again."""
    return bool(request.config.getoption("--update-golden"))
