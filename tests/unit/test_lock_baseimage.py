"""Base images: references, manifests, where logins go, and layers from anybody applied to a tree."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from docker.auth import INDEX_URL
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import Handler, serving

sys.path.insert(0, str(Path(__file__).parents[1] / "registry"))

import registrykit as kit
from registrykit import file, folder, hardlink, special, symlink, tar

from envbuild.console import Quiet
from envbuild.errors import ConflictError, InputError, SpecError
from envbuild.lock.baseimage import lock_base
from envbuild.lock.basetree import Tree, seen
from envbuild.lock.transfer import Transfer
from envbuild.lock.transport import Refused, Transport
from envbuild.oci import manifest
from envbuild.oci.apply import apply_layers
from envbuild.oci.config import seconds
from envbuild.oci.credentials import Credential, credential
from envbuild.oci.login import Login, challenges
from envbuild.oci.reference import host, parse
from envbuild.oci.registry import Address, Repository
from envbuild.site import Site
from envbuild.store import Store

pytestmark = pytest.mark.unit
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
DIGEST = "a" * 64


# references
@pytest.mark.parametrize(
    ("text", "registry", "repository", "wanted"),
    [
        ("nvcr.io/nvidia/pytorch:25.10-py3", "nvcr.io", "nvidia/pytorch", "25.10-py3"),
        ("docker.io/debian", "docker.io", "library/debian", "latest"),
        ("docker.io/nvidia/cuda:12", "docker.io", "nvidia/cuda", "12"),
        ("localhost:5000/a__b/c-d.e", "localhost:5000", "a__b/c-d.e", "latest"),
        (f"x.io/y:1@sha256:{DIGEST}", "x.io", "y", f"sha256:{DIGEST}"),
        (f"x.io/y@sha256:{DIGEST}", "x.io", "y", f"sha256:{DIGEST}"),
    ],
)
def test_references(text: str, registry: str, repository: str, wanted: str) -> None:
    found = parse(text)
    assert (found.registry, found.repository, found.wanted) == (registry, repository, wanted)
    assert found.origin == f"oci:{registry}/{repository}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "debian",
        "x.io/",
        "x.io/A",
        "x.io/a:",
        "x.io/a/../b",
        "x.io/a:t/b",
        "x.io/a@sha256:1",
        "x.io/a b",
        "x.io/a\n",
    ],
)
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(SpecError, match="is not the reference of an image"):
        parse(text)


# manifests
def layer(**changes: Any) -> dict[str, Any]:
    return {"mediaType": f"{kit.LAYER}+gzip", "digest": f"sha256:{DIGEST}", "size": 1, **changes}


def test_layers_that_cannot_be_had_or_unpacked() -> None:
    foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
    nowhere = f"{kit.LAYER.replace('layer', 'layer.nondistributable')}+gzip"
    layers = [layer(), layer(mediaType=foreign), layer(mediaType=nowhere), layer(urls=["x"]), layer(mediaType="a/b")]
    with pytest.raises(InputError) as caught:
        manifest.image({"config": layer(), "layers": layers}, "x.io/y:1")
    assert [finding.message for finding in caught.value.findings] == [
        "layer 2 of x.io/y:1 lies outside of the registry (a foreign layer)",
        "layer 3 of x.io/y:1 lies outside of the registry (a foreign layer)",
        "layer 4 of x.io/y:1 lies outside of the registry (a foreign layer)",
        "layer 5 of x.io/y:1 is of the kind 'a/b', which envbuild does not unpack",
    ]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"config": layer()},
        {"config": layer(digest="sha512:1"), "layers": []},
        {"config": layer(), "layers": [layer(digest=f"sha256:{'A' * 64}")]},
        {"config": layer(), "layers": [layer(size="1")]},
        {"config": layer(), "layers": [1]},
        {"config": [], "layers": []},
    ],
)
def test_damaged_manifests(value: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"the manifest of x\.io/y:1 is damaged"):
        manifest.image(value, "x.io/y:1")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_documents_that_are_none(content: bytes) -> None:
    with pytest.raises(InputError, match="is damaged"):
        manifest.document(content, "x.io/y:1")


def test_schema_1_is_refused() -> None:
    content = json.dumps({"schemaVersion": 1, "name": "y", "fsLayers": [], "history": []}).encode()
    with pytest.raises(InputError, match="Docker's manifest schema 1") as caught:
        manifest.document(content, "x.io/y:1")
    assert "docker push" in caught.value.hint


def test_an_index_without_the_architecture() -> None:
    images = [{**layer(), "platform": {"os": system, "architecture": "amd64"}} for system in ("linux", "windows")]
    with pytest.raises(ConflictError, match="because it is made for linux/amd64, windows/amd64"):
        manifest.choose({"manifests": images}, "x.io/y:1", "arm64")
    assert manifest.choose({"manifests": images[::-1]}, "x.io/y:1", "amd64") == DIGEST


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2025-10-01T00:00:00Z", 1759276800),
        ("2025-10-01T02:00:00.123456789+02:00", 1759276800),
        ("", 0),
        ("x", 0),
        ("0001-01-01T00:00:00Z", 0),
    ],
)
def test_times(text: str, found: int) -> None:
    assert seconds(text) == found


# logins
def test_challenges() -> None:
    text = 'Bearer realm="https://a.example/token",service="b c",scope="repository:x/y:pull,push", Basic realm="z"'
    assert challenges(text) == {
        "bearer": {"realm": "https://a.example/token", "service": "b c", "scope": "repository:x/y:pull,push"},
        "basic": {"realm": "z"},
    }
    assert challenges("basic realm=x") == {"basic": {"realm": "x"}}
    assert challenges("Negotiate") == {}


def test_a_login_does_not_show_itself() -> None:
    assert "secret" not in repr(Credential("secret-user", "secret", "secret-token", "config.json"))


def test_whose_login_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The login of a registry is listed under one host of its domain and used at another (docker.io's is), and nowhere
    else."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    auths = {"https://index.reg.example/v1/": {"auth": "dTpw"}, "plain.example": {"username": "v", "password": "q"}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    for asked, registry in (("index.reg.example", ""), ("api.reg.example", "reg.example")):
        found = credential(asked, registry)
        assert found and (found.user, found.password) == ("u", "p")
    assert (found := credential("plain.example")) and found.password == "q"
    for asked, registry in (
        ("mirror.example", "reg.example"),
        ("evilreg.example", "reg.example"),
        ("reg.example:5000", ""),
    ):
        assert credential(asked, registry) is None


def test_docker_io_is_asked_where_dockers_own_login_for_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"auths": {INDEX_URL: {"auth": "dTpw"}}}))
    site = Site(tmp_path)
    (place,) = Repository(parse("docker.io/debian:13"), site, Transport(site)).places
    assert isinstance(place, Address) and place.repository == "library/debian"
    name = place.url.removeprefix("https://")
    assert name == host("docker.io") != "docker.io"
    found = credential(name, "docker.io")
    assert found and found.user == "u"
    closed = Site(tmp_path, use_host=False)
    with pytest.raises(InputError, match=r"no place is known for oci:docker\.io/library/debian"):
        _ = Repository(parse("docker.io/debian:13"), closed, Transport(closed)).places


def test_no_login_goes_over_plain_http(tmp_path: Path) -> None:
    """A registry with https that names a token service without it."""
    login = Login(Transport(Site(tmp_path)), "x.io")
    with pytest.raises(Refused, match="without https"):
        login.token(
            "x.io", Credential("u", "p"), {"realm": "http://127.0.0.1:9/token"}, "https://x.io/v2/y/manifests/1"
        )


class Fake:
    """A server that answers by path: (status, headers, body). `seen`: path and Authorization of every request."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, str]] = []
        self.wants = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        fake = self

        class Answering(Handler):
            def do_GET(self) -> None:
                login = self.headers.get("Authorization", "")
                fake.seen.append((self.path, login))
                status, headers, body = fake.answers.get(self.path, (404, {}, b""))
                if fake.wants and login != fake.wants:
                    status, headers, body = 401, {"WWW-Authenticate": 'Basic realm="x"'}, b""
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        with serving(Answering) as url:
            yield url.removeprefix("http://")


def test_a_login_stays_with_its_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries send their readers to other hosts for blobs; one that asks for a login there gets none."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    registry, elsewhere = Fake(), Fake()
    elsewhere.wants = "Basic anything"
    login = Credential("u", "p").basic
    registry.wants = login
    content = json.dumps({"schemaVersion": 2, "config": layer(), "layers": []}).encode()
    with registry.running() as here, elsewhere.running() as there:
        auths = {host: {"auth": login.removeprefix("Basic ")} for host in (here, there)}
        (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
        registry.answers["/v2/y/manifests/1"] = (200, {}, content)
        blob = f"/v2/y/blobs/sha256:{DIGEST}"
        registry.answers[blob] = (307, {"Location": f"http://{there}/blob"}, b"")
        site = Site(tmp_path / "store", mirrors={"oci:x.io/": (f"http://{here}",)})
        with pytest.raises(InputError, match="HTTP 401"):
            lock(site, "x.io/y:1")
    assert elsewhere.seen == [("/blob", "")]
    assert registry.seen == [
        ("/v2/y/manifests/1", ""),
        ("/v2/y/manifests/1", login),
        (blob, login),
    ]


def test_schema_1_from_a_registry(tmp_path: Path) -> None:
    registry = Fake()
    registry.answers["/v2/y/manifests/1"] = (200, {}, b'{"schemaVersion": 1}')
    with registry.running() as here, pytest.raises(InputError, match="schema 1"):
        lock(Site(tmp_path / "store", mirrors={"oci:x.io/": (f"http://{here}",)}), "x.io/y:1")


def lock(site: Site, reference: str) -> None:
    store = Store.open(site.store)
    transport = Transport(site)
    transfer = Transfer(transport, store, pause=0.01)
    lock_base(
        reference, "amd64", site, transport, transfer, store, Quiet(),
        previous=None, distribution="debian:13", python="3.13",
    )  # fmt: skip


# layers
def applied(tmp_path: Path, *layers: bytes) -> Path:
    """The tree on disk that layers make."""
    tree = tmp_path / "tree"
    tree.mkdir()
    paths = []
    for number, content in enumerate(layers):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(content)
        paths.append(path)
    apply_layers(paths, tree)
    return tree


def listed(tree: Path) -> dict[str, str]:
    """Path → kind and content, without times and owners."""
    found = {}
    for place, folders, names in os.walk(os.fsencode(tree)):
        for name in [*folders, *names]:
            full = place + b"/" + name
            mode = os.lstat(full).st_mode
            what = (
                "dir"
                if stat.S_ISDIR(mode)
                else f"-> {Path(os.fsdecode(full)).readlink()}"
                if stat.S_ISLNK(mode)
                else "file"
            )
            found[os.fsdecode(os.path.relpath(full, os.fsencode(tree)))] = what
    return found


def remembered(*layers: bytes) -> dict[str, str]:
    """The same of the tree in memory."""
    tree = Tree()
    for content in layers:
        tree.written = {b""}
        tree.apply(io.BytesIO(content))
    found = {}

    def walk(node: dict[str, Any], above: str) -> None:
        for name, child in node.items():
            what = "dir" if isinstance(child, dict) else f"-> {child}" if isinstance(child, str) else "file"
            found[above + name] = what
            if isinstance(child, dict):
                walk(child, f"{above}{name}/")

    walk(tree.root, "")
    return found


@as_root
def test_whiteouts_and_opaque_folders(tmp_path: Path) -> None:
    first = tar(folder("a"), file("a/one"), file("a/two"), folder("a/sub"), file("a/sub/old"), file("b/x"), file("c"))
    # Marks say nothing about what comes in the same layer, before or after them.
    second = tar(
        file("a/sub/new"), file("a/.wh..wh..opq"), file("a/three"), file(".wh.c"), file("c"), file("b/y"), file(".wh.b")
    )
    tree = applied(tmp_path, first, second)
    expected = {
        "a": "dir",
        "a/sub": "dir",
        "a/sub/new": "file",
        "a/three": "file",
        "b": "dir",
        "b/y": "file",
        "c": "file",
    }
    assert listed(tree) == expected == remembered(first, second)
    assert not any(stat.S_ISCHR(path.lstat().st_mode) for path in tree.rglob("*"))
    assert os.listxattr(tree / "a") == []


@as_root
def test_attributes(tmp_path: Path) -> None:
    odd = file("odd", b"x", 0o4711, 7)
    odd[0].pax_headers = {
        "SCHILY.xattr.user.note": "n",
        "SCHILY.xattr.user.overlay.opaque": "y",
        "SCHILY.xattr.trusted.x": "y",
    }
    later = folder("a")
    later[0].mtime = kit.EPOCH + 5
    tree = applied(
        tmp_path,
        tar(
            folder("a", 0o750), file("a/one"), odd, special("null", tarfile.CHRTYPE), special("fifo", tarfile.FIFOTYPE)
        ),
        tar(file("a/two"), hardlink("a/three", "a/one"), file("implied/x")),
        tar(file("a/two", b"other")),
    )
    assert stat.S_IMODE((tree / "a").stat().st_mode) == 0o750
    assert (tree / "a").stat().st_mtime == kit.EPOCH, "files that come and go do not change the time of their folder"
    assert (tree / "implied").stat().st_mtime == 0
    assert (tree / "a/one").stat().st_nlink == 2 and (tree / "a/two").stat().st_nlink == 1
    status = (tree / "odd").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o4711, 7, 7)
    assert os.listxattr(tree / "odd") == ["user.note"]
    assert not (tree / "null").exists() and (tree / "fifo").is_fifo()


@as_root
def test_links_to_folders_are_followed_inside(tmp_path: Path) -> None:
    """An absolute link, and one with more ``..`` than there are folders, end in the tree."""
    first = tar(
        folder("usr/lib"), symlink("lib", "usr/lib"), symlink("abs", "/usr"), symlink("up", "../../../../usr/new")
    )
    second = tar(file("lib/x/one"), file("abs/two"), file("up/three"), file("abs/lib/x/.wh.gone"))
    tree = applied(tmp_path, first, second)
    assert listed(tree) == remembered(first, second)
    assert {name for name, what in listed(tree).items() if what == "file"} == {
        "usr/lib/x/one",
        "usr/two",
        "usr/new/three",
    }
    assert (tree / "lib").is_symlink()


ESCAPES = {
    "a path": [file("../out")],
    "a path in the middle": [file("a/../../out")],
    "a whiteout of the folder above": [file("a/.wh...")],
    "a whiteout of the folder itself": [folder("a"), file("a/.wh..")],
    "a whiteout without a name": [folder("a"), file("a/.wh.")],
    "below a whiteout": [file(".wh.a/x")],
    "a hard link by a path": [hardlink("x", "../secret")],
    "a file as a folder": [file("a"), file("a/b")],
    "links in a circle": [symlink("a", "b"), symlink("b", "a"), file("a/x")],
    "links that double": [
        symlink("a0", "."), *(symlink(f"a{n}", f"a{n - 1}/a{n - 1}") for n in range(1, 40)), file("a39/x"),
    ],
    "a hard link to nothing": [hardlink("x", "nothing")],
}  # fmt: skip


@as_root
@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_leaves_the_tree(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(InputError):
        applied(tmp_path, tar(*ESCAPES[name]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.tar", "secret", "tree"]
    assert not any(path.is_file() and path.read_bytes() == b"secret" for path in (tmp_path / "tree").rglob("*"))


@as_root
@pytest.mark.parametrize(
    "entries",
    [
        [symlink("x", "{out}"), hardlink("y", "x/secret")],
        [symlink("x", "{out}/secret"), file("x", b"new")],
        [symlink("x", "{out}"), folder("x"), file("x/new")],
        [symlink("x", "{out}"), file("x/secret", b"new")],
        [symlink("x", "{out}"), file("x/.wh.secret")],
        [symlink("x", "{out}"), file("x/.wh..wh..opq")],
        [symlink("x", "{out}/secret"), hardlink("y", "x"), file("y", b"new")],
        [symlink("x", "{out}/secret"), hardlink("y", "x"), special("y", tarfile.FIFOTYPE)],
    ],
)
def test_what_is_outside_stays_as_it_is(tmp_path: Path, entries: Sequence[tuple[tarfile.TarInfo, bytes]]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "secret").write_text("secret")
    (out / "secret").chmod(0o600)
    for info, _ in entries:
        info.linkname = info.linkname.replace("{out}", str(out))
    with contextlib.suppress(InputError):
        applied(tmp_path, tar(*entries))
    assert [path.name for path in out.iterdir()] == ["secret"]
    status = (out / "secret").stat()
    assert (out / "secret").read_text() == "secret" and status.st_nlink == 1 and stat.S_IMODE(status.st_mode) == 0o600


NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
MARKS = st.sampled_from([".wh.a", ".wh.b", ".wh..wh..opq", ".wh..wh.plnk"])
TARGETS = st.sampled_from(["a", "b", "../b", "/c", "/a/b", "../../..", "nowhere/x"])
ENTRIES = st.one_of(
    NAMES.map(file),
    NAMES.map(folder),
    st.builds(lambda above, mark: file(f"{above}/{mark}"), NAMES, MARKS),
    MARKS.map(file),
    st.builds(symlink, NAMES, TARGETS),
    st.builds(hardlink, NAMES, NAMES),
)


@as_root
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(ENTRIES, max_size=8), min_size=1, max_size=4))
def test_the_lock_sees_what_the_build_unpacks(
    tmp_path: Path, layers: list[list[tuple[tarfile.TarInfo, bytes]]]
) -> None:
    """The tree in memory is the tree on disk; what one refuses the other does."""
    import tempfile

    contents = [tar(*entries) for entries in layers]
    with tempfile.TemporaryDirectory(dir=tmp_path) as work:
        try:
            on_disk: object = listed(applied(Path(work), *contents))
        except InputError:
            on_disk = "refused"
    try:
        in_memory: object = remembered(*contents)
    except InputError:
        in_memory = "refused"
    assert on_disk == in_memory


# damage
def test_layers_that_end_too_early(tmp_path: Path) -> None:
    whole = tar(*(file(f"file{number}", b"content" * 100) for number in range(20)))
    for name, content in (
        ("cut in a file", whole[:5000]),
        ("cut in a header", whole[: 1536 * 3 + 100]),
        ("no header", whole[: 1536 * 3] + b"x" * 1024),
        ("no tar", b"hello" * 1000),
        ("cut gzip", kit.gzip.compress(whole)[:-200]),
        ("no gzip", b"\x1f\x8b\x08\x00" + b"x" * 1000),
        ("cut zstd", kit.zstandard.compress(whole)[:-50]),
        ("no zstd", b"\x28\xb5\x2f\xfd" + b"x" * 1000),
        ("gzip and more", kit.gzip.compress(whole) + b"more"),
    ):
        store = Store.open(tmp_path / name.replace(" ", "-"))
        sha256 = kit.sha256(content)
        store.blob(sha256).write_bytes(content)
        with pytest.raises(InputError, match=r"^layer 1 of the base image ") as caught:
            seen("0" * 64, [sha256], store, Quiet())
        assert "cannot be unpacked: " in caught.value.message, name
    for content in (b"", tar(), whole.rstrip(b"\0") if not whole.rstrip(b"\0")[-1:] else whole[:-1024]):
        store = Store.open(tmp_path / f"good{len(content)}")
        sha256 = kit.sha256(content)
        store.blob(sha256).write_bytes(content)
        seen("0" * 64, [sha256], store, Quiet())
