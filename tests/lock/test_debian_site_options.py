"""Options of the site and of this machine in the private apt: none runs a program, none weakens a check unsaid."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.distributions import find_distribution
from envbuild.core.errors import EngineError, InputError
from envbuild.core.store.store import Store
from envbuild.lock.debian import apt
from envbuild.lock.debian import resolve as debian
from envbuild.lock.debian.apt import configuration
from envbuild.lock.debian.apt_setup import AptSetup
from envbuild.net.site import Site
from envbuild.net.site_file import read_site
from envbuild.spec.recipe import AptRepository
from tests.support.command import envbuild
from tests.support.debian_archive import Signer, publish, stanza

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
    pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not installed"),
]
TRIXIE = find_distribution("debian:13")
MAIN = (stanza("dash", essential=True), stanza("apt"))
DAY = 86400


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the apt.conf of a machine without other settings."""
    (tmp_path / "apt.conf.d").mkdir()
    path = tmp_path / "apt.conf"
    path.write_text(f'Dir::Etc::parts "{tmp_path}/apt.conf.d";\n')
    monkeypatch.setenv("APT_CONFIG", str(path))
    return path


def archive(folder: Path, key: Signer, *, released: int = 0, days: int = 0) -> Site:
    """Return a site with a Debian archive of now, or of another time, that is valid for `days`."""
    for suite, stanzas in (("trixie", MAIN), ("trixie-updates", ())):
        publish(folder / "debian", suite, stanzas, key, released=released or int(time.time()) - 60, days=days)
    mirrors = {"debian:": (str(folder / "debian"),)}
    return Site(folder / "store", mirrors=mirrors, use_host=False, keyrings={"debian:": key.keyring})


def lock(
    site: Site, repositories: tuple[AptRepository, ...] = (), asked: str = "", reporter: SilentReporter | None = None
) -> list[str]:
    """Return the packages of the base, or of the unit that requires `asked`."""
    units = {"base": (), "debian": (asked,)} if asked else {"base": ()}
    request = debian.DebianRequest(TRIXIE, "amd64", units, repositories, refresh=True)
    found = debian.resolve(request, site, Store.open(site.store), reporter or SilentReporter())
    return [file.name for file in found.units["debian" if asked else "base"]]


@pytest.mark.parametrize(("hosts", "wanted"), [("*", "DIRECT"), ("a.example", "http://p:1"), ("", "http://p:1")])
def test_a_no_proxy_of_all_hosts(host: Path, monkeypatch: pytest.MonkeyPatch, hosts: str, wanted: str) -> None:
    """apt reads names and domains in no_proxy, and no `*`."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", hosts)
    host.write_text(f'{host.read_text()}Acquire::http::Proxy "http://of-this-machine:1";\n')
    setup = AptSetup(SimpleNamespace(site=SimpleNamespace(apt={}, proxy="http://p:1")))  # type: ignore[arg-type]
    options = setup.options()
    assert options["Acquire::http::Proxy"] == options["Acquire::https::Proxy"] == wanted


def test_apt_gets_the_hosts_of_its_archives_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads names in no_proxy, and no networks."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    given: dict[str, str] = {}

    def run(command: list[str], env: dict[str, str], **_: object) -> SimpleNamespace:
        given.update(env)
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(apt, "run_program", run)
    place = "http://me:hush@127.0.0.2:81/debian"
    source = apt.AptSource("debian:trixie/main", place, "trixie", ("main",), tmp_path / "keys.gpg")
    apt.Apt(tmp_path, (source,), 1).get("update")
    assert given["no_proxy"].split(",")[0] == "127.0.0.2"


@pytest.mark.slow_unit
def test_locking_runs_no_program_that_a_project_names(tmp_path: Path) -> None:
    """One command line, all of them: exit code 2, each key named, nothing ran."""
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    options = {
        "APT::Update::Pre-Invoke::": str(evil),
        "APT::Update::Post-Invoke::": str(evil),
        "Acquire::http::Proxy-Auto-Detect": str(evil),
        "APT::Key::gpgvcommand": str(evil),
        "Dir::Bin::gpg": str(evil),
        "Acquire::Check-Valid-Until": f'false"; APT::Update::Pre-Invoke {{ "{evil}"; }}; X "',
        "Acquire::AllowInsecureRepositories": "true",
    }
    project = tmp_path / "project"
    (project / "images").mkdir(parents=True)
    (project / "images/k.yaml").write_text(
        "schema: 1\ndescription: x\ntarget: cpu\nbase: debian:13\nlayers: {debian-packages: [dash]}\n"
    )
    lines = "".join(f"  '{key}': '{value}'\n" for key, value in options.items())
    (project / "site.yaml").write_text(f"schema: 1\nupstream: false\napt:\n{lines}")
    done = envbuild("lock", "k", cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    assert done.returncode == 2, done.stderr
    for number, key in enumerate(options, start=4):
        assert f"site.yaml:{number}:" in done.stderr and f"'{key}'" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_quotation_mark_never_reaches_the_configuration(tmp_path: Path) -> None:
    for options in ({"Acquire::Retries": '1"; X "'}, {"A": "b\nc"}, {'A "b"; X': "c"}, {"A{": "b"}, {"A;": "b"}):
        with pytest.raises(InputError, match="apt cannot read its option"):
            configuration(tmp_path, "amd64", options)


def test_a_date_setting_of_the_host_is_reported(tmp_path: Path, key: Signer, host: Path) -> None:
    site = archive(tmp_path, key, released=int(time.time()) - 700 * DAY, days=7)
    host.write_text(f'{host.read_text()}Acquire::check-date "false";\n')
    reporter = SilentReporter()
    assert "dash" in lock(site, reporter=reporter)
    (line,) = [line for line in reporter.lines if "Release files" in line]
    assert "neither the date nor the age" in line and 'check-date "false"' in line.lower()
    assert "this machine's apt configuration" in line


@pytest.mark.slow_unit
@pytest.mark.parametrize("setting", ['Check-Date "false"', 'Check-Valid-Until "false"', 'Min-ValidTime "999999999"'])
def test_a_site_that_turns_a_check_on_gets_it(tmp_path: Path, key: Signer, host: Path, setting: str) -> None:
    site = archive(tmp_path, key, released=int(time.time()) - 700 * DAY, days=7)
    host.write_text(f"{host.read_text()}Acquire::{setting};\n")
    reporter = SilentReporter()
    with pytest.raises(InputError, match="expired"):
        lock(replace(site, apt={"Acquire::Check-Valid-Until": "true"}), reporter=reporter)
    assert not [line for line in reporter.lines if "Release files" in line]


@pytest.mark.parametrize("key_name", ["AllowInsecureRepositories", "allowinsecurerepositories"])
def test_unsigned_archives_are_refused_whatever_the_host_accepts(
    tmp_path: Path, key: Signer, host: Path, key_name: str
) -> None:
    site = archive(tmp_path, key)
    publish(tmp_path / "debian", "trixie", MAIN, None)
    host.write_text(f'{host.read_text()}Acquire::{key_name} "true";\n')
    with pytest.raises(InputError, match="cannot be read"):
        lock(site)


@pytest.mark.slow_unit
@pytest.mark.parametrize(("released", "days", "word"), [(-700, 7, "expired"), (400, 0, "not valid yet")])
def test_the_hint_for_a_date_that_apt_refuses_helps(
    tmp_path: Path, key: Signer, host: Path, released: int, days: int, word: str
) -> None:
    """The line of the hint is written into a site file, and the same archive is locked."""
    site = archive(tmp_path, key, released=int(time.time()) + released * DAY, days=days)
    with pytest.raises(InputError, match=word) as caught:
        lock(site)
    line = caught.value.hint.partition("site.yaml:")[2].strip()
    assert line.startswith("apt: {")
    (tmp_path / "site.yaml").write_text(f"schema: 1\n{line}\n")
    reporter = SilentReporter()
    assert "dash" in lock(replace(site, apt=read_site(tmp_path / "site.yaml").apt), reporter=reporter)
    assert len([row for row in reporter.lines if "in site.yaml" in row]) == 1


def with_vendor(site: Site, folder: Path, key: Signer) -> tuple[Site, AptRepository]:
    publish(folder / "cuda", "/", [stanza("cuda-nvcc", "12.4", folder=".")], key)
    (folder / "cuda/key.pub").write_bytes(key.armored)
    mirrors = {**site.mirrors, "apt:cuda": (str(folder / "cuda"),)}
    return replace(site, mirrors=mirrors), AptRepository("apt:cuda", "/", (), key.fingerprint, "key.pub")


@pytest.mark.slow_unit
@pytest.mark.parametrize("name", ["a b", "a,b", "a:b", "a%20b", "a\\b"])
def test_a_store_whose_path_apt_cannot_read_in_a_list_of_keys(
    tmp_path: Path, key: Signer, host: Path, name: str
) -> None:
    site = replace(archive(tmp_path, key), store=tmp_path / name / "store")
    assert "dash" in lock(site)
    site, repository = with_vendor(site, tmp_path, key)
    with pytest.raises(EngineError, match="its path contains a blank or one of") as caught:
        lock(site, (repository,), "cuda-nvcc")
    assert "ENVBUILD_STORE=" in caught.value.hint and "mirrors" not in caught.value.hint


def test_a_store_whose_path_apt_cannot_read_at_all(tmp_path: Path, key: Signer, host: Path) -> None:
    for name in ('a"b', "a\nb"):
        with pytest.raises(EngineError, match="a quotation mark or a line end") as caught:
            lock(replace(archive(tmp_path, key), store=tmp_path / name))
        assert "ENVBUILD_STORE=" in caught.value.hint


@pytest.mark.slow_unit
@pytest.mark.parametrize("name", ["my keys.gpg", 'a"b.gpg', "a,b:c.gpg", "own keys.asc"])
def test_keys_of_a_site_may_be_at_any_path(tmp_path: Path, key: Signer, host: Path, name: str) -> None:
    site, repository = with_vendor(archive(tmp_path, key), tmp_path, key)
    path = tmp_path / name
    path.write_bytes(key.armored if name.endswith(".asc") else key.keyring.read_bytes())
    site = replace(site, keyrings={"debian:": path, "apt:cuda": path})
    assert lock(site, (repository,), "cuda-nvcc") == ["cuda-nvcc"]


@pytest.mark.slow_unit
@pytest.mark.parametrize("name", ["a b", 'a"b', "a%20b", "a#b", "a[b"])
def test_folders_of_packages_may_have_any_name(tmp_path: Path, key: Signer, host: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    site, repository = with_vendor(archive(tmp_path / name, key), tmp_path / name, key)
    assert lock(replace(site, store=tmp_path / "store"), (repository,), "cuda-nvcc") == ["cuda-nvcc"]
