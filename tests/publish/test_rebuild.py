"""`verify --rebuild`: a second build from a lock, of an image of the project, of a file and of a published image."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import requests
import zstandard

from envbuild.core.console import SilentReporter
from envbuild.core.errors import EnvbuildError, SignatureError, VerifyError
from envbuild.core.signing.envelope import BUNDLE
from envbuild.launch.compared_tag import check_tag
from envbuild.launch.image_sources import find_image
from envbuild.net.registry.media_types import OCI
from envbuild.oci.sources.platform import Platform
from envbuild.publish import artifact_types as types
from envbuild.publish import document_check, signature_check, squashfs_document
from envbuild.publish.attached_documents import read_artifacts
from envbuild.publish.document_check import check_documents
from envbuild.publish.find_squashfs import find_squashfs
from envbuild.publish.pull import pull_image
from envbuild.publish.remote_image import open_remote
from envbuild.publish.show_remote import show_remote
from envbuild.publish.signature_check import REBUILD, read_signatures
from envbuild.spec.workspace import open_workspace
from tests.support import foreign_images
from tests.support.bit_flips import flip_bit
from tests.support.ci_project import ROOT, CiProject, make_ci_project
from tests.support.debian_archive import Signer
from tests.support.image_project import Cli
from tests.support.local_registry import Layout, Server, file, serve, sha256, tar
from tests.support.signing import PASSPHRASE, new_key, requiring
from tests.support.tools import require_tools

pytestmark = [
    pytest.mark.registry,
    pytest.mark.skipif(os.geteuid() != 0, reason="the base image of the host's files needs root"),
]
RECIPE = '''
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import Recipe, RecipeEnv, Sources, comment, shell


@dataclass(frozen=True, kw_only=True)
class Said(Recipe):
    """A word in a file."""

    prefix: ClassVar[str] = "/opt/mine"

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources()

    def build(self, env: RecipeEnv) -> list[Any]:
        return [comment("mine: a word"), shell(commands=["mkdir -p /opt/mine", "COMMAND"])]
'''
EXCHANGE = """
import shutil, envbuild.make as module
write = module.write_image
def write_and_exchange(*words):
    made = write(*words)
    shutil.copyfile("{source}", "{file}")
    return made
module.write_image = write_and_exchange
from envbuild.cli.start import main
main()
"""
# with zstd the blob of a layer with a pack of more than 1 MiB has the blocks of that
LARGE = "cat /lib/*/libc.so.6 /lib/*/libc.so.6 /lib/*/libc.so.6 > /opt/mine/large && "
SAME, RANDOM = f"{LARGE}echo word > /opt/mine/word", f"{LARGE}cat /proc/sys/kernel/random/uuid > /opt/mine/word"


@dataclass
class Case:
    """A project with the image app, which is built, and published in a registry and in a folder."""

    project: CiProject
    cli: Cli
    registry: str
    folder: str
    made: dict[str, Any]

    def elsewhere(self, folder: Path, command: str = SAME, recipes: bool = True) -> Cli:
        """Return the command in a project that has only recipes, and in an empty store."""
        (folder / "images").mkdir(parents=True)
        shutil.copy(self.project.checkout / "images/app.yaml", folder / "images/other.yaml")
        if recipes:
            write_recipe(folder, command)
        return Cli(folder, folder / "store")


def write_recipe(folder: Path, command: str) -> None:
    (folder / "recipes").mkdir(exist_ok=True)
    (folder / "recipes/mine.py").write_text(RECIPE.replace("COMMAND", command))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, key: Signer) -> Iterator[Case]:
    require_tools("apt-get", "gpg", "git", "docker-registry")
    folder = tmp_path_factory.mktemp("rebuild")
    with serve(folder / "registry") as server, pytest.MonkeyPatch.context() as patch:
        project = make_ci_project(folder, key, server)
        home = folder / "home"
        for name, value in (("HOME", home), ("XDG_CONFIG_HOME", home / ".config"), ("APT_CONFIG", folder / "apt.conf")):
            patch.setenv(name, str(value))
        write_recipe(project.checkout, SAME)
        spec = project.checkout / "images/app.yaml"
        spec.write_text(f"{spec.read_text()}  mine: {{}}\n")
        cli = Cli(project.checkout, folder / "store")
        cli.run("lock", "app")
        made = cli.json("make", "app", "--no-verify")
        yield Case(project, cli, publish(cli, server), publish(cli, folder / "shared"), made)


def publish(cli: Cli, place: Server | Path) -> str:
    """Publish the image; return the reference to verify."""
    name = f"oci:{place}:1" if isinstance(place, Path) else f"{place.host}/team/app:1"
    cli.run("publish", "app", "--to", name, "--compression", "zstd" if isinstance(place, Path) else "gzip")
    return name if isinstance(place, Path) else f"docker://{name}"


def kinds(answer: dict[str, Any]) -> set[str]:
    return {part["kind"] for part in answer["parts"]}


def test_an_image_of_the_project_is_built_again_whole_and_equal(case: Case) -> None:
    answer = case.cli.json("verify", "app", "--rebuild")
    assert answer["equal"] is True and answer["first_difference"] is None
    assert kinds(answer) == {"layer", "config", "squashfs"}
    assert set(answer["units"]) == set(case.made["built"])
    assert answer["subject"]["squashfs"] == f"sha256:{case.made['sha256']}"
    assert [part["rebuilt"] for part in answer["parts"] if part["kind"] == "layer"] == case.made["layers"]
    assert "seconds" not in json.dumps(answer)


def test_a_rebuild_leaves_the_store_as_it_is(case: Case) -> None:
    def entries() -> set[str]:
        names = ("units", "layers", "packs", "artifacts", "tmp")
        return {str(path) for name in names for path in (case.cli.store / name).iterdir()}

    before = entries()
    done = case.cli.run("verify", "app", "--rebuild")
    assert "layers:   4 of 4 equal" in done.stdout
    assert re.search(r"sha256 of \d+ inputs", done.stderr), done.stderr
    assert entries() == before


def test_a_published_image_is_built_again_elsewhere_and_equal(case: Case, tmp_path: Path) -> None:
    """Its manifest as well: another store, a project that has neither its spec nor its lock."""
    answers = []
    for place in (case.registry, case.folder):
        answer = case.elsewhere(tmp_path / place.partition(":")[0]).json("verify", place, "--rebuild")
        assert answer["equal"] is True and kinds(answer) == {"layer", "config", "manifest", "squashfs"}
        answers.append(answer)
    assert answers[0]["subject"]["digest"] != answers[1]["subject"]["digest"]  # other compression
    blobs = Path(case.folder.removeprefix("oci:").rpartition(":")[0]) / "blobs/sha256"
    assert any(b'"format":2' in path.read_bytes() for path in blobs.iterdir())  # a layer has the blocks of its pack
    assert answers[0]["builder"] == answers[1]["builder"]


@pytest.mark.parametrize("place", ["registry", "folder"])
def test_the_signed_answer_of_another_builder_is_attached_once(
    case: Case, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a statement about the image, and not a signature of it."""
    name, (_, public) = getattr(case, place), new_key(tmp_path / "b.key")
    cli = case.elsewhere(tmp_path / "b")
    before = cli.json("show", name)
    answer = cli.json("verify", name, "--rebuild", "--sign", str(tmp_path / "b.key"), COSIGN_PASSWORD=PASSPHRASE)
    at = requiring(tmp_path / "c", public, require=False)
    there = open_remote(name, at.site)
    assert there
    found = there.find(Platform.of(""))
    report = read_signatures(there, found, at.site.signatures.trusted(), ())  # type: ignore[union-attr]
    assert {"schema": 1, **report.attested[REBUILD]} == answer and answer["equal"] is True
    assert not report.keys and not report.refused
    entries = there.referrers(found.digest, BUNDLE)
    again = cli.run("verify", name, "--rebuild", "--sign", str(tmp_path / "b.key"), COSIGN_PASSWORD=PASSPHRASE)
    assert "  signed:   sha256:" in again.stdout
    assert there.referrers(found.digest, BUNDLE) == entries
    assert len(list(read_artifacts(there, found.digest, BUNDLE))) == 1
    with pytest.raises(SignatureError, match="it has no signature"):
        pull_image(name, None, requiring(tmp_path / "d", public))
    assert cli.json("show", name) == before  # no key is listed there
    printed = show_remote(name, at)
    assert printed.data["rebuilds"] == [{"signed_by": str(public), "equal": True}] and printed.data["signed_by"] == []
    assert f"  rebuilt:  the same bytes, as {public} signed" in printed.text
    # A registry may list the same answer again, in artifacts of other digests.
    monkeypatch.setattr(signature_check, "read_artifacts", lambda *words: [*read_artifacts(*words)] * 3)
    assert show_remote(name, at).data["rebuilds"] == printed.data["rebuilds"]


@pytest.mark.parametrize("name", ["images/other.lock", "recipes/mine.py"])
def test_what_changes_while_an_image_is_made_is_no_part_of_it(case: Case, tmp_path: Path, name: str) -> None:
    """A build takes hours, in which a branch may be changed."""
    cli = case.elsewhere(tmp_path / "p")
    cli.run("lock", "other")
    file = cli.project / name
    before = file.read_text()
    after = before.replace("echo word", "echo other") if name.endswith(".py") else add_to_epoch(before)
    assert after != before
    (tmp_path / "after").write_text(after)
    program = [sys.executable, "-c", EXCHANGE.format(source=tmp_path / "after", file=file)]
    environ = {**os.environ, "ENVBUILD_STORE": str(cli.store), "PYTHONPATH": str(ROOT)}
    subprocess.run([*program, "make", "other"], cwd=cli.project, env=environ, check=True, capture_output=True)
    assert file.read_text() == after
    assert "is not built, or something changed" in cli.run("verify", "other", check=False).stderr
    again = cli.json("make", "other")
    assert not again["up_to_date"] and (again["built"] if name.endswith(".py") else again["lock"])
    assert cli.json("make", "other")["up_to_date"]


def test_a_recipe_that_changes_while_the_image_is_locked_ends_it(case: Case, tmp_path: Path) -> None:
    cli = case.elsewhere(tmp_path / "p")
    file = cli.project / "recipes/mine.py"
    (tmp_path / "after").write_text(file.read_text().replace("echo word", "echo other"))
    program = EXCHANGE.format(source=tmp_path / "after", file=file)
    program = program.replace("envbuild.make as module", "envbuild.lock.dev_content as module")
    program = program.replace("write_image", "lock_beside_contents")
    environ = {**os.environ, "ENVBUILD_STORE": str(cli.store), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, "make", "other"]
    done = subprocess.run(command, cwd=cli.project, env=environ, check=False, capture_output=True, text=True)
    assert done.returncode == 2 and "changed while other was locked" in done.stderr, done.stderr
    assert cli.json("make", "other")["built"]


def test_documents_that_are_not_those_of_the_file_are_refused(case: Case, tmp_path: Path) -> None:
    """`show` and `diff` print the published ones."""
    at = foreign_images.workspace(tmp_path / "store")
    image = open_remote(case.folder, at.site)
    assert image
    found = find_squashfs(image, image.find(Platform.of("")))
    assert found
    file = Path(case.made["artifact"])
    check_documents(image, found, file, {})
    with pytest.raises(VerifyError, match=r"the lock .* is not that of its provenance"):
        stated = {"lock": {"digest": {"sha256": "0" * 64}}}
        check_documents(image, found, file, {"buildDefinition": {"externalParameters": stated}})
    read = document_check.read_text
    for kind, what in ((types.LOCK, "lock"), (types.SPEC, "spec"), (types.RESOLUTION, "resolution")):
        with (
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(VerifyError, match=f"the {what} .* not that of its file"),
        ):
            other = {types.LOCK: add_to_epoch}.get(kind, lambda text: f" {text}")
            patch.setattr(
                document_check,
                "read_text",
                lambda *words, kind=kind, other=other: other(read(*words)) if words[2] == kind else read(*words),
            )
            check_documents(image, found, file, {})


def add_to_epoch(lock: str) -> str:
    """Return another lock that answers the same spec."""
    return re.sub(r"^epoch: (\d+)$", lambda found: f"epoch: {int(found[1]) + 60}", lock, flags=re.MULTILINE)


def test_only_an_answer_about_a_published_image_is_attached(case: Case, tmp_path: Path) -> None:
    new_key(tmp_path / "b.key")
    gone = "docker://127.0.0.1:1/team/app:1"
    for words, code, fault in (
        (("app", "--rebuild"), 2, "app is not one"),
        ((case.folder,), 2, "those of a second build"),
        ((gone, "--rebuild"), 8, "cannot be used"),  # before anything is built
    ):
        done = case.cli.run("verify", *words, "--sign", f"{tmp_path}/b.key", check=False, COSIGN_PASSWORD=PASSPHRASE)
        assert done.returncode == code and fault in done.stderr, done.stderr


def test_a_file_is_built_again_and_equal(case: Case, tmp_path: Path) -> None:
    file = shutil.copy(case.made["artifact"], tmp_path / "copy.sqsh")
    answer = case.elsewhere(tmp_path / "project").json("verify", str(file), "--rebuild")
    assert answer["equal"] is True and kinds(answer) == {"layer", "config", "squashfs"}
    # A lock of another user may name what this one alone can read; members of a group read each other's blobs.
    assert list((tmp_path / "project/store/blobs/sha256").iterdir()) == []


def test_an_image_without_its_layers_is_built_again(case: Case, tmp_path: Path) -> None:
    place = f"oci:{tmp_path}/alone:1"
    case.cli.run("publish", "app", "--to", place, "--squashfs-only")
    cli = case.elsewhere(tmp_path / "project")
    answer = cli.json("verify", place, "--rebuild")
    assert answer["equal"] is True and kinds(answer) == {"layer", "config", "manifest", "squashfs"}
    blobs, index = tmp_path / "alone/blobs/sha256", json.loads((tmp_path / "alone/index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"].removeprefix("sha256:")).read_bytes())
    manifest["layers"].append(manifest["config"])  # any blob that is not part of the file
    content = json.dumps(manifest).encode()
    (blobs / hashlib.sha256(content).hexdigest()).write_bytes(content)
    index["manifests"][0] |= {"digest": f"sha256:{hashlib.sha256(content).hexdigest()}", "size": len(content)}
    (tmp_path / "alone/index.json").write_text(json.dumps(index))
    done = cli.run("verify", place, "--rebuild", "--json", check=False)
    answer = json.loads(done.stdout)
    assert done.returncode == 7
    assert answer["equal"] is False
    assert {part["kind"] for part in answer["parts"] if not part["equal"]} == {"manifest"}


def test_a_squashfs_file_that_is_published_alone_is_compared_as_an_artifact(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a document that names the sha256 of the built file, its blobs could be anything, which enroot unpacks."""
    host = case.registry.removeprefix("docker://").partition("/")[0]
    for tag, more in (("alone", ()), ("both", ("--whole",))):
        case.cli.run("publish", "app", "--to", f"{host}/team/app:{tag}", "--squashfs-only", *more)
    kind = {"Accept": OCI.manifest, "Content-Type": OCI.manifest}
    manifest = requests.get(f"http://{host}/v2/team/app/manifests/alone", headers=kind, timeout=60).json()
    manifest["annotations"] = {"other": "blobs, of which the document names none, can be listed as well"}
    requests.put(f"http://{host}/v2/team/app/manifests/other", json.dumps(manifest), headers=kind, timeout=60)
    monkeypatch.setenv("ENVBUILD_STORE", str(case.cli.store))
    with open_workspace(SilentReporter(), case.cli.project) as at:
        found = find_image("app", at)
        assert found.built
        for tag in ("alone", "both"):
            assert check_tag(replace(found, reference=f"docker://{host}/team/app:{tag}"), at).startswith("sha256:")
        with pytest.raises(EnvbuildError, match="was published with other blobs"):
            check_tag(replace(found, reference=f"docker://{host}/team/app:other"), at)
        with monkeypatch.context() as patch:  # of another release
            patch.setattr(squashfs_document, "__version__", "9.9.9")
            assert check_tag(replace(found, reference=f"docker://{host}/team/app:alone"), at)


@pytest.mark.parametrize("kind", ["registry", "folder", "file", "squashfs-only"])
def test_the_first_file_that_another_input_changes_is_named(case: Case, kind: str, tmp_path: Path) -> None:
    """The recipe here writes another word: it is an input that no lock has."""
    cli = case.elsewhere(tmp_path / "project", SAME.replace("word >", "other >"))
    name = {"registry": case.registry, "folder": case.folder, "file": case.made["artifact"]}.get(kind, "")
    if not name:
        name = f"oci:{tmp_path}/alone:1"
        case.cli.run("publish", "app", "--to", name, "--squashfs-only")
    done = cli.run("verify", name, "--rebuild", "--json", check=False)
    assert done.returncode == 7, done.stderr
    answer = json.loads(done.stdout)
    first = answer["first_difference"]
    assert (first["kind"], first["unit"], first["path"]) == ("layer", "mine", "opt/mine/word")
    assert first["what"].startswith("differs in") and "content" in first["what"]
    states = {(part["unit"] or part["kind"]): part["equal"] for part in answer["parts"]}
    assert states["base"] and not states["mine"] and not states["config"] and not states["squashfs"]
    assert answer["equal"] is False


def test_a_blob_that_is_not_the_layer_of_the_configuration_is_named(case: Case, tmp_path: Path) -> None:
    """A manifest may list any blob beside the configuration that `publish` wrote."""
    place = publish(case.cli, tmp_path / "lie")
    program = zstandard.compress(
        tar(file("opt/mine/word", b"word\n"), file("opt/mine/sshd", b"another program", 0o4755))
    )
    exchange_top_layer(tmp_path / "lie", program)
    done = case.elsewhere(tmp_path / "project").run("verify", place, "--rebuild", "--json", check=False)
    assert done.returncode == 7, done.stderr
    answer = json.loads(done.stdout)
    assert "parts" in answer, done.stdout
    *layers, top = [part for part in answer["parts"] if part["kind"] == "layer"]
    assert all(part["equal"] for part in layers) and not top["equal"]
    assert top["claimed"] == f"sha256:{sha256(zstandard.decompress(program))}"
    states = {part["kind"]: part["equal"] for part in answer["parts"] if part["kind"] != "layer"}
    assert states == {"config": True, "manifest": False, "squashfs": True}
    first = answer["first_difference"]
    assert (first["kind"], first["unit"]) == ("layer", top["unit"]) and first["path"]
    done = case.elsewhere(tmp_path / "text").run("verify", place, "--rebuild", check=False)
    assert f"layers:   {len(layers)} of {len(layers) + 1} equal" in done.stdout


def exchange_top_layer(layout: Path, blob: bytes) -> None:
    """Exchange the blob of the top layer of the image in a layout, but not the configuration. The artifacts that belong
    to the image, and the index that lists those, name its new manifest."""
    blobs, index = layout / "blobs/sha256", json.loads((layout / "index.json").read_text())
    (blobs / sha256(blob)).write_bytes(blob)
    documents = {item["digest"]: json.loads((blobs / item["digest"][7:]).read_text()) for item in index["manifests"]}
    made: dict[str, dict[str, Any]] = {}
    for digest, value in sorted(documents.items(), key=lambda item: ("manifests" in item[1], "subject" in item[1])):
        if "manifests" in value:
            for item in value["manifests"]:
                item |= made[item["digest"]]
        elif "subject" in value:
            old = value["subject"]["digest"]
            value["subject"] |= made[old]
            for item in value["layers"]:
                if item["mediaType"] == types.DOCUMENT:  # it states its subject too
                    there = (blobs / item["digest"][7:]).read_text().replace(old, str(made[old]["digest"])).encode()
                    (blobs / sha256(there)).write_bytes(there)
                    item |= {"digest": f"sha256:{sha256(there)}", "size": len(there)}
        else:
            value["layers"][-1] |= {"digest": f"sha256:{sha256(blob)}", "size": len(blob)}
        content = json.dumps(value).encode()
        (blobs / sha256(content)).write_bytes(content)
        made[digest] = {"digest": f"sha256:{sha256(content)}", "size": len(content)}
    text = json.dumps(index | {"manifests": [item | made[item["digest"]] for item in index["manifests"]]})
    for digest, new in made.items():
        text = text.replace(digest.replace(":", "-"), str(new["digest"]).replace(":", "-"))
    (layout / "index.json").write_text(text)


def test_a_file_that_only_one_build_has_is_named(case: Case, tmp_path: Path) -> None:
    cli = case.elsewhere(tmp_path / "project", f"{SAME}; touch /opt/mine/more")
    done = cli.run("verify", case.registry, "--rebuild", check=False)
    assert done.returncode == 7
    assert "DIFFERENT: layer of mine: opt/mine/more is only in the rebuild" in done.stdout
    assert "looking for the first file that differs: mine" in done.stderr


def test_units_of_the_store_and_of_caches_are_not_used(case: Case, tmp_path: Path) -> None:
    """A unit that differs in each build, in the store and in a cache of the site, with the keys of the rebuild."""
    cli = case.elsewhere(tmp_path / "project", RANDOM)
    site = json.loads((case.project.folder / "project/site.yaml").read_text())
    cache = {"caches": [{"at": f"{tmp_path}/cache", "write": True, "unsigned": True}]}
    (cli.project / "site.yaml").write_text(json.dumps({"schema": 1, **site, **cache}))
    images = cli.project / "images"
    (images / "app.yaml").write_text((case.project.checkout / "images/app.yaml").read_text())
    (images / "app.lock").write_text((case.project.checkout / "images/app.lock").read_text())
    made = cli.json("make", "app", "--no-verify")
    assert list((tmp_path / "cache").rglob("*"))
    done = cli.run("verify", "app", "--rebuild", "--json", check=False)
    answer = json.loads(done.stdout)
    assert done.returncode == 7 and answer["first_difference"]["path"] == "opt/mine/word"
    assert set(answer["units"]) == set(made["built"])


def test_the_log_of_a_failed_rebuild_remains(case: Case, tmp_path: Path) -> None:
    cli = case.elsewhere(tmp_path / "project", "echo told; false")
    done = cli.run("verify", case.registry, "--rebuild", "--json", check=False)
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 6 and "told" in Path(error["findings"][0]["where"]).read_text()
    assert list((cli.store / "tmp").iterdir()) == []


def test_a_missing_recipe_is_reported_with_its_place_in_the_published_spec(case: Case, tmp_path: Path) -> None:
    done = case.elsewhere(tmp_path / "project", recipes=False).run("verify", case.registry, "--rebuild", check=False)
    assert done.returncode == 2 and "'mine'" in done.stderr
    assert "images/app.yaml:" in done.stderr and "/tmp/" not in done.stderr.replace(str(tmp_path), "")


def test_a_lock_that_the_recipes_do_not_answer_is_refused(case: Case, tmp_path: Path) -> None:
    cli = case.elsewhere(tmp_path / "project")
    recipe = cli.project / "recipes/mine.py"
    recipe.write_text(recipe.read_text().replace("Sources()", 'Sources(debian=("hello",))'))
    done = cli.run("verify", case.registry, "--rebuild", check=False)
    assert done.returncode == 4 and "does not belong to its spec" in done.stderr


def test_images_without_a_lock_are_refused(case: Case, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    layout.add(foreign_images.image(layout, foreign_images.layers()), "1")
    done = case.cli.run("verify", f"oci:{tmp_path}/layout:1", "--rebuild", check=False)
    assert done.returncode == 4 and "no lock" in done.stderr
    done = case.cli.run("verify", "docker-archive:x.tar", "--rebuild", check=False)
    assert done.returncode == 2


def test_a_damaged_file_and_an_image_that_is_not_built_are_refused(case: Case, tmp_path: Path) -> None:
    other = Cli(case.project.checkout, tmp_path / "store")
    done = other.run("verify", "app", "--rebuild", check=False)
    assert done.returncode == 1 and "envbuild make app" in done.stderr
    made = Path(other.json("make", "app", "--no-verify")["artifact"])
    flip_bit(made, 5000)
    done = other.run("verify", "app", "--rebuild", check=False)
    assert done.returncode == 7 and "corrupt file" in done.stderr


def test_options_of_checks_are_refused(case: Case) -> None:
    for words in (["--rebuild", "--tier", "audit"], ["--rebuild", "--host"], ["--engine", "embedded"]):
        assert case.cli.run("verify", "app", *words, check=False).returncode == 2
