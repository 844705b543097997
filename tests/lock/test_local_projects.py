"""Python packages of no index: wheels of the project, and projects in repositories."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import RecordingReporter, SilentReporter
from envbuild.core.errors import EnvbuildError, InputError, SpecError
from envbuild.core.store.store import Store
from envbuild.lock.fetch import fetch
from envbuild.lock.lockfile import dump_lock, parse_lock
from envbuild.lock.make_lock import make_lock
from envbuild.lock.python.local_projects import add_wheel
from envbuild.lock.request import LockRequest, UnitRequest
from envbuild.net.site import Site
from envbuild.spec.local_wheels import read_local_wheels
from envbuild.spec.pyproject import check_lines, load_toml
from envbuild.spec.recipe import GitProject
from tests.support.as_user import open_folder
from tests.support.debian_archive import Signer, stanza
from tests.support.foreign_projects import BOB
from tests.support.git_server import Repo, git
from tests.support.lock_server import wheel
from tests.support.lock_site import MARKS, make, make_site
from tests.support.time_limit import ends_within

pytestmark = [*MARKS, pytest.mark.slow_unit]

PYPROJECT = b"""[build-system]
requires = ["backend"]
build-backend = "backend"
[project]
name = "Acme"
version = "1.2"
dependencies = ["other", "local_thing>=0.2", "never; extra == 'x'"]
"""
ORIGIN = "github:demo/acme"


@pytest.fixture
def acme(tmp_path: Path) -> Repo:
    """Return the repository of a project with a submodule, with the tag v1."""
    part = Repo.make(tmp_path / "git/demo/part", {"words": b"submodule"})
    repo = Repo.make(tmp_path / "git/demo/acme", {"pyproject.toml": PYPROJECT})
    repo.link("part", "../part", part.head)
    git(repo.path, "tag", "v1")
    return repo


@pytest.fixture
def site(tmp_path: Path, key: Signer) -> Site:
    python = [wheel(tmp_path / "wheels", name, "1.0") for name in ("other", "backend", "third")]
    torch = wheel(tmp_path / "wheels", "torch", "2.6.0")
    return make_site(tmp_path, key, (stanza("python3.13", "3.13.5-2"),), python, torch)


def asked(folder: Path, ref: str = "v1", wheels: tuple[str, ...] = (), subfolder: str = "") -> LockRequest:
    """Return the request of an image with the project, and wheels below `folder`."""
    local = read_local_wheels(folder, wheels, "python-packages", "x.yaml:1:1")
    projects = (GitProject("acme", ORIGIN, ref, subfolder),) if ref else ()
    units = {
        "base": UnitRequest(debian=("python3.13",)),
        "venv": UnitRequest(wheels=local),
        "build-python-packages": UnitRequest(projects=projects),
    }
    where = {"python-packages": "x.yaml:1:1"}
    return LockRequest("demo", "debian:13", "debian:13", "amd64", "3.13", units, where=where, folder=str(folder))


def local(folder: Path, **more: tuple[str, ...]) -> str:
    wheel(folder / "own", "local_thing", "0.3", **more)
    return "./own/local_thing-0.3-py3-none-any.whl"


def test_what_is_locked(acme: Repo, site: Site, tmp_path: Path) -> None:
    """A commit with its submodules, the wheel by digest and origin, and what both require."""
    path = local(tmp_path, requires=("third>=1",))
    lock = make(site, asked(tmp_path, wheels=(path,)))
    source = lock.sources["acme-v1.tar"]
    assert source.git and source.origin == f"{ORIGIN}@{acme.head}" and list(source.submodules) == ["part"]
    assert lock.units["build-python-packages"].sources == ("acme-v1.tar",)
    assert lock.units["build-python-packages"].python == ("backend-1.0-py3-none-any.whl",)
    entry = lock.python_files["local_thing-0.3-py3-none-any.whl"]
    assert (entry.name, entry.version, entry.origin) == ("local-thing", "0.3", f"spec:{path[2:]}")
    names = [file.partition("-")[0] for file in lock.units["venv"].python]
    assert names == ["local_thing", "other", "third"]  # requirements of both; extras are not requested
    assert parse_lock(dump_lock(lock), tmp_path / "demo.lock") == lock
    assert Store.open(site.store).has_blob(entry.sha256)


@pytest.mark.parametrize("before", ["./", ".//", "", "./own/../"])
def test_the_origin_of_a_wheel_is_relative(site: Site, tmp_path: Path, before: str) -> None:
    lock = make(site, asked(tmp_path, "", (before + local(tmp_path)[2:],)))
    assert parse_lock(dump_lock(lock), tmp_path / "demo.lock") == lock


def test_a_file_of_the_store_that_another_member_replaced_does_not_decide(
    acme: Repo, site: Site, tmp_path: Path
) -> None:
    """A tarball with more dependencies: they were locked."""
    request = asked(tmp_path, wheels=(local(tmp_path),))
    lock = make(site, request)
    store = Store.open(site.store)
    blob = store.blob(lock.sources["acme-v1.tar"].sha256)
    content = blob.read_bytes()
    blob.unlink()
    blob.write_bytes(content.replace(b'"other"', b'"third"'))
    more = asked(tmp_path, wheels=(local(tmp_path, requires=("third",)),))  # an edit of the spec
    with pytest.raises(InputError, match="corrupt blob in the store"):
        make(site, more, lock)
    assert not blob.exists()  # moved aside: made again
    names = [file.partition("-")[0] for file in make(site, more, lock).units["venv"].python]
    assert "other" in names


def test_a_changed_wheel_makes_the_lock_outdated(site: Site, tmp_path: Path) -> None:
    path = local(tmp_path)
    first = asked(tmp_path, "", (path,))
    local(tmp_path, requires=("third",))
    second = asked(tmp_path, "", (path,))
    assert first.digest() != second.digest()
    assert asked(tmp_path, "", (path,)).digest() == second.digest()


@pytest.mark.parametrize("origin", ["{0}", "../private/{1}", "link/{1}"])
def test_no_other_file_of_the_machine_is_taken_for_a_wheel(site: Site, tmp_path: Path, origin: str) -> None:
    """A lock may be that of another user's image (`verify --rebuild`), and a blob is readable for all."""
    folder = tmp_path / "project"
    lock = make(site, asked(folder, "", (local(folder),)))
    (entry,) = (file for file in lock.python_files.values() if file.origin.startswith("spec:"))
    private = tmp_path / "private" / entry.file
    private.parent.mkdir()
    private.write_text("PRIVATE KEY")
    (folder / "link").symlink_to(private.parent)
    store = Store.open(tmp_path / "second")
    hostile = replace(entry, origin="spec:" + origin.format(private, entry.file), sha256="ab" * 32)
    with pytest.raises(SpecError, match="is outside of the project"):
        add_wheel(hostile, folder, store)
    with pytest.raises(InputError, match="the lock has abab"):
        add_wheel(replace(entry, sha256="ab" * 32), folder, store)
    assert not list((store.root / "blobs/sha256").iterdir())


def test_fetch_takes_the_wheel_from_the_project_and_no_other_one(site: Site, tmp_path: Path) -> None:
    path = local(tmp_path)
    lock = make(site, asked(tmp_path, "", (path,)))
    entry = lock.python_files["local_thing-0.3-py3-none-any.whl"]
    store = Store.open(tmp_path / "second")

    def get() -> None:
        fetch(lock, store, site, SilentReporter(), names=[entry.file], folder=tmp_path)

    (tmp_path / path).rename(tmp_path / "aside")
    with pytest.raises(InputError, match="is missing"):
        get()
    local(tmp_path, requires=("third",))
    with pytest.raises(InputError, match="the lock has"):
        get()
    assert not store.has_blob(entry.sha256)
    (tmp_path / "aside").rename(tmp_path / path)
    get()
    assert store.has_blob(entry.sha256)


def test_a_tag_that_moved_is_refused_until_it_is_accepted(acme: Repo, site: Site, tmp_path: Path) -> None:
    request = asked(tmp_path, wheels=(local(tmp_path),))
    lock, before = make(site, request), acme.head
    acme.commit({"pyproject.toml": PYPROJECT.replace(b"1.2", b"1.3")})
    git(acme.path, "tag", "--force", "v1")
    assert make(site, request, lock) is lock  # nothing changed: no place is read
    with pytest.raises(InputError) as caught:
        make(site, request, lock, refresh=True)
    assert acme.head in caught.value.message and before in caught.value.message
    assert caught.value.hint.endswith("envbuild lock NAME --upgrade acme")
    newer = make(site, request, lock, "acme")
    assert newer.sources["acme-v1.tar"].origin == f"{ORIGIN}@{acme.head}"


def test_a_lock_without_network_keeps_the_commit(acme: Repo, site: Site, tmp_path: Path) -> None:
    request = asked(tmp_path, wheels=(local(tmp_path),))
    lock = make(site, request)
    git(acme.path, "tag", "--delete", "v1")
    recorder = RecordingReporter(SilentReporter())
    again = make_lock(request, site, Store.open(site.store), recorder, previous=lock, refresh=True)
    assert again.sources == lock.sources
    assert any("cannot verify that v1 still is" in line for line in recorder.take_warnings())


def test_a_commit_is_locked_as_it_is_written(acme: Repo, site: Site, tmp_path: Path) -> None:
    head = acme.head
    acme.commit({"pyproject.toml": b"later"})
    lock = make(site, asked(tmp_path, head, (local(tmp_path),)))
    assert lock.sources[f"acme-{head[:12]}.tar"].origin == f"{ORIGIN}@{head}"


def failure(site: Site, request: LockRequest) -> EnvbuildError:
    with pytest.raises(EnvbuildError) as caught:
        make(site, request)
    return caught.value


def test_branches_are_refused(acme: Repo, site: Site, tmp_path: Path) -> None:
    error = failure(site, asked(tmp_path, "main"))
    assert isinstance(error, InputError) and "has no tag main" in error.message and "a branch moves" in error.hint
    assert error.findings[0].where == "x.yaml:1:1"


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"README": b""}, "has no build backend"),
        ({"pyproject.toml": PYPROJECT.replace(b"Acme", b"zebra")}, "is named 'zebra'"),
        ({"pyproject.toml": PYPROJECT.replace(b'version = "1.2"', b'dynamic = ["version"]')}, "computes its version"),
        ({"pyproject.toml": PYPROJECT + b'requires-python = "<3.10"\n'}, "requires Python <3.10"),
        ({"pyproject.toml": b"[project"}, "malformed metadata"),
        ({"pyproject.toml": PYPROJECT.replace(b"other", b"x @ https://h/x.whl")}, "names an address"),
    ],
)
def test_projects_that_cannot_be_built(site: Site, tmp_path: Path, files: dict[str, bytes], text: str) -> None:
    repo = Repo.make(tmp_path / "git/demo/acme", files)
    error = failure(site, asked(tmp_path, repo.head))
    assert isinstance(error, SpecError) and text in error.message
    assert error.findings[0].where == "x.yaml:1:1"


def test_old_projects(site: Site, tmp_path: Path) -> None:
    """One without pyproject.toml states its version in setup.cfg, and is built with setuptools."""
    cfg = b"[metadata]\nname = acme\nversion = 3\n[options]\ninstall_requires =\n  other\n"
    repo = Repo.make(tmp_path / "git/demo/acme", {"below/setup.cfg": cfg, "below/setup.py": b""})
    error = failure(site, asked(tmp_path, repo.head, subfolder="below"))
    assert "setuptools" in error.message  # what the index of this site does not have
    assert "#subdirectory=FOLDER" in failure(site, asked(tmp_path, repo.head)).hint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("../outside-1-py3-none-any.whl", "outside of the project"),
        ("./link-1-py3-none-any.whl", "outside of the project"),
        ("./none-1-py3-none-any.whl", "there is no wheel"),
        ("./bad.whl", "does not have the name of a wheel"),
    ],
)
def test_wheels_that_are_not_of_the_project(tmp_path: Path, name: str, text: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    wheel(tmp_path, "outside", "1")
    (folder / "link-1-py3-none-any.whl").symlink_to(tmp_path / "outside-1-py3-none-any.whl")
    (folder / "bad.whl").write_bytes(b"")
    with pytest.raises(SpecError) as caught:
        read_local_wheels(folder, (name,), "python-packages", "x.yaml:1:1")
    assert text in caught.value.message and caught.value.findings[0].where == "x.yaml:1:1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
@pytest.mark.parametrize("given", ["", "acme-1.0-py3-none-any.whl"])
def test_a_wheel_that_another_user_can_change_is_refused(given: str) -> None:
    """It is code, and a link in the folder of another user could lead to a private file, whose bytes the store gets."""
    with open_folder() as top:
        (top / "images").mkdir()
        made = wheel(top / "wheels", "acme", "1.0")
        os.chown(top / "wheels" / given, BOB, -1)
        with pytest.raises(SpecError, match="not trusted: this") as caught:
            read_local_wheels(top / "wheels", (made.name,), "python-packages", "x.yaml:1:1")
        assert caught.value.findings[0].where == str(top / "wheels" / given).rstrip("/")


def test_a_wheel_of_another_python_is_refused(site: Site, tmp_path: Path) -> None:
    wheel(tmp_path / "own", "local_thing", "0.3", "cp311-cp311-linux_x86_64")
    error = failure(site, asked(tmp_path, "", ("./own/local_thing-0.3-cp311-cp311-linux_x86_64.whl",)))
    assert "is not for this image" in error.message
    (tmp_path / "own/fake-1-py3-none-any.whl").write_bytes(b"not a zip")
    error = failure(site, asked(tmp_path, "", ("./own/fake-1-py3-none-any.whl",)))
    assert "is not a valid wheel" in error.message


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_wheel_with_damaged_content_is_refused(site: Site, tmp_path: Path, method: int) -> None:
    path = tmp_path / "own/broken-1-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("broken-1.dist-info/METADATA", "Name: broken\nVersion: 1\n" + "Keywords: a b c\n" * 99)
        start = archive.start_dir
    content = bytearray(path.read_bytes())
    for place in range(start - 30, start - 5):
        content[place] ^= 0xFF
    path.write_bytes(content)
    error = failure(site, asked(tmp_path, "", (f"./own/{path.name}",)))
    assert "is not a valid wheel" in error.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.cfg", "[metadata]\nb" + " " * 1_000_000 + "c"),
        ("setup.cfg", "[metadata]\nb" + "\x0c" * 500_000 + "c"),
        ("setup.cfg", ("[metadata]\nb" + " " * 900 + "c\n") * 100),
        ("pyproject.toml", "a" + ".a" * 500_000 + " = 1"),
        ("pyproject.toml", ("a" + ".a" * 900 + " = 1\n") * 500),
        ("pyproject.toml", ("a" + ".a" * 900 + " = 1\n") * 40),
        ("pyproject.toml", "[a" + ".a" * 900 + "]\n" + "".join(f"k{number}=1\n" for number in range(20_000))),
    ],
    ids=["blanks", "form feeds", "many lines", "parts", "lines", "some lines", "table"],
)
def test_a_text_that_takes_hours_is_refused(name: str, text: str) -> None:
    """33 kB of a repository, compressed."""
    with ends_within(20), pytest.raises(ValueError, match=r"setup\.cfg is longer|too many dots|too many parts"):
        check_lines(name, text)
    check_lines("pyproject.toml", '[project]\ndependencies = ["a>=1.0", "b==2.*"]\n')


@pytest.mark.parametrize(
    "text", ["a = 0x" + "f" * 6000, "[project]\nversion = 0x1" + "0" * 16, "a = [{b = 0b1" + "0" * 64 + "}]"]
)
def test_a_number_of_more_than_64_bits_is_refused(text: str) -> None:
    """Python does not print every one of them."""
    with pytest.raises(ValueError, match=r"pyproject\.toml has a number of more than 64 bits"):
        load_toml("pyproject.toml", text)
    assert load_toml("pyproject.toml", "a = 0xffffffffffffffff\nb = -9223372036854775808") == {
        "a": 2**64 - 1,
        "b": -(2**63),
    }
