"""Python packages resolved by uv against small indexes in folders, and one file chosen for each."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.tags import Tag

from envbuild.core.errors import ConflictError, EngineError, EnvbuildError, InputError, SpecError
from envbuild.lock.python.choose_files import uv_platform, wheel_tags
from envbuild.lock.python.known_releases import KnownReleases
from envbuild.lock.python.pins import Pin
from envbuild.lock.python.resolve import names_package
from envbuild.lock.python.uv_resolver import Resolver
from envbuild.lock.request import UnitRequest
from envbuild.net.site import Site
from tests.support.lock_server import sdist, serve, sha256, simple_index, wheel
from tests.support.python_resolver import versions, work

pytestmark = pytest.mark.unit
LINUX = "manylinux_2_28_x86_64"


@pytest.fixture
def wheels(tmp_path: Path) -> str:
    folder = tmp_path / "wheels"
    wheel(folder, "torch", "2.15.0", f"cp313-cp313-{LINUX}", ("sympy", "setuptools"))
    wheel(folder, "torch", "2.15.0", "cp312-cp312-win_amd64")
    wheel(folder, "torch", "2.16.0", f"cp313-cp313-{LINUX}")
    wheel(folder, "sympy", "1.14")
    wheel(folder, "setuptools", "82.0")
    wheel(folder, "setuptools", "80.0")
    wheel(folder, "transformers", "5.0", requires=("torch", "mpi4py", "colorama; sys_platform == 'win32'"))
    wheel(folder, "mpi4py", "4.1", f"cp313-cp313-{LINUX}")
    sdist(folder, "mpi4py", "4.0")
    sdist(folder, "mpi4py", "4.1")
    sdist(folder, "mpi4py", "4.2rc1")
    return str(folder)


def test_units_share_the_shipped_versions(tmp_path: Path, wheels: str) -> None:
    lock = work(tmp_path, wheels).lock(
        {
            "base": UnitRequest(),
            "venv": UnitRequest(python=("transformers", "torch<2.16")),
            "venv-core": UnitRequest(python=("torch",)),
            "build-apex": UnitRequest(python=("torch", "setuptools<81")),
            "build-mpi4py": UnitRequest(python=("setuptools",), sdists=("mpi4py",)),
        }
    )
    # mpi4py is compiled: it is resolved (transformers needs it) but does not come from the index.
    assert versions(lock, "venv") == ["setuptools 82.0", "sympy 1.14", "torch 2.15.0", "transformers 5.0"]
    assert versions(lock, "venv-core") == ["setuptools 82.0", "sympy 1.14", "torch 2.15.0"]
    assert versions(lock, "build-apex") == ["setuptools 80.0", "sympy 1.14", "torch 2.15.0"]
    assert versions(lock, "build-mpi4py") == ["setuptools 82.0"]
    assert lock.units["build-mpi4py"].sdists == ("mpi4py-4.1.tar.gz",)
    assert lock.units["base"].python == ()
    file = lock.files["mpi4py-4.1.tar.gz"]
    content = (Path(wheels) / file.file).read_bytes()
    assert (file.sha256, file.size) == (sha256(content), len(content))


@pytest.mark.slow_unit
def test_earlier_versions_that_still_exist_are_preserved(tmp_path: Path, wheels: str) -> None:
    units = {
        "venv": UnitRequest(python=("torch", "setuptools")),
        "build-mpi4py": UnitRequest(sdists=("mpi4py",)),
    }
    previous = {"venv": {"torch": "2.15.0", "setuptools": "81.0"}, "build-mpi4py sdists": {"mpi4py": "4.0"}}
    lock = work(tmp_path, wheels, previous=previous).lock(units)
    assert versions(lock, "venv") == ["setuptools 82.0", "sympy 1.14", "torch 2.15.0"]  # setuptools 81.0 is gone
    assert lock.units["build-mpi4py"].sdists == ("mpi4py-4.0.tar.gz",)
    previous["build-mpi4py sdists"] = {"mpi4py": "abc"}  # of a lock that another user wrote
    lock = work(tmp_path, wheels, previous=previous).lock(units)
    assert lock.units["build-mpi4py"].sdists == ("mpi4py-4.1.tar.gz",)


@pytest.mark.slow_unit
def test_a_release_that_no_fact_knows_is_locked_only_where_nothing_else_fits(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    for version in ("5.23.0", "5.24.0"):
        wheel(folder, "transformers", version, requires=("pydantic",))
    for version in ("2.14.3", "2.14.4", "2.15.0"):
        wheel(folder, "pydantic", version)
    wheel(folder, "demo", "2.15.1+cu130")
    wheel(folder, "strict", "1.0", requires=("pydantic>=2.15",))
    newest = {"transformers": "5.23.0", "pydantic": "2.14.3", "demo": "2.15.1", "unused": "1"}
    reports: list[str] = []
    known = KnownReleases(newest, reports.append)

    def locked(*requirements: str) -> list[str]:
        one = replace(work(tmp_path, str(folder)), known=known)
        return versions(one.lock({"venv": UnitRequest(python=requirements)}), "venv")

    assert locked("transformers", "demo") == ["demo 2.15.1+cu130", "pydantic 2.14.3", "transformers 5.23.0"]
    assert len(reports) == 1
    assert "pydantic 2.15.0, transformers 5.24.0" in reports[0]
    assert "pydantic 2.14.3, transformers 5.23.0" in reports[0]
    # what is requested by version, or required by another package, is for the matrix to answer
    assert locked("transformers==5.24.0") == ["pydantic 2.14.3", "transformers 5.24.0"]
    assert locked("strict") == ["pydantic 2.15.0", "strict 1.0"]
    assert len(reports) == 1


@pytest.mark.slow_unit
def test_earlier_version_that_the_first_index_has_for_others_only(tmp_path: Path) -> None:
    """uv alone would choose 1.0: it drops a preferred version when the first index that has it has no fitting file."""
    files = tmp_path / "files"
    first = [wheel(files, "demo", "2.0", f"cp311-cp311-{LINUX}")]
    second = [wheel(files, "demo", "2.0", f"cp313-cp313-{LINUX}"), wheel(files, "demo", "1.0")]
    second.append(wheel(files, "user", "1.0", requires=("demo>=1",)))
    places = simple_index(tmp_path / "one", second), simple_index(tmp_path / "two", first)
    lock = work(tmp_path, *places, previous={"venv": {"demo": "2.0"}}).lock({"venv": UnitRequest(python=("user",))})
    assert versions(lock, "venv") == ["demo 2.0", "user 1.0"]


@pytest.mark.slow_unit
def of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the indexes of a test be those of pip's configuration: one pool."""
    python = Site.python
    monkeypatch.setattr(Site, "python", lambda site, *origin: replace(python(site, *origin), pool=True))


def test_another_package_of_the_same_name_on_a_later_index_is_not_taken(tmp_path: Path) -> None:
    """A private name can be registered on a public index: the same version with a dependency, or a higher one."""
    folders = [tmp_path / name for name in ("private", "public")]
    own = [wheel(folders[0], "acme", "1.0")]
    others = [
        wheel(folders[1], "acme", "1.0", requires=("evil",)), wheel(folders[1], "acme", "5.9.0"),
        wheel(folders[1], "evil", "1.0"), wheel(folders[1], "other", "1.0"),
    ]  # fmt: skip
    places = [simple_index(tmp_path / name, wheels) for name, wheels in (("one", own), ("two", others))]
    found = work(tmp_path, *places).lock({"venv": UnitRequest(python=("acme", "other"))})
    assert versions(found, "venv") == ["acme 1.0", "other 1.0"]
    assert found.files[own[0].name].sha256 == sha256(own[0].read_bytes())
    turned = work(tmp_path / "turned", *places[::-1]).lock({"venv": UnitRequest(python=("acme",))})
    assert versions(turned, "venv") == ["acme 5.9.0"]


def test_version_that_the_first_index_has_for_others_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv alone reports that a locked version does not exist."""
    of_pip(monkeypatch)
    files = tmp_path / "files"
    first = [wheel(files, "demo", "2.0", "cp313-cp313-manylinux_2_28_aarch64")]
    second = [wheel(files, "demo", "2.0", f"cp313-cp313-{LINUX}"), wheel(files, "user", "1.0", requires=("demo==2.0",))]
    places = [simple_index(tmp_path / name, own) for name, own in (("one", first), ("two", second))]
    for number, order in enumerate((places, places[::-1])):
        again = work(tmp_path / str(number), *order, previous={"venv": {"demo": "2.0"}})
        found = again.lock({"venv": UnitRequest(python=("user", "demo==2.0"))})
        assert found.units["venv"].python == (f"demo-2.0-cp313-cp313-{LINUX}.whl", "user-1.0-py3-none-any.whl")


@pytest.mark.slow_unit
def test_the_image_gets_versions_that_its_toolkit_has_too(tmp_path: Path) -> None:
    """The toolkit's compiler has its own CCCL; another package of the image takes any."""
    folder = tmp_path / "wheels"
    for number in ("13.2", "13.3"):
        wheel(folder, "cccl", number)
    wheel(folder, "toolkit", "13.2", requires=("cccl==13.2",))
    wheel(folder, "nvshmem", "3.7", requires=("cccl",))
    venv = UnitRequest(python=("nvshmem",))
    alone = work(tmp_path / "one", str(folder)).lock({"venv": venv})
    assert versions(alone, "venv") == ["cccl 13.3", "nvshmem 3.7"]
    for number, previous in enumerate(({}, {"venv": {"cccl": "13.3"}})):
        beside = work(tmp_path / f"two-{number}", str(folder), previous=previous).lock(
            {"venv": venv, "build-cuda": UnitRequest(devel=("toolkit",))}
        )
        assert versions(beside, "venv") == ["cccl 13.2", "nvshmem 3.7"]
        assert versions(beside, "build-cuda") == ["cccl 13.2", "toolkit 13.2"]


def test_best_wheel_of_all_indexes(tmp_path: Path) -> None:
    tags = [
        "py3-none-any",
        "cp38-abi3-manylinux2014_x86_64",
        f"cp313-cp313-{LINUX}",
        "cp313-cp313-manylinux_2_39_x86_64",
    ]
    tags += [
        "cp313-cp313t-manylinux_2_39_x86_64",
        "cp313-cp313-manylinux_2_39_aarch64",
        "cp313-cp313-musllinux_1_2_x86_64",
    ]
    files = [wheel(tmp_path / "files", "demo", "1.0", tag) for tag in tags]
    lock = work(tmp_path, simple_index(tmp_path / "simple", files)).lock({"venv": UnitRequest(python=("demo",))})
    assert lock.units["venv"].python == ("demo-1.0-cp313-cp313-manylinux_2_39_x86_64.whl",)


def test_same_name_with_other_content_elsewhere(tmp_path: Path) -> None:
    """The file must be one of those that uv resolved: an unknown digest is ignored."""
    real = wheel(tmp_path / "real", "demo", "1.0")
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / real.name).write_bytes(b"not a wheel")
    subject = work(tmp_path, str(folder), simple_index(tmp_path / "simple", [real]))
    file = subject.choice.wheel(Pin("demo", "1.0", frozenset({sha256(real.read_bytes())})))
    assert file.sha256 == sha256(real.read_bytes())


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("requirements", "error", "message"),
    [
        (("sympy<1",), ConflictError, "No solution found"),
        (("torch==2.15.0", "torch>2.15"), ConflictError, "you require torch"),
        (("nunpy",), InputError, "nunpy was not found"),
        (("numpy >== 1",), SpecError, "is not a Python requirement"),
        (("demo @ https://files.example/demo.whl",), SpecError, "names an address"),
    ],
)
def test_requests_without_a_solution(
    tmp_path: Path, wheels: str, requirements: tuple[str, ...], error: type[EnvbuildError], message: str
) -> None:
    with pytest.raises(error, match=f"(?s){message}") as caught:
        work(tmp_path, wheels).lock({"venv": UnitRequest(python=requirements)})
    assert caught.value.hint
    assert "Traceback" not in caught.value.message


def test_package_without_a_wheel(tmp_path: Path) -> None:
    sdist(tmp_path / "files", "old", "1.0")
    with pytest.raises(SpecError) as caught:
        work(tmp_path, str(tmp_path / "files")).lock({"venv": UnitRequest(python=("old",))})
    assert "wheel=True" in caught.value.hint


def test_sdist_that_does_not_exist(tmp_path: Path, wheels: str) -> None:
    with pytest.raises(InputError, match="no package index has an sdist for 'mpi5py==4'"):
        work(tmp_path, wheels).lock({"build-x": UnitRequest(sdists=("mpi5py==4",))})


def test_version_of_an_sdist_that_does_not_exist(tmp_path: Path, wheels: str) -> None:
    """The name is right, so it is not the name that is to be checked."""
    with pytest.raises(ConflictError) as caught:
        work(tmp_path, wheels).lock({"build-x": UnitRequest(sdists=("mpi4py==4.99",))})
    cause = "the package index has no such sdist of mpi4py; the newest are 4.1, 4.0"
    assert caught.value.message == f"'mpi4py==4.99' is not available: {cause}"
    assert caught.value.hint == 'write an existing version, for example version: "4.1", or leave it out'


def test_sdist_for_another_python(tmp_path: Path) -> None:
    files = [sdist(tmp_path / "files", "demo", number) for number in ("1.0", "2.0")]
    page = Path(simple_index(tmp_path / "simple", files).removeprefix("file://")) / "demo/index.html"
    text = page.read_text()
    assert text.count("<a ") == 2
    new = next(line for line in text.replace("<a ", "\n<a ").splitlines() if "demo-2.0" in line)
    page.write_text(text.replace(new, new.replace("<a ", '<a data-requires-python="&gt;=3.14" ')))
    with pytest.raises(ConflictError) as caught:
        work(tmp_path, page.parent.parent.as_uri()).lock({"build-x": UnitRequest(sdists=("demo==2.0",))})
    assert "the sdist of demo 2.0 does not run on Python 3.13; the newest are 1.0" in caught.value.message


def test_index_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "1")
    with serve() as server:
        server.faults["/simple/demo/"] = [403] * 20
        with pytest.raises(EnvbuildError, match=r"403|demo"):
            work(tmp_path, f"{server.url}/simple").lock({"venv": UnitRequest(python=("demo",))})


def test_tags_are_those_of_the_platform() -> None:
    tags = wheel_tags("3.13", "amd64", (2, 41))
    assert tags[0] == Tag("cp313", "cp313", "manylinux_2_40_x86_64")
    for text in (
        "cp313-cp313-manylinux2014_x86_64",
        "cp38-abi3-manylinux1_x86_64",
        "py3-none-linux_x86_64",
        "py2.py3-none-any",
    ):
        interpreter, abi, system = text.split("-")
        assert (Tag(interpreter.split(".")[-1], abi, system) in tags) == True  # noqa: E712
    assert Tag("cp313", "cp313", "manylinux_2_41_x86_64") not in tags
    assert Tag("cp313", "cp313", "manylinux_2_37_x86_64") not in wheel_tags("3.13", "amd64", (2, 36))
    assert Tag("cp311", "cp311", "manylinux2014_aarch64") in wheel_tags("3.11", "arm64", (2, 36))
    assert uv_platform("arm64", (2, 36)) == "aarch64-manylinux_2_36"


def test_compiled_package_that_has_no_wheel_anywhere(tmp_path: Path) -> None:
    """Others may depend on it; it is in the resolution with the version of its source, and not in the result."""
    folder = tmp_path / "files"
    sdist(folder, "flash_attn", "2.8.3")
    wheel(folder, "user", "1.0", requires=("flash-attn>=2",))
    units = {"venv": UnitRequest(python=("user",)), "build-flash-attn": UnitRequest(sdists=("flash-attn",))}
    lock = work(tmp_path, str(folder)).lock(units)
    assert versions(lock, "venv") == ["user 1.0"]
    assert lock.units["build-flash-attn"].sdists == ("flash_attn-2.8.3.tar.gz",)
    wheel(folder, "user", "1.1", requires=("flash-attn>=3",))
    with pytest.raises(ConflictError, match="flash-attn>=3"):
        work(tmp_path, str(folder)).lock({**units, "venv": UnitRequest(python=("user>1",))})


def test_a_full_disk_under_uv(tmp_path: Path, wheels: str) -> None:
    """uv itself fails on a file system that is full: the message does not mention names, indexes or the network."""
    subject = work(tmp_path, wheels)
    full = tmp_path / "full"
    full.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(full)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mount needs root and CAP_SYS_ADMIN")
    try:
        (full / "rest").write_bytes(bytes(4096))
        with pytest.raises(EngineError, match=r"os error 28") as caught:
            Resolver(replace(subject.resolver.uv, cache=full / "cache")).resolve("venv", ["sympy"])
    finally:
        subprocess.run(["umount", str(full)], check=True)
    assert "ENVBUILD_STORE" in caught.value.hint


def test_all_missing_wheels_are_reported(tmp_path: Path, wheels: str) -> None:
    """A package that was resolved and is on no index any more."""
    subject = work(tmp_path, wheels)
    asked = {("sympy", "9"): Pin("sympy", "9", frozenset()), ("torch", "9"): Pin("torch", "9", frozenset())}
    subject.choose(asked | {("sympy", "1.14"): Pin("sympy", "1.14", frozenset())})
    assert [type(error) for error in subject.errors] == [InputError, InputError]
    assert [file.file for file in subject.found()] == ["sympy-1.14-py3-none-any.whl"]


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("torch was not found in the package registry", True),
        ("you require torch==2.9.0+cu128 and numpy<1", True),
        ("all versions of demo depend on torch, and", True),
        ("you require torch[opt]>=2", True),
        ("because torchvision was not found", False),
        ("only torch-neuronx<2 is available", False),
        ("you require pytorch and torch.fx", False),
    ],
)
def test_names_in_messages_of_uv_match_whole_words(message: str, named: bool) -> None:
    assert names_package("torch", message) is named


def test_a_unit_that_waits_for_a_missing_package_leaves_its_parts_out_and_adds_no_errors(
    tmp_path: Path, wheels: str
) -> None:
    missing = InputError("the wheel of nccl is not available")
    lines: list[str] = []
    resolution = replace(
        work(tmp_path, wheels), before=[missing], lacking={"mpi4py": "(which is missing)"}, report=lines.append
    )
    with pytest.raises(InputError) as caught:
        resolution.lock(
            {
                "venv": UnitRequest(python=("transformers",)),
                "venv-core": UnitRequest(python=("torch",)),
                "build-apex": UnitRequest(python=("torch", "setuptools<81")),
                "build-old": UnitRequest(python=("torch<2",)),
            }
        )
    assert caught.value.findings == missing.findings
    assert len(lines) == 1 and "'venv'" in lines[0] and "mpi4py" in lines[0]
    assert {(file.name, file.version) for file in resolution.found()} == {("setuptools", "80.0"), ("torch", "2.16.0")}
