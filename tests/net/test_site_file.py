"""Site files: valid ones, and every mistake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.core.engines import ENGINES
from envbuild.core.errors import SignatureError, SpecError
from envbuild.core.reasoned import Reasoned
from envbuild.net.origin_kinds import ORIGIN_KINDS
from envbuild.net.site import Site
from envbuild.net.site_file import read_site
from envbuild.net.slurm_site import NodeSettings, Slurm
from envbuild.net.unit_caches import UnitCache
from envbuild.spec.workspace import load_site

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
compression: zstd
images: /shared/images
partition: gpu
mounts: ["/data:/data:ro"]
env: {NCCL_IB_SL: "0"}
slurm:
  {version: "23.11.4", pyxis: "0.20.0", enroot: "3.5.0", pmix: [pmix],
   account: me, qos: high, reservation: r1, pytorch_hook: true}
targets:
  h100-ib: {partition: "h100,gpu", driver: "550.54.15", nics: [ibp0], interface: bond0, job: [--segment=2], step: [--l]}
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
        compression="zstd",
        images="/shared/images",
        slurm=Slurm("23.11.4", "0.20.0", "3.5.0", ("pmix",), "me", "high", "r1", pytorch_hook=True),
        nodes=NodeSettings("gpu", mounts=("/data:/data:ro",), env={"NCCL_IB_SL": Reasoned("0", "")}),
        targets={
            "h100-ib": NodeSettings("h100,gpu", "550.54.15", ("ibp0",), "bond0", job=("--segment=2",), step=("--l",))
        },
        use_host=False,
        where=str(tmp_path / "site.yaml"),
        keyrings={"ubuntu:": tmp_path / "ca.pem", "apt:nvidia-cuda": tmp_path / "ca.pem"},
    )


def test_every_mistake_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_site(
            write(tmp_path, "schema: 1\nengin: auto\nengine: dokcer\nmirrors:\n  Debian x: [a]\nca_bundle: none.pem\n")
        )
    findings = [
        (finding.where.rsplit("site.yaml:", 1)[-1], finding.message, finding.hint) for finding in caught.value.findings
    ]
    known = f"it is one of: auto, {', '.join(sorted(ENGINES))}"
    assert findings[0] == ("2:1", "unknown key 'engin' for a site", "did you mean 'engine'?")
    assert findings[1] == ("3:9", "'engine' cannot be 'dokcer'", f"did you mean 'docker'? {known}")
    assert findings[2][:2] == ("5:3", "'Debian x' is not a prefix of origins")
    assert findings[3][0] == "6:12" and "there is no" in findings[3][1]
    assert len(findings) == 4


@pytest.mark.parametrize(
    ("mirrors", "place", "message", "hint"),
    [
        ('{"debain:": [/x]}', "2:11", "'debain:' is not a kind of origin", "did you mean 'debian'?"),
        ("{pyton: [/x]}", "2:11", "'pyton' is not a kind of origin", "did you mean 'python'?"),
        (
            '{"https://git.example/": [/x]}',
            "2:11",
            "'https://git.example/' is not a kind of origin",
            f"origins begin with one of: {', '.join(sorted(ORIGIN_KINDS))}",
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
        *(
            (
                f'{{git: "{address}"}}',
                "2:16",
                f"'git': '{address}' is not an address that can be read",
                "write https://…, http://…, file://… or a folder",
            )
            for address in ("ext::sh -c id ://x", "fd::17/x", "EXT://x", "a b://x", "-x://y")
        ),
        ('{debian: [/x], "debian:": [/y]}', "2:25", "'debian:' has mirrors already", "put all of them into one list"),
    ],
)
def test_mirrors_that_would_never_be_used(tmp_path: Path, mirrors: str, place: str, message: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_site(write(tmp_path, f"schema: 1\nmirrors: {mirrors}\n"))
    found = [(item.where.rsplit("site.yaml:", 1)[1], item.message, item.hint) for item in caught.value.findings]
    assert found == [(place, message, hint)]


def test_every_kind_of_origin_may_have_mirrors(tmp_path: Path) -> None:
    lines = "".join(f"  {kind}: [/x]\n" for kind in ORIGIN_KINDS)
    site = read_site(
        write(tmp_path, f"schema: 1\nmirrors:\n{lines}  gitlab:group/: ['file:///y', 'http://z.example']\n")
    )
    assert set(site.mirrors) == {*(f"{kind}:" for kind in ORIGIN_KINDS), "gitlab:group/"}
    assert site.mirrors["gitlab:group/"] == ("file:///y", "http://z.example")


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


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("ca_bundle: keys/k.pem", "ca_bundle"),
        ("debian_keyring: keys/k.pem", "debian_keyring"),
        ("keyrings: {debian: keys/k.pem}", "debian"),
        ('apt: {"Acquire::https::CaInfo": FOLDER/keys/k.pem}', "Acquire::https::CaInfo"),
    ],
)
def test_a_key_that_others_can_replace_is_refused(line: str, key: str, tmp_path: Path) -> None:
    """They would decide whom a lock believes."""
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o755)
    (keys / "k.pem").touch(0o644)
    text = f"schema: 1\n{line.replace('FOLDER', str(tmp_path))}\n"
    assert read_site(write(tmp_path, text))
    keys.chmod(0o777)
    with pytest.raises(
        SpecError, match=f"'{key}': {keys / 'k.pem'} is not trusted: {keys} .*: others can replace it"
    ) as caught:
        read_site(write(tmp_path, text))
    assert caught.value.hint == f"chmod go-w {keys}"
    keys.chmod(0o755)
    (keys / "k.pem").chmod(0o666)
    with pytest.raises(SpecError, match=f"'{key}': {keys / 'k.pem'} .*: others can replace it"):
        read_site(write(tmp_path, text))


def test_caches_of_units(tmp_path: Path) -> None:
    text = (
        "schema: 1\ncaches:\n- {at: ghcr.io/team/cache, write: true, unsigned: true}\n- {at: ./near, unsigned: true}\n"
    )
    assert read_site(write(tmp_path, text)).caches == (
        UnitCache("ghcr.io/team/cache", None, True),
        UnitCache(str(tmp_path / "near"), tmp_path / "near"),
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{at: ghcr.io/team/cache}", "nothing states who may write its units"),
        ("{at: ghcr.io/team/cache, unsigned: false}", "nothing states who may write its units"),
        ("{at: ghcr.io/team/cache, keys: []}", "nothing states who may write its units"),
        ("{at: ghcr.io/team/cache, keys: [a.pub], unsigned: true}", "has keys and unsigned: true"),
        ("{at: ghcr.io/team/cache, keys: [a.pub], write: true}", "units that are sent there need a signature"),
        ("{at: ghcr.io/team/cache, keys: [a.pub], sign: a.key}", "nothing is sent there"),
        ("{at: ghcr.io/team/cache:1, unsigned: true}", "has a tag"),
        ("{at: team, unsigned: true}", "neither a repository of a registry nor a folder"),
        ("{unsigned: true}", "a cache without 'at'"),
        ("{at: /a, unsigned: true, signed: x}", "unknown key 'signed'"),
        ("/a", "must be keys with values"),
        ("{at: /a, unsigned: true}, {at: /a, unsigned: true}", "is listed twice"),
    ],
)
def test_a_cache_is_believed_only_where_the_site_writes_it(tmp_path: Path, entry: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_site(write(tmp_path, f"schema: 1\ncaches: [{entry}]\n"))
    assert message in str(caught.value)


def test_the_policy_of_signatures(tmp_path: Path) -> None:
    """A file without keys is read: commands that start no published image continue (`SignaturePolicy.trusted`)."""
    policy = read_site(
        write(tmp_path, "schema: 1\nsignatures: {require: true, keys: [team.pub, /etc/b.pub]}\n")
    ).signatures
    assert policy and policy.require and policy.keys == (tmp_path / "team.pub", Path("/etc/b.pub"))
    policy = read_site(write(tmp_path, "schema: 1\nsignatures: {}\n")).signatures
    assert policy and policy.require
    with pytest.raises(SignatureError, match="names no key") as error:
        policy.trusted()
    assert error.value.exit_code == 7 and "site.yaml:2" in error.value.where
    for wrong in ("{require: yes please}", "{key: a.pub}", "[a.pub]"):
        with pytest.raises(SpecError):
            read_site(write(tmp_path, f"schema: 1\nsignatures: {wrong}\n"))


def test_a_project_cannot_loosen_the_policy_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, project = tmp_path / "config/envbuild", tmp_path / "project"
    for folder in (own, project):
        folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (own / "site.yaml").write_text("schema: 1\nsignatures: {keys: [team.pub]}\n")
    (project / "site.yaml").write_text("schema: 1\nregistry: r.example/x\nsignatures: {require: false}\n")
    site = load_site(project)
    assert site.registry == "r.example/x" and site.signatures
    assert site.signatures.require and site.signatures.keys == (own / "team.pub",)
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):  # an error, as outside of a project
        (own / "site.yaml").write_bytes("schema: 1\nsignatures: {keys: [team.pub]}\n".encode(encoding))
        with pytest.raises(SpecError, match=r"config/envbuild/site\.yaml"):
            load_site(project)
    (own / "site.yaml").write_bytes(b"schema: 1\n# M\xfcller\n")
    with pytest.raises(SpecError, match="the file is not UTF-8 text"):
        load_site(project)
    (own / "site.yaml").write_text('schema: 1\n"\\x73ignatures": {keys: [team.pub]}\n')
    policy = load_site(project).signatures
    assert policy and policy.require
    (own / "site.yaml").write_text("schema: 1\n")
    policy = load_site(project).signatures
    assert policy and not policy.require


@pytest.mark.parametrize("kind", ["folder", "fifo", "huge"])
def test_a_site_file_of_the_user_that_cannot_be_read_is_not_a_missing_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    own, project = tmp_path / "config/envbuild/site.yaml", tmp_path / "project"
    own.parent.mkdir(parents=True)
    project.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (project / "site.yaml").write_text("schema: 1\nsignatures: {require: false}\n")
    assert load_site(project).signatures
    if kind == "folder":
        own.mkdir()
    elif kind == "fifo":
        os.mkfifo(own)
    else:
        own.write_text("schema: 1\nsignatures: {keys: [team.pub]}\n" + "#" * (1 << 21))
    with pytest.raises(SpecError) as caught:
        load_site(project)
    assert str(own) in str(caught.value)


def test_a_cache_has_keys_of_its_own_or_those_of_the_site(tmp_path: Path) -> None:
    text = (
        "schema: 1\nsignatures: {keys: [site.pub]}\ncaches:\n- {at: r.example/a}\n- {at: r.example/b, unsigned: true}\n"
        "- {at: r.example/c, keys: [own.pub], write: true, sign: own.key}\n"
    )
    first, second, third = read_site(write(tmp_path, text)).caches
    assert (first.keys, second.keys, third.keys) == ((tmp_path / "site.pub",), (), (tmp_path / "own.pub",))
    assert third.sign == tmp_path / "own.key" and second.names == ("r.example/b",)
    (tmp_path / "site.pub").write_text("one")
    (name,) = first.names
    assert name.startswith("r.example/a#") and len(name) == len("r.example/a#") + 16
    (tmp_path / "site.pub").write_text("two")
    assert first.names != (name,), "units of a key that was replaced are not used"
