"""Python packages that no index provides: compiled ones, and those of a base image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import ConflictError, SpecError
from envbuild.lock.python.provided import accepted_packages, compiled_packages, normalize_versions, parse_exact
from envbuild.lock.python.resolve import PythonResolution
from envbuild.lock.request import UnitRequest
from envbuild.net.site import Site
from tests.support.lock_server import sdist, wheel
from tests.support.python_resolver import versions, work_at

pytestmark = pytest.mark.unit
NVIDIA = "2.9.0a0+145a3a7bd8.nv25.10"  # a pre-release with a local part, as NVIDIA's images have


@pytest.fixture
def subject(tmp_path: Path) -> PythonResolution:
    """Return a folder of wheels, and nothing present."""
    folder = tmp_path / "wheels"
    wheel(folder, "torch", "2.15.0", requires=("numpy",))
    for version in ("1.26.4", "2.4"):
        wheel(folder, "numpy", version)
    for version in ("80.9", "84.0"):
        wheel(folder, "setuptools", version)
    wheel(folder, "transformers", "5.0", requires=("torch>=2.5a0", "numpy", "apex>=0.1"))
    wheel(folder, "modern", "1.0", requires=("numpy>=2",))
    wheel(folder, "ray", "2.0", requires=("aiohttp; extra == 'serve'",))
    wheel(folder, "aiohttp", "3.0")
    sdist(folder, "mpi4py", "4.1")
    site = Site(tmp_path / "store", mirrors={"python:": (str(folder),)}, use_host=False)
    return work_at(site, tmp_path, "3.12", (2, 39))


def test_packages_provided_by_a_unit_are_not_resolved(subject: PythonResolution) -> None:
    units = {
        "venv": UnitRequest(python=("transformers",)),
        "build-apex": UnitRequest(python=("torch", "setuptools"), gives=("apex==0.1",)),
    }
    lock = subject.lock(units)
    assert versions(lock, "venv") == ["numpy 2.4", "torch 2.15.0", "transformers 5.0"]
    assert versions(lock, "build-apex") == ["numpy 2.4", "setuptools 84.0", "torch 2.15.0"]
    with pytest.raises(ConflictError, match="apex"):
        subject.lock({**units, "build-apex": UnitRequest(gives=("apex==0.0.9",))})


def test_a_build_does_not_install_the_index_version_of_a_compiled_package(subject: PythonResolution) -> None:
    """torch of the index would be installed over the one that is compiled for this image."""
    units = {
        "venv": UnitRequest(python=("torch", "numpy<2")),
        "build-torch": UnitRequest(python=("numpy",), gives=("torch==2.15.0",)),
        "build-x": UnitRequest(python=("torch", "numpy", "mpi4py")),
        "build-mpi4py": UnitRequest(python=("setuptools",), sdists=("mpi4py",)),
    }
    lock = subject.lock(units)
    assert versions(lock, "venv") == versions(lock, "build-torch") == versions(lock, "build-x") == ["numpy 1.26.4"]


def test_packages_of_a_base_image_are_preserved(subject: PythonResolution) -> None:
    """torch of the image is a pre-release that no index has; kernels are compiled against it."""
    on_image = replace(subject, present={"torch": NVIDIA, "NumPy": "1.26.4", "setuptools": "80.9", "apex": "0.1"})
    lock = on_image.lock(
        {
            "venv": UnitRequest(python=("torch", "transformers")),
            "venv-core": UnitRequest(python=("torch",)),
            "build-x": UnitRequest(python=("torch", "setuptools>=82", "numpy")),
        }
    )
    assert versions(lock, "venv") == ["transformers 5.0"]
    assert versions(lock, "venv-core") == []
    assert versions(lock, "build-x") == ["setuptools 84.0"]  # a tool may be replaced


def test_requirements_of_a_present_package_are_not_read_from_the_index(
    subject: PythonResolution, tmp_path: Path
) -> None:
    """It has the same version with a wheel that fits better than anything, and that one needs more."""
    wheel(tmp_path / "wheels", "torch", "2.16.0", "cp312-cp312-manylinux_2_17_x86_64", ("aiohttp",))
    on_image = replace(subject, present={"torch": "2.16.0"})
    assert versions(on_image.lock({"venv": UnitRequest(python=("torch",))}), "venv") == []


def test_a_requirement_that_the_image_does_not_satisfy_wins(subject: PythonResolution) -> None:
    present = {"torch": NVIDIA, "numpy": "1.26.4", "apex": "0.1", "ray": "2.0"}
    on_image = replace(subject, present=present)
    lock = on_image.lock(
        {
            "venv": UnitRequest(python=("transformers", "numpy>=2", "ray[serve]")),
            "build-x": UnitRequest(python=("torch", "numpy")),
        }
    )
    # With extras a package comes from the index: what they need is not known to be in the image.
    assert versions(lock, "venv") == ["aiohttp 3.0", "numpy 2.4", "ray 2.0", "transformers 5.0"]
    assert versions(lock, "build-x") == ["numpy 2.4"]  # the version that is shipped


def test_conflict_with_the_base_image(subject: PythonResolution) -> None:
    """The spec does not name numpy: whether the image's torch works with another one is the user's decision."""
    on_image = replace(subject, present={"torch": NVIDIA, "numpy": "1.26.4"})
    with pytest.raises(ConflictError) as caught:
        on_image.lock({"venv": UnitRequest(python=("modern",))})
    assert caught.value.message.endswith("\nThe base image contains numpy 1.26.4.")
    assert "name another version of numpy under python-packages: the venv then has its own" in caught.value.hint
    lock = on_image.lock({"venv": UnitRequest(python=("modern", "numpy>=2"))})
    assert versions(lock, "venv") == ["modern 1.0", "numpy 2.4"]
    with pytest.raises(
        ConflictError, match=r"The base image contains torch 2\.9\.0a0"
    ):  # not a tool: it would be two torches
        on_image.lock({"build-x": UnitRequest(python=("torch>=2.10",))})


def test_compiled_packages_replace_those_of_the_image(subject: PythonResolution) -> None:
    on_image = replace(subject, present={"mpi4py": "3.1", "apex": "0.1"})
    lock = on_image.lock(
        {"venv": UnitRequest(python=("mpi4py>=4", "apex")), "build-mpi4py": UnitRequest(sdists=("mpi4py",))}
    )
    assert versions(lock, "venv") == []
    assert lock.units["build-mpi4py"].sdists == ("mpi4py-4.1.tar.gz",)


def test_two_builds_of_one_package() -> None:
    units = {"build-a": UnitRequest(gives=("Apex==0.1.0",)), "build-b": UnitRequest(gives=("apex==0.2",))}
    with pytest.raises(ConflictError, match=r"apex is compiled twice, as 0\.1\.0 and as 0\.2 \(by build-b\)"):
        compiled_packages(units, {"build-a": (), "build-b": ()})


@pytest.mark.parametrize(
    "text",
    ["apex", "apex>=1", "apex==1,<2", "apex[x]==1", "apex==1.*", "apex==1; sys_platform=='linux'", "apex @ b", "?"],
)
def test_provided_packages_have_a_version(text: str) -> None:
    with pytest.raises(SpecError, match="of build-apex is not a package with a version"):
        parse_exact(text, "build-apex")
    assert parse_exact("Flash_Attn == 2.8.3+cu13", "x") == ("flash-attn", "2.8.3+cu13")


def test_requirements_of_other_systems_do_not_count() -> None:
    present = {"a": "1.0", "b": "1.0", "c": "1.0"}
    asked = ("a>1; sys_platform == 'win32'", "b>1; python_version >= '3.13'", "c>1; platform_machine == 'aarch64'")
    assert accepted_packages(present, asked, "3.12", "x86_64") == present
    assert accepted_packages(present, asked, "3.13.2", "aarch64") == {"a": "1.0"}


def test_invalid_versions_are_ignored() -> None:
    given = {"A_b": "1.0.0-rc1", "bad": "unknown", "many-digits": "1" * 5000, "c.d": "2"}
    assert normalize_versions(given) == {"a-b": "1.0.0rc1", "c-d": "2"}


NAMES = st.sampled_from(["a", "b", "c"])
RELEASES = st.tuples(st.integers(0, 3), st.integers(0, 3))


@given(st.dictionaries(NAMES, RELEASES), st.lists(st.tuples(NAMES, st.sampled_from(["<", ">=", "=="]), RELEASES)))
def test_accepted_versions_satisfy_every_requirement(
    present: dict[str, tuple[int, int]], asked: list[tuple[str, str, tuple[int, int]]]
) -> None:
    compare = {"<": tuple.__lt__, ">=": tuple.__ge__, "==": tuple.__eq__}
    expected = {
        name
        for name, version in present.items()
        if all(compare[operator](version, bound) for other, operator, bound in asked if other == name)
    }
    texts = {name: f"{major}.{minor}" for name, (major, minor) in present.items()}
    requirements = [f"{name}{operator}{major}.{minor}" for name, operator, (major, minor) in asked]
    assert accepted_packages(texts, requirements, "3.12", "x86_64").keys() == expected


@pytest.mark.parametrize(
    "text", ["a; os_name ~= 'x'", "a; 'a' == 'b'", "a; os_name == 'posix' and (python_version > '3' or os_name ~= 'x')"]
)
def test_a_marker_that_cannot_be_compared(text: str) -> None:
    with pytest.raises(SpecError, match=r"cannot be evaluated: (Undefined|'b')"):
        accepted_packages({"a": "1.0"}, [text], "3.12", "x86_64")
