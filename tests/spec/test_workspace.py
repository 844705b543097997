"""The site of a workspace: the file that it is read from, and the imports that this costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.core.engines import CACHES, ENGINES
from envbuild.core.errors import InputError, SpecError
from envbuild.net.site import Site
from envbuild.spec.project import Project
from envbuild.spec.workspace import load_site

pytestmark = pytest.mark.unit


def write(folder: Path, text: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(text)
    return path


def test_project_before_user_before_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    project, user = tmp_path / "project", tmp_path / "config/envbuild"
    for folder in (project, user):
        folder.mkdir(parents=True)
    assert load_site(project) == Site(store=tmp_path / "store")
    write(user, "schema: 1\nengine: embedded\n")
    assert load_site(project).engine == "embedded"
    write(project, "schema: 1\nengine: buildah\n")
    assert load_site(project).engine == "buildah"
    assert load_site(None).engine == "embedded"


def test_a_link_to_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site file on a file system that is not mounted may have a policy of signatures."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    project, user = tmp_path / "project", tmp_path / "config/envbuild"
    for folder in (project, user):
        folder.mkdir(parents=True)
    (project / "site.yaml").symlink_to("/nonexistent/site.yaml")
    assert Project.find(project).root == project
    with pytest.raises(SpecError, match="no such file"):
        load_site(project)
    (project / "site.yaml").unlink()
    (user / "site.yaml").symlink_to("/nonexistent/site.yaml")
    for folder in (project, None):
        with pytest.raises(SpecError, match="no such file"):
            load_site(folder)
    write(project, "schema: 1\n")
    with pytest.raises(SpecError, match="no such file"):
        load_site(project)


def test_the_engines_are_the_existing_ones() -> None:
    from envbuild.build.engines.select import load_engine

    assert {"embedded", "buildah"} <= set(ENGINES)
    assert [load_engine(name).name for name in ENGINES] == list(ENGINES)
    assert set(CACHES) <= set(ENGINES)
    program = (
        "import sys; from envbuild.spec.workspace import load_site; load_site(None); "
        "print(any(name.startswith('envbuild.build.engines') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in many containers: a home is needed only if no store is configured."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path))
    assert load_site(None).store == tmp_path
    monkeypatch.delenv("ENVBUILD_STORE")
    with pytest.raises(InputError, match="no home") as caught:
        load_site(None)
    assert "ENVBUILD_STORE" in caught.value.hint
