"""Sources of an image's inputs, and what `list` prints of images without a lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.cli import image_list as listing
from envbuild.core.console import SilentReporter
from envbuild.core.store.store import Store
from envbuild.lock.inputs import requested_origins, supplier
from envbuild.lock.model import DebianFile
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.lock.sources import no_mirror_findings
from envbuild.net.site import Site
from envbuild.spec.project import Project
from envbuild.spec.recipe import AptRepository, Archive, Git, PythonIndex
from envbuild.spec.workspace import Workspace

pytestmark = pytest.mark.unit
REQUEST = LockRequest(
    "demo",
    "nvcr.io/nvidia/pytorch:25.10-py3",
    "ubuntu:24.04",
    "amd64",
    "3.12",
    {
        "base": UnitRequest(debian=("python3",)),
        "build-ucx": UnitRequest(
            archives=(Archive("ucx", "github:openucx/ucx@v1.20.1", "ucx.tar.gz"),),
            git=(Git("ucc", "github:openucx/ucc", "0" * 40), Git("ucx", "github:openucx/ucx", "0" * 40)),
        ),
    },
    (AptRepository("apt:nvidia-cuda/ubuntu2404", "./", (), "0" * 40),),
    (PythonIndex("pip:pytorch/cu130", ("torch",)),),
)


def test_origins_of_a_request() -> None:
    assert requested_origins(REQUEST) == [
        "apt:nvidia-cuda/ubuntu2404",
        "github:openucx/ucc",
        "github:openucx/ucx",
        "oci:nvcr.io/nvidia/pytorch",
        "pip:pytorch/cu130",
        "python:",
        "ubuntu:noble/main",
    ]


def test_source_of_an_origin() -> None:
    open_site = Site(Path("/s"), mirrors={"github:openucx/": ("/git",), "debian:": ("/debian",)})
    gapped = Site(Path("/s"), mirrors=open_site.mirrors, use_host=False)
    own = Site(Path("/s"), mirrors={"github:": ("https://github.com/",), "oci:docker.io/": ("/oci",)}, use_host=False)
    for origin, everywhere, inside, named in (
        ("github:openucx/ucx", "mirror", "mirror", "mirror"),
        ("github:NVIDIA/nccl", "network", "", "mirror"),
        ("oci:nvcr.io/nvidia/pytorch", "network", "", ""),
        ("oci:docker.io/library/debian", "network", "", "mirror"),
        ("apt:nvidia-cuda/ubuntu2404", "network", "", ""),
        ("pip:pytorch/cu130", "network", "", ""),
        ("vendor:own/installer.tar.gz", "", "", ""),
        ("debian:trixie/main", "mirror", "mirror", ""),
        ("python:", "mirror", "", ""),
    ):
        found = [supplier(site, origin) for site in (open_site, gapped, own)]
        assert found == [everywhere, inside, named], origin


RECIPE = """
from dataclasses import dataclass
from typing import ClassVar
from envbuild.spec.recipe import Archive, AptRepository, PythonIndex, Recipe, Sources

@dataclass(frozen=True, kw_only=True)
class Far(Recipe):
    prefix: ClassVar[str] = "/opt/far"

    def sources(self, env):
        archives = tuple(Archive(f"a{n}", f"github:acme/a{n}@v1", f"a{n}.tar.gz") for n in range(6))
        repositories = (AptRepository("apt:vendor/one", "./", (), "0" * 40),)
        return Sources(archives=archives, repositories=repositories, indexes=(PythonIndex("pip:vendor", ("x",)),))
"""


def test_list_names_the_missing_inputs_of_a_lock(small: Project, tmp_path: Path) -> None:
    assert small.root is not None
    for folder in ("images", "recipes"):
        (tmp_path / folder).mkdir()
    for name, layers in (("near", "{}"), ("far", "{far: {}}")):
        spec = f"schema: 1\ntarget: node\nbase: debian:13\nlayers: {layers}\n"
        (tmp_path / "images" / f"{name}.yaml").write_text(spec)
    (tmp_path / "recipes/far.py").write_text(RECIPE)
    (tmp_path / "targets").symlink_to(small.root / "targets")

    def rows(**mirrors: tuple[str, ...]) -> listing.Result:
        named = {"debian:": ("/debian",), **{f"{kind}:": places for kind, places in mirrors.items()}}
        store = Store.open(tmp_path / "store")
        return listing.list_images(
            Workspace(Project(tmp_path), Site(store.root, mirrors=named), store, SilentReporter())
        )

    github = [f"github:acme/a{number}" for number in range(6)]
    result = rows()
    far, near = result.data["images"]
    assert (near["lock"], near["needs"], near["needs_mirror"]) == ("none", [], [])
    assert (far["needs"], far["needs_mirror"]) == (
        ["apt:vendor/one", *github, "pip:vendor"],
        ["apt:vendor/one", "pip:vendor"],
    )
    assert result.text.splitlines()[-3:] == [
        "not locked (mirrors are named in site.yaml):",
        "  far   needs mirrors of apt:vendor/one, pip:vendor; takes github:acme/a0, github:acme/a1, github:acme/a2, "
        "github:acme/a3 and 2 more from public places",
        "  near  envbuild lock near",
    ]
    assert (
        rows(apt=("/a",), pip=("/p",))
        .text.splitlines()[-2]
        .startswith("  far   envbuild lock far; locks from public places (github:")
    )
    supplied = rows(apt=("/a",), pip=("/p",), github=("/g",))
    assert supplied.data["images"][0]["needs"] == []
    assert supplied.text.splitlines()[-2] == "  far   envbuild lock far"


@pytest.mark.parametrize(("public", "named"), [(True, True), (False, False)])
def test_without_an_archive_the_program_that_knows_it_is_named(public: bool, named: bool) -> None:
    """On RHEL or SLES, where apt names no archive; not where the site turned public places off."""
    file = DebianFile("a_1_all.deb", "a", "1", "debian:trixie/main", "pool/a_1_all.deb", 1, "0" * 64)
    (finding,) = no_mirror_findings(file.archive, [file], {}, public=public)
    assert ("install debootstrap" in finding.hint) is named
    assert finding.mirror_lines == ("debian: [ADDRESS-OR-FOLDER]",)
