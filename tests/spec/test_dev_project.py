"""Project folders of a spec: their metadata, without a run of their code."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.build.plan.dev_units import programs
from envbuild.core.errors import SpecError
from envbuild.spec import image_spec
from envbuild.spec.dev_project import DevProject
from envbuild.spec.project import Project

pytestmark = pytest.mark.unit

HEAD = '[project]\nname = "mine"\n'
VERSION = 'version = "1.0"\n'
LIB = {"lib/mine/__init__.py": ""}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return the folder of a project with a spec; its code is in the folder mine."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images/own.yaml").write_text("schema: 1\ntarget: cpu\nbase: debian:13\nlayers: {}\ndev: ../mine\n")
    return tmp_path


def load(top: Path, files: dict[str, str], name: str = "own") -> DevProject:
    for file, text in files.items():
        (top / "mine" / file).parent.mkdir(parents=True, exist_ok=True)
        (top / "mine" / file).write_text(text)
    (found,) = image_spec.load_image_spec(name, Project.find(top)).dev
    return found


@pytest.mark.parametrize(
    ("files", "root", "modules"),
    [
        ({"src/mine/__init__.py": ""}, "src", ("mine",)),
        ({"mine/__init__.py": "", "tests/__init__.py": ""}, "", ("mine",)),
        ({"mine.py": "", "setup.py": "from setuptools import setup\nsetup()\n"}, "", ("mine",)),
        ({"one/__init__.py": "", "two/__init__.py": "", "tests/__init__.py": ""}, "", ("one", "two")),
        ({"src/space/part.py": ""}, "src", ()),
        ({**LIB, "pyproject.toml": '[tool.setuptools.packages.find]\nwhere = ["lib"]\n'}, "lib", ("mine",)),
        ({**LIB, "pyproject.toml": '[tool.setuptools.package-dir]\n"" = "lib"\n'}, "lib", ("mine",)),
        (
            {"py/mine/__init__.py": "", "pyproject.toml": '[tool.hatch.build.targets.wheel]\npackages = ["py/mine"]\n'},
            "py",
            ("mine",),
        ),
    ],
)  # fmt: skip
def test_the_folder_on_the_path_of_python(
    files: dict[str, str], root: str, modules: tuple[str, ...], top: Path
) -> None:
    found = load(top, {**files, "pyproject.toml": HEAD + VERSION + files.get("pyproject.toml", "")})
    assert (found.metadata.root, found.metadata.modules) == (root, modules)
    assert found.import_path == f"/opt/dev/mine/{root}".rstrip("/")


@pytest.mark.parametrize(
    ("rule", "file", "text"),
    [
        ('[tool.setuptools.dynamic]\nversion = {attr = "mine.V"}\n', "mine/__init__.py", 'V = "2.1"'),
        ('[tool.setuptools.dynamic]\nversion = {attr = "mine.about.V"}\n', "mine/about.py", 'V: str = "2.1"\n'),
        ('[tool.setuptools.dynamic]\nversion = {file = "VERSION"}\n', "VERSION", "2.1\n"),
        ('[tool.hatch.version]\npath = "mine/about.py"\n', "mine/about.py", '__version__ = "2.1"\n'),
    ],
)  # fmt: skip
def test_a_version_in_a_file_is_read(rule: str, file: str, text: str, top: Path) -> None:
    files = {"mine/__init__.py": "raise SystemExit('no code runs')\n", file: text}
    found = load(top, {**files, "pyproject.toml": f'{HEAD}dynamic = ["version"]\n{rule}'})
    assert found.metadata.version == "2.1"


def test_only_the_groups_of_programs_have_programs(top: Path) -> None:
    more = '[project.scripts]\nrun = "mine:main"\n[project.gui-scripts]\nwin = "mine:main"\n'
    plugin = '[project.entry-points.host_scripts]\nplugin = "mine"\n'
    found = load(top, {"mine.py": "", "pyproject.toml": HEAD + VERSION + more + plugin})
    assert found.scripts == ("run", "win")
    assert sorted(programs(found)) == ["run", "win"]
    assert ("host_scripts", "plugin", "mine") in found.metadata.entry_points


def test_a_version_that_is_computed_is_refused(top: Path) -> None:
    rule = '[tool.setuptools.dynamic]\nversion = {attr = "mine.__version__"}\n'
    with pytest.raises(SpecError, match="states no version that is readable"):
        load(
            top,
            {"mine/__init__.py": "__version__ = str(1)\n", "pyproject.toml": f'{HEAD}dynamic = ["version"]\n{rule}'},
        )


def test_a_file_outside_of_the_project_states_no_version(top: Path) -> None:
    (top / "VERSION").write_text("9")
    rule = '[tool.setuptools.dynamic]\nversion = {file = "../VERSION"}\n'
    with pytest.raises(SpecError, match="states no version that is readable"):
        load(top, {"mine.py": "", "pyproject.toml": f'{HEAD}dynamic = ["version"]\n{rule}'})


def test_plain_python_has_no_metadata(top: Path) -> None:
    found = load(top, {"train.py": "raise SystemExit\n", "parts/__init__.py": "", "pyproject.toml": "[tool.ruff]\n"})
    assert (found.name, found.metadata.version, found.metadata.modules) == ("mine", "", ("parts",))


def test_a_path_begins_at_the_file_that_has_it(top: Path) -> None:
    (top / "images/below").mkdir()
    (top / "images/below/child.yaml").write_text(f"schema: 1\nextends: {top}/images/own.yaml\n")
    assert load(top, {"mine.py": ""}, str(top / "images/below/child.yaml")).folder == top / "mine"
    (top / "images/none.yaml").write_text("schema: 1\nextends: own\ndev: []\n")
    assert image_spec.load_image_spec("none", Project.find(top)).dev == ()


def test_a_folder_that_others_can_write_is_refused(top: Path) -> None:
    load(top, {"mine.py": ""})
    (top / "mine").chmod(0o777)
    with pytest.raises(SpecError, match="the project folder is not trusted: this folder can be written by every user"):
        load(top, {})


def test_a_malformed_table_is_reported(top: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(top, {"mine.py": "", "pyproject.toml": "[project\n"})
    (finding,) = caught.value.findings
    assert finding.message.startswith("the project '../mine' has a malformed pyproject.toml: Expected ']'")
    assert finding.where.endswith("own.yaml:5:6")
