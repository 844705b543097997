"""Sites: the store, and the places of origins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.errors import SpecError
from envbuild.net import host_config
from envbuild.net.site import Site, store_folder
from envbuild.net.site_file import read_site

pytestmark = pytest.mark.unit


def write(folder: Path, text: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(text)
    return path


def test_store_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENVBUILD_STORE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert store_folder(None) == Path("/cache/envbuild")
    assert store_folder("/from/site") == Path("/from/site")
    monkeypatch.setenv("ENVBUILD_STORE", "/from/variable")
    assert store_folder("/from/site") == Path("/from/variable")
    monkeypatch.delenv("ENVBUILD_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification requires that it is ignored
    monkeypatch.setenv("HOME", "/home/me")
    assert store_folder(None) == Path("/home/me/.cache/envbuild")


@pytest.mark.parametrize("use_host", [True, False])
def test_the_settings_of_a_transport_start_no_program(monkeypatch: pytest.MonkeyPatch, use_host: bool) -> None:
    """Every pull needs them, and uv takes longer than the rest of its start."""
    monkeypatch.setattr(host_config, "default_index", lambda: pytest.fail("uv was started"))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_CERT", "/etc/own.pem")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "pypi.example:8443")
    found = Site(Path("/"), use_host=use_host, insecure_hosts=("images.example",)).network()
    own = frozenset({"images.example"})
    assert (found.insecure, found.certificates) == (
        (own | {"pypi.example 8443"}, "/etc/own.pem") if use_host else (own, "")
    )


def test_default_places_are_used_unless_the_site_turns_them_off(tmp_path: Path) -> None:
    assert Site(Path("/s")).roots("github:openucx/ucx") == ("https://github.com/openucx/ucx",)
    own = Site(Path("/s"), mirrors={"github:openucx/": ("/srv/git",)})
    assert own.roots("github:openucx/ucx") == ("/srv/git/ucx",)
    assert own.roots("github:NVIDIA/nccl") == ("https://github.com/NVIDIA/nccl",)
    gapped = read_site(write(tmp_path, "schema: 1\nupstream: false\nmirrors: {python: [/wheels]}\n"))
    assert gapped.roots("gitlab:group/project") == ()
    assert gapped.places("debian:trixie/main")[1] == () == gapped.places("debian-security:trixie-security/main")[1]
    assert gapped.python().indexes == ()
    assert gapped.python().links == ("/wheels",)
    with pytest.raises(SpecError, match="'upstream' must be true or false"):
        read_site(write(tmp_path, "schema: 1\nupstream: never\n"))
