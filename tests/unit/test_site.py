"""Sites: what a person writes, and what the host's apt and pip already say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.errors import InputError, SpecError
from envbuild.lock import host
from envbuild.site import KINDS, Site, engines, load_site, read_site, store_folder

pytestmark = pytest.mark.unit


def write(folder: Path, text: str) -> Path:
    path = folder / "site.yaml"
    path.write_text(text)
    return path


def test_everything_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENVBUILD_STORE", raising=False)
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    (tmp_path / "ca.pem").touch()
    site = read_site(
        write(
            tmp_path,
            """
schema: 1
engine: embedded
store: $SCRATCH/envbuild
mirrors:
  debian: [http://archive.example/debian, mirror/debian]
  python: http://index.example/simple
  github:openucx/: [/shared/sources]
ca_bundle: ca.pem
proxy: http://proxy.example:3128
insecure_hosts: [index.example]
apt: {"Acquire::Check-Valid-Until": "false"}
registry: registry.example/images
images: /shared/images
partition: gpu
mounts: ["/data:/data:ro"]
upstream: false
keyrings: {ubuntu: ca.pem, "apt:nvidia-cuda": ca.pem}
""",
        )
    )
    assert site == Site(
        store=Path("/scratch/me/envbuild"),
        engine="embedded",
        mirrors={
            "debian:": ("http://archive.example/debian", str(tmp_path / "mirror/debian")),
            "python:": ("http://index.example/simple",),
            "github:openucx/": ("/shared/sources",),
        },
        ca_bundle=tmp_path / "ca.pem",
        proxy="http://proxy.example:3128",
        insecure_hosts=("index.example",),
        apt={"Acquire::Check-Valid-Until": "false"},
        registry="registry.example/images",
        images="/shared/images",
        partition="gpu",
        mounts=("/data:/data:ro",),
        use_host=False,
        where=str(tmp_path / "site.yaml"),
        keyrings={"ubuntu:": tmp_path / "ca.pem", "apt:nvidia-cuda": tmp_path / "ca.pem"},
    )


def test_every_mistake_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_site(
            write(tmp_path, "schema: 1\nengin: auto\nengine: dokcer\nmirrors:\n  Debian x: [a]\nca_bundle: none.pem\n")
        )
    told = [
        (finding.where.rsplit("site.yaml:", 1)[-1], finding.message, finding.hint) for finding in caught.value.findings
    ]
    assert told[0] == ("2:1", "unknown key 'engin' for a site", "did you mean 'engine'?")
    assert told[1] == ("3:9", "'engine' cannot be 'dokcer'", "it is one of: auto, buildah, embedded")
    assert told[2][:2] == ("5:3", "'Debian x' is not a prefix of origins")
    assert told[3][0] == "6:12" and "there is no" in told[3][1]
    assert len(told) == 4


def test_project_before_user_before_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    project, user = tmp_path / "project", tmp_path / "config/envbuild"
    for folder in (project, user):
        folder.mkdir(parents=True)
    assert load_site(project) == Site(store=tmp_path / "store")
    write(user, "schema: 1\nengine: embedded\n")
    assert load_site(project).engine == "embedded"
    write(project, "schema: 1\nengine: buildah\n")
    assert load_site(project).engine == "buildah"
    assert load_site(None).engine == "embedded"


def test_the_engines_are_those_that_there_are() -> None:
    from envbuild.engines.choose import available

    assert set(engines()) == set(available())
    program = (
        "import sys; from envbuild.site import engines; engines(); print('envbuild.engines.buildah' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("mirrors", "place", "message", "hint"),
    [
        ('{"debain:": [/x]}', "2:11", "'debain:' begins no origin", "did you mean 'debian'?"),
        ("{pyton: [/x]}", "2:11", "'pyton' begins no origin", "did you mean 'python'?"),
        (
            '{"https://git.example/": [/x]}',
            "2:11",
            "'https://git.example/' begins no origin",
            "origins begin with one of: apt, debian, debian-security, file, git, github, gitlab, mirror, oci, pip, "
            "python, ubuntu, vendor",
        ),
        (
            '{"python:torch": [/x]}',
            "2:11",
            "'python:torch': the indexes of Python packages are the same for all",
            "write python: [ADDRESS, …]; a vendor's own index is  pip:NAME: [ADDRESS, …]",
        ),
        (
            '{debian: [/x, "ftp://a.example/debian"]}',
            "2:24",
            "'debian': 'ftp://a.example/debian' is not an address that can be read",
            "write https://…, http://…, file://… or a folder",
        ),
        (
            '{debian: "http:/a.example/debian"}',
            "2:19",
            "'debian': 'http:/a.example/debian' is not an address that can be read",
            "write https://…, http://…, file://… or a folder",
        ),
        ('{debian: [/x], "debian:": [/y]}', "2:25", "'debian:' has mirrors already", "put all of them into one list"),
    ],
)
def test_mirrors_that_would_never_be_asked(tmp_path: Path, mirrors: str, place: str, message: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_site(write(tmp_path, f"schema: 1\nmirrors: {mirrors}\n"))
    found = [(item.where.rsplit("site.yaml:", 1)[1], item.message, item.hint) for item in caught.value.findings]
    assert found == [(place, message, hint)]


def test_every_kind_of_origin_may_have_mirrors(tmp_path: Path) -> None:
    lines = "".join(f"  {kind}: [/x]\n" for kind in KINDS)
    site = read_site(
        write(tmp_path, f"schema: 1\nmirrors:\n{lines}  gitlab:group/: ['file:///y', 'http://z.example']\n")
    )
    assert set(site.mirrors) == {*(f"{kind}:" for kind in KINDS), "gitlab:group/"}
    assert site.mirrors["gitlab:group/"] == ("file:///y", "http://z.example")


def test_store_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENVBUILD_STORE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert store_folder(None) == Path("/cache/envbuild")
    assert store_folder("/from/site") == Path("/from/site")
    monkeypatch.setenv("ENVBUILD_STORE", "/from/variable")
    assert store_folder("/from/site") == Path("/from/variable")
    monkeypatch.delenv("ENVBUILD_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    monkeypatch.setenv("HOME", "/home/me")
    assert store_folder(None) == Path("/home/me/.cache/envbuild")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in many a container: only where nobody says where the store is, a home is needed."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path))
    assert load_site(None).store == tmp_path
    monkeypatch.delenv("ENVBUILD_STORE")
    with pytest.raises(InputError, match="no home") as caught:
        load_site(None)
    assert "ENVBUILD_STORE" in caught.value.hint


def test_longest_prefix_wins() -> None:
    site = Site(Path("/s"), mirrors={"github:": ("/all",), "github:openucx/": ("/ucx",)}, use_host=False)
    assert site.places("github:openucx/ucx@v1") == ("ucx@v1", ("/ucx",))
    assert site.places("github:nvidia/nccl@v2") == ("nvidia/nccl@v2", ("/all",))
    assert site.places("file:x") == ("x", ())


@pytest.mark.parametrize(
    ("origin", "rest"),
    [
        ("github:openucx/ucx", ""),
        ("github:openucx/ucx@v1.20.1", "@v1.20.1"),
        ("github:openucx/ucx/sub", "sub"),
        ("github:openucx/ucx-extra", None),
        ("github:openucx/ucx2@v1", None),
    ],
)
def test_prefix_ends_where_a_name_does(origin: str, rest: str | None) -> None:
    site = Site(Path("/s"), mirrors={"github:openucx/ucx": ("/mirrors/ucx.git",)}, use_host=False)
    everything = origin.partition(":")[2]
    assert site.places(origin) == ((everything, ()) if rest is None else (rest, ("/mirrors/ucx.git",)))


def test_default_places_are_used_unless_the_site_turns_them_off(tmp_path: Path) -> None:
    assert Site(Path("/s")).roots("github:openucx/ucx") == ("https://github.com/openucx/ucx",)
    own = Site(Path("/s"), mirrors={"github:openucx/": ("/srv/git",)})
    assert own.roots("github:openucx/ucx") == ("/srv/git/ucx",)
    assert own.roots("github:NVIDIA/nccl") == ("https://github.com/NVIDIA/nccl",)
    gapped = read_site(write(tmp_path, "schema: 1\nupstream: false\nmirrors: {python: [/wheels]}\n"))
    assert gapped.roots("gitlab:group/project") == ()
    assert gapped.places("debian:trixie/main")[1] == () == gapped.places("debian-security:trixie-security/main")[1]
    assert gapped.python().indexes == ()
    assert gapped.python().links == ("/wheels",)
    with pytest.raises(SpecError, match="'upstream' must be true or false"):
        read_site(write(tmp_path, "schema: 1\nupstream: never\n"))


def test_roots_of_every_kind() -> None:
    mirrors = {
        "debian:": ("/debian",),
        "ubuntu:": ("http://m.example/ubuntu", "/ubuntu"),
        "apt:": ("http://m.example/apt/",),
        "apt:nvidia-cuda": ("/cuda",),
        "pip:": ("http://m.example/pip", "/pip"),
        "oci:nvcr.io/": ("http://registry.example:5000",),
    }
    site = Site(Path("/s"), mirrors=mirrors, use_host=False)
    assert site.roots("debian:trixie/main") == ("/debian",)
    assert site.roots("ubuntu:jammy/universe") == ("http://m.example/ubuntu", "/ubuntu")
    assert site.roots("apt:nvidia-cuda/ubuntu2204") == ("/cuda/ubuntu2204",)
    assert site.roots("apt:nvidia-cuda") == ("/cuda",)
    assert site.roots("apt:aws-neuron") == ("http://m.example/apt/aws-neuron",)
    assert site.roots("oci:nvcr.io/nvidia/pytorch") == ("http://registry.example:5000/nvidia/pytorch",)
    found = site.python("pip:pytorch/cu113")
    assert (found.indexes, found.links) == (("http://m.example/pip/pytorch/cu113",), ("/pip/pytorch/cu113",))


def test_keys_by_prefix() -> None:
    keys = {"ubuntu:": Path("/u"), "apt:nvidia-cuda": Path("/n")}
    site = Site(Path("/s"), keyrings=keys, debian_keyring=Path("/d"))
    assert site.keyring("ubuntu:noble/main") == Path("/u")
    assert site.keyring("apt:nvidia-cuda/ubuntu2204") == Path("/n")
    assert site.keyring("apt:nvidia-cuda-extra") is None
    assert site.keyring("debian-security:trixie-security/main") == Path("/d") == site.keyring("debian:trixie/main")
    newer = Site(Path("/s"), keyrings={"debian:": Path("/k")}, debian_keyring=Path("/d"))
    assert newer.keyring("debian:trixie/main") == Path("/k")
    assert Site(Path("/s"), keyrings={"debian:": Path("/k")}).keyring("debian-security:x/main") == Path("/k")


def test_mistakes_about_keys(tmp_path: Path) -> None:
    (tmp_path / "k.gpg").touch()
    with pytest.raises(SpecError) as caught:
        read_site(
            write(
                tmp_path,
                'schema: 1\nkeyrings:\n  python: k.gpg\n  apt:x: none.gpg\n  ubuntu: k.gpg\n  "ubuntu:": k.gpg\n',
            )
        )
    assert [(item.where.rsplit("site.yaml:", 1)[1], item.message) for item in caught.value.findings] == [
        ("3:3", "'python' needs no keys"),
        ("4:10", f"'apt:x': there is no {tmp_path / 'none.gpg'}"),
        ("6:3", "'ubuntu:' has a file of keys already"),
    ]


def test_own_debian_mirror_is_not_mixed_with_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"debian:": ("http://a/debian",), "debian-security:": ("http://a/debian-security",)}
    monkeypatch.setattr(host, "debian_archives", lambda: known)
    assert Site(Path("/s")).places("debian-security:trixie-security/main")[1] == ("http://a/debian-security",)
    own = Site(Path("/s"), mirrors={"debian:": ("/mirror",)})
    assert own.places("debian:trixie/main") == ("trixie/main", ("/mirror",))
    assert own.places("debian-security:trixie-security/main")[1] == ()


def apt(folder: Path, **files: str) -> dict[str, tuple[str, ...]]:
    (folder / "sources.list.d").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / "sources.list" if name == "main" else folder / "sources.list.d" / name.replace("_", ".")
        path.write_text(text)
    return host.debian_archives(folder)


def test_one_line_sources(tmp_path: Path) -> None:
    assert apt(
        tmp_path,
        main="""
# deb http://commented.example/debian trixie main
deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] http://one.example/debian/ bookworm main contrib # remark
deb-src http://source.example/debian bookworm main
deb http://sec.example/debian-security bookworm-security main
deb http://security.example/ bookworm-security main
deb http://vendor.example/ bookworm main
deb http://one.example/debian bookworm-updates main
deb file:/srv/debian bookworm main
deb cdrom:[Debian]/ bookworm main
""",
        docker_list="deb https://docker.example/linux/debian bookworm stable\n",
        vendor_list="deb https://vendor.example/debian/12/prod bookworm main\n",
        sdk_list="deb https://sdk.example/apt sdk-bookworm main\n",
    ) == {
        "debian:": ("http://one.example/debian", "/srv/debian"),
        "debian-security:": ("http://sec.example/debian-security", "http://security.example"),
    }


def test_deb822_sources(tmp_path: Path) -> None:
    assert apt(
        tmp_path,
        debian_sources="""\
# a remark
Types: deb deb-src
URIs: http://one.example/debian
 http://two.example/debian/
Suites: trixie trixie-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc: def

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: trixie
Components: main

Types: deb
URIs: http://snap.example/archive/debian-security/20250520T000000Z
Suites: trixie-security
Components: main
""",
        other_sources="Types: deb\nURIs: http://node.example/node_20.x\nSuites: nodistro\nComponents: main\n",
    ) == {
        "debian:": ("http://one.example/debian", "http://two.example/debian"),
        "debian-security:": ("http://snap.example/archive/debian-security/20250520T000000Z",),
    }


def test_host_without_debian(tmp_path: Path) -> None:
    assert apt(tmp_path, main="deb http://archive.example/other noble main universe\n") == {}
    assert host.debian_archives(tmp_path / "none") == {}


def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str = "", **environ: str) -> object:
    monkeypatch.setattr(host, "default_index", lambda: "https://default.example/simple")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    (tmp_path / ".config/pip").mkdir(parents=True, exist_ok=True)
    (tmp_path / ".config/pip/pip.conf").write_text(user)
    return host.pip_indexes({"HOME": str(tmp_path), "PIP_NO_INDEX": "", **environ})


def test_pip_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_pip_files", lambda environ: [tmp_path / ".config/pip/pip.conf"])
    text = """
[global]
index-url = http://global.example/simple
extra_index_url =
    http://a.example/simple
    file:///srv/simple
find-links = /srv/wheels
[install]
index-url = http://install.example/simple
[download]
index-url = http://not.example/simple
"""
    found = host.PythonIndexes(
        ("http://install.example/simple", "http://a.example/simple", "file:///srv/simple"), ("/srv/wheels",)
    )
    assert pip(tmp_path, monkeypatch, text) == found
    found = host.PythonIndexes(
        ("http://env.example/simple", "http://a.example/simple", "file:///srv/simple"),
        ("/x", "/y"),
        ("env.example",),
        "/ca",
    )
    variables = {
        "PIP_INDEX_URL": "http://env.example/simple",
        "PIP_FIND_LINKS": "/x /y",
        "PIP_TRUSTED_HOST": "env.example",
        "PIP_CERT": "/ca",
    }
    assert pip(tmp_path, monkeypatch, text, **variables) == found
    assert pip(tmp_path, monkeypatch, "") == host.PythonIndexes(("https://default.example/simple",))
    assert pip(tmp_path, monkeypatch, text, PIP_NO_INDEX="1") == host.PythonIndexes((), ("/srv/wheels",))
    assert pip(tmp_path, monkeypatch, "[global\nbroken") == host.PythonIndexes(("https://default.example/simple",))


def test_pip_files_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/venv")
    files = host._pip_files({"HOME": "/home/me", "PIP_CONFIG_FILE": "/own.conf"})
    assert [str(file) for file in files][-4:] == [
        "/home/me/.pip/pip.conf",
        "/home/me/.config/pip/pip.conf",
        "/venv/pip.conf",
        "/own.conf",
    ]
    assert host._pip_files({"PIP_CONFIG_FILE": os.devnull}) == []


def test_default_index_is_asked_of_uv() -> None:
    assert host.default_index().startswith("https://")


def test_python_mirrors_of_a_site() -> None:
    site = Site(Path("/s"), mirrors={"python:": ("file:///srv/simple", "/srv/wheels", "http://i.example/simple")})
    assert site.python().indexes == ("file:///srv/simple", "http://i.example/simple")
    assert site.python().links == ("/srv/wheels",)


def test_the_archives_of_an_ubuntu_host(tmp_path: Path) -> None:
    """One archive serves security updates too, arm64 has one of its own, and a vendor's folder of that name is none."""
    assert apt(
        tmp_path,
        ubuntu_sources="Types: deb\nURIs: http://one.example/ubuntu/\nSuites: noble noble-updates\n"
        "Components: main universe\n\n"
        "Types: deb\nURIs: http://sec.example/ubuntu/\nSuites: noble-security\nComponents: main\n",
        ports_list="deb http://ports.example/ubuntu-ports noble main\n",
        vendor_list="deb http://vendor.example/ubuntu2404/ noble main\n",
    ) == {"ubuntu:": ("http://ports.example/ubuntu-ports", "http://one.example/ubuntu", "http://sec.example/ubuntu")}
