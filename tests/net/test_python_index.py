"""The client of package indexes: HTML, JSON, folders."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import InputError
from envbuild.net import python_index
from envbuild.net.failures import RefusedError
from envbuild.net.host_config import PythonIndexes
from envbuild.net.python_index import IndexFile, PackageIndex, is_file_of, parse_html, parse_json, split_name
from envbuild.net.site import Site
from envbuild.net.transport import Page, Transport
from tests.support.lock_server import sdist, serve, sha256, simple_index, wheel
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit
A, B = "a" * 64, "b" * 64


def index(*indexes: str, links: tuple[str, ...] = (), pool: bool = False) -> PackageIndex:
    site = Site(Path("/none"), mirrors={"python:": ()}, use_host=False)
    return PackageIndex(Transport(site.network()), PythonIndexes(indexes, links, pool=pool))


def test_html_page() -> None:
    text = f"""<!DOCTYPE html><html><head><base href="https://files.example/a/"></head><body>
    <a href="../demo-1.0-py3-none-any.whl#sha256={A}" data-requires-python="&gt;=3.8">demo</a>
    <a data-yanked="broken" href='https://other.example/demo-1.1%2Bcpu-py3-none-any.whl#md5=0'>x</a>
    <A HREF="demo-1.1.tar.gz?signature=1#sha256={B}">x</A>
    <a href="demo-1.1.exe">x</a><a href="demo-1.1.tar.gz.asc">x</a><a>x</a>
    """
    assert list(parse_html(text, "https://index.example/simple/demo/")) == [
        IndexFile("demo-1.0-py3-none-any.whl", "https://files.example/demo-1.0-py3-none-any.whl", A, ">=3.8"),
        IndexFile(
            "demo-1.1+cpu-py3-none-any.whl",
            "https://other.example/demo-1.1%2Bcpu-py3-none-any.whl",
            "",
            "",
            yanked=True,
        ),
        IndexFile("demo-1.1.tar.gz", "https://files.example/a/demo-1.1.tar.gz?signature=1", B),
    ]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://i.example:8443/files/a-1.tar.gz", "https://me:pw@i.example:8443/files/a-1.tar.gz"),
        ("/files/a-1.tar.gz", "https://me:pw@i.example:8443/files/a-1.tar.gz"),
        ("https://i.example/files/a-1.tar.gz", ""),
        ("http://i.example:8443/files/a-1.tar.gz", ""),
        ("https://i.example:8443.other.example/a-1.tar.gz", ""),
        ("https://other:word@i.example:8443/a-1.tar.gz", ""),
    ],
)
def test_files_of_the_same_host_get_the_login_of_the_page(url: str, found: str) -> None:
    """As pip and uv have it; GitLab's index writes absolute addresses."""
    page = "https://me:pw@i.example:8443/simple/a/"
    (file,) = parse_html(f'<a href="{url}">a</a>', page)
    assert file.url == (found or url)
    document = json.dumps({"files": [{"filename": "a-1.tar.gz", "url": url}]}).encode()
    assert [file.url for file in parse_json(document, page)] == [found or url]


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    for file in parse_html(f"<a href='x.whl'>{text}", "https://i.example/"):
        assert file.name


def test_json_and_html_of_a_server() -> None:
    with serve() as server:
        server.files["/html/demo-pkg/"] = f'<a href="/f/demo_pkg-1.0.tar.gz#sha256={A}">x</a>'.encode()
        files = [
            {
                "filename": "demo_pkg-1.1.tar.gz",
                "url": "../../f/demo_pkg-1.1.tar.gz",
                "hashes": {"sha256": B},
                "size": 7,
            }
        ]
        server.files["/json/demo-pkg/"] = json.dumps({"files": files}).encode()
        server.kinds["/json/demo-pkg/"] = "application/vnd.pypi.simple.v1+json"
        places = f"{server.url}/html", f"{server.url}/json", f"{server.url}/none"
        client = index(*places, pool=True)
        both = client.files("Demo_Pkg")
        assert both == [
            IndexFile("demo_pkg-1.0.tar.gz", f"{server.url}/f/demo_pkg-1.0.tar.gz", A),
            IndexFile("demo_pkg-1.1.tar.gz", f"{server.url}/f/demo_pkg-1.1.tar.gz", B, size=7),
        ]
        client.files("demo.pkg")
        assert len(server.asked) == 3  # one answer a project and index
        assert index(*places).files("demo-pkg") == both[:1]  # of the first one that has the name
        assert index(*places[::-1]).files("demo-pkg") == both[1:]


JSON = "application/vnd.pypi.simple.v1+json"
FILE = {"filename": "demo-1.0-py3-none-any.whl", "url": "demo-1.0-py3-none-any.whl", "hashes": {"sha256": A}}


def answered(content: bytes, kind: str = JSON) -> list[IndexFile]:
    with serve() as server:
        server.files["/simple/demo/"] = content
        server.kinds["/simple/demo/"] = kind
        return index(f"{server.url}/simple").files("demo")


@pytest.mark.parametrize(
    "answer",
    [
        b"{",
        b"\xff",
        b"[" * 200_000,
        b'{"files": [{"size": ' + b"9" * 5000 + b"}]}",
        *(json.dumps(value).encode() for value in ([1], 5, "x", {"files": None}, {"files": 5}, {"files": ["x"]})),
        *(
            json.dumps({"files": [{**FILE, **change}]}).encode()
            for change in ({"filename": 5}, {"filename": None}, {"url": 5}, {"url": None}, {"url": "http://[::1"})
        ),
    ],
)
def test_a_malformed_answer_is_an_error_of_the_index(answer: bytes) -> None:
    with pytest.raises(InputError, match="the package index has a malformed answer for 'demo'"):
        answered(answer)


@pytest.mark.parametrize("page", [b"<base href='http://[::1'><a href='x-1.whl'>", b"<a href='http://[bad/x-1.whl'>"])
def test_a_malformed_address_of_a_page_is_an_error_of_the_index(page: bytes) -> None:
    with pytest.raises(InputError, match="has a malformed answer"):
        answered(page, "text/html")
    with serve() as server:
        server.files["/links"] = page
        assert index(links=(f"{server.url}/links",)).files("demo") == []


@pytest.mark.parametrize(
    "change",
    [
        *({"size": size} for size in ("x", True, [1], 1.5, -5, 10**30, None)),
        *({"hashes": hashes} for hashes in ([1], {"sha256": 5}, {"sha256": "zz"}, None)),
        {"requires-python": 5},
    ],
)
def test_values_of_another_type_are_not_known(change: dict[str, object]) -> None:
    (file,) = answered(json.dumps({"files": [{**FILE, **change}]}).encode())
    assert file.size == 0 and file.requires_python == "" and file.sha256 in ("", A)


def test_folders(tmp_path: Path) -> None:
    first = wheel(tmp_path / "files", "demo", "1.0")
    second = wheel(tmp_path / "links", "demo", "1.1")
    sdist(tmp_path / "links", "other", "1.0")
    client = index(simple_index(tmp_path / "simple", [first]), links=(str(tmp_path / "links"),))
    found = client.files("demo")
    assert [(file.name, file.sha256) for file in found] == [
        (first.name, sha256(first.read_bytes())),
        (second.name, ""),
    ]
    assert client.files("absent") == []  # a folder index knows only some projects


def test_index_that_does_not_answer() -> None:
    with pytest.raises(InputError, match="connection refused") as caught:
        index("http://me:secret@127.0.0.1:9/simple").files("demo")
    assert "secret" not in str(caught.value)


@pytest.mark.slow_unit
def test_index_that_fails_once() -> None:
    with serve() as server:
        server.files["/simple/demo/"] = b'<a href="demo-1.0.tar.gz">x</a>'
        server.faults["/simple/demo/"] = [503, "cut:3"]
        assert [file.name for file in index(f"{server.url}/simple").files("demo")] == ["demo-1.0.tar.gz"]


@pytest.mark.parametrize(
    ("file", "name", "version"),
    [
        ("flash_attn-2.8.3.tar.gz", "flash_attn", "2.8.3"),
        ("torch-2.15.0+cu130-cp313-cp313-manylinux_2_28_x86_64.whl", "torch", "2.15.0+cu130"),
        ("nvidia-pyindex-1.0.zip", "nvidia-pyindex", "1.0"),
    ],
)
def test_file_names(file: str, name: str, version: str) -> None:
    assert split_name(file) == (name, version)
    assert is_file_of(file, name.replace("_", "-"))
    assert not is_file_of(file, "other")


@pytest.mark.parametrize("place", ["file:///etc/demo-1.0-py3-none-any.whl", "file:/etc/demo-1.0-py3-none-any.whl"])
def test_a_remote_index_may_not_name_files_of_this_machine(place: str) -> None:
    with serve() as server:
        server.files["/html/demo/"] = server.files["/links"] = f'<a href="{place}">x</a>'.encode()
        listed = [{"filename": "demo-1.0-py3-none-any.whl", "url": place, "hashes": {}}]
        server.files["/json/demo/"] = json.dumps({"files": listed}).encode()
        server.kinds["/json/demo/"] = "application/vnd.pypi.simple.v1+json"
        for found in (
            index(f"{server.url}/html"),
            index(f"{server.url}/json"),
            index(links=(f"{server.url}/links",)),
        ):
            with pytest.raises(InputError, match="only an index on this machine"):
                found.files("demo")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<![<!", "not HTML"),
        ("<a " + "b" * (1 << 20), "a tag of more than 512 KiB"),
        ("<" * 3_000_000, "takes more than 1 s"),
        ('<a href="x.whl"></a>' * 20, "more than 10 links"),
    ],
)
def test_a_page_that_takes_too_much_is_refused(text: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_index, "PARSE_SECONDS", 1)
    monkeypatch.setattr(python_index, "MAX_LINKS", 10)
    with ends_within(60), pytest.raises(ValueError, match=why):
        list(python_index.parse_html(text, "http://x.example/"))


@pytest.mark.parametrize(
    "name",
    [
        "demo-1-" + "-".join(".".join(f"{kind}{number}" for number in range(12)) for kind in "pax") + ".whl",
        "demo-1-py3-none-any." + "a" * 255 + ".whl",
        f"demo-{'9' * 5000}.tar.gz",
    ],
    ids=["tags", "long", "digits"],
)
def test_a_file_name_that_no_file_has_is_not_listed(name: str) -> None:
    """`packaging` makes each combination of a wheel's tags: some kB of a page took all memory."""
    page = f'<a href="{name}">x</a><a href="demo-1.0-cp311.cp312-abi3.none-linux_x86_64.any.whl">x</a>'
    assert [file.name for file in parse_html(page, "https://i.example/")] == [
        "demo-1.0-cp311.cp312-abi3.none-linux_x86_64.any.whl"
    ]


OTHER = 61001


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of another user")
@pytest.mark.parametrize(
    ("links", "path", "content"),
    [
        ({}, "real", "content"),
        ({"own": ("private/key", 0)}, "own", "password"),
        ({"out": ("private/key", OTHER)}, "out", None),
        ({"in": ("theirs", OTHER)}, "in", "of another user"),
        ({"in": ("real", OTHER)}, "in", None),  # of this user: it could as well be elsewhere
        ({"d": ("private", OTHER)}, "d/key", None),
        ({"own": ("out", 0), "out": ("private/key", OTHER)}, "own", None),
        ({"a": ("b", 0), "b": ("d/key", 0), "d": ("private", OTHER)}, "a", None),
    ],
    ids=str,
)
def test_a_link_of_another_user_leads_to_no_private_file(
    tmp_path: Path, links: dict[str, tuple[str, int]], path: str, content: str | None
) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    for name, text in (("private/key", "password"), ("real", "content"), ("theirs", "of another user")):
        (tmp_path / name).write_text(text)
    os.chown(tmp_path / "theirs", OTHER, -1)
    for name, (target, owner) in links.items():
        (tmp_path / name).symlink_to(target)
        os.chown(tmp_path / name, owner, -1, follow_symlinks=False)
    transport = Transport(Site(Path("/none")).network())
    if content is None:
        with pytest.raises(RefusedError, match="a link of another user"):
            transport.read(str(tmp_path / path))
        return
    assert transport.read(str(tmp_path / path)).content.decode() == content


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
@pytest.mark.parametrize(
    ("folder_mode", "owner", "mode", "group", "read"),
    [
        (0o2775, 0, 0o644, 0, True),  # others read it where it was, too
        (0o2775, 0, 0o600, 0, False),
        (0o2775, 0, 0o640, 0, False),
        (0o2775, 0, 0o640, OTHER, True),  # as a folder with the setgid bit makes it
        (0o2777, 0, 0o640, OTHER, False),
        (0o1777, 0, 0o600, 0, False),  # in a sticky folder one can put what is not there yet
        (0o755, 0, 0o600, 0, True),
        (0o775, OTHER, 0o600, 0, False),
    ],
)
def test_a_private_file_that_another_user_can_have_moved_is_not_read(
    tmp_path: Path, folder_mode: int, owner: int, mode: int, group: int, read: bool
) -> None:
    folder = tmp_path / "mirror"
    folder.mkdir()
    os.chown(folder, owner, OTHER)
    folder.chmod(folder_mode)
    file = folder / "tool.tar.gz"
    file.write_text("password")
    os.chown(file, 0, group)
    file.chmod(mode)
    transport = Transport(Site(Path("/none")).network())
    if read:
        assert transport.open(file).read() == b"password"
    else:
        with pytest.raises(RefusedError, match=r"mirror .*others cannot read the file: .* chmod go"):
            transport.open(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user need root")
@pytest.mark.parametrize("href", ["file://{private}", "../../../private/{name}", "{mirror}/../private/{name}"])
@pytest.mark.parametrize("by_links", [False, True])
def test_a_page_of_another_user_names_no_file_of_the_caller(tmp_path: Path, href: str, by_links: bool) -> None:
    """Its content would get into the store, where others read it."""
    name = "demo-1.0-py3-none-any.whl"
    folder = tmp_path / "mirror/simple/demo"
    folder.mkdir(parents=True)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / name).write_bytes(b"x")
    place = href.format(private=tmp_path / "private" / name, name=name, mirror=tmp_path / "mirror")
    (folder / "index.html").write_text(f'<a href="{place}">x</a>')
    page, listed = f"file://{folder}/index.html", f"file://{folder.parent}"

    def files() -> list[IndexFile]:
        return (index(links=(page,)) if by_links else index(listed)).files("demo")

    assert [file.name for file in files()] == [name]  # all is the caller's
    for foreign in (tmp_path / "mirror", folder, folder / "index.html"):
        os.chown(foreign, 4711, -1)
        with pytest.raises(InputError, match="another user may write that page, and the file is not that user's"):
            files()
        os.chown(foreign, 0, -1)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user need root")
def test_a_page_of_another_user_with_an_impossible_path_is_named(tmp_path: Path) -> None:
    """Such a path ended the command with a message that did not name the page."""
    folder = tmp_path / "simple/demo"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(f'<a href="file:///{"a" * 300}/demo-1.0-py3-none-any.whl">x</a>')
    os.chown(folder, 4711, -1)
    with pytest.raises(InputError, match="the file is not that user's") as caught:
        index(f"file://{tmp_path}/simple").files("demo")
    assert str(folder) in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user need root")
def test_a_page_of_another_user_names_files_below_it_and_of_that_user(tmp_path: Path) -> None:
    folder, packages = tmp_path / "simple/demo", tmp_path / "packages"
    for made in (folder, packages):
        made.mkdir(parents=True)
    for file in (folder / "demo-1.0-py3-none-any.whl", packages / "demo-1.1-py3-none-any.whl"):
        file.write_bytes(b"x")
    (folder / "index.html").write_text(
        '<a href="demo-1.0-py3-none-any.whl">x</a><a href="../../packages/demo-1.1-py3-none-any.whl">x</a>'
    )
    for path in (folder / "index.html", packages / "demo-1.1-py3-none-any.whl"):
        os.chown(path, 4711, -1)
    assert len(index(f"file://{tmp_path}/simple").files("demo")) == 2


def test_the_pythons_of_a_file_have_a_limit() -> None:
    """`packaging` needed minutes and gigabytes for a page of some kB, compressed."""
    long = ">=3," * 200
    (file,) = answered(json.dumps({"files": [{**FILE, "requires-python": long}]}).encode())
    assert file.requires_python == ""
    (file,) = parse_html(f'<a href="a-1.tar.gz" data-requires-python="{long}">x</a>', "https://i.example/")
    assert file.requires_python == ""


def test_pages_are_read_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The links of one page may take a gigabyte."""
    names = [f"demo{number}" for number in range(4)]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(f'<a href="{name}-1.0.tar.gz">x</a>')
    running, most = [], []

    def parse(text: str, page: str) -> Iterator[IndexFile]:
        running.append(page)
        most.append(len(running))
        time.sleep(0.05)
        yield from parse_html(text, page)
        running.remove(page)

    monkeypatch.setattr(python_index, "parse_html", parse)
    listing = index(f"file://{tmp_path}")
    with ThreadPoolExecutor(len(names)) as pool:
        assert [len(files) for files in pool.map(listing.files, names)] == [1] * len(names)
    assert most == [1] * len(names)


class OnePage(Transport):
    """Answers every request with one page over https."""

    def read(self, url: str, accept: str = "", **_: object) -> Page:
        return Page(url, f'<a href="http://files.example/demo-1.0-py3-none-any.whl#sha256={A}">x</a>'.encode())


def test_files_that_are_read_in_parts_are_not_taken_over_http() -> None:
    """Without a comparison of its digest, any machine on the way could change such a file."""
    site = Site(Path("/none"), mirrors={"python:": ()}, use_host=False)
    indexes = PythonIndexes(("https://index.example/simple",))
    assert [file.sha256 for file in PackageIndex(OnePage(site.network()), indexes).files("demo")] == [A]
    with pytest.raises(InputError, match="may name a file without https only with its sha256"):
        PackageIndex(OnePage(site.network()), indexes, in_parts=True).files("demo")
