"""``envbuild lock`` with package indexes over https: files over http, and hosts whose certificate is not checked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.debian_archive import Signer
from tests.support.lock_project import LockProject
from tests.support.lock_server import sha256, wheel
from tests.support.lock_site import MARKS
from tests.support.private_server import PrivateServer, serve_private
from tests.support.tls import make_certificates

pytestmark = [
    *MARKS,
    pytest.mark.slow_unit,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed"),
]


@dataclass
class Case:
    """A project whose package index is on `secure`; `plain` has the same files without TLS."""

    project: LockProject
    secure: PrivateServer
    plain: PrivateServer
    ca: Path

    def page(self, name: str, link: str) -> None:
        """Let the page of a project have one link."""
        (self.project.folder / f"simple/{name}/index.html").write_text(f"<html><body>{link}</body></html>")


@pytest.fixture
def case(tmp_path: Path, key: Signer) -> Iterator[Case]:
    project = LockProject(tmp_path, key, {"python-packages": ["demo"]})
    project.publish()
    project.index(wheel(tmp_path / "wheels", "demo", "1.0"))
    for page in (tmp_path / "simple").rglob("index.html"):
        page.write_text(page.read_text().replace(tmp_path.as_uri(), ""))
    ca, tls = make_certificates(tmp_path / "tls")
    with serve_private(tmp_path, tls=tls) as secure, serve_private(tmp_path) as plain:
        project.mirrors = {"python": [f"{secure.url}/simple"]}
        project.site = {"ca_bundle": str(ca)}
        yield Case(project, secure, plain, ca)


def test_an_https_page_names_files_over_http_with_their_digest_alone(case: Case) -> None:
    name = "demo-1.0-py3-none-any.whl"
    link = f"{case.plain.url}/wheels/{name}"
    case.page("demo", f'<a href="{link}">{name}</a>')
    done = case.project.lock("--json")
    assert done.returncode == 10, done.stderr
    (finding,) = json.loads(done.stdout)["error"]["findings"]
    assert link in finding["message"] and f"{case.secure.url}/simple/demo/" in finding["message"]
    assert not (case.project.folder / "project/images/k.lock").exists()
    digest = sha256((case.project.folder / f"wheels/{name}").read_bytes())
    case.page("demo", f'<a href="{link}#sha256={digest}">{name}</a>')
    done = case.project.lock(store="other")
    assert done.returncode == 0, done.stderr
    assert digest in (case.project.folder / "project/images/k.lock").read_text()


def test_a_host_that_is_not_checked_is_reported_once(case: Case) -> None:
    case.project.site = {"insecure_hosts": ["127.0.0.1"]}
    done = case.project.lock("--json")
    assert done.returncode == 0, done.stderr
    (image,) = json.loads(done.stdout)["images"]
    assert len([line for line in image["warnings"] if "the certificate of 127.0.0.1" in line]) == 1
    assert len([line for line in done.stderr.splitlines() if "127.0.0.1" in line]) == 1
    assert "InsecureRequestWarning" not in done.stderr and "urllib3" not in done.stderr


def test_a_host_that_is_not_checked_does_not_decide_for_others(case: Case) -> None:
    case.project.site = {"insecure_hosts": ["127.0.0.1"]}
    case.secure.refused = ("/simple/demo",)
    with serve_private(case.project.folder, tls=make_certificates(case.project.folder / "tls2")[1]) as other:
        case.secure.refusal = other.url.replace("127.0.0.1", "localhost")
        done = case.project.lock()
        case.project.site = {"insecure_hosts": ["127.0.0.1", "localhost"]}
        trusted = case.project.lock(store="other")
    assert done.returncode == 10 and trusted.returncode == 0, done.stderr + trusted.stderr


def test_a_checked_host_is_not_reported(case: Case) -> None:
    done = case.project.lock("--json")
    assert done.returncode == 0, done.stderr
    assert not [line for line in json.loads(done.stdout)["images"][0]["warnings"] if "certificate of" in line]


def test_a_package_that_requires_an_address_is_the_conflict_that_is_named(case: Case) -> None:
    """No network is to be checked for it, and nothing is fetched from there."""
    case.project.index(wheel(case.project.folder / "w", "demo", "1.0", requires=("evil @ git+file:///tmp/evil",)))
    case.project.mirrors, case.project.site = {}, {}
    done = case.project.lock("--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (3, "conflict")
    (finding,) = error["findings"]
    assert "demo 1.0" in finding["message"] and "evil" in finding["message"] and "network" not in finding["hint"]
