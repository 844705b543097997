"""The steps of CI against a real registry: from a git checkout to an image that is published, pulled and started."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from envbuild.lock.dev_files import list_files
from envbuild.spec.dev_metadata import DevMetadata
from envbuild.spec.dev_project import DevProject
from tests.support.ci_project import SPEC, CiProject, make_ci_project
from tests.support.debian_archive import Signer
from tests.support.host_base import VERSION
from tests.support.local_registry import Server, serve
from tests.support.token_server import tokens
from tests.support.tools import require_tools

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(os.geteuid() != 0, reason="the base image of the host's files needs root"),
]
LOGIN = {"REGISTRY_USER": "robot", "REGISTRY_PASSWORD": "pass word"}


@dataclass
class Case:
    """A project whose first commit is published; `rights` are what the main branch has."""

    project: CiProject
    registry: Server
    rights: dict[str, str]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, key: Signer) -> Iterator[Case]:
    """Yield the project after the whole pipeline. The registry can be read by all, and written with a login."""
    require_tools("apt-get", "gpg", "git", "docker-registry")
    folder = tmp_path_factory.mktemp("ci")
    with tokens(folder / "tokens") as service:
        service.public = True
        service.allowed = {f"Basic {base64.b64encode(b'robot:pass word').decode()}"}
        with serve(folder / "registry", service.configuration()) as registry:
            project = make_ci_project(folder, key, registry)
            project.env = {"REPOSITORY": f"{registry.host}/Team/images", "CACHE": f"{registry.host}/team/units"}
            project.env["IMAGE"] = "app"
            case = Case(project, registry, LOGIN)
            run_pipeline(case, project)
            yield case


def run_pipeline(case: Case, at: CiProject) -> None:
    at.step("prepare")
    at.step("plan")
    at.step("build", SEND="yes", **case.rights)
    at.step("report", **case.rights)
    at.step("publish", **case.rights)
    at.step("start", COMMAND="cat /opt/said/word")


def files(registry: Server) -> set[str]:
    """Return the tags, manifests and blobs of a registry; not its unfinished uploads."""
    return {str(path) for path in registry.root.rglob("*") if path.is_file() and "_uploads" not in path.parts}


def test_a_checkout_becomes_an_image_that_starts(case: Case) -> None:
    at = case.project
    assert json.loads(at.outputs()["matrix"]) == {"include": [{"image": "app", "arch": "amd64"}]}
    assert (at.out / "app/start.txt").read_text() == "first\n"
    reference = at.outputs()["reference"]
    assert reference == f"{case.registry.host}/team/images@{at.answer('publish.json')['digest']}"
    assert at.answer("pull.json")["sha256"] == at.answer("make.json")["images"][0]["sha256"]
    summary = at.summary()
    assert "### `app`: built" in summary and "Not compared with a published image" in summary
    assert "| verify `audit` | `passed` |" in summary and reference in summary
    tags = case.registry.root / "docker/registry/v2/repositories/team/images/_manifests/tags"
    assert {"app", f"app-{at.git('rev-parse', '--short=12', 'HEAD')}"} <= {path.name for path in tags.iterdir()}
    assert not [path for path in at.out.rglob("*") if path.is_file() and b"pass word" in path.read_bytes()]


def test_after_a_change_only_that_is_built_and_the_rest_comes_from_the_cache(case: Case) -> None:
    at = case.project.another("second")
    base = at.git("rev-parse", "HEAD")
    at.step("prepare")
    at.step("plan", BASE=base)
    assert at.outputs() == {"matrix": '{"include": []}', "count": "0", "results": str(at.out)}
    at.commit("second")
    at.step("plan", BASE=base)
    at.step("build")
    at.step("report")
    assert at.outputs()["count"] == "1"
    made = at.answer("make.json")["images"][0]
    assert made["cached"] == ["base"] and set(made["built"]) == {"script", "glue"} and made["reused"] == []
    assert "### `app`: changed" in at.summary() and "| units | 2 built, 1 cached, 0 reused |" in at.summary()


def test_an_image_on_another_one_of_the_project_is_built_on_a_machine_that_has_neither(case: Case) -> None:
    at = case.project.another("above")
    above = SPEC.format(python=VERSION, word="above").replace("/opt/said", "/opt/above")
    above = re.sub(r"base: .*\ndistribution: .*", "base: app", above)
    (at.checkout / "images/above.yaml").write_text(above)
    at.develop("make", "app", "--no-verify")
    at.develop("lock", "above")
    at.commit_all("above")
    at.step("prepare")
    at.step("build", IMAGE="above")
    made = json.loads((at.out / "above/make.json").read_text())["images"][0]
    assert made["image"] == "above" and made["evidence"]
    at.commit("x; exit 3")  # of the image below: the answer of the build before does not remain
    assert at.step("build", check=False, IMAGE="above").returncode == 6
    assert json.loads((at.out / "above/make.json").read_text())["error"]["exit_code"] == 6
    (at.checkout / "images/app.yaml").write_text("schema: 2\n")
    failed = at.step("build", check=False, IMAGE="above")
    assert failed.returncode == 2 and "Traceback" not in failed.stderr
    assert json.loads((at.out / "above/make.json").read_text())["error"]["exit_code"] == 2


def make_run_with_results(case: Case, run: str) -> CiProject:
    """Return a run whose results are in its checkout, after `report`."""
    at = case.project.another(run, **LOGIN)
    at.commit(run)
    at.env |= {"OUT": str(at.checkout / "ci-out"), "TAG": run}
    for step in ("prepare", "build", "report"):
        at.step(step)
    return at


def test_results_in_a_checkout_are_not_content_of_its_project_folder(case: Case) -> None:
    at = make_run_with_results(case, "results")
    for step in ("publish", "start", "build", "publish"):  # a job may be repeated
        at.step(step)
    project = DevProject("checkout", "..", at.checkout, "images/app.yaml:1:1", DevMetadata("checkout", "1"))
    assert (at.checkout / "ci-out/app/publish.json").is_file()
    assert sorted(list_files(project)) == sorted(at.git("ls-files").splitlines())


def test_an_image_that_changes_after_its_build_does_not_get_the_tag(case: Case) -> None:
    at = make_run_with_results(case, "changed")
    at.commit("edited")
    done = at.step("publish", check=False)
    assert done.returncode == 2 and "app is no longer what build.sh built: the project has changed since" in done.stderr
    tags = case.registry.root / "docker/registry/v2/repositories/team/images/_manifests/tags"
    commit = at.git("rev-parse", "--short=12", "HEAD")
    assert not {path.name for path in tags.iterdir()} & {"changed", f"app-{commit}"}
    assert "reference" not in at.outputs()


def test_a_fork_without_rights_writes_only_the_summary(case: Case) -> None:
    at = case.project.another("fork")
    at.commit("fork")
    before = files(case.registry)
    at.step("prepare")
    at.step("build")
    at.step("report")
    assert "### `app`: changed" in at.summary()
    refused = at.step("publish", check=False)
    assert refused.returncode == 8 and "reference" not in at.outputs()
    assert files(case.registry) == before


def test_a_build_that_fails_leaves_nothing_published(case: Case) -> None:
    at = case.project.another("failing", **LOGIN)
    at.commit("x; exit 3")
    before = files(case.registry)
    at.step("prepare")
    failed = at.step("build", check=False, SEND="yes")
    assert failed.returncode == 6
    at.step("report")
    assert "### `app`: not built\n\n`" in at.summary()
    assert at.step("publish", check=False).returncode == 6
    assert files(case.registry) == before
