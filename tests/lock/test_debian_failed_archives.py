"""Archives that are not named, cannot be read or never end: which are reported, and which place is used instead."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError, InputError
from envbuild.core.store.store import Store
from envbuild.lock.debian import resolve as debian
from envbuild.lock.debian.apt import UNSIGNED, AptSource, is_suite, release_date, release_names
from envbuild.lock.debian.unreadable_archives import failures_by_place
from envbuild.net.limits import LIMITS
from envbuild.net.site import Site
from envbuild.spec.recipe import AptRepository
from tests.support.debian_archive import RELEASED, Signer, publish, stanza
from tests.support.http_server import Handler, serving
from tests.support.lock_server import Answers, serve
from tests.support.time_limit import ends_within
from tests.support.vendor_archives import CUDA, DOCA, NOBLE, messages, named, repositories, resolve, with_vendors

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not shutil.which("apt-get"), reason="apt-get is not installed"),
    pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not installed"),
]


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


def use_apt(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let apt-get be a shell script."""
    program = folder / "bin/apt-get"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_an_update_that_waits_for_ever_on_a_full_disk_ends(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of apt 2.6 does, after it printed the error."""
    use_apt(
        tmp_path,
        monkeypatch,
        "cat <<'END'\nErr:4 http://r.example/debian trixie/main amd64 Packages\n"
        "  Write error - write (28: No space left on device)\nEND\nexec sleep 1005\n",
    )
    with (
        ends_within(30),
        pytest.raises(EngineError, match=r"the lists of the Ubuntu archive cannot be written:\n.*\(28: No space"),
    ):
        request = debian.DebianRequest(NOBLE, "amd64", {"base": ()})
        debian.resolve(request, site, Store.open(site.store), SilentReporter())


def test_what_a_killed_update_leaves_is_in_the_store(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt's check of signatures has copies of its configuration, with the login of a proxy, in its temporary folder."""
    killed = f'echo secret > "$TMPDIR/apt.conf.x"\nls "$TMPDIR/apt.conf.x" > {tmp_path}/seen\nkill -9 $$\n'
    use_apt(tmp_path, monkeypatch, killed)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    store = Store.open(site.store)
    with pytest.raises(InputError):
        debian.resolve(debian.DebianRequest(NOBLE, "amd64", {"base": ()}), site, store, SilentReporter())
    assert (tmp_path / "seen").read_text().startswith(f"{store.tmp}/")
    assert not list(store.tmp.iterdir()) and not list(tmp_path.glob("apt.conf.*"))


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
@pytest.mark.parametrize("code", [404, 500])
def test_a_server_cannot_state_a_full_disk(code: int, site: Site) -> None:
    """apt prints the phrase of its status line; the next place has the archive."""

    class Lying(Handler):
        def do_GET(self) -> None:
            line = f"HTTP/1.1 {code} Write error - write (28: No space left on device)\r\n"
            self.wfile.write(f"{line}Content-Length: 0\r\n\r\n".encode())

    with serving(Lying) as url:
        places = (f"{url}/ubuntu", *site.mirrors["ubuntu:"])
        at = replace(site, mirrors={**site.mirrors, "ubuntu:": places}, apt={"Acquire::Retries": "0"})
        assert named(resolve(at, base=""), "base")
        with pytest.raises(InputError, match="the Ubuntu archive cannot be read"):
            resolve(replace(at, mirrors={**site.mirrors, "ubuntu:": places[:1]}), base="")


@pytest.mark.slow_unit
def test_a_message_of_a_server_has_no_login(site: Site) -> None:
    """apt prints the phrase of a status line, in which a server or a proxy may repeat what it got."""
    seen: list[str] = []

    class Repeating(Handler):
        def do_GET(self) -> None:
            logins = [self.headers.get(name, "") for name in ("Authorization", "Proxy-Authorization")]
            seen.extend(filter(None, logins))
            self.wfile.write(f"HTTP/1.1 502 {' '.join(logins)}\r\nContent-Length: 0\r\n\r\n".encode())

    with serving(Repeating) as url:
        place, proxy = "http://me:s3cret-one@mirror.invalid/ubuntu", url.replace("://", "://us:s3cret-two@")
        at = replace(site, mirrors={"ubuntu:": (place,)}, proxy=proxy, apt={"Acquire::Retries": "0"})
        with pytest.raises(InputError, match=r"502 .*Basic \*\*\*") as caught:
            resolve(at, base="apt")
    assert seen and not [login for login in seen if login.removeprefix("Basic ").rstrip("=") in str(caught.value)]


@pytest.mark.slow_unit
def test_a_list_that_apt_does_not_read_is_reported_each_time(site: Site, tmp_path: Path, vendor: Signer) -> None:
    """Also within the hour in which lists are used again, after an earlier list that it read."""
    at, cuda, folder = with_vendors(site, tmp_path, vendor), repositories(vendor)[:1], "cuda/ubuntu2404/x86_64"
    with serve() as server:  # of a folder, apt reads the lists each time
        at = replace(at, mirrors={**at.mirrors, "apt:cuda": (f"{server.url}/cuda",)}, apt={"Acquire::Retries": "0"})
        for depends in ("cuda-crt", "lib;id>pwn;"):
            texts = [stanza("cuda-crt", folder="."), stanza("cuda-nvcc", folder=".", Depends=depends)]
            publish(tmp_path / folder, "./", texts, vendor, released=RELEASED + len(depends))
            server.files |= {f"/{folder}/{path.name}": path.read_bytes() for path in (tmp_path / folder).iterdir()}
            for refresh in (True, False) if ";" in depends else (True,):
                with pytest.raises(InputError, match="could not be parsed") if ";" in depends else nullcontext():
                    resolve(at, cuda, base="", debian="cuda-nvcc", refresh=refresh)


@pytest.mark.parametrize("second", [False, True])
def test_the_archive_of_another_suite_is_not_the_requested_one(
    site: Site, tmp_path: Path, key: Signer, second: bool
) -> None:
    """The same keys sign all suites, and apt only warns: a mirror could answer with packages of years ago."""
    old = tmp_path / "old"
    stanzas = [stanza("base-files", "1", essential=True), stanza("apt", "1")]
    for suite in ("noble", "noble-updates", "noble-security"):
        publish(old, f"{suite}.x", stanzas if suite == "noble" else [], key)
        (old / f"dists/{suite}.x").rename(old / f"dists/{suite}")
    places = (str(old), *site.mirrors["ubuntu:"]) if second else (str(old),)
    at = replace(site, mirrors={"ubuntu:": places})
    if second:
        assert "openssl 3.0-2" in named(resolve(at, base="openssl"), "base")
        return
    with pytest.raises(InputError) as caught:
        resolve(at, base="apt")
    ((message, hint),) = messages(caught.value)
    assert f"{old} noble: its Release file is that of noble.x" in message and "site.yaml" in hint
    shutil.rmtree(old)  # the place is right again, with an older file: what apt took before is not in its way
    for suite in ("noble", "noble-updates", "noble-security"):
        publish(old, suite, stanzas if suite == "noble" else [], key)
    assert "apt 1" in named(resolve(at, base="apt"), "base")


@pytest.mark.parametrize(
    ("wanted", "names", "same"),
    [
        ("trixie", ("stable", "trixie"), True),
        ("stable", ("stable", "trixie"), True),
        ("noble", ("noble",), True),
        ("noble-updates", ("noble-updates", "noble"), True),
        ("noble", ("noble-proposed", "noble"), False),
        ("trixie-security", ("stable-security", "trixie-security"), True),
        ("trixie", ("trixie-security",), False),
        ("trixie", (), False),
    ],
)
def test_the_suites_of_a_release_have_one_code_name(wanted: str, names: tuple[str, ...], same: bool) -> None:
    assert is_suite(wanted, names) == same


def test_only_the_signed_text_of_a_release_file_counts(tmp_path: Path, key: Signer) -> None:
    """The lines between the first one and the first empty one are not signed, and apt does not compare them."""
    publish(tmp_path, "bullseye", [stanza("apt", "1")], key)
    path = tmp_path / "dists/bullseye/InRelease"
    date = release_date(path)
    text = path.read_text()
    assert "\nHash: " in text
    assert release_names(path) == ("bullseye",) and date is not None
    for more in ("Codename: trixie\n", "X: a\r\rCodename: trixie\r\n", "Date: Sun, 22 Nov 2026 10:00:00 UTC\n"):
        path.write_bytes(text.replace("\nHash: ", f"\n{more}Hash: ", 1).encode())
        assert release_names(path) == (UNSIGNED,) and release_date(path) is None
    path.write_text(f"\n{text}")
    assert release_names(path) == (UNSIGNED,)
    plain = tmp_path / "Release"
    plain.write_text("Suite: stable\nCodename: trixie\nDate: Sun, 22 Nov 2026 10:00:00 UTC\n")
    assert release_names(plain) == ("stable", "trixie")
    for more in ("Suite: trixie\n", "suite: oldstable\n", "CODENAME : bookworm\n"):
        plain.write_text(f"Suite: stable\nCodename: trixie\n{more}")  # apt may read the other one
        assert release_names(plain) == ("more than one suite",)
    plain.write_text("suite: oldstable\nX: a\n Suite: trixie\n")
    assert release_names(plain) == ("oldstable",)


def test_an_archive_of_a_vendor_with_lines_that_are_not_signed_is_refused(
    site: Site, tmp_path: Path, vendor: Signer
) -> None:
    """It would have no date, so that an older state of it could not be recognised."""
    at = with_vendors(site, tmp_path, vendor)
    for path in (tmp_path / "doca").rglob("InRelease"):
        path.write_text(path.read_text().replace("\nHash: ", "\nX: a\nHash: ", 1))
    with pytest.raises(InputError) as caught:
        resolve(at, [repositories(vendor)[1]], base="", debian="rdma-core")
    assert "lines that its signature does not cover" in caught.value.message


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
def test_an_archive_that_sends_a_byte_now_and_then_ends_the_lock(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt's own limit is the time without a byte."""
    monkeypatch.setattr("envbuild.lock.debian.apt.LIMITS", replace(LIMITS, program=2))

    class Dripping(Handler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "9000000")
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b"x")
                    time.sleep(0.2)

    with serving(Dripping) as url, pytest.raises(InputError, match="did not end within 2 seconds"), ends_within(60):
        resolve(replace(site, mirrors={"ubuntu:": (url,)}), base="")


def test_errors_of_apt_are_assigned_to_repositories() -> None:
    """Lines of apt's go to the most exact place; lines that name none count only when no place is named."""

    def source(place: str) -> AptSource:
        return AptSource("apt:x", place, "./", (), Path("/k"))

    near, far = source("http://me:pw@h/ubuntu"), source("http://h/ubuntu/more%20x")
    folder = source("/srv/a b")
    assert [item.printed_address for item in (near, far, folder)] == [
        "http://h/ubuntu",
        "http://h/ubuntu/more x",
        "copy:/srv/a b",
    ]
    lines = [
        "The repository 'http://h/ubuntu ./ Release' does not have a Release file.",
        "Failed to fetch http://h/ubuntu/more%20x/InRelease  404",
        "The repository 'copy:/srv/a b ./ Release' is not signed.",
        "Some index files failed to download.",
    ]
    assert failures_by_place("\n".join(lines), [near, far, folder]) == {
        near.printed_address: lines[:1],
        far.printed_address: lines[1:2],
        folder.printed_address: lines[2:3],
    }
    assert failures_by_place(lines[3], [near]) == {"": [lines[3]]}
