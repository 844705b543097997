"""Every pair of recipe, version and provider against its real source. Run it with `make rehearsal`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envbuild.core.errors import EnvbuildError
from tests.rehearsal.configure import configure
from tests.rehearsal.pairs import Pair, pairs
from tests.rehearsal.printed import PRINTED
from tests.rehearsal.records import read_records, write_records
from tests.rehearsal.scan import scan, summary
from tests.rehearsal.sources import SITE, Upstream, missing_submodules, open_upstream

pytestmark = pytest.mark.rehearsal

MINUTES = "ENVBUILD_REHEARSAL_MINUTES"
PASSED = "passed"
BEGAN = time.monotonic()
CODE = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("[cps]*.py")))
MISSING = pytest.param(None, marks=pytest.mark.skip(reason=f"{SITE} names no site.yaml with upstream's repositories"))
# Collected without a site, too, by every run of the tests: the pairs themselves take seconds.
PAIRS = [pytest.param(pair, id=pair.key) for pair in pairs()] if os.environ.get(SITE) else [MISSING]


@pytest.fixture(scope="session")
def upstream() -> Upstream:
    found = open_upstream()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="session")
def records(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Collect the records of this run; `--update-golden` writes them and the page."""
    found: dict[str, Any] = {}
    yield found
    if request.config.getoption("--update-golden"):
        current = {pair.values[0].key for pair in PAIRS if isinstance(pair.values[0], Pair)}
        write_records({key: row for key, row in {**read_records(), **found}.items() if key in current})


def read_source(pair: Pair, upstream: Upstream, folder: Path) -> dict[str, Any]:
    """Return the record of a pair without its configure stage. Raises AssertionError if the recipe is wrong."""
    made, env = pair.made()
    sources = made.sources(env)
    try:
        found = upstream.unpack(sources, folder)
    except EnvbuildError as error:
        return {"not rehearsed": reason(error.message)}
    for git in sources.git:
        assert missing_submodules(git, found[f"{git.origin}@{git.commit[:12]}"]) == []
    first = next(iter(found.values()))
    prints = ""
    if pair.name in PRINTED:
        text = PRINTED[pair.name](first, sources.git[0].commit)
        check = next(check for check in made.verify(env) if check.expect and text.check in check.name)
        assert re.search(check.expect, text.text, re.MULTILINE), f"{check.expect!r} does not match {text.text!r}"
        prints = "matches"
    return {"sources": sorted(found), "calls": summary(scan(first)), "prints": prints}


def reason(message: str) -> str:
    """Return the first line of an error without the places of this machine."""
    return re.sub(r"; tried:[\s\S]*| \([^)]*\.tar\)", "", message).partition("\n")[0]


def cache_file(pair: Pair, upstream: Upstream) -> Path:
    """Return the file of the store that has the record of a pair, as its recipe and these tests are now."""
    digest = hashlib.sha256(CODE + pair.text().encode()).hexdigest()
    folder = upstream.store.root / "rehearsal"
    folder.mkdir(exist_ok=True)
    return folder / f"{digest}.json"


def left_out() -> str:
    """Return why nothing more is begun in this run; "" while there is time."""
    limit = os.environ.get(MINUTES, "20")
    return f"not reached in the {limit} minutes of a run" if time.monotonic() - BEGAN > 60 * float(limit) else ""


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_against_its_source(pair: Pair, upstream: Upstream, records: dict[str, Any], tmp_path: Path) -> None:
    cached = cache_file(pair, upstream)
    if not cached.is_file():
        if late := left_out():
            records[pair.key] = read_records().get(pair.key, {"not rehearsed": late})
            pytest.skip(f"{late}; run it again: what is done is kept")
        row = read_source(pair, upstream, tmp_path / "source")
        if "not rehearsed" in row:  # a site that names fewer repositories takes nothing back
            records[pair.key] = read_records().get(pair.key, row)
            pytest.skip(f"not rehearsed: {row['not rehearsed']}")
        cached.write_text(json.dumps(row))
    records[pair.key] = json.loads(cached.read_text())


@pytest.mark.parametrize("pair", PAIRS)
def test_the_configure_stage_of_a_pair(pair: Pair, upstream: Upstream, records: dict[str, Any]) -> None:
    cached = cache_file(pair, upstream)
    if not cached.is_file():
        pytest.skip("its source was not read")
    row = json.loads(cached.read_text())
    if "configure" not in row:
        if late := left_out():
            records[pair.key] = {"configure": f"not run: {late}", **read_records().get(pair.key, {}), **row}
            pytest.skip(f"{late}; run it again: what is done is kept")
        row["configure"] = configure(pair, upstream)
        if row["configure"] == PASSED:
            cached.write_text(json.dumps(row))
    # a run without the heavy units takes nothing back
    passed_before = read_records().get(pair.key, {}).get("configure") == PASSED
    records[pair.key] = {**row, "configure": PASSED} if passed_before else row
    if row["configure"] != PASSED:
        pytest.skip(row["configure"])
