"""The order in which places of an origin are used: the site's, the host's, public homes, the host in the origin."""

from __future__ import annotations

import os

import pytest

from envbuild.net import host_config
from envbuild.net.public_homes import Home, find_homes, public_homes
from envbuild.net.supply import Supply, SupplyKind, find_supply

pytestmark = pytest.mark.unit
MIRRORS = {"apt:nvidia-cuda/ubuntu2204": ("/cuda",), "debian:": ("/debian",)}


@pytest.fixture(autouse=True)
def plain_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give apt of this host Ubuntu's archive."""
    monkeypatch.setattr(host_config, "debian_archives", lambda: {"ubuntu:": ("http://host.example/ubuntu",)})


def test_a_mirror_of_the_site_takes_precedence() -> None:
    found = find_supply(MIRRORS, True, "apt:nvidia-cuda/ubuntu2204/x86_64")
    assert found == Supply(SupplyKind.SITE, "x86_64", ("/cuda",), "apt:nvidia-cuda/ubuntu2204")
    other = find_supply(MIRRORS, True, "apt:nvidia-cuda/ubuntu2004/x86_64")
    assert (other.by, other.rest) == (SupplyKind.PUBLIC, "ubuntu2004/x86_64")


@pytest.mark.parametrize("prefix", [*public_homes(), "git:git.example/x/y", "oci:ghcr.io/x/y"])
def test_without_upstream_nothing_public_is_used(prefix: str) -> None:
    assert find_supply({}, False, prefix).by is SupplyKind.NONE
    assert find_supply({}, False, prefix).places == ()


def test_the_host_takes_precedence_over_a_public_home() -> None:
    assert find_supply({}, True, "ubuntu:jammy/main").by is SupplyKind.HOST
    own = "amd64" if os.uname().machine == "x86_64" else "arm64"
    assert find_supply({}, True, "ubuntu:jammy/main", own).places == ("http://host.example/ubuntu",)


def test_another_architecture_than_the_hosts_has_another_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: type("uname", (), {"machine": "x86_64"}))
    found = find_supply({}, True, "ubuntu:jammy/main", "arm64")
    assert found.by is SupplyKind.PUBLIC and "ports" in found.places[0]
    monkeypatch.setattr(host_config, "debian_archives", lambda: {"ubuntu:": ("http://host.example/ubuntu-ports",)})
    assert find_supply({}, True, "ubuntu:jammy/main", "arm64").places == ("http://host.example/ubuntu-ports",)


def test_a_security_archive_is_not_added_to_the_sites_own_archive() -> None:
    assert find_supply(MIRRORS, True, "debian-security:trixie-security/main").by is SupplyKind.NONE


def test_the_host_in_an_origin() -> None:
    assert find_supply({}, True, "git:git.example/a/b") == Supply(
        SupplyKind.PUBLIC, "a/b", ("https://git.example",), "git:git.example/"
    )
    assert find_supply({}, True, "oci:localhost:5000/a").places == ("https://localhost:5000", "http://localhost:5000")
    assert find_supply({}, True, "oci:ghcr.io/a/b").places == ("https://ghcr.io",)
    assert find_supply({}, True, "file:a.tar.gz").by is SupplyKind.NONE


def test_every_home_is_found_by_its_prefix() -> None:
    homes: list[Home] = [home for group in public_homes().values() for home in group]
    assert len(homes) > 10
    for home in homes:
        origin = home.origin + ("/x" if home.origin[-1] not in ":/" else "x/y")
        if "{" not in home.address:  # known without a program of this machine
            assert home in find_homes(origin)
