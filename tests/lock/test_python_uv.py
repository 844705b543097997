"""The command line and the environment of uv."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.core.errors import EnvbuildError
from envbuild.lock.python.index_logins import IndexLogins
from envbuild.lock.python.uv import site_arguments, site_environment
from envbuild.lock.request import UnitRequest
from envbuild.net.network_settings import NetworkSettings
from envbuild.net.site import Site
from tests.support.http_server import Handler, serving
from tests.support.python_resolver import work

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


def test_a_message_of_uv_has_no_content_of_a_file_that_an_index_names(tmp_path: Path) -> None:
    """uv opens it, and prints its first bytes if it is not a wheel."""
    (tmp_path / "demo-1.0-py3-none-any.whl").write_text("hush, a secret")

    class Page(Handler):
        def do_GET(self) -> None:
            content = f'<a href="file://{tmp_path}/demo-1.0-py3-none-any.whl">demo</a>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with serving(Page) as url, pytest.raises(EnvbuildError, match="cannot be resolved") as caught:
        work(tmp_path, f"{url}/simple").lock({"base": UnitRequest(), "venv": UnitRequest(python=("demo",))})
    assert f"{int.from_bytes(b'hush', 'little'):x}" not in str(caught.value)
