"""Fetching from a real server that truncates, fails and returns wrong content."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError, InputError
from envbuild.core.store.store import Store
from envbuild.lock.fetch import fetch, inputs_to_fetch
from envbuild.lock.model import BaseImage, PythonFile, SourceFile
from envbuild.net.download import ATTEMPTS
from envbuild.net.site import Site
from tests.support.fetching import PATH, deb, run, site
from tests.support.lock_server import Answers, serve, sha256, wheel
from tests.support.programs import importing
from tests.support.stored_inputs import lock

pytestmark = pytest.mark.unit
DATA = os.urandom(1_000_000)


@pytest.fixture
def server() -> Iterator[Answers]:
    with serve() as answers:
        yield answers


def test_file_arrives_once(server: Answers, store: Store) -> None:
    server.files[f"/debian/{PATH}"] = DATA
    wanted = lock(deb(DATA))
    assert inputs_to_fetch(wanted, store) == [wanted.debian["hello_1.0_all.deb"]]
    reporter = run(wanted, store, site(store, f"{server.url}/debian"))
    assert store.blob(sha256(DATA)).read_bytes() == DATA
    assert inputs_to_fetch(wanted, store) == []
    assert reporter.lines == ["fetched 1 file, 1.0 MB"]
    assert list((store.root / "partial").iterdir()) == []
    run(wanted, store, site(store, f"{server.url}/debian"))
    assert len(server.asked) == 1


def test_cut_download_is_resumed(server: Answers, store: Store) -> None:
    server.files[f"/{PATH}"] = DATA
    server.faults[f"/{PATH}"] = ["cut:300000", "cut:300000"]
    run(lock(deb(DATA)), store, site(store, server.url))
    assert store.has_blob(sha256(DATA))
    starts = [int(asked.removeprefix("bytes=").rstrip("-") or 0) for _, asked in server.asked]
    assert starts[0] == 0 < starts[1] < starts[2]


def test_part_of_an_earlier_run_is_used(server: Answers, store: Store) -> None:
    server.files[f"/{PATH}"] = DATA
    server.faults[f"/{PATH}"] = ["cut:400000", *[503] * ATTEMPTS]
    with pytest.raises(InputError):
        run(lock(deb(DATA)), store, site(store, server.url))
    server.asked.clear()
    server.faults.clear()
    run(lock(deb(DATA)), store, site(store, server.url))
    assert [int(asked.removeprefix("bytes=").rstrip("-")) > 0 for _, asked in server.asked] == [True]
    assert store.blob(sha256(DATA)).read_bytes() == DATA


@pytest.mark.parametrize("part", [b"x" * 1000, b"x" * 2_000_000, DATA])
def test_a_part_with_other_content_is_not_used(server: Answers, store: Store, part: bytes) -> None:
    """Foreign bytes, more bytes than there are, all of them already."""
    server.files[f"/{PATH}"] = DATA
    (store.root / "partial").mkdir(exist_ok=True)
    (store.root / "partial" / f"{sha256(DATA)}.part").write_bytes(part)
    run(lock(deb(DATA)), store, site(store, server.url))
    assert store.blob(sha256(DATA)).read_bytes() == DATA


def test_server_without_ranges(server: Answers, store: Store) -> None:
    server.files[f"/{PATH}"] = DATA
    server.faults[f"/{PATH}"] = ["cut:300000", "no-range"]
    run(lock(deb(DATA)), store, site(store, server.url))
    assert store.blob(sha256(DATA)).read_bytes() == DATA


def test_always_cut_download_is_an_error(server: Answers, store: Store) -> None:
    server.files[f"/{PATH}"] = DATA
    server.faults[f"/{PATH}"] = ["cut:10"] * 20
    with pytest.raises(InputError, match=rf"{server.url}/{PATH}: the connection broke off.*\({ATTEMPTS} attempts\)"):
        run(lock(deb(DATA)), store, site(store, server.url))
    assert not store.has_blob(sha256(DATA))


def test_wrong_bytes_name_both_digests(server: Answers, store: Store) -> None:
    server.files[f"/{PATH}"] = b"other"
    with pytest.raises(InputError) as caught:
        run(lock(deb(DATA)), store, site(store, server.url))
    assert sha256(b"other") in caught.value.message and sha256(DATA) in caught.value.message
    assert caught.value.exit_code == 10
    assert list((store.root / "blobs/sha256").iterdir()) == []


def test_after_a_wrong_mirror_the_next_is_tried(server: Answers, store: Store, tmp_path: Path) -> None:
    server.files[f"/bad/{PATH}"] = b"other"
    (tmp_path / "good" / PATH).parent.mkdir(parents=True)
    (tmp_path / "good" / PATH).write_bytes(DATA)
    run(lock(deb(DATA)), store, site(store, f"{server.url}/bad", f"{server.url}/none", str(tmp_path / "good")))
    assert store.blob(sha256(DATA)).read_bytes() == DATA
    assert (tmp_path / "good" / PATH).is_file()  # copied, not moved


def test_missing_files_are_reported_after_the_others_are_fetched(server: Answers, store: Store) -> None:
    gone = [deb(bytes([number]) * 5000, f"gone{number}", f"pool/gone{number}_1.0_all.deb") for number in range(3)]
    server.files[f"/{PATH}"] = DATA
    with pytest.raises(InputError) as caught:
        run(lock(*gone, deb(DATA)), store, site(store, server.url, f"{server.url}/second"), jobs=1)
    assert store.has_blob(sha256(DATA))
    assert sorted(finding.hint for finding in caught.value.findings) == [
        f"envbuild lock demo --upgrade gone{number}, or write another place into site.yaml:  "
        "mirrors: {debian: [ADDRESS-OR-FOLDER]}"
        for number in range(3)
    ]
    first = next(finding for finding in caught.value.findings if "gone0" in finding.message)
    assert gone[0].sha256 in first.message
    assert f"{server.url}/pool/gone0_1.0_all.deb: HTTP 404" in first.message
    assert f"{server.url}/second/pool/gone0_1.0_all.deb: HTTP 404" in first.message


def test_the_password_of_a_mirror_is_not_printed(server: Answers, store: Store) -> None:
    with pytest.raises(InputError) as caught:
        run(lock(deb(DATA)), store, site(store, server.url.replace("//", "//me:secret@")))
    assert "secret" not in str(caught.value) and "404" in str(caught.value)


def test_unreachable_server(store: Store) -> None:
    with pytest.raises(InputError, match="connection refused") as caught:
        run(lock(deb(DATA)), store, site(store, "http://127.0.0.1:9"))
    assert caught.value.hint.startswith("run the command again, or write another place into site.yaml:")
    assert "mirrors: {debian: [ADDRESS-OR-FOLDER]}" in caught.value.hint


def test_python_file_by_name_and_digest(server: Answers, store: Store, tmp_path: Path) -> None:
    content = wheel(tmp_path, "demo", "1.0").read_bytes()
    name = "demo-1.0-py3-none-any.whl"
    page = f'<a href="/other/{name}#sha256={"0" * 64}">x</a><a href="/files/{name}#sha256={sha256(content)}">x</a>'
    server.files |= {"/simple/demo/": page.encode(), f"/files/{name}": content, f"/other/{name}": b"no"}
    file = PythonFile(name, "demo", "1.0", len(content), sha256(content))
    run(lock(file), store, site(store, python=(f"{server.url}/simple",)))
    assert store.has_blob(file.sha256)
    assert [path for path, _ in server.asked] == ["/simple/demo/", f"/files/{name}"]


def test_python_file_that_no_index_lists(server: Answers, store: Store) -> None:
    server.files["/simple/demo/"] = b""
    with pytest.raises(InputError) as caught:
        file = PythonFile("demo-1.0-py3-none-any.whl", "demo", "1.0", 5, "1" * 64)
        run(lock(file), store, site(store, python=(f"{server.url}/simple",)))
    assert f"{server.url}/simple: does not list it" in caught.value.message
    assert caught.value.hint.startswith("envbuild lock demo --upgrade demo, or write another place")


def test_a_source_without_a_mirror_has_a_hint(store: Store) -> None:
    with pytest.raises(InputError) as caught:
        run(lock(SourceFile("ucx-1.20.1.tar.gz", "github:openucx/ucx@v1.20.1", "1" * 64)), store, site(store))
    assert "github:openucx/ucx@v1.20.1" in caught.value.message
    assert 'mirrors: {"github:openucx/ucx": [FOLDER-OR-ADDRESS]}' in caught.value.hint


def test_inputs_of_vendors(server: Answers, store: Store, tmp_path: Path) -> None:
    """A repository below a mirror's folder, an index below a mirror's address."""
    content = wheel(tmp_path, "torch", "1.12").read_bytes()
    name = "torch-1.12-py3-none-any.whl"
    page = f'<a href="/files/{name}#sha256={sha256(content)}">x</a>'
    server.files |= {"/pip/pytorch/cu113/torch/": page.encode(), f"/files/{name}": content}
    (tmp_path / "cuda/ubuntu2204").mkdir(parents=True)
    (tmp_path / "cuda/ubuntu2204/cuda_13_amd64.deb").write_bytes(DATA)
    package = replace(deb(DATA, "cuda", "cuda_13_amd64.deb"), archive="apt:nvidia-cuda/ubuntu2204")
    file = PythonFile(name, "torch", "1.12", len(content), sha256(content), "pip:pytorch/cu113")
    mirrors = {"apt:nvidia-cuda": (str(tmp_path / "cuda"),), "pip:": (f"{server.url}/pip",), "python:": ()}
    run(lock(package, file), store, Site(store.root, mirrors=mirrors, use_host=False))
    assert store.has_blob(file.sha256) and store.has_blob(package.sha256)


def test_a_vendors_file_is_not_taken_from_the_package_index(server: Answers, store: Store) -> None:
    name = "torch-1.12-py3-none-any.whl"
    server.files |= {
        "/simple/torch/": f'<a href="/files/{name}#sha256={sha256(DATA)}">x</a>'.encode(),
        f"/files/{name}": DATA,
        "/cu113/torch/": b"",
    }
    file = PythonFile(name, "torch", "1.12", len(DATA), sha256(DATA), "pip:pytorch/cu113")
    mirrors = {"python:": (f"{server.url}/simple",), "pip:pytorch/cu113": (f"{server.url}/cu113",)}
    with pytest.raises(InputError) as caught:
        run(lock(file), store, Site(store.root, mirrors=mirrors, use_host=False))
    assert f"tried:\n  {server.url}/cu113: does not list it" in caught.value.message
    assert 'mirrors: {"pip:pytorch/cu113": [ADDRESS-OR-FOLDER]}' in caught.value.hint


def test_an_origin_without_a_place_is_reported_once(server: Answers, store: Store) -> None:
    server.files[f"/{PATH}"] = DATA
    archive = "apt:nvidia-cuda/ubuntu2204"
    cuda = [replace(deb(bytes([n]) * 5000, f"cuda{n}", f"cuda{n}_1_all.deb"), archive=archive) for n in range(6)]
    file = PythonFile("torch-1.12-py3-none-any.whl", "torch", "1.12", 7, "1" * 64, "pip:pytorch/cu113")
    with pytest.raises(InputError) as caught:
        run(lock(deb(DATA), *cuda, file), store, site(store, server.url))
    assert store.has_blob(sha256(DATA)), "what has a place is fetched"
    assert [(finding.message, finding.hint) for finding in caught.value.findings] == [
        (
            "no place is known for apt:nvidia-cuda/ubuntu2204, which provides 6 Debian packages (30.0 kB): "
            "cuda0_1_all.deb, cuda1_1_all.deb, cuda2_1_all.deb, cuda3_1_all.deb and 2 more",
            'write one into site.yaml:  mirrors: {"apt:nvidia-cuda/ubuntu2204": [ADDRESS-OR-FOLDER]}',
        ),
        (
            "no place is known for pip:pytorch/cu113, which provides 1 Python file (7 B): torch-1.12-py3-none-any.whl",
            'write one into site.yaml:  mirrors: {"pip:pytorch/cu113": [ADDRESS-OR-FOLDER]}',
        ),
    ]


def test_available_files_are_fetched_and_lines_for_the_rest_are_suggested(server: Answers, store: Store) -> None:
    server.files[f"/{PATH}"] = DATA
    digests = {"ucx": "1" * 64, "ucc": "2" * 64}
    sources = [
        SourceFile(f"{name}.tar", f"github:openucx/{name}@{'1' * 40}", digest, git=True)
        for name, digest in digests.items()
    ]
    reporter, at = SilentReporter(), replace(site(store, server.url), where="site.yaml")
    where = {"ucx.tar": "images/demo.yaml:7:3"}
    with pytest.raises(InputError) as caught:
        fetch(lock(deb(DATA), *sources), store, at, reporter, pause=0.001, where=where)
    assert [finding.where for finding in caught.value.findings] == ["", "images/demo.yaml:7:3"]
    assert reporter.lines == [
        f"demo: 1 input, 1.0 MB, in the store {store.root}; the next run fetches only what is missing",
        "demo: these lines of site.yaml would supply the rest; replace the places with yours:\nmirrors:\n"
        '  "github:openucx/ucc": [FOLDER-OR-ADDRESS]\n  "github:openucx/ucx": [FOLDER-OR-ADDRESS]',
    ]


def image(reference: str = "registry.example/group/base:1") -> BaseImage:
    layers = [bytes([number]) * 1000 for number in range(5)]
    kinds = "application/vnd.oci.image.layer.v1.tar"
    parts = tuple((sha256(layer), len(layer), kinds) for layer in layers)
    return BaseImage(reference, sha256(b"manifest"), sha256(b"config"), parts, "debian:13")


def test_a_base_image_from_a_registry_and_from_a_layout(server: Answers, store: Store, tmp_path: Path) -> None:
    wanted = replace(lock(), base_image=image())
    contents = [b"config", *(bytes([number]) * 1000 for number in range(5))]
    for content in contents[:3]:
        server.files[f"/v2/copy/base/blobs/sha256:{sha256(content)}"] = content
    layout = tmp_path / "base/blobs/sha256"
    layout.mkdir(parents=True)
    for content in contents[3:]:
        (layout / sha256(content)).write_bytes(content)
    mirrors = {"oci:registry.example/group/": (f"{server.url}/copy", str(tmp_path)), "python:": ()}
    at = Site(store.root, mirrors=mirrors, use_host=False)
    run(wanted, store, at)
    assert inputs_to_fetch(wanted, store) == [], "a build needs no manifest"
    assert [entry.sha256 for entry in inputs_to_fetch(wanted, store, manifest=True)] == [sha256(b"manifest")]
    server.files[f"/v2/copy/base/manifests/sha256:{sha256(b'manifest')}"] = b"manifest"
    fetch(wanted, store, at, SilentReporter(), manifest=True, pause=0.001)
    assert store.has_blob(sha256(b"manifest"))


def test_a_missing_base_image_is_reported_once(server: Answers, store: Store) -> None:
    wanted = replace(lock(), base_image=image())
    at = Site(store.root, mirrors={"oci:registry.example/": (server.url,), "python:": ()}, use_host=False)
    with pytest.raises(InputError) as caught:
        run(wanted, store, at)
    (finding,) = caught.value.findings
    assert "of registry.example/group/base:1" in finding.message and "HTTP 404" in finding.message
    assert finding.message.endswith("and 5 more parts of that image")
    assert 'mirrors: {"oci:registry.example/": [' in finding.hint
    with pytest.raises(InputError) as caught:
        run(wanted, store, site(store))
    (finding,) = caught.value.findings
    assert finding.message == (
        "no place is known for oci:registry.example/group/base, which provides the base image "
        "registry.example/group/base:1 (5.0 kB)"
    )
    assert finding.hint.endswith('mirrors: {"oci:registry.example/": [ADDRESS-OR-FOLDER]}')


def test_a_commit_that_no_mirror_has(store: Store, tmp_path: Path) -> None:
    (tmp_path / "git").mkdir()
    file = SourceFile("ucx-0123456789ab.tar", f"github:openucx/ucx@{'0' * 40}", "1" * 64, 5, git=True)
    with pytest.raises(InputError) as caught:
        run(lock(file), store, site(store, github=(str(tmp_path / "git"),)))
    (finding,) = caught.value.findings
    assert file.origin in finding.message and str(tmp_path / "git") in finding.message
    assert 'mirrors: {"github:openucx/ucx": [' in finding.hint


def test_source_in_a_folder(store: Store, tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/ucx-1.20.1.tar.gz").write_bytes(DATA)
    file = SourceFile("ucx-1.20.1.tar.gz", "github:openucx/ucx@v1.20.1", sha256(DATA))
    run(lock(file), store, site(store, github=(str(tmp_path / "sources"),)))
    assert store.has_blob(file.sha256)


def test_only_the_named_files(server: Answers, store: Store) -> None:
    server.files[f"/{PATH}"] = DATA
    wanted = lock(deb(DATA), deb(b"other", "other", "pool/other_1.0_all.deb"))
    reporter = SilentReporter()
    fetch(wanted, store, site(store, server.url), reporter, names=["hello_1.0_all.deb"])
    assert [file.file for file in inputs_to_fetch(wanted, store)] == ["other_1.0_all.deb"]


FULL = """
import sys, resource, signal
from pathlib import Path
from tests.support.stored_inputs import lock
from dataclasses import replace
from envbuild.core.errors import EngineError
from envbuild.core.store.store import Store
from tests.support.fetching import deb, run, site
store = Store(Path(sys.argv[1]))
file = replace(deb(b""), sha256="1" * 64, size=10_000_000)
try:
    run(lock(file), store, site(store, sys.argv[2]))
except EngineError as error:
    print(error.exit_code, error)
"""


def test_full_disk(tmp_path: Path) -> None:
    """A store on a file system of 1 MB."""
    store = tmp_path / "small"
    store.mkdir()
    mount = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare --mount is not allowed here")
    mirror = tmp_path / "mirror" / PATH
    mirror.parent.mkdir(parents=True)
    mirror.write_bytes(bytes(10_000_000))
    script = 'mount -t tmpfs -o size=1m t "$1" && mkdir -p "$1/blobs/sha256" && exec "$2" -c "$3" "$1" "$4"'
    arguments = [store, sys.executable, FULL, tmp_path / "mirror"]
    command = [*mount, "sh", "-c", script, "sh", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=importing())
    assert done.stdout.startswith(f"{EngineError.exit_code} the store {store} is full: {os.strerror(errno.ENOSPC)}"), (
        done
    )
    assert "ENVBUILD_STORE" in done.stdout


def test_two_processes_fetch_once(server: Answers, store: Store) -> None:
    """Both want the same file; the second one waits and finds it there."""
    from concurrent.futures import ThreadPoolExecutor

    content = DATA * 20
    server.files[f"/{PATH}"] = content
    wanted, at = lock(deb(content)), site(store, server.url)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run(wanted, store, at), range(4)))
    assert len(server.asked) == 1
    assert hashlib.sha256(store.blob(sha256(content)).read_bytes()).hexdigest() == sha256(content)


def test_empty_lock_reads_no_configuration(store: Store) -> None:
    broken = replace(site(store), ca_bundle=Path("/nonexistent"))
    assert run(lock(), store, broken).lines == []
