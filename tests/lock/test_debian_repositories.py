"""Other distributions, vendors' repositories, base images: resolved by the host's apt against small signed archives."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import ConflictError, InputError
from envbuild.core.store.store import Store
from envbuild.lock.deb822 import installed_names
from envbuild.lock.debian import resolve as debian
from envbuild.net.site import Site
from envbuild.spec.recipe import AptRepository
from tests.support.debian_archive import RELEASED, Signer, installed, publish, stanza
from tests.support.vendor_archives import CUDA, DOCA, NOBLE, messages, named, repositories, resolve, with_vendors

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
    pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not installed"),
]
UNTOUCHED = "0" * 40


@pytest.mark.slow_unit
def test_another_component_of_the_distribution(site: Site) -> None:
    """It is signed with the distribution's keys, and no image has it that does not name it."""
    own = AptRepository("ubuntu:noble/restricted", "noble", ("restricted",), "")
    found = named(resolve(site, (own,), base="", build_x="toolkit"), "build-x")
    assert found == {"toolkit 12.4": "ubuntu:noble/restricted", "openssl 3.0-2": "ubuntu:noble-security/main"}
    with pytest.raises(InputError, match="toolkit"):
        resolve(site, base="", build_x="toolkit")


@pytest.mark.slow_unit
def test_ubuntu(site: Site) -> None:
    here = replace(site, apt={"APT::Get::Phase-Policy": "true", "APT::Machine-ID": "a" * 32})  # as in Ubuntu's own apt
    lock = resolve(here, base="", debian="pdsh", build_x="curl")
    # apt alone would choose the first alternative, usrmerge with perl
    assert named(lock, "base") == {
        "apt 1.0": "ubuntu:noble/main",
        "base-files 1.0": "ubuntu:noble/main",
        "libc6 2.39": "ubuntu:noble/main",
        "usr-is-merged 1.0": "ubuntu:noble/main",
    }
    assert [file.partition("_")[0] for file in lock.essential] == ["apt", "base-files", "libc6", "usr-is-merged"]
    assert named(lock, "debian") == {
        "openssl 3.0-2": "ubuntu:noble-security/main",
        "pdsh 1.0": "ubuntu:noble/universe",
    }
    # a phased update is offered to no machine yet: here it is offered to all, independent of their machine-id
    assert named(lock, "build-x") == {"curl 8.5-2": "ubuntu:noble-updates/main"}
    assert lock.released == RELEASED


def test_keys_of_this_machine(site: Site, key: Signer, tmp_path: Path) -> None:
    shutil.copy(key.keyring, tmp_path / "ubuntu.gpg")
    here = replace(NOBLE, keyrings=(str(tmp_path / "none.gpg"), str(tmp_path / "ubuntu.gpg")))
    plain = replace(site, keyrings={})
    request = debian.DebianRequest(here, "amd64", {"base": ("curl",)})
    lock = debian.resolve(request, plain, Store.open(site.store), SilentReporter())
    assert "curl 8.5-2" in named(lock, "base")


@pytest.mark.slow_unit
def test_vendors_are_used_by_every_unit_but_the_base(site: Site, tmp_path: Path, vendor: Signer) -> None:
    at = with_vendors(site, tmp_path, vendor)
    lock = resolve(at, repositories(vendor), base="libibverbs1", debian="cuda-nvcc", build_x="rdma-core")
    assert named(lock, "base")["libibverbs1 50"] == "ubuntu:noble/main"
    assert "libc6 2.39" in named(lock, "base")
    assert named(lock, "debian") == {"cuda-crt 12.4": CUDA, "cuda-nvcc 12.4": CUDA}
    assert named(lock, "build-x") == {"libibverbs1 2410": DOCA, "rdma-core 2410": DOCA}  # the highest version wins
    assert [file.path for file in lock.units["debian"]] == ["cuda-crt_12.4_amd64.deb", "cuda-nvcc_12.4_amd64.deb"]
    assert lock.units["build-x"][1].path == "pool/main/r/rdma-core/rdma-core_2410_amd64.deb"
    assert lock.released == RELEASED  # of the distribution, not of a vendor's suite that has the same name
    kept = at.store / "apt/keys" / f"{vendor.fingerprint}.gpg"
    assert kept.read_bytes()[:1] in (b"\x98", b"\x99", b"\xc6")  # a public-key packet, without armor (RFC 4880, 4.2)


@pytest.mark.slow_unit
def test_key_must_be_the_known_one(site: Site, tmp_path: Path, vendor: Signer) -> None:
    at = with_vendors(site, tmp_path, vendor)
    wrong = replace(repositories(vendor)[0], key=UNTOUCHED)
    silent = replace(repositories(vendor)[1], key_file="gone.pub")
    with pytest.raises(InputError) as caught:
        resolve(at, (wrong, silent), base="")
    (first, hint), (second, other) = messages(caught.value)
    place = tmp_path / "cuda/ubuntu2404/x86_64/vendor.pub"
    assert first == (
        f"the key of the package repository {CUDA} is not the expected one: {place} has the key {vendor.fingerprint}, "
        f"and the recipe names {UNTOUCHED}"
    )
    assert f'keyrings: {{"{CUDA}": FILE}}' in hint
    assert second == (
        f"the key of the package repository {DOCA} is not available; tried:\n  {tmp_path}/doca/gone.pub: no such file"
    )
    assert (
        other == f'write into site.yaml:  mirrors: {{"{DOCA}": [ADDRESS-OR-FOLDER]}}  or  keyrings: {{"{DOCA}": FILE}}'
    )
    (tmp_path / "cuda/ubuntu2404/x86_64/vendor.pub").write_text("<html>not found</html>")
    with pytest.raises(InputError, match=r"vendor\.pub contains no OpenPGP key, and the recipe names"):
        resolve(at, repositories(vendor), base="")


@pytest.mark.slow_unit
def test_only_the_known_key_of_a_file_is_trusted(site: Site, tmp_path: Path, key: Signer, vendor: Signer) -> None:
    """Other keys in the file of the expected one are not trusted."""
    at = with_vendors(site, tmp_path, vendor)
    (tmp_path / "doca/keys/vendor.pub").write_bytes(key.armored + vendor.armored)
    doca = repositories(vendor)[1]
    assert "rdma-core 2410" in named(resolve(at, [doca], base="", debian="rdma-core"), "debian")
    publish(tmp_path / "doca", "noble", [stanza("rdma-core", "9999")], key)
    with pytest.raises(InputError, match=f"the package repository {DOCA} cannot be read"):
        resolve(at, [doca], base="")


@pytest.mark.slow_unit
def test_a_site_may_sign_its_own_copy(site: Site, tmp_path: Path, key: Signer, vendor: Signer) -> None:
    at = with_vendors(site, tmp_path, vendor)
    publish(tmp_path / "doca", "noble", [stanza("rdma-core", "3000")], key)
    own = replace(at, keyrings={**at.keyrings, "apt:doca": key.keyring})
    unknown = replace(repositories(vendor)[1], key=UNTOUCHED, key_file="")
    assert named(resolve(own, [unknown], base="", debian="rdma-core"), "debian") == {"rdma-core 3000": DOCA}
    with pytest.raises(InputError, match="offers no key, and its recipe names no place for one"):
        resolve(at, [unknown], base="")


def test_without_gpg(site: Site, tmp_path: Path, vendor: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    at = with_vendors(site, tmp_path, vendor)
    (tmp_path / "bin").mkdir()
    for program in ("apt-get", "apt-config"):
        (tmp_path / "bin" / program).symlink_to(str(shutil.which(program)))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(InputError, match="gpg is not installed") as caught:
        resolve(at, repositories(vendor), base="")
    assert caught.value.hint == "sudo apt install gpg"


@pytest.mark.slow_unit
def test_unknown_package_of_vendors(site: Site, tmp_path: Path, vendor: Signer) -> None:
    at = with_vendors(site, tmp_path, vendor)
    with pytest.raises(InputError) as caught:
        resolve(at, repositories(vendor), base="", debian="cuda-nvc")
    assert messages(caught.value) == [
        (
            f"neither the Ubuntu archive nor {CUDA}, {DOCA} has a package 'cuda-nvc' (required by debian)",
            "did you mean 'cuda-nvcc'?",
        )
    ]


def test_on_top_of_a_base_image(site: Site) -> None:
    """What is installed there costs nothing, preserves its version, and need not be in any archive."""
    there = [stanza("base-files"), stanza("libc6", "2.39"), stanza("openssl", "3.0-0"), stanza("libnccl2", "2.27")]
    removed = f"Status: deinstall ok config-files\n{stanza('perl')}"
    status = f"{installed(*there)}\n{removed}"
    lock = resolve(site, status=status, base="", debian="openssl pdsh perl libnccl2", build_x="libc6")
    assert lock.units["base"] == () and lock.essential == ()
    assert named(lock, "debian") == {"pdsh 1.0": "ubuntu:noble/universe", "perl 1.0": "ubuntu:noble/main"}
    assert lock.units["build-x"] == ()
    assert lock.requested == {"base": (), "debian": ("pdsh", "perl"), "build-x": ()}


def test_packages_that_conflict_with_a_base_image(site: Site) -> None:
    status = installed(stanza("libibverbs1", "99"))
    with pytest.raises(ConflictError, match=r"(?s)rdma-core : Depends: libibverbs1 \(= 50\)"):
        resolve(site, status=status, base="", debian="rdma-core")


def test_installed_names() -> None:
    text = installed(stanza("aa"), stanza("bb", arch="i386")) + "\nPackage: cc\nStatus: hold ok installed\n"
    assert installed_names(text + "\nPackage: dd\nStatus: deinstall ok config-files\n") == {
        "aa", "aa:amd64", "bb", "bb:i386", "cc", "cc:",
    }  # fmt: skip
    assert installed_names("") == frozenset()


def test_lists_of_a_folder_are_those_that_were_compared_with_its_release_file(site: Site) -> None:
    """The owner of the folder may change them afterwards, while apt's copy is recent."""
    lock = resolve(site, base="", build_x="curl")
    lists = list(site.store.rglob("state/lists/*Packages*"))
    assert lists and not [path for path in lists if path.is_symlink()]
    for place in {Path(place) for places in site.mirrors.values() for place in places if place.startswith("/")}:
        for path in place.rglob("Packages"):
            path.write_text(path.read_text().replace("Version: 8.5-2", "Version: 8.6-1"))
    assert resolve(site, base="", build_x="curl").units == lock.units
