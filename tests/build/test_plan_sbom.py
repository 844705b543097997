"""The SBOM of an image: valid CycloneDX 1.6 by its own library, package URLs as the library of that format reads them,
the same bytes for the same lock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from hypothesis import given
from hypothesis import strategies as st
from packageurl import PackageURL

from envbuild.build.plan.embedded_documents import to_json
from envbuild.build.plan.sbom import base_component, debian_component, package_url, sbom, source_components
from envbuild.lock.lockfile import read_lock
from envbuild.lock.model import BaseImage, DebianFile, Lock, PythonFile, SourceFile, UnitLock
from tests.support.command import ROOT

pytestmark = pytest.mark.unit
LOCKS = sorted((ROOT / "images").glob("*.lock"))
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def properties(component: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in component.get("properties", [])}


def deb(name: str, version: str, path: str, archive: str = "debian:trixie/main") -> DebianFile:
    return DebianFile(path.rpartition("/")[2], name, version, archive, path, 1, "0" * 64)


@pytest.mark.parametrize("path", LOCKS, ids=[path.stem for path in LOCKS])
def test_the_document_of_a_shipped_lock(path: Path) -> None:
    lock = read_lock(path)
    text = to_json(sbom(lock))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    components = json.loads(text)["components"]
    systems = [item for item in components if item["type"] == "operating-system"]
    assert [(item["name"], item["version"]) for item in systems] == [("debian", "13")]
    urls = [PackageURL.from_string(item["purl"]) for item in components if "purl" in item]
    debian = [url for url in urls if url.type == "deb"]
    assert {(url.namespace, url.qualifiers["distro"]) for url in debian} == {("debian", "debian-13")}
    files = {file for unit in lock.image_units() for file in unit.debian}
    assert {(url.name, url.version) for url in debian} == {
        (lock.debian[file].name, lock.debian[file].version) for file in files
    }
    assert {url.version for url in urls if url.type == "pypi"} == {
        lock.python_files[file].version for file in lock.image_python()
    }


def reversed_lock(lock: Lock) -> Lock:
    tables = {
        name: dict(reversed(list(getattr(lock, name).items())))
        for name in ("debian", "python_files", "sources", "units")
    }
    return replace(lock, **tables)


def test_the_same_lock_has_the_same_bytes() -> None:
    lock = read_lock(LOCKS[0])
    assert to_json(sbom(reversed_lock(lock))) == to_json(sbom(lock))


def test_of_a_wheel_and_a_source_archive_of_one_version_the_same_is_named_each_time() -> None:
    """File names are in sets, whose order is another in each process; the file that is last by its name counts."""
    names = [f"p{number}" for number in range(10)]
    files = {
        file: PythonFile(file, name, "1", 1, f"{number}" * 64)
        for name in names
        for number, file in enumerate((f"{name}-1-py3-none-any.whl", f"{name}-1.tar.gz"))
    }
    lock = replace(read_lock(LOCKS[0]), python_files=files, units={"venv": UnitLock(python=tuple(files))})
    found: list[dict[str, Any]] = [
        item for item in json.loads(to_json(sbom(lock)))["components"] if "pkg:pypi/" in item.get("purl", "")
    ]
    assert [item["hashes"][0]["content"] for item in found] == ["1" * 64] * len(names)


@pytest.mark.parametrize(
    ("package", "source", "version", "release", "epoch"),
    [
        (deb("libssl3t64", "3.5.7-1~deb13u3", "pool/main/o/openssl/libssl3t64_3.5.7-1~deb13u3_amd64.deb"),
         "openssl", "3.5.7", "1~deb13u3", None),
        (deb("sqv", "1.3.0-3+b2", "pool/main/r/rust-sequoia-sqv/sqv_1.3.0-3+b2_amd64.deb"),
         "rust-sequoia-sqv", "1.3.0", "3", None),
        (deb("tzdata", "2:2026a", "pool/updates/main/t/tzdata/tzdata_2026a_all.deb"), "tzdata", "2026a", None, "2"),
        (deb("cuda-nvcc-12-4", "12.4.131-1", "./cuda-nvcc-12-4_12.4.131-1_amd64.deb", "apt:nvidia-cuda/x"),
         "cuda-nvcc-12-4", "12.4.131", "1", None),
        (deb("libgcc-s1", "14.2.0-19", "pool/main/g/gcc-14/libgcc-s1_14.2.0-19_amd64.deb"),
         "gcc-14", "14.2.0", "19", None),
        (deb("far", "1-1", "pool/" * 200_000 + "x"), "pool", "1", "1", None),
        (deb("near", "1-1", "pool/near_1-1_amd64.deb"), "near", "1", "1", None),
    ],
    ids=lambda value: value.name if isinstance(value, DebianFile) else "",
)  # fmt: skip
def test_the_source_of_a_debian_package(
    package: DebianFile, source: str, version: str, release: str | None, epoch: str | None
) -> None:
    found: dict[str, Any] = debian_component(package, "debian:13")
    url = PackageURL.from_string(found["purl"])
    assert (url.type, url.namespace, url.name, url.version) == ("deb", "debian", package.name, package.version)
    assert url.qualifiers["arch"] == package.file.removesuffix(".deb").rpartition("_")[2]
    assert url.qualifiers.get("upstream", package.name) == source
    stated = {key.rpartition(":")[2]: value for key, value in properties(found).items() if "trivy" in key}
    wanted = {"PkgType": "debian", "SrcName": source, "SrcVersion": version, "SrcRelease": release, "SrcEpoch": epoch}
    assert stated == {key: value for key, value in wanted.items() if value}


def test_packages_of_ubuntu_have_its_namespace() -> None:
    package = deb("libc6", "2.39-0ubuntu8", "pool/main/g/glibc/libc6_2.39-0ubuntu8_amd64.deb", "ubuntu:noble/main")
    url = PackageURL.from_string(str(debian_component(package, "ubuntu:24.04")["purl"]))
    assert (url.namespace, url.qualifiers["distro"], url.qualifiers["upstream"]) == ("ubuntu", "ubuntu-24.04", "glibc")


def test_commits_and_their_submodules() -> None:
    submodules = {"a": f"gitlab:Group/Sub/c@{COMMIT}", "b": f"git:forge.example/x/y@{COMMIT}"}
    source = SourceFile("c.tar.gz", f"github:NVIDIA/Apex@{COMMIT}", "1" * 64, git=True, submodules=submodules)
    found: list[dict[str, Any]] = list(source_components(source))
    urls = [PackageURL.from_string(item["purl"]) for item in found]
    assert [(url.type, url.namespace, url.name) for url in urls] == [
        ("github", "nvidia", "apex"), ("generic", None, "c"), ("generic", None, "y"),
    ]  # fmt: skip
    assert {url.version for url in urls} == {COMMIT}
    assert urls[1].qualifiers["vcs_url"] == f"git+https://gitlab.com/Group/Sub/c@{COMMIT}"
    assert urls[2].qualifiers["vcs_url"] == f"git+https://forge.example/x/y@{COMMIT}"
    assert [bool(item.get("hashes")) for item in found] == [True, False, False]


@pytest.mark.parametrize(
    ("reference", "name", "repository", "tag"),
    [
        ("nvcr.io/nvidia/pytorch:25.10-py3", "pytorch", "nvcr.io/nvidia/pytorch", "25.10-py3"),
        (f"127.0.0.1:5000/x/y@sha256:{'0' * 64}", "y", "127.0.0.1:5000/x/y", None),
    ],
)
def test_the_base_image(reference: str, name: str, repository: str, tag: str | None) -> None:
    base = BaseImage(reference, "2" * 64, "0" * 64, (), {})
    found = base_component(base, "amd64")
    url = PackageURL.from_string(str(found["purl"]))
    assert (url.type, url.name, url.version) == ("oci", name, f"sha256:{'2' * 64}")
    assert (url.qualifiers["repository_url"], url.qualifiers.get("tag")) == (repository, tag)
    assert found["type"] == "container"


SIGNS = st.characters(exclude_categories=("C", "Z"), exclude_characters="/")  # the library removes them at the ends


@given(st.text(SIGNS, min_size=1, max_size=20), st.text(SIGNS, max_size=20), st.text(SIGNS, min_size=1, max_size=20))
def test_a_package_url_has_its_parts(name: str, version: str, value: str) -> None:
    url = PackageURL.from_string(package_url("generic", name, version, {"vcs_url": value}))
    assert (url.name, url.version or "", url.qualifiers["vcs_url"]) == (name, version, value)
