"""Other distributions, vendors' repositories, base images: resolved by the host's apt against small signed archives."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.distributions import find_distribution
from envbuild.core.errors import ConflictError, EngineError, InputError
from envbuild.core.store.store import Store
from envbuild.lock.debian import resolve as debian
from envbuild.lock.debian.apt import AptSource
from envbuild.lock.debian.package_lists import installed_names
from envbuild.lock.debian.repositories import failures_by_place
from envbuild.net.site import Site
from envbuild.spec.recipe import AptRepository
from tests.support.debian_archive import RELEASED, Signer, installed, publish, signer, stanza
from tests.support.lock_server import Answers, serve

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
    pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not installed"),
]
NOBLE = find_distribution("ubuntu:24.04")
CUDA, DOCA = "apt:cuda/ubuntu2404/x86_64", "apt:doca"
UNTOUCHED = "0" * 40


@pytest.fixture(scope="session")
def vendor() -> Iterator[Signer]:
    with signer() as made:
        yield made


@pytest.fixture
def site(tmp_path: Path, key: Signer) -> Site:
    """Return a site whose Ubuntu has all suites in one archive, as Ubuntu's own."""
    main = (
        stanza("base-files", essential=True, Depends="usrmerge | usr-is-merged, libc6"),
        stanza("usrmerge", Depends="perl"),
        stanza("usr-is-merged"),
        stanza("perl"),
        stanza("libc6", "2.39"),
        stanza("apt", Depends="libc6"),
        stanza("openssl", "3.0-1"),
        stanza("curl", "8.5-1"),
        stanza("rdma-core", "50", Depends="libibverbs1 (= 50)"),
        stanza("libibverbs1", "50"),
    )
    noble = {"main": main, "universe": [stanza("pdsh", Depends="openssl")]}
    updates = {"main": [stanza("curl", "8.5-2", Phased_Update_Percentage="0")], "universe": []}
    security = {"main": [stanza("openssl", "3.0-2")], "universe": []}
    for suite, parts, days in (("noble", noble, 0), ("noble-updates", updates, 5), ("noble-security", security, 9)):
        publish(tmp_path / "ubuntu", suite, parts, key, released=RELEASED + days)
    return Site(
        tmp_path / "store",
        mirrors={"ubuntu:": (str(tmp_path / "ubuntu"),)},
        use_host=False,
        keyrings={"ubuntu:": key.keyring},
    )


def with_vendors(site: Site, tmp_path: Path, vendor: Signer) -> Site:
    """`site` with a flat repository and one whose suite is named as the distribution's."""
    publish(
        tmp_path / "cuda/ubuntu2404/x86_64",
        "./",
        [stanza("cuda-nvcc", "12.4", folder=".", Depends="cuda-crt"), stanza("cuda-crt", "12.4", folder=".")],
        vendor,
    )
    doca = [
        stanza("rdma-core", "2410", Depends="libibverbs1 (= 2410)"),
        stanza("libibverbs1", "2410"),
        stanza("libc6", "9"),
    ]
    publish(tmp_path / "doca", "noble", {"main": doca}, vendor, released=RELEASED + 10**6)
    for folder in ("cuda/ubuntu2404/x86_64", "doca/keys"):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        (tmp_path / folder / "vendor.pub").write_bytes(vendor.armored)
    places = {"apt:cuda": (str(tmp_path / "cuda"),), "apt:doca": (str(tmp_path / "doca"),)}
    return replace(site, mirrors={**site.mirrors, **places})


def repositories(vendor: Signer) -> tuple[AptRepository, ...]:
    spaced = " ".join(vendor.fingerprint[at : at + 4] for at in range(0, 40, 4)).lower()
    return (
        AptRepository(CUDA, "./", (), vendor.fingerprint, "vendor.pub"),
        AptRepository(DOCA, "noble", ("main",), spaced, "keys/vendor.pub"),
    )


def resolve(
    site: Site,
    repositories: Iterable[AptRepository] = (),
    status: str | None = None,
    reporter: SilentReporter | None = None,
    **units: str,
) -> debian.DebianLock:
    asked = {name.replace("_", "-"): tuple(names.split()) for name, names in units.items()}
    request = debian.DebianRequest(NOBLE, "amd64", asked, tuple(repositories), installed=status, refresh=True)
    return debian.resolve(request, site, Store.open(site.store), reporter or SilentReporter())


def named(lock: debian.DebianLock, unit: str) -> dict[str, str]:
    return {f"{file.name} {file.version}": file.archive for file in lock.units[unit]}


def messages(error: InputError) -> list[tuple[str, str]]:
    return [(finding.message, finding.hint) for finding in error.findings]


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


def test_without_archive_or_keys_the_distribution_is_named(site: Site) -> None:
    keyless = replace(NOBLE, keyrings=())
    with pytest.raises(InputError) as caught:
        bare = replace(site, mirrors={}, keyrings={}, debian_keyring=site.keyrings["ubuntu:"])
        request = debian.DebianRequest(keyless, "amd64", {"base": ()})
        debian.resolve(request, bare, Store.open(site.store), SilentReporter())
    assert messages(caught.value) == [
        (
            "this machine's apt configuration names no Ubuntu archive",
            "write into site.yaml:  mirrors: {ubuntu: [ADDRESS]}",
        ),
        (
            "the keys of the Ubuntu archive are not installed",
            "sudo apt install ubuntu-archive-keyring, or in site.yaml:  keyrings: {ubuntu: FILE}",
        ),
    ]


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
def test_all_missing_repositories_are_reported_together(site: Site, tmp_path: Path, vendor: Signer) -> None:
    """No address, no answer, no signature: three repositories, one error; and none for the distribution."""
    at = with_vendors(site, tmp_path, vendor)
    publish(tmp_path / "doca", "noble", [stanza("rdma-core", "1")], None)
    cuda, doca = repositories(vendor)
    at = replace(
        at,
        mirrors={**at.mirrors, CUDA: ("http://127.0.0.1:9/cuda",)},
        keyrings={**at.keyrings, "apt:cuda": vendor.keyring},
        apt={"Acquire::Retries": "0"},
    )
    homeless = AptRepository("apt:neuron", "noble", ("main",), vendor.fingerprint, "key")
    with pytest.raises(InputError) as caught:
        resolve(at, (cuda, homeless, doca), base="")
    first, second, third = messages(caught.value)
    assert first == (
        "no place is known for the package repository apt:neuron",
        'write into site.yaml:  mirrors: {"apt:neuron": [ADDRESS-OR-FOLDER]}',
    )
    assert second[0].startswith(f"the package repository {CUDA} cannot be read:\n") and "127.0.0.1:9" in second[0]
    assert second[1] == f'name another place in site.yaml:  mirrors: {{"{CUDA}": [ADDRESS]}}'
    assert third[0].startswith(f"the package repository {DOCA} cannot be read:\n") and "doca" in third[0]
    assert "127.0.0.1" not in third[0]


def test_vendors_are_resolved_without_the_distribution_too(site: Site, tmp_path: Path, vendor: Signer) -> None:
    at = with_vendors(site, tmp_path, vendor)
    shutil.rmtree(tmp_path / "doca/dists")
    bare = replace(at, mirrors={name: places for name, places in at.mirrors.items() if name != "ubuntu:"})
    with pytest.raises(InputError) as caught:
        resolve(bare, repositories(vendor), base="")
    first, second = messages(caught.value)
    assert first[0] == "this machine's apt configuration names no Ubuntu archive"
    assert second[0].startswith(f"the package repository {DOCA} cannot be read:\n")


def test_without_the_distribution_s_archive_nothing_is_resolved(site: Site, tmp_path: Path, vendor: Signer) -> None:
    """Its error is the only one: what vendors have needs packages of the distribution."""
    at = with_vendors(site, tmp_path, vendor)
    broken = replace(at, mirrors={**at.mirrors, "ubuntu:": (str(tmp_path / "none"),)})
    with pytest.raises(InputError) as caught:
        resolve(broken, repositories(vendor), base="", debian="cuda-nvcc")
    assert caught.value.findings and all("none" in message for message, _ in messages(caught.value))


@pytest.mark.slow_unit
def test_a_full_disk_is_not_reported_as_a_fault_of_the_mirror(site: Site, tmp_path: Path, key: Signer) -> None:
    publish(tmp_path / "ubuntu", "noble", [stanza(f"package-{number}") for number in range(1_000)], key)
    store = Store.open(site.store)
    (store.root / "apt").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(store.root / "apt")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mount needs root and CAP_SYS_ADMIN")
    try:
        with pytest.raises(EngineError, match="the lists of the Ubuntu archive cannot be written") as caught:
            resolve(site, base="")
    finally:
        subprocess.run(["umount", str(store.root / "apt")], check=True)
    assert "ENVBUILD_STORE" in caught.value.hint


@pytest.mark.slow_unit
def test_only_failed_repositories_use_the_next_mirror(site: Site, tmp_path: Path, vendor: Signer) -> None:
    at = with_vendors(site, tmp_path, vendor)
    mirrors = {
        "ubuntu:": (str(tmp_path / "ubuntu"), str(tmp_path / "stale")),
        CUDA: (str(tmp_path / "none"), str(tmp_path / "cuda/ubuntu2404/x86_64")),
        "apt:doca": at.mirrors["apt:doca"],
    }
    lock = resolve(replace(at, mirrors=mirrors), repositories(vendor), base="", debian="cuda-nvcc")
    assert named(lock, "debian") == {"cuda-crt 12.4": CUDA, "cuda-nvcc 12.4": CUDA}


@pytest.mark.slow_unit
def test_over_the_network(site: Site, tmp_path: Path, vendor: Signer) -> None:
    at = with_vendors(site, tmp_path, vendor)
    with serve() as server:
        offer(server, tmp_path / "doca", "/repo")
        remote = replace(at, mirrors={**at.mirrors, "apt:doca": (server.url.replace("//", "//me:secret@") + "/repo",)})
        reporter = SilentReporter()
        lock = resolve(remote, [repositories(vendor)[1]], None, reporter, base="", debian="rdma-core")
        assert named(lock, "debian") == {"libibverbs1 2410": DOCA, "rdma-core 2410": DOCA}
        assert not any("secret" in line for line in reporter.lines)
        server.files.clear()
        with pytest.raises(InputError) as caught:
            resolve(remote, [repositories(vendor)[1]], base="")
    assert "secret" not in str(caught.value) and "/repo/keys/vendor.pub: HTTP 404" in caught.value.message


def offer(server: Answers, folder: Path, below: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            server.files[f"{below}/{path.relative_to(folder)}"] = path.read_bytes()


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


def test_errors_of_apt_are_assigned_to_repositories() -> None:
    """Lines of apt's go to the most exact place; lines that name none count only when no place is named."""

    def source(place: str) -> AptSource:
        return AptSource("apt:x", place, "./", (), Path("/k"))

    near, far = source("http://me:pw@h/ubuntu"), source("http://h/ubuntu/more%20x")
    folder = source("/srv/a b")
    assert [item.printed_address for item in (near, far, folder)] == [
        "http://h/ubuntu",
        "http://h/ubuntu/more x",
        "file:/srv/a b",
    ]
    lines = [
        "The repository 'http://h/ubuntu ./ Release' does not have a Release file.",
        "Failed to fetch http://h/ubuntu/more%20x/InRelease  404",
        "The repository 'file:/srv/a b ./ Release' is not signed.",
        "Some index files failed to download.",
    ]
    assert failures_by_place("\n".join(lines), [near, far, folder]) == {
        near.printed_address: lines[:1],
        far.printed_address: lines[1:2],
        folder.printed_address: lines[2:3],
    }
    assert failures_by_place(lines[3], [near]) == {"": [lines[3]]}
