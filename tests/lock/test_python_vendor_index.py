"""Vendors' package indexes: the packages that come from them, and from no other index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.errors import ConflictError, EnvbuildError, InputError
from envbuild.lock.python.pins import Pin
from envbuild.lock.python.resolve import PythonLock, PythonResolution
from envbuild.lock.python.vendor_index import vendor_indexes
from envbuild.lock.request import UnitRequest
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.spec.recipe import PythonIndex
from tests.support.home_files import homes
from tests.support.lock_server import sdist, serve, sha256, simple_index, wheel
from tests.support.python_resolver import work_at

pytestmark = pytest.mark.unit
NEURON = PythonIndex("pip:neuron", ("torch-neuronx", "Neuronx_CC", "libneuronxla"))


def site(tmp_path: Path, **mirrors: tuple[str, ...]) -> Site:
    given = {f"{name}:" if name == "python" else f"pip:{name}": places for name, places in mirrors.items()}
    return Site(tmp_path / "store", mirrors=given, use_host=False)


def work(at: Site, tmp_path: Path, *indexes: PythonIndex, previous: dict[str, str] | None = None) -> PythonResolution:
    return work_at(at, tmp_path, "3.10", (2, 35), indexes, {"venv": previous or {}})


def locked(lock: PythonLock, unit: str = "venv") -> dict[str, str]:
    files = [lock.files[file] for file in lock.units[unit].python]
    return {f"{file.name} {file.version}": file.origin for file in files}


@pytest.fixture
def neuron(tmp_path: Path) -> tuple[str, str]:
    """(package index with placeholders, vendor's index with more than its own)."""
    common, own = tmp_path / "common", tmp_path / "own"
    ordinary = [
        wheel(common, "torch_neuronx", "1.0"),
        wheel(common, "neuronx_cc", "9.0"),
        wheel(common, "libneuronxla", "1.0"),
        wheel(common, "numpy", "1.26"),
        wheel(common, "torch", "2.9"),
        wheel(common, "user", "1.0", requires=("torch-neuronx",)),
    ]
    vendor = [
        wheel(own, "torch_neuronx", "2.9.0+x", requires=("torch==2.9", "neuronx-cc>=2", "libneuronxla")),
        wheel(own, "neuronx_cc", "2.21", requires=("numpy",)),
        wheel(own, "libneuronxla", "2.2"),
        wheel(own, "numpy", "99.0"),
    ]
    return simple_index(tmp_path / "ordinary", ordinary), simple_index(tmp_path / "vendor", vendor)


EXPECTED = {
    "libneuronxla 2.2": "pip:neuron",
    "neuronx-cc 2.21": "pip:neuron",
    "numpy 1.26": "",
    "torch 2.9": "",
    "torch-neuronx 2.9.0+x": "pip:neuron",
}


@pytest.mark.slow_unit
def test_named_packages_come_from_the_vendor_and_others_do_not(tmp_path: Path, neuron: tuple[str, str]) -> None:
    """torch-neuronx is requested; its dependencies are on both indexes, and under placeholders on one."""
    subject = work(site(tmp_path, python=neuron[:1], neuron=neuron[1:]), tmp_path, NEURON)
    units = {
        "venv": UnitRequest(python=("torch-neuronx",)),
        "venv-core": UnitRequest(python=("torch",)),
        "build-x": UnitRequest(python=("neuronx-cc", "numpy")),
    }
    lock = subject.lock(units)
    assert locked(lock) == EXPECTED
    assert locked(lock, "venv-core") == {"torch 2.9": ""}
    assert locked(lock, "build-x") == {"neuronx-cc 2.21": "pip:neuron", "numpy 1.26": ""}
    again = work(site(tmp_path, python=neuron[:1], neuron=neuron[1:]), tmp_path, NEURON, previous={"numpy": "99.0"})
    assert locked(again.lock(units)) == EXPECTED


WORKSPACE = """\
[tool.uv.workspace]
members = ["venv", "*/venv", "*/*/venv", "*/*/*/venv", "*/*/*/*/venv"]
[tool.uv.sources]
numpy = {{ index = "theirs" }}
[[tool.uv.index]]
name = "theirs"
url = "{}"
"""


@pytest.mark.slow_unit
def test_a_project_above_the_store_is_not_read(tmp_path: Path, neuron: tuple[str, str]) -> None:
    """Another user who writes one there would name the indexes, and get the passwords of the site's."""
    theirs = simple_index(tmp_path / "theirs", [wheel(tmp_path / "w", "numpy", "99.0")])
    subject = work(site(tmp_path, python=neuron[:1], neuron=neuron[1:]), tmp_path, NEURON)
    (tmp_path / "pyproject.toml").write_text(WORKSPACE.format(theirs))
    lock = subject.lock({"venv": UnitRequest(python=("neuronx-cc", "numpy"))})
    assert locked(lock) == {"neuronx-cc 2.21": "pip:neuron", "numpy 1.26": ""}


def test_a_package_of_the_vendor_that_only_another_package_requires(tmp_path: Path, neuron: tuple[str, str]) -> None:
    """The package index alone has an answer (placeholders), which is not used."""
    subject = work(site(tmp_path, python=neuron[:1], neuron=neuron[1:]), tmp_path, NEURON)
    lock = subject.lock({"venv": UnitRequest(python=("user",))})
    assert locked(lock) == {**EXPECTED, "user 1.0": ""}


def test_vendor_folder_beside_folders_of_the_site(tmp_path: Path, neuron: tuple[str, str]) -> None:
    """Both sides as plain folders: then no request by name is possible."""
    at = site(tmp_path, python=(str(tmp_path / "common"),), neuron=(str(tmp_path / "own"),))
    (tmp_path / "common/neuronx_cc-9.0-py3-none-any.whl").unlink()
    lock = work(at, tmp_path, NEURON).lock({"venv": UnitRequest(python=("torch-neuronx",))})
    assert locked(lock) == EXPECTED


def test_placeholder_in_a_folder_is_not_taken(tmp_path: Path, neuron: tuple[str, str]) -> None:
    at = site(tmp_path, python=(neuron[0], str(tmp_path / "extra")), neuron=neuron[1:])
    wheel(tmp_path / "extra", "libneuronxla", "7.0")
    subject = work(at, tmp_path, NEURON)
    assert locked(subject.lock({"venv": UnitRequest(python=("libneuronxla",))})) == {"libneuronxla 2.2": "pip:neuron"}
    # Independent of the resolution: the file is one that the vendor lists.
    with pytest.raises(InputError) as caught:
        subject.choice.wheel(Pin("libneuronxla", "7.0", frozenset()))
    assert caught.value.message == (
        "libneuronxla 7.0 is not available: it comes from pip:neuron only, and that index does not list a "
        "wheel of it for this image"
    )


def test_name_that_only_the_package_index_has(tmp_path: Path, neuron: tuple[str, str]) -> None:
    (tmp_path / "vendor/libneuronxla/index.html").unlink()
    subject = work(site(tmp_path, python=neuron[:1], neuron=neuron[1:]), tmp_path, NEURON)
    for asked in ("libneuronxla", "user"):
        with pytest.raises(InputError) as caught:
            subject.lock({"venv": UnitRequest(python=(asked,))})
        vendor = tmp_path / "vendor"
        assert caught.value.message == (
            f"libneuronxla is not available: it comes from pip:neuron only, and {vendor.as_uri()} does not list it"
        )
        assert caught.value.hint.endswith('mirrors: {"pip:neuron": [ADDRESS-OR-FOLDER]}')


def test_version_that_the_vendor_does_not_have(
    tmp_path: Path, neuron: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")  # uv must not wrap its messages
    subject = work(site(tmp_path, python=neuron[:1], neuron=neuron[1:]), tmp_path, NEURON)
    with pytest.raises(ConflictError) as caught:
        subject.lock({"venv": UnitRequest(python=("neuronx-cc>5",))})
    assert "you require neuronx-cc>5" in caught.value.message
    assert "envbuild-venv" not in caught.value.message  # uv's name for it


def test_local_versions_of_one_index_of_several(tmp_path: Path) -> None:
    """PyTorch's: the package index has a newer torch, and the vendor's an older one of the CUDA that is wanted."""
    linux = "cp310-cp310-manylinux_2_17_x86_64"
    ordinary = [wheel(tmp_path / "o", "torch", "2.15.0", linux), wheel(tmp_path / "o", "sympy", "1.14")]
    vendor = [wheel(tmp_path / "v", "torch", "1.10.1+cu113", linux, ("sympy",)), wheel(tmp_path / "v", "sympy", "1.13")]
    at = site(
        tmp_path, python=(simple_index(tmp_path / "a", ordinary),), torch=(simple_index(tmp_path / "b/cu113", vendor),)
    )
    at = replace(at, mirrors={**at.mirrors, "pip:torch": ((tmp_path / "b").as_uri(),)})
    subject = work(
        at, tmp_path, PythonIndex("pip:torch/cu113", ("torch",)), PythonIndex("pip:torch/cu113", ("vision",))
    )
    assert locked(subject.lock({"venv": UnitRequest(python=("torch",))})) == {
        "sympy 1.14": "",
        "torch 1.10.1+cu113": "pip:torch/cu113",
    }


def test_packages_that_are_no_longer_required_are_left_out(tmp_path: Path) -> None:
    """All indexes as one return a user that needs more of the vendor's packages than the final one does."""
    old = wheel(tmp_path / "o", "core", "5.0", requires=("extra",))  # a namesake on the package index
    ordinary = [old, wheel(tmp_path / "o", "user", "1.0", requires=("core", "plain"))]
    vendor = [
        wheel(tmp_path / "v", "core", "2.0", requires=("plain",)),
        wheel(tmp_path / "v", "plain", "1.0"),
        wheel(tmp_path / "v", "extra", "1.0"),
    ]
    at = site(tmp_path, python=(simple_index(tmp_path / "a", ordinary),), v=(simple_index(tmp_path / "b", vendor),))
    subject = work(at, tmp_path, PythonIndex("pip:v", ("core", "plain", "extra")))
    lock = subject.lock({"venv": UnitRequest(python=("user",))})
    assert locked(lock) == {"core 2.0": "pip:v", "plain 1.0": "pip:v", "user 1.0": ""}


def test_sdist_of_a_vendor(tmp_path: Path) -> None:
    ordinary, vendor = [sdist(tmp_path / "o", "demo", "3.0")], [sdist(tmp_path / "v", "demo", "1.0")]
    at = site(tmp_path, python=(simple_index(tmp_path / "a", ordinary),), v=(simple_index(tmp_path / "b", vendor),))
    subject = work(at, tmp_path, PythonIndex("pip:v", ("demo",)))
    lock = subject.lock({"build-demo": UnitRequest(sdists=("demo",))})
    assert [(file.file, file.origin) for file in lock.files.values()] == [("demo-1.0.tar.gz", "pip:v")]
    with pytest.raises(InputError, match="pip:v has no sdist for 'other'"):
        work(at, tmp_path, PythonIndex("pip:v", ("other",))).lock({"build-x": UnitRequest(sdists=("other",))})


def test_over_the_network_and_without_digests(tmp_path: Path) -> None:
    """An index without digests: they are computed, and the file is in the store."""
    content = wheel(tmp_path / "v", "demo", "1.0").read_bytes()
    with serve() as server:
        server.files["/cu/demo/"] = b'<a href="../files/demo-1.0-py3-none-any.whl">x</a>'
        server.files["/cu/files/demo-1.0-py3-none-any.whl"] = content
        address = server.url.replace("//", "//me:secret@")
        at = site(tmp_path, python=(), v=(f"{server.url}/gone", f"{address}/cu"))
        subject = work(at, tmp_path, PythonIndex("pip:v", ("demo",)))
        lock = subject.lock({"venv": UnitRequest(python=("demo",))})
        file = lock.files["demo-1.0-py3-none-any.whl"]
        assert (file.origin, file.sha256, file.size) == ("pip:v", sha256(content), len(content))
        server.faults["/cu/demo/"] = [403] * 9
        at = site(tmp_path, python=(), v=(f"{address}/cu",))
        with pytest.raises(InputError, match="the package index pip:v does not answer for 'demo': HTTP 403") as caught:
            work(at, tmp_path, PythonIndex("pip:v", ("demo",)))
    assert "secret" not in str(caught.value)
    assert caught.value.hint == 'configure other indexes in site.yaml:  mirrors: {"pip:v": [ADDRESS, …]}'


def test_an_index_that_links_to_a_second_host(tmp_path: Path) -> None:
    """PyTorch's index has absolute links to another host, and is known without a line of the site."""
    file = wheel(tmp_path / "w", "torch", "2.9.0+cu113")
    own = simple_index(tmp_path / "ordinary", [wheel(tmp_path / "w", "torch", "2.9.0")])
    with serve() as index, serve() as files:
        link = f"{files.url}/whl/{file.name.replace('+', '%2B')}"
        files.files = {f"/whl/{file.name.replace('+', '%2B')}": file.read_bytes()}
        index.files["/whl/cu113/torch/"] = f'<a href="{link}#sha256={sha256(file.read_bytes())}">torch</a>'.encode()
        at = replace(site(tmp_path, python=(own,)), use_host=True)
        with homes(tmp_path / "homes", {"origin": "pip:pytorch", "address": f"{index.url}/whl"}):
            lock = work(at, tmp_path, PythonIndex("pip:pytorch/cu113", ("torch",))).lock(
                {"venv": UnitRequest(python=("torch",))}
            )
        assert locked(lock) == {"torch 2.9.0+cu113": "pip:pytorch/cu113"}
        assert files.asked and index.asked


def test_all_indexes_without_a_place_are_reported(tmp_path: Path) -> None:
    at = site(tmp_path, python=())
    with pytest.raises(InputError) as caught:
        vendor_indexes([NEURON, PythonIndex("pip:torch/cu113", ("torch",))], at, Transport(at.network()))
    assert [(finding.message, finding.hint) for finding in caught.value.findings] == [
        (
            "no place is known for pip:neuron, which provides libneuronxla, neuronx-cc, torch-neuronx",
            'write into site.yaml:  mirrors: {"pip:neuron": [ADDRESS]}',
        ),
        (
            "no place is known for pip:torch/cu113, which provides torch",
            'write into site.yaml:  mirrors: {"pip:torch/cu113": [ADDRESS]}',
        ),
    ]


def test_a_package_has_one_owner(tmp_path: Path) -> None:
    at = site(tmp_path, python=(), a=("/a",), b=("/b",))
    with pytest.raises(ConflictError, match="torch cannot be locked: recipes require it from pip:a and from pip:b"):
        vendor_indexes(
            [PythonIndex("pip:a", ("torch",)), PythonIndex("pip:b", ("Torch", "x"))], at, Transport(at.network())
        )


def test_failures_of_uv_are_reported_once(tmp_path: Path, neuron: tuple[str, str]) -> None:
    subject = work(site(tmp_path, python=neuron[:1], neuron=neuron[1:]), tmp_path, NEURON)
    with pytest.raises(EnvbuildError, match="nunpy was not found"):
        subject.lock({"venv": UnitRequest(python=("nunpy", "torch-neuronx"))})
