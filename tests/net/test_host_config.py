"""The archives and indexes in the host's apt and pip configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from envbuild.net import host_config

pytestmark = pytest.mark.unit


def apt(folder: Path, **files: str) -> dict[str, tuple[str, ...]]:
    (folder / "sources.list.d").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / "sources.list" if name == "main" else folder / "sources.list.d" / name.replace("_", ".")
        path.write_text(text)
    return host_config.debian_archives(folder)


def test_one_line_sources(tmp_path: Path) -> None:
    assert apt(
        tmp_path,
        main="""
# deb http://commented.example/debian trixie main
deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] http://one.example/debian/ bookworm main contrib # remark
deb-src http://source.example/debian bookworm main
deb http://sec.example/debian-security bookworm-security main
deb http://security.example/ bookworm-security main
deb http://vendor.example/ bookworm main
deb http://one.example/debian bookworm-updates main
deb file:/srv/debian bookworm main
deb cdrom:[Debian]/ bookworm main
""",
        docker_list="deb https://docker.example/linux/debian bookworm stable\n",
        vendor_list="deb https://vendor.example/debian/12/prod bookworm main\n",
        sdk_list="deb https://sdk.example/apt sdk-bookworm main\n",
    ) == {
        "debian:": ("http://one.example/debian", "/srv/debian"),
        "debian-security:": ("http://sec.example/debian-security", "http://security.example"),
    }


def test_deb822_sources(tmp_path: Path) -> None:
    assert apt(
        tmp_path,
        debian_sources="""\
# a remark
Types: deb deb-src
URIs: http://one.example/debian
 http://two.example/debian/
Suites: trixie trixie-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc: def

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: trixie
Components: main

Types: deb
URIs: http://snap.example/archive/debian-security/20250520T000000Z
Suites: trixie-security
Components: main
""",
        other_sources="Types: deb\nURIs: http://node.example/node_20.x\nSuites: nodistro\nComponents: main\n",
    ) == {
        "debian:": ("http://one.example/debian", "http://two.example/debian"),
        "debian-security:": ("http://snap.example/archive/debian-security/20250520T000000Z",),
    }


def test_host_without_debian(tmp_path: Path) -> None:
    assert apt(tmp_path, main="deb http://archive.example/other noble main universe\n") == {}
    assert host_config.debian_archives(tmp_path / "none") == {}


def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str = "", **environ: str) -> object:
    monkeypatch.setattr(host_config, "default_index", lambda: "https://default.example/simple")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    (tmp_path / ".config/pip").mkdir(parents=True, exist_ok=True)
    (tmp_path / ".config/pip/pip.conf").write_text(user)
    return host_config.pip_indexes({"HOME": str(tmp_path), "PIP_NO_INDEX": "", **environ})


def test_pip_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_config, "_pip_files", lambda environ: [tmp_path / ".config/pip/pip.conf"])
    text = """
[global]
index-url = http://global.example/simple
extra_index_url =
    http://a.example/simple
    file:///srv/simple
find-links = /srv/wheels
[install]
index-url = http://install.example/simple
[download]
index-url = http://not.example/simple
"""
    found = host_config.PythonIndexes(
        ("http://install.example/simple", "http://a.example/simple", "file:///srv/simple"), ("/srv/wheels",)
    )
    assert pip(tmp_path, monkeypatch, text) == found
    found = host_config.PythonIndexes(
        ("http://env.example/simple", "http://a.example/simple", "file:///srv/simple"),
        ("/x", "/y"),
        ("env.example",),
        "/ca",
    )
    variables = {
        "PIP_INDEX_URL": "http://env.example/simple",
        "PIP_FIND_LINKS": "/x /y",
        "PIP_TRUSTED_HOST": "env.example",
        "PIP_CERT": "/ca",
    }
    assert pip(tmp_path, monkeypatch, text, **variables) == found
    assert pip(tmp_path, monkeypatch, "") == host_config.PythonIndexes(("https://default.example/simple",))
    assert pip(tmp_path, monkeypatch, text, PIP_NO_INDEX="1") == host_config.PythonIndexes((), ("/srv/wheels",))
    assert pip(tmp_path, monkeypatch, "[global\nbroken") == host_config.PythonIndexes(
        ("https://default.example/simple",)
    )


def test_pip_files_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/venv")
    files = host_config._pip_files({"HOME": "/home/me", "PIP_CONFIG_FILE": "/own.conf"})
    assert [str(file) for file in files][-4:] == [
        "/home/me/.pip/pip.conf",
        "/home/me/.config/pip/pip.conf",
        "/venv/pip.conf",
        "/own.conf",
    ]
    assert host_config._pip_files({"PIP_CONFIG_FILE": os.devnull}) == []


def test_the_default_index_is_read_from_uv() -> None:
    assert host_config.default_index().startswith("https://")


def test_the_archives_of_an_ubuntu_host(tmp_path: Path) -> None:
    """One archive serves security updates too, arm64 has one of its own, and a vendor's folder of that name is none of
    them."""
    assert apt(
        tmp_path,
        ubuntu_sources="Types: deb\nURIs: http://one.example/ubuntu/\nSuites: noble noble-updates\n"
        "Components: main universe\n\n"
        "Types: deb\nURIs: http://sec.example/ubuntu/\nSuites: noble-security\nComponents: main\n",
        ports_list="deb http://ports.example/ubuntu-ports noble main\n",
        vendor_list="deb http://vendor.example/ubuntu2404/ noble main\n",
    ) == {"ubuntu:": ("http://ports.example/ubuntu-ports", "http://one.example/ubuntu", "http://sec.example/ubuntu")}
