"""The command line and the environment of uv."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.lock.python.index_logins import IndexLogins
from envbuild.lock.python.uv import site_arguments, site_environment
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.site import Site

pytestmark = pytest.mark.unit


def test_uv_sees_the_settings_of_the_site_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_URL", "https://other.example")
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    (tmp_path / "ca.pem").touch()
    site = Site(
        tmp_path,
        mirrors={"python:": ("https://i.example/simple", "file:///x/simple", "/wheels")},
        ca_bundle=tmp_path / "ca.pem",
        proxy="http://proxy.example",
        insecure_hosts=("i.example",),
    )
    text = " ".join(site_arguments(site, IndexLogins(NetworkSettings())))
    assert "--index https://i.example/simple --default-index file:///x/simple --find-links /wheels" in text
    assert "--index-strategy first-index" in text
    assert "--allow-insecure-host i.example" in text and "--no-config" in text
    environment = site_environment(site)
    assert environment["SSL_CERT_FILE"] == str(tmp_path / "ca.pem")
    assert environment["HTTPS_PROXY"] == "http://proxy.example"
    assert "UV_INDEX_URL" not in environment and "VIRTUAL_ENV" not in environment
    assert "--no-index" in site_arguments(
        Site(tmp_path, mirrors={"python:": ("/wheels",)}), IndexLogins(NetworkSettings())
    )
