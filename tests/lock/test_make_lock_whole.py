"""The whole step for every kind of image: on a third-party image, with vendors' repositories, commits; some missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.distributions import PLACE
from envbuild.core.errors import ConflictError, EnvbuildError, InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.lock.component_versions import component_versions, shipped_python, tag_version
from envbuild.lock.diff import describe_changes
from envbuild.lock.lockfile import dump_lock, parse_lock
from envbuild.lock.make_lock import make_lock
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.net.site import Site
from envbuild.net.site_file import read_site
from envbuild.spec.recipe import AptRepository, Archive, Git, PythonIndex
from tests.support import local_registry as kit
from tests.support.debian_archive import RELEASED, Signer, installed, stanza
from tests.support.git_server import Repo
from tests.support.local_registry import Layout
from tests.support.lock_server import wheel
from tests.support.lock_site import MARKS, make, make_site
from tests.support.lock_site import repo as repo  # a fixture
from tests.support.lock_site import widget as widget  # what it is a copy of

pytestmark = MARKS
BASE = "docker.io/some/base:1"


@pytest.fixture
def site(tmp_path: Path, key: Signer, repo: Repo) -> Site:
    """Debian 13, a vendor's repository, the package index, a vendor's, a forge, and a registry's images in a folder."""
    debian = (stanza("python3.13", "3.13.5-2"), stanza("gcc", Depends="libc6-dev"), stanza("libc6-dev"))
    ordinary = [
        wheel(tmp_path / "wheels", "demo", "1.0", requires=("numpy", "widget")),
        wheel(tmp_path / "wheels", "numpy", "2.4"),
        wheel(tmp_path / "wheels", "torch", "2.15.0"),
    ]
    layout = Layout(tmp_path / "images/some/base")
    layout.add(layout.image(system(), env=["A=1"]), "1")
    made = make_site(tmp_path, key, debian, ordinary, wheel(tmp_path / "own", "torch", "2.9.0+cu128"))
    return replace(made, mirrors={**made.mirrors, "oci:docker.io/": (str(tmp_path / "images"),)})


def system(*more: str) -> list[bytes]:
    """Return the layers of a base image with Debian packages, and with numpy 1.26 beside its Python."""
    status = installed(stanza("dash"), stanza("python3.13", "3.13.1-1"), stanza("libc6-dev"), *more)
    return [kit.system(), kit.tar(kit.file("var/lib/dpkg/status", status.encode()))]


def request(repo: Repo, key: Signer) -> LockRequest:
    widget = Git("widget", "github:demo/widget", repo.head)
    return LockRequest(
        "demo",
        BASE,
        "debian:13",
        "amd64",
        "3.13",
        {
            "base": UnitRequest(debian=("ca-certificates", "python3.13")),
            "debian": UnitRequest(debian=("openssl",)),
            "venv": UnitRequest(python=("demo", "torch")),
            "build-widget": UnitRequest(debian=("gcc", "cuda-nvcc"), git=(widget,), gives=("widget==0.3",)),
        },
        (AptRepository("apt:cuda", "/", (), key.fingerprint, "key.pub"),),
        (PythonIndex("pip:torch", ("torch",)),),
        (("widget", "/usr/bin/python3*"),),
        {
            "components": {"widget": "widget", "numpy": "numpy"},
            "layers": {"widget": {"version": "0.3"}, "numpy": {"version": "1.26"}},
        },
    )


@pytest.mark.slow_unit
def test_lock_on_a_third_party_image(site: Site, repo: Repo, key: Signer) -> None:
    lock = make(site, request(repo, key))
    assert lock.base_image is not None
    assert (lock.base_image.reference, lock.base_image.distribution) == (BASE, "debian:13")
    assert lock.base_image.python["numpy"] == "1.26"
    assert lock.distribution == "debian:13"
    assert lock.epoch == max(RELEASED, 1759276800)  # of the archive, and the day the image was made
    assert list(lock.units) == ["base", "debian", "venv", "build-widget", "tools"]
    assert lock.units["base"].debian == lock.units["base"].requested == lock.units["base"].essential == ()
    # Packages of every image are requested here, and Python is in the image already (in an older version).
    assert lock.units["debian"].debian == ("ca-certificates_1.0_amd64.deb", "openssl_3.0-1_amd64.deb")
    assert lock.units["debian"].requested == ("ca-certificates", "openssl")
    build = lock.units["build-widget"]
    assert build.debian == ("cuda-nvcc_12.4_amd64.deb", "gcc_1.0_amd64.deb")
    assert build.sources == (f"widget-{repo.head[:12]}.tar",)
    assert lock.debian["cuda-nvcc_12.4_amd64.deb"].archive == "apt:cuda"
    # numpy is the image's, widget is compiled, torch is the vendor's.
    assert lock.units["venv"].python == ("demo-1.0-py3-none-any.whl", "torch-2.9.0+cu128-py3-none-any.whl")
    assert lock.python_files["torch-2.9.0+cu128-py3-none-any.whl"].origin == "pip:torch"
    assert lock.versions == {"widget": "0.3", "numpy": "1.26"}
    assert {"widget": "0.3", "numpy": "1.26", "torch": "2.9.0+cu128", "demo": "1.0"}.items() <= (
        shipped_python(request(repo, key), lock).items()
    )
    text = dump_lock(lock)
    assert parse_lock(text, Path("x.lock")) == lock
    assert "://" not in text and str(site.store.parent) not in text


@pytest.mark.slow_unit
def test_an_image_that_has_every_package(site: Site, repo: Repo, key: Signer, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "images/some/base")
    layout.add(layout.image(system(stanza("ca-certificates"), stanza("openssl", "9"))), "1")
    lock = make(site, request(repo, key))
    assert lock.units["debian"].debian == lock.units["debian"].requested == ()


@pytest.mark.slow_unit
def test_the_base_image_is_preserved_until_an_upgrade_is_requested(
    site: Site, repo: Repo, key: Signer, tmp_path: Path
) -> None:
    asked = request(repo, key)
    first = make(site, asked)
    layout = Layout(tmp_path / "images/some/base")
    layout.add(layout.image(system(stanza("openssl", "9"))), "1")
    other = replace(asked, image="other")
    assert make(site, other, first).base_image == first.base_image
    for newer in (
        make(site, other, first, "base"),
        make(site, other, first, refresh=True),
        make(site, other, first, "*"),
    ):
        assert newer.base_image and first.base_image
        line, *rest = describe_changes(first, newer)
        assert line == f"base {BASE}: {first.base_image.digest[:12]} → {newer.base_image.digest[:12]}"
        assert rest == ["- openssl 3.0-1"]
    plain = replace(asked, base="debian:13", units={**asked.units, "venv": UnitRequest(python=("torch",))}, spec={})
    assert make(site, plain).base_image is None
    with pytest.raises(SpecError, match="no package 'base' to upgrade"):
        make(site, plain, None, "base")


@pytest.mark.slow_unit
def test_all_missing_inputs_are_reported_together(site: Site, repo: Repo, key: Signer, tmp_path: Path) -> None:
    """Debian packages, an index, a Python package, a commit, an archive: and what is available is in the store."""
    asked = request(repo, key)
    (tmp_path / "git/some.tar.gz").write_bytes(b"content")
    commit = "1" * 40
    units = {
        **asked.units,
        "debian": UnitRequest(debian=("opnssl",)),
        "build-widget": UnitRequest(
            git=(Git("widget", "github:demo/widget", commit),),
            archives=(
                Archive("a", "file:gone.tar.gz", "gone.tar.gz"),
                Archive("b", "github:demo/some@v1", "some.tar.gz"),
            ),
        ),
    }
    bad = replace(asked, base="debian:13", units=units, indexes=(*asked.indexes, PythonIndex("pip:neuron", ("ncc",))))
    with pytest.raises(InputError) as caught:
        make(site, bad)
    messages = "\n".join(str(finding) for finding in caught.value.findings)
    assert len(caught.value.findings) == 5
    assert "the Python packages of 'venv' cannot be resolved" in messages and "widget was not found" in messages
    assert "the Debian archive nor apt:cuda has a package 'opnssl'" in messages
    assert (
        'no place is known for pip:neuron, which provides ncc\nhint: write into site.yaml:  mirrors: {"pip:neuron":'
        in messages
    )
    assert f"github:demo/widget@{commit}" in messages
    assert "the source file:gone.tar.gz" in messages and "put gone.tar.gz there" in messages
    content = kit.sha256(b"content")
    assert Store(site.store).has_blob(content)


@pytest.mark.slow_unit
def test_without_the_base_image_the_rest_is_checked(site: Site, repo: Repo, key: Signer) -> None:
    asked = request(repo, key)
    mirrors = {name: places for name, places in site.mirrors.items() if name not in ("oci:docker.io/", "pip:torch")}
    bare = replace(site, mirrors={**mirrors, "apt:cuda": ("/nowhere",)})
    with pytest.raises(InputError) as caught:
        make(bare, replace(asked, where={PLACE: "images/demo.yaml:4:1"}))
    assert [finding.where for finding in caught.value.findings] == ["images/demo.yaml:4:1", "", ""]
    assert [finding.message.partition(";")[0] for finding in caught.value.findings] == [
        "no place is known for oci:docker.io/some/base",
        "the key of the package repository apt:cuda is not available",
        "no place is known for pip:torch, which provides torch",
    ]
    assert Store(site.store).has_blob(make(site, asked).sources[f"widget-{repo.head[:12]}.tar"].sha256)


@pytest.mark.parametrize("known", [pytest.param(True, marks=pytest.mark.slow_unit), False])
def test_the_suggested_lines_are_a_valid_site_file(
    known: bool, site: Site, repo: Repo, key: Signer, tmp_path: Path
) -> None:
    """Docker's registry is a name, not a place: the lines to type are printed whole, and lead to the image."""
    mirrors = {name: places for name, places in site.mirrors.items() if name != "oci:docker.io/"}
    bare = replace(site, mirrors=mirrors, where="site.yaml" if known else "")
    reporter, asked = SilentReporter(), request(repo, key)
    with pytest.raises(InputError) as caught:
        make_lock(asked, bare, Store.open(site.store), reporter)
    line = '"oci:docker.io/": [ADDRESS-OR-FOLDER]'
    assert caught.value.exit_code == 10 and caught.value.hint.endswith(f"into site.yaml:  mirrors: {{{line}}}")
    site_lines = [text for text in reporter.lines if "site.yaml" in text]
    if known:  # the hint names everything
        assert site_lines == []
        return
    head, *lines = site_lines[-1].splitlines()
    assert head == "demo: these lines of a new site.yaml would supply the rest; replace the places with yours:"
    assert lines == ["schema: 1", "mirrors:", f"  {line}"]
    (tmp_path / "site.yaml").write_text("\n".join(lines).replace("ADDRESS-OR-FOLDER", "images"))
    found = read_site(tmp_path / "site.yaml").mirrors
    assert make(replace(bare, mirrors={**mirrors, **found}), asked).base_image


@pytest.mark.slow_unit
def test_a_conflict_beside_something_missing(site: Site, repo: Repo, key: Signer) -> None:
    """What is missing decides over the exit code; a conflict alone is one."""
    asked = request(repo, key)
    units = {**asked.units, "venv": UnitRequest(python=("numpy<1", "numpy>2"))}
    with pytest.raises(ConflictError, match="numpy"):
        make(site, replace(asked, units=units))
    gone = Archive("x", "file:x.tar", "x.tar")
    units["build-x"] = UnitRequest(archives=(gone,))
    with pytest.raises(InputError) as caught:
        make(site, replace(asked, units=units))
    assert caught.value.exit_code == 10
    assert "numpy" in caught.value.findings[0].message and "x.tar" in caught.value.findings[1].message


def test_a_base_image_without_the_promised_files(site: Site, repo: Repo, key: Signer) -> None:
    promised = (("cuda", "/opt/none/*"), ("cuda", "/usr/bin/*"), ("cuda", "/opt/nvcc"))
    asked = replace(request(repo, key), promised=promised, where={"cuda": "images/demo.yaml:8:3"})
    with pytest.raises(ConflictError) as caught:
        make(site, asked)
    (finding,) = caught.value.findings
    assert finding.where == "images/demo.yaml:8:3"
    assert finding.message == (
        f"layer 'cuda' is incompatible with this image: it uses the component of {BASE}, "
        "which has no /opt/none/*, no /opt/nvcc"
    )
    assert finding.hint == "choose another provider of 'cuda', or a base that contains it"


@pytest.mark.slow_unit
def test_findings_of_the_base_have_the_place_in_the_spec(site: Site, repo: Repo, key: Signer, tmp_path: Path) -> None:
    place = "images/demo.yaml:4:1"
    asked = replace(request(repo, key), where={PLACE: place, "cuda": "images/demo.yaml:8:3"})
    with pytest.raises(ConflictError, match=r"has no Python 3\.12") as caught:
        make(site, replace(asked, python="3.12", promised=(("cuda", "/opt/none"),)))
    assert [finding.where for finding in caught.value.findings] == [place, "images/demo.yaml:8:3"]
    for reference in ("docker.io/some/base:2", "docker.io/some/Base"):
        with pytest.raises(EnvbuildError) as refused:
            make(site, replace(asked, base=reference))
        assert refused.value.where == place


@pytest.mark.slow_unit
def test_versions_of_compiled_packages(site: Site, repo: Repo, key: Signer) -> None:
    """A commit has no version of its own: the version that the recipe declares counts, else that of the layer."""
    asked = request(repo, key)
    layers = {"widget": {"version": "may24"}, "numpy": {"version": "2"}, "library": {"version": "1.20"}, "other": {}}
    units = {**asked.units, "build-library": UnitRequest(git=asked.units["build-widget"].git)}
    components = {"widget": "widget", "numpy": "numpy", "library": "liblibrary"}
    spec = {"layers": layers, "components": components}
    with pytest.raises(ConflictError) as caught:
        make(site, replace(asked, spec=spec, units=units))
    assert [finding.message for finding in caught.value.findings] == [
        "numpy 2 is not available, because the base image has 1.26 and the recipe takes it from there",
    ]
    good = {"layers": {**layers, "numpy": {}}, "components": components}
    lock = make(site, replace(asked, spec=good, units=units))
    assert lock.versions == {"widget": "0.3", "numpy": "1.26", "library": "1.20"}


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("v1.20.1", "1.20.1"),
        ("core_v0.16.1", "0.16.1"),
        ("v2.31.1-1", "2.31.1-1"),
        ("ubuntu-hpc-20231127", ""),
        ("23.06", "23.06"),
        ("master", ""),
        ("", ""),
    ],
)
def test_version_in_a_tag(tag: str, version: str) -> None:
    unit = UnitRequest(git=(Git("other", "github:a/b", "1" * 40, "v9.9"), Git("x", "github:a/b", "2" * 40, tag)))
    assert tag_version(unit, "x") == version
    assert tag_version(UnitRequest(archives=(Archive("x", f"github:a/b@{tag}", "x.tar"),)), "x") == version


@pytest.mark.slow_unit
def test_the_release_of_a_requested_version_line(site: Site, repo: Repo, key: Signer) -> None:
    """The layer requests 1.20 and the recipe takes 1.20.1; the name of a branch is used as it is."""
    asked, plain = request(repo, key), make(site, request(repo, key))
    unit = UnitRequest(git=(Git("ucx", "github:openucx/ucx", "1" * 40, "v1.20.1"),))
    for word, version in (("1.20", "1.20.1"), ("", "1.20.1"), ("may24", "may24"), ("1.2", "1.2")):
        spec = {"layers": {"ucx": {"version": word}} if word else {}, "components": {}}
        changed = replace(asked, units={**asked.units, "build-ucx": unit}, spec=spec)
        assert component_versions(changed, plain)["ucx"] == version
