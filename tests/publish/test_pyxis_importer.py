"""The importer of pyxis, started as pyxis starts it: with the job's environment, for each node and step."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError, SpecError
from envbuild.core.store.gc import collect
from envbuild.core.store.leases import LONGEST, JobStep, discard_old, lease_file, release_step
from envbuild.core.store.store import Store
from envbuild.publish.pyxis_importer import import_image, parse_uri
from envbuild.publish.signature_artifacts import signature_artifacts
from tests.support.command import ROOT
from tests.support.foreign_images import image, layers, noise, workspace
from tests.support.local_registry import Layout, Server, file, serve, tar
from tests.support.published import built, publish
from tests.support.push_proxy import PushProxy, pushing
from tests.support.signing import new_key
from tests.support.tls import make_certificates

pytestmark = pytest.mark.registry

NODES = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1", "PYTHONHOME": "/nonexistent"}


class Importer:
    """The script in a folder, with a store of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.store, self.path = folder / "store", folder / "importer"
        self.site = folder / "site.yaml"
        self.site.write_text(f"schema: 1\nstore: {self.store}\n")
        words = [sys.executable, "-m", "envbuild", "importer", "script", "--site", str(self.site), *options]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.path.write_text(done.stdout)
        self.path.chmod(0o755)

    def start(self, *words: str, **changes: str) -> subprocess.Popen[str]:
        """Start it with an environment of a job alone."""
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.path.parent), **NODES, **changes}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [str(self.path), *words], env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, *words: str, code: int = 0, **changes: str) -> str:
        """Return what it prints: stdout, or stderr if it must fail."""
        with self.start(*words, **changes) as process:
            output, errors = process.communicate()
        assert process.returncode == code, errors
        assert code == 0 or output == ""
        return output if code == 0 else errors


@pytest.fixture
def proxy(registry: Server) -> Iterator[PushProxy]:
    with pushing(registry.host) as found:
        yield found


def uri(proxy: PushProxy, name: str = "app:1") -> str:
    return f"docker://{proxy.url.removeprefix('http://')}/{name}"


def test_an_image_is_imported_once_and_remains_until_the_end_of_the_step(
    tmp_path: Path, registry: Server, proxy: PushProxy
) -> None:
    parts, artifacts, sha256 = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    importer = Importer(tmp_path)
    steps = [importer.start("get", uri(proxy), SLURM_STEP_ID=str(step)) for step in range(4)]
    paths = []
    for process in steps:
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        paths.append(Path(output.removesuffix("\n")))
    assert [path.parent.name for path in paths] == [f"17.{step}.{os.uname().nodename}" for step in range(4)]
    assert len({path.stat().st_ino for path in paths}) == 1 and paths[0].name.endswith(f"-{sha256[:12]}.sqsh")
    blobs = [path for method, path, _ in proxy.asked if method == "GET" and "/blobs/" in path]
    assert blobs and len(blobs) == len(set(blobs))
    proxy.asked.clear()
    again = Path(importer.run("get", uri(proxy).replace("docker://", "docker://me@").replace("/app", "#app")).strip())
    assert again == paths[0] and [method for method, _, _ in proxy.asked] == ["HEAD"]
    for _ in range(2):
        assert importer.run("release") == ""
    assert not again.exists() and paths[1].exists()
    assert importer.run("release", SLURM_STEP_ID="99") == ""


def test_a_running_step_keeps_the_file_of_a_tag_that_moved(tmp_path: Path, registry: Server, proxy: PushProxy) -> None:
    parts, artifacts, _ = built(tmp_path / "1", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    importer = Importer(tmp_path)
    first = Path(importer.run("get", uri(proxy)).strip())
    content = first.read_bytes()
    parts, artifacts, sha256 = built(tmp_path / "2", [*layers(), tar(file("opt/more", noise(400_000, 7)))])
    publish(parts, artifacts, f"{registry.host}/app:1", move=True)
    second = Path(importer.run("get", uri(proxy), SLURM_JOB_ID="18").strip())
    assert second.name.endswith(f"-{sha256[:12]}.sqsh") and second.read_bytes() != content
    assert collect(Store.open(importer.store), SilentReporter(), dry_run=False, everything=True)
    assert first.read_bytes() == content and second.exists()
    discard_old(Store.open(importer.store), first.parent.stat().st_mtime - LONGEST)
    assert first.exists()


def test_an_image_of_another_program_is_converted(tmp_path: Path, registry: Server, proxy: PushProxy) -> None:
    layout = Layout(tmp_path / "layout")
    layout.add(image(layout, layers()), "x")
    registry.push(f"oci:{layout.path}:x", "other:2")
    path = Path(Importer(tmp_path).run("get", uri(proxy, "other:2")).strip())
    assert path.name.endswith(".sqsh") and path.read_bytes()[:4] == b"hsqs"


def test_a_tag_of_a_folder_with_images_for_two_architectures(tmp_path: Path) -> None:
    """The index of them is not a blob of the folder: what was compared is named by a digest that it lacks."""
    layout = Layout(tmp_path / "fs/team/app")
    for arch in ("amd64", "arm64"):
        layout.add(image(layout, [*layers(), tar(file("arch", arch.encode()))], architecture=arch), "1")
    importer = Importer(tmp_path)
    importer.site.write_text(f'{importer.site.read_text()}mirrors: {{"oci:registry.example/": [{tmp_path}/fs]}}\n')
    path = Path(importer.run("get", "docker://registry.example/team/app:1").strip())
    assert path.read_bytes()[:4] == b"hsqs"


def test_without_a_registry_a_known_tag_starts_only_where_the_site_wants_it(tmp_path: Path, registry: Server) -> None:
    parts, artifacts, _ = built(tmp_path / "a", layers())
    publish(parts, artifacts, f"{registry.host}/app:1")
    importer = Importer(tmp_path)
    with pushing(registry.host) as proxy:
        name = uri(proxy)
        path = Path(importer.run("get", name).strip())
    refused = importer.run("get", name, code=10)
    assert "is not available; tried:" in refused and "connection refused" in refused
    allowed = Importer(tmp_path, "--offline")
    assert allowed.run("get", name).strip() == str(path)
    assert "is not available" in allowed.run("get", name.replace("app:1", "app:2"), code=10)


@pytest.mark.parametrize("empty", [True, False])
def test_a_mirror_that_is_not_mounted_is_one_that_does_not_answer(tmp_path: Path, empty: bool) -> None:
    layout = Layout(tmp_path / "fs/team/app")
    layout.add(image(layout, layers()), "1")
    importer = Importer(tmp_path, "--offline")
    importer.site.write_text(f'{importer.site.read_text()}mirrors: {{"oci:registry.example/": [{tmp_path}/fs]}}\n')
    name = "docker://registry.example/team/app:1"
    path = importer.run("get", name)
    (tmp_path / "fs").rename(tmp_path / "fs.other")
    if empty:
        (tmp_path / "fs").mkdir()
    assert importer.run("get", name) == path
    assert "is missing or empty: is its file system mounted?" in importer.run("get", f"{name}2", code=10)


def test_errors_are_for_the_user_of_srun(tmp_path: Path, registry: Server, proxy: PushProxy) -> None:
    importer = Importer(tmp_path)
    assert "app:7 is not available" in importer.run("get", uri(proxy, "app:7"), code=10)
    assert "usage: " in importer.run("other", code=2)
    assert "is not a step of a job" in importer.run("get", uri(proxy), code=2, SLURM_JOB_ID="../../x")
    importer.site.write_text("schema: 1\nstore: relative: x\n")
    assert "site.yaml" in importer.run("get", uri(proxy), code=2)


def test_a_host_whose_certificate_is_not_checked_is_named_beside_a_failure(tmp_path: Path) -> None:
    """pyxis prints what the importer wrote to stderr when it fails."""
    right, _ = make_certificates(tmp_path / "right")
    with serve(tmp_path / "registry", tls=right.parent) as server:
        importer = Importer(tmp_path)
        importer.site.write_text(f"{importer.site.read_text()}insecure_hosts: [127.0.0.1]\n")
        errors = importer.run("get", f"docker://{server.host}/app:1", code=10)
    assert errors.count("warning: the certificate of 127.0.0.1 is not checked") == 1


def test_a_store_of_a_group_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o3775)
    with pytest.raises(SpecError, match=r"is a group's.*") as raised:
        import_image("docker://registry.example/app:1", workspace(folder), JobStep("1", "0", "n"))
    assert "store: /local/envbuild/$SLURM_JOB_UID/store" in str(raised.value.findings[0].hint)


def test_a_store_that_another_user_can_exchange_is_refused(tmp_path: Path) -> None:
    """pyxis opens the path that the importer prints: by then it could be a file of that user."""
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    with pytest.raises(EngineError, match=f"is not one for an importer: {above} can be written by every user"):
        import_image("docker://registry.example/app:1", workspace(above / "store"), JobStep("1", "0", "n"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_the_end_of_a_step_removes_nothing_through_a_store_of_another_user(tmp_path: Path) -> None:
    """Its folder of leases may be a link to any folder of this user."""
    importer, own = Importer(tmp_path), tmp_path / "own"
    (own / "17.0.n1").mkdir(parents=True)
    shared = tmp_path / "scratch"
    shared.mkdir()
    shared.chmod(0o1777)
    store = Store.open(shared / "store")
    (store.root / "leases").symlink_to(own)
    for path in (store.root, *store.root.rglob("*")):
        os.chown(path, 54_321, 54_321, follow_symlinks=False)
    importer.site.write_text(f"schema: 1\nstore: {store.root}\n")
    assert "54321" in importer.run("release", code=5)
    assert (own / "17.0.n1").is_dir()


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        ("docker://debian", "docker.io/library/debian", "latest"),
        ("docker://me@registry.example#team/app:3", "registry.example/team/app", "3"),
        ("docker://$oauthtoken@nvcr.io#nvidia/pytorch:25.10-py3", "nvcr.io/nvidia/pytorch", "25.10-py3"),
        ("docker://registry.example:5000/team/app:3", "registry.example:5000/team/app", "3"),
        (f"docker://me@registry.example#a@sha256:{'0' * 64}", "registry.example/a", f"sha256:{'0' * 64}"),
    ],
)
def test_references_are_those_of_enroot(text: str, name: str, wanted: str) -> None:
    found = parse_uri(text)
    assert (found.name, found.wanted) == (name, wanted)


@pytest.mark.parametrize("name", ["registry.example/app", "registry.example#app", "me@registry.example#app", "app:1"])
@pytest.mark.parametrize("end", ["@", "@v1"])
def test_a_broken_digest_is_not_a_user_and_another_image(name: str, end: str) -> None:
    with pytest.raises(SpecError, match=f"^'{end}' is not the digest of an image"):
        parse_uri(f"docker://{name}{end}")


def test_an_import_loads_nothing_that_only_a_build_needs() -> None:
    """Each step of a job starts it on each node."""
    code = "import sys, envbuild.publish.pyxis_importer; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "envbuild.publish.pull" in loaded
    others = ("envbuild.matrix.", "envbuild.lock.", "envbuild.doctor.")
    assert [name for name in loaded if name.startswith(others)] == []


def test_a_step_is_what_slurm_states() -> None:
    assert JobStep.of({}) is None and JobStep.of({"SLURM_JOB_ID": "1"}) is None
    assert str(JobStep.of({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "2"})) == f"1.2.{os.uname().nodename}"
    with pytest.raises(SpecError):
        JobStep.of({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "2/b"})


@pytest.mark.parametrize("node", ["n1", ""])
def test_the_end_of_a_task_names_another_node_or_none(tmp_path: Path, node: str) -> None:
    """pyxis calls the release on each node of a batch job with SLURMD_NODENAME of the first; other steps and hosts keep
    their files."""
    store = workspace(tmp_path / "store").store
    file = store.own_folder("artifacts") / "a.sqsh"
    file.write_bytes(b"x")
    second = {**NODES, "SLURMD_NODENAME": "n2"}
    ended, other = (JobStep.of({**second, "SLURM_STEP_ID": step}) for step in ("0", "1"))
    assert ended and other
    paths = [lease_file(store, file, step) for step in (ended, other, JobStep("17", "0", "another-host"))]
    released = JobStep.of({**NODES, "SLURMD_NODENAME": node})
    assert released
    release_step(store, released)
    assert [path.exists() for path in paths] == [False, True, True]


def test_an_image_needs_a_signature_of_a_key_that_is_listed_now(tmp_path: Path, registry: Server) -> None:
    """Also one that was imported before, and where no registry answers."""
    team, public = new_key(tmp_path / "team.key")
    _, other = new_key(tmp_path / "other.key")
    parts, artifacts, _ = built(tmp_path / "a", layers())
    name = f"{registry.host}/app"
    publish(parts, artifacts, f"{name}:1")
    uri, importer = f"docker://{name}:1", Importer(tmp_path, "--offline")

    def require(key: Path) -> None:
        importer.site.write_text(f"schema: 1\nstore: {importer.store}\nsignatures: {{keys: [{key}]}}\n")

    first = importer.start("get", uri)
    assert first.communicate()[0] and first.returncode == 0, "the site requires none"
    require(public)
    for _ in range(2):
        refused = importer.start("get", uri)
        out, error = refused.communicate()
        assert (out, refused.returncode) == ("", 7) and "it has no signature" in error
    (tmp_path / "s").mkdir()
    publish(parts, [*artifacts, *signature_artifacts(team, "app:1", parts.subject, tmp_path / "s")], f"{name}:1")
    signed = importer.start("get", uri)
    out, error = signed.communicate()
    assert signed.returncode == 0 and Path(out.strip()).is_file(), error
    require(other)
    refused = importer.start("get", uri)
    assert "no key of the site made it" in refused.communicate()[1] and refused.returncode == 7
