"""The whole step, on a small archive and a folder of wheels."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import ConflictError, Finding, SpecError
from envbuild.core.store.store import Store
from envbuild.lock.component_versions import matches_version
from envbuild.lock.diff import describe_changes
from envbuild.lock.fetch import inputs_to_fetch
from envbuild.lock.lockfile import dump_lock
from envbuild.lock.make_lock import make_lock
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.net.site import Site
from envbuild.net.uv_program import uv_version
from envbuild.spec.recipe import Archive
from tests.support.debian_archive import RELEASED, Signer, publish, stanza
from tests.support.lock_server import wheel
from tests.support.lock_site import make

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
    pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not installed"),
]
REQUEST = LockRequest(
    "demo",
    "debian:13",
    "debian:13",
    "amd64",
    "3.13",
    {
        "base": UnitRequest(debian=("python3.13",)),
        "debian": UnitRequest(debian=("openssl",)),
        "venv": UnitRequest(python=("demo",)),
        "build-x": UnitRequest(archives=(Archive("x", "file:x.tar.gz", "x.tar.gz"),)),
    },
    spec={"components": {"ssl": "openssl", "demo": "demo", "gone": "nowhere"}},
)


@pytest.fixture
def site(tmp_path: Path, key: Signer) -> Site:
    main = (stanza("dash", essential=True), stanza("apt"), stanza("python3.13", "3.13.5-2"), stanza("openssl", "3.0-1"))
    publish(tmp_path / "debian", "trixie", main, key)
    publish(tmp_path / "debian", "trixie-updates", (), key)
    publish(tmp_path / "security", "trixie-security", (), key)
    wheel(tmp_path / "wheels", "demo", "1.0", requires=("other ; python_full_version >= '3.13.5'",))
    wheel(tmp_path / "wheels", "other", "1.0")
    wheel(tmp_path / "wheels", "uv", uv_version(), "py3-none-manylinux_2_28_x86_64")
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/x.tar.gz").write_bytes(b"x")
    return Site(
        tmp_path / "store",
        mirrors={
            "debian:": (str(tmp_path / "debian"),),
            "debian-security:": (str(tmp_path / "security"),),
            "python:": (str(tmp_path / "wheels"),),
            "file:": (str(tmp_path / "sources"),),
        },
        debian_keyring=key.keyring,
    )


@pytest.mark.slow_unit
def test_everything_is_named(site: Site) -> None:
    lock = make(site, REQUEST)
    assert list(lock.units) == ["base", "debian", "venv", "build-x", "tools"]
    assert lock.units["base"].essential == ("apt_1.0_amd64.deb", "dash_1.0_amd64.deb")
    assert lock.units["base"].debian == ("apt_1.0_amd64.deb", "dash_1.0_amd64.deb", "python3.13_3.13.5-2_amd64.deb")
    assert lock.units["base"].requested == ("python3.13",)
    # The marker holds only because the exact Python version is taken from Debian's package.
    assert lock.units["venv"].python == ("demo-1.0-py3-none-any.whl", "other-1.0-py3-none-any.whl")
    assert lock.units["build-x"].sources == ("x.tar.gz",)
    assert lock.units["tools"].python == (f"uv-{uv_version()}-py3-none-manylinux_2_28_x86_64.whl",)
    assert set(lock.tools) == {"envbuild", "hpccm", "uv"}
    assert lock.versions == {"ssl": "3.0-1", "demo": "1.0"}
    assert lock.inputs == REQUEST.digest()
    assert lock.epoch == RELEASED
    text = dump_lock(lock)
    assert "://" not in text and str(site.store.parent) not in text
    assert {file.file for file in inputs_to_fetch(lock, Store(site.store))} >= {"dash_1.0_amd64.deb"}


@pytest.mark.slow_unit
def test_locked_versions_are_preserved_until_an_upgrade_is_requested(site: Site, tmp_path: Path, key: Signer) -> None:
    first = make(site, REQUEST)
    wheel(tmp_path / "wheels", "demo", "2.0")
    publish(tmp_path / "security", "trixie-security", [stanza("openssl", "3.0-2")], key)
    assert make(site, REQUEST, first) is first
    again = make(site, REQUEST, first, refresh=True)
    assert again == first
    more = replace(REQUEST, units={**REQUEST.units, "venv": UnitRequest(python=("demo", "uv"))})
    assert describe_changes(first, make(site, more, first)) == []
    assert describe_changes(first, make(site, REQUEST, first, "demo")) == ["demo 1.0 → 2.0", "- other 1.0"]
    assert describe_changes(first, make(site, REQUEST, first, "openssl")) == ["openssl 3.0-1 → 3.0-2"]
    assert len(describe_changes(first, make(site, REQUEST, first, "*"))) == 3
    (tmp_path / "wheels/demo-1.0-py3-none-any.whl").unlink()
    assert describe_changes(first, make(site, REQUEST, first, refresh=True)) == ["demo 1.0 → 2.0", "- other 1.0"]


@pytest.mark.slow_unit
def test_the_epoch_is_the_date_of_the_release_file(site: Site) -> None:
    assert make(site, REQUEST).epoch == RELEASED
    assert make(site, replace(REQUEST, image="other")).epoch == RELEASED


@pytest.mark.slow_unit
def test_second_copies_are_reported_before_any_download(site: Site) -> None:
    """With the packages that require each one; packages of builds only are not checked."""
    seen: list[Mapping[str, Sequence[str]]] = []

    def clashes(wheels: Mapping[str, Sequence[str]]) -> list[Finding]:
        seen.append(dict(wheels))
        return [Finding(f"two of {name}", "x.yaml:1:1") for name in wheels if name == "other"]

    units = {**REQUEST.units, "build-x": UnitRequest(python=("uv",))}
    store = Store.open(site.store)
    with pytest.raises(ConflictError) as caught:
        make_lock(replace(REQUEST, units=units), site, store, SilentReporter(), find_conflicts=clashes)
    assert seen == [{"demo": (), "other": ("demo",)}]
    assert caught.value.exit_code == 3
    assert [(finding.message, finding.where) for finding in caught.value.findings] == [("two of other", "x.yaml:1:1")]
    for name in ("demo", "other"):  # a folder names no digests, so a file that is chosen is fetched
        content = (site.store.parent / f"wheels/{name}-1.0-py3-none-any.whl").read_bytes()
        assert not store.has_blob(hashlib.sha256(content).hexdigest())


@pytest.mark.slow_unit
def test_a_misspelt_upgrade(site: Site) -> None:
    with pytest.raises(SpecError) as caught:
        make(site, REQUEST, make(site, REQUEST), "opnssl")
    assert caught.value.hint == "did you mean 'openssl'?"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nosuch", "its packages are demo, openssl and others"),
        pytest.param("ssl", "the package of ssl is openssl: --upgrade openssl", marks=pytest.mark.slow_unit),
        pytest.param("python", "did you mean 'python3.13'?", marks=pytest.mark.slow_unit),
    ],
)
@pytest.mark.slow_unit
def test_unknown_upgrade_is_answered_with_packages(site: Site, name: str, hint: str) -> None:
    first = make(site, REQUEST)
    with pytest.raises(SpecError) as caught:
        make(site, REQUEST, first, name)
    assert caught.value.message == f"the image has no package '{name}' to upgrade"
    assert caught.value.hint == hint


def asking(**versions: str) -> LockRequest:
    return replace(
        REQUEST, spec={**REQUEST.spec, "layers": {name: {"version": text} for name, text in versions.items()}}
    )


@pytest.mark.slow_unit
def test_versions_that_recipes_refuse(site: Site) -> None:
    """Nothing in this request selects them: the packages are named without a version."""
    with pytest.raises(ConflictError) as caught:
        make(site, asking(ssl="9.9", demo="1.1", gone="1"))
    assert [(finding.message, finding.hint) for finding in caught.value.findings] == [
        (
            "ssl 9.9 is not available, because debian:trixie/main has 3.0-1 and the recipe takes it from there",
            'leave the version of ssl out, or write version: "3.0"',
        ),
        (
            "demo 1.1 is not available, because the package index has 1.0 and the recipe takes it from there",
            'leave the version of demo out, or write version: "1.0"',
        ),
        (
            "gone 1 is not available, because the recipe installs no package 'nowhere', whose version that would be",
            "leave the version of gone out, or correct 'package' in the recipe",
        ),
    ]


@pytest.mark.slow_unit
def test_versions_that_recipes_accept(site: Site) -> None:
    assert make(site, asking(ssl="3", demo="1.0.0")).versions == {"ssl": "3.0-1", "demo": "1.0"}


@pytest.mark.slow_unit
def test_a_lock_that_answers_its_request_is_checked_too(site: Site) -> None:
    asked = asking(ssl="9.9")
    with pytest.raises(ConflictError):
        make(site, asked, replace(make(site, REQUEST), inputs=asked.digest()))


@pytest.mark.parametrize(
    ("asked", "locked", "python", "right"),
    [
        ("1.18", "1.18.1+ds-2+b1", False, True),
        ("1.18.1+ds-2+b1", "1.18.1+ds-2+b1", False, True),
        ("1.18", "1:1.18-1", False, True),
        ("1.1", "1.18.1+ds-2+b1", False, False),
        ("1.18.2", "1.18.1", False, False),
        ("18", "1.18.1", False, False),
        ("1x18", "1.18", False, False),
        ("1.18.0", "1.18", False, False),
        ("4.1.0", "4.1", True, True),
        ("2.15.0", "2.15.0+cu132", True, True),
        ("4.1.1", "4.1", True, False),
        ("abc", "4.1", True, False),
        ("4.2", "1" * 5000, True, False),
    ],
)
def test_a_requested_version_matches_at_component_boundaries(
    asked: str, locked: str, python: bool, right: bool
) -> None:
    assert matches_version(asked, locked, python=python) is right
