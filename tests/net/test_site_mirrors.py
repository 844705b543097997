"""Mirrors and keys of a site, by the prefix of an origin."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.net import host_config
from envbuild.net.site import Site

pytestmark = pytest.mark.unit


def test_longest_prefix_wins() -> None:
    site = Site(Path("/s"), mirrors={"github:": ("/all",), "github:openucx/": ("/ucx",)}, use_host=False)
    assert site.places("github:openucx/ucx@v1") == ("ucx@v1", ("/ucx",))
    assert site.places("github:nvidia/nccl@v2") == ("nvidia/nccl@v2", ("/all",))
    assert site.places("file:x") == ("x", ())


@pytest.mark.parametrize(
    ("origin", "rest"),
    [
        ("github:openucx/ucx", ""),
        ("github:openucx/ucx@v1.20.1", "@v1.20.1"),
        ("github:openucx/ucx/sub", "sub"),
        ("github:openucx/ucx-extra", None),
        ("github:openucx/ucx2@v1", None),
    ],
)
def test_prefix_ends_where_a_name_does(origin: str, rest: str | None) -> None:
    site = Site(Path("/s"), mirrors={"github:openucx/ucx": ("/mirrors/ucx.git",)}, use_host=False)
    everything = origin.partition(":")[2]
    assert site.places(origin) == ((everything, ()) if rest is None else (rest, ("/mirrors/ucx.git",)))


def test_roots_of_every_kind() -> None:
    mirrors = {
        "debian:": ("/debian",),
        "ubuntu:": ("http://m.example/ubuntu", "/ubuntu"),
        "apt:": ("http://m.example/apt/",),
        "apt:nvidia-cuda": ("/cuda",),
        "pip:": ("http://m.example/pip", "/pip"),
        "oci:nvcr.io/": ("http://registry.example:5000",),
    }
    site = Site(Path("/s"), mirrors=mirrors, use_host=False)
    assert site.roots("debian:trixie/main") == ("/debian",)
    assert site.roots("ubuntu:jammy/universe") == ("http://m.example/ubuntu", "/ubuntu")
    assert site.roots("apt:nvidia-cuda/ubuntu2204") == ("/cuda/ubuntu2204",)
    assert site.roots("apt:nvidia-cuda") == ("/cuda",)
    assert site.roots("apt:aws-neuron") == ("http://m.example/apt/aws-neuron",)
    assert site.roots("oci:nvcr.io/nvidia/pytorch") == ("http://registry.example:5000/nvidia/pytorch",)
    found = site.python("pip:pytorch/cu113")
    assert (found.indexes, found.links) == (("http://m.example/pip/pytorch/cu113",), ("/pip/pytorch/cu113",))


def test_keys_by_prefix() -> None:
    keys = {"ubuntu:": Path("/u"), "apt:nvidia-cuda": Path("/n")}
    site = Site(Path("/s"), keyrings=keys, debian_keyring=Path("/d"))
    assert site.keyring("ubuntu:noble/main") == Path("/u")
    assert site.keyring("apt:nvidia-cuda/ubuntu2204") == Path("/n")
    assert site.keyring("apt:nvidia-cuda-extra") is None
    assert site.keyring("debian-security:trixie-security/main") == Path("/d") == site.keyring("debian:trixie/main")
    newer = Site(Path("/s"), keyrings={"debian:": Path("/k")}, debian_keyring=Path("/d"))
    assert newer.keyring("debian:trixie/main") == Path("/k")
    assert Site(Path("/s"), keyrings={"debian:": Path("/k")}).keyring("debian-security:x/main") == Path("/k")


def test_own_debian_mirror_is_not_mixed_with_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"debian:": ("http://a/debian",), "debian-security:": ("http://a/debian-security",)}
    monkeypatch.setattr(host_config, "debian_archives", lambda: known)
    assert Site(Path("/s")).places("debian-security:trixie-security/main")[1] == ("http://a/debian-security",)
    own = Site(Path("/s"), mirrors={"debian:": ("/mirror",)})
    assert own.places("debian:trixie/main") == ("trixie/main", ("/mirror",))
    assert own.places("debian-security:trixie-security/main")[1] == ()


def test_python_mirrors_of_a_site() -> None:
    site = Site(Path("/s"), mirrors={"python:": ("file:///srv/simple", "/srv/wheels", "http://i.example/simple")})
    assert site.python().indexes == ("file:///srv/simple", "http://i.example/simple")
    assert site.python().links == ("/srv/wheels",)
