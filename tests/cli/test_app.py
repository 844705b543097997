"""The command line: a mistake is reported without a traceback, with its exit code and a hint."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.core.console import SilentReporter
from tests.support.command import envbuild, refused
from tests.support.programs import importing

pytestmark = pytest.mark.unit


def test_help_has_examples_and_exit_codes() -> None:
    done = envbuild("--help")
    assert done.returncode == 0
    for word in (
        "make",
        "lock",
        "compile",
        "export",
        "verify",
        "run",
        "list",
        "show",
        "store",
        "10 input not available",
    ):
        assert word in done.stdout


@pytest.mark.parametrize(
    "command", ["make", "lock", "compile", "export", "verify", "run", "list", "recipes", "show", "store"]
)
def test_every_command_has_help(command: str) -> None:
    done = envbuild(command, "--help")
    assert done.returncode == 0
    assert "Usage:" in done.stdout


def test_a_misspelt_image_name_has_a_hint(tmp_path: Path) -> None:
    refused(
        envbuild("make", "cpu-ucs", ENVBUILD_STORE=str(tmp_path / "store")),
        2,
        "no image is called 'cpu-ucs'",
        "cpu-ucx",
    )


@pytest.mark.parametrize("name", ["../cpu-ucx", "images/../x", "a/b", "CPU", "-x"])
def test_a_name_that_leaves_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    refused(envbuild("show", "--", name, ENVBUILD_STORE=str(tmp_path / "store")), 2)


def test_a_thread_that_cannot_be_started_is_an_error_with_a_hint(tmp_path: Path) -> None:
    """The limit of memory leaves no room for the stack of one thread, as a job's limit may."""
    limits = "import resource, os, sys\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 40, resource.RLIM_INFINITY))\n"
    limits += "resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))\nos.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", limits, sys.executable, "-m", "envbuild", "store", "du"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=importing(ENVBUILD_STORE=str(tmp_path / "store"))
    )
    refused(done, 5, "a thread cannot be started", "ulimit")


@pytest.mark.parametrize(
    "words",
    [
        ("show", "https://bob:hush@h.invalid/x"),
        ("show", "docker-archive:https://bob:hush@h.invalid/x.tar", "--json"),
        ("verify", "https:/bob:hush@h.invalid/x"),
        ("run", "docker://bob:hush@h.invalid/x:1", "--", "ls"),
    ],
)
def test_a_login_that_the_user_types_is_in_no_error(words: tuple[str, ...]) -> None:
    done = envbuild(*words)
    assert done.returncode and "h.invalid/x" in done.stderr and "hush" not in done.stdout + done.stderr


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = envbuild("compile", "cpu-ucx", ENVBUILD_STORE=str(tmp_path / "file"))
    refused(done, 5, "cannot be written: it is not a folder", "set ENVBUILD_STORE")


def test_an_unknown_engine(project: Path, tmp_path: Path) -> None:
    from envbuild.build.engines.select import choose_engine
    from envbuild.core.engines import ENGINES
    from envbuild.core.errors import SpecError
    from envbuild.core.store.store import Store

    with pytest.raises(SpecError, match="no engine is called 'dokcer'") as error:
        choose_engine("dokcer", Store.open(tmp_path / "store"), SilentReporter())
    assert error.value.hint == f"the engines are: auto, {', '.join(ENGINES)}"


def test_an_unknown_output(project: Path, tmp_path: Path) -> None:
    from envbuild.export.formats import FORMATS

    done = envbuild("export", "cpu-ucx", "--to", "sif", cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    refused(done, 2, f"the outputs are: {', '.join(FORMATS)}")


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("check", "images/cpu-ucx"), "hint: envbuild check images/cpu-ucx.yaml"),
        (("check", "cpu-ucx.yaml"), "cpu-ucx.yaml: no such file\nhint: did you mean the image 'cpu-ucx'?"),
        (("check", "My Image"), "hint: write component=version: torch=2.8; the images: envbuild list"),
        (("check", "gpu H100"), "hint: write gpu=H100"),
        (("check", "listed"), "hint: write 'ucx: {}' for '- ucx', each on a line of its own"),
        (("check", "itself"), "hint: name another spec, or rename this file"),
        (("export", "http://host:5000/app:1", "--to", "squashfs"), "write docker://host:5000/app:1"),
        (("export", "localhost:5000/team/app:1", "--to", "squashfs"), "write docker://localhost:5000/team/app:1"),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_common_mistakes_in_a_spec_have_a_hint(
    words: tuple[str, ...], text: str, project: Path, tmp_path: Path
) -> None:
    head = "schema: 1\ndescription: x\n"
    (project / "images/listed.yaml").write_text(f"{head}target: cpu\nbase: debian:13\nlayers: [ucx]\n")
    (project / "images/itself.yaml").write_text(f"{head}extends: itself\n")
    refused(envbuild(*words, cwd=project, ENVBUILD_STORE=str(tmp_path / "store")), 2, text)


def test_a_mount_goes_to_an_absolute_path() -> None:
    from envbuild.cli.run_image import parse_bind
    from envbuild.core.errors import SpecError

    assert parse_bind("/tmp:/mnt") == ("/tmp", "/mnt", False)
    with pytest.raises(SpecError, match="not an absolute path") as caught:
        parse_bind("/tmp:data")
    assert caught.value.hint == "--bind /tmp:/data"


def test_a_mount_may_be_read_only_and_has_no_other_option() -> None:
    from envbuild.cli.run_image import parse_bind
    from envbuild.core.errors import SpecError

    assert parse_bind("/tmp:/mnt:ro") == ("/tmp", "/mnt", True)
    assert parse_bind("/tmp::ro") == ("/tmp", "/tmp", True)
    assert parse_bind("/tmp") == ("/tmp", "/tmp", False)
    for bind in ("/tmp:/mnt:rw", "/tmp:/mnt:", "/tmp:/mnt:ro:z", "/tmp:/mnt:RO"):
        with pytest.raises(SpecError) as caught:
            parse_bind(bind)
        assert "--bind /tmp:/mnt:ro" in caught.value.hint
    with pytest.raises(SpecError) as caught:
        parse_bind("/tmp:ro")
    assert caught.value.hint == "--bind /tmp:/tmp:ro"


def test_list_warns_of_files_whose_names_are_not_image_names(project: Path, tmp_path: Path) -> None:
    for name in ("My Image.yaml", "mine.yml"):
        shutil.copy(project / "images/cpu-ucx.yaml", project / "images" / name)
    done = envbuild("list", cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    assert done.returncode == 0
    assert "images/My Image.yaml is not an image, because of its name: a name is made of a-z" in done.stderr
    assert "images/mine.yml is not an image, because of its name: an image's file ends in .yaml" in done.stderr


def test_a_build_context_that_cannot_be_written(tmp_path: Path) -> None:
    from envbuild.build.engines.build_context import write_context
    from envbuild.core.errors import PublishError
    from envbuild.core.store.store import Store
    from tests.support.small_plan import small_plan

    store = Store.open(tmp_path / "store")
    (tmp_path / "file").touch()
    for folder, what in (
        (tmp_path, "something else than a build context"),
        (tmp_path / "file/in", "cannot be written"),
    ):
        with pytest.raises(PublishError, match=what) as caught:
            write_context(small_plan(), store, folder)
        assert caught.value.hint


@pytest.mark.parametrize(
    ("to", "out", "code", "text"),
    [
        ("squashfs", "file/", 8, "a file with its name exists"),
        ("squashfs", "-", 2, "-o - would be stdout"),
        ("oci", "-", 2, "-o - would be stdout"),
        ("oci", "file", 8, "hint: name a new folder: -o file.oci"),
        ("oci", "folder", 8, "hint: name a new folder: -o folder/image.oci"),
        ("docker", "file", 2, "hint: leave it out, or use --tag NAME:TAG"),
    ],
)
def test_an_impossible_output_is_refused_before_the_build(
    to: str, out: str, code: int, text: str, project: Path, tmp_path: Path
) -> None:
    (project / "file").touch()
    (project / "folder").mkdir()
    (project / "folder" / "mine").touch()
    done = envbuild("export", "cpu-ucx", "--to", to, "-o", out, cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    refused(done, code, text)
    assert "fetching" not in done.stderr and "rm -r" not in done.stderr


@pytest.mark.slow_unit
def test_recipes_lists_the_options_of_a_recipe(project: Path) -> None:
    folder = project / "recipes"
    folder.mkdir()
    (folder / "hello.py").write_text(
        "from dataclasses import dataclass, field\nfrom typing import ClassVar, Literal\n"
        "from envbuild.sdk import Recipe\n\n\n"
        '@dataclass(frozen=True, kw_only=True)\nclass Hello(Recipe):\n    """Says hello.\n\n    More of it."""\n\n'
        '    requires: ClassVar[tuple[str, ...]] = ("torch",)\n'
        '    word: str\n    mode: Literal["", "loud"] = ""\n    many: int = 3\n    names: tuple[str, ...] = ("a",)\n'
        "    notes: dict[str, str] = field(default_factory=dict)\n"
    )
    (folder / "plain.py").write_text(
        "from dataclasses import dataclass\nfrom envbuild.sdk import Recipe\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Plain(Recipe):\n    flag: bool = True\n"
    )
    (folder / "broken.py").write_text("import nothing_of_that_name\n")
    rows = {row["name"]: row for row in json.loads(envbuild("recipes", "--json", cwd=project).stdout)["recipes"]}
    assert rows["hello"]["about"] == "Says hello." and rows["cuda"]["about"] == "CUDA toolkit."
    assert rows["plain"]["about"] == "" and "broken.py:1:1" in rows["broken"]["about"]
    data = json.loads(envbuild("recipes", "hello", "--json", cwd=project).stdout)
    options = {row["name"]: (row["type"], row["choices"], row["default"], row["required"]) for row in data["options"]}
    assert options == {
        "word": ("text", [], None, True),
        "mode": ("choice", ["", "loud"], "", False),
        "many": ("whole number", [], 3, False),
        "names": ("list of texts", [], ["a"], False),
        "notes": ("names with texts", [], {}, False),
    }
    assert (data["requires"], data["after"], data["shorthand"]) == (["torch"], [], "")
    text = envbuild("recipes", "cuda", cwd=project).stdout
    assert re.search(r"flavor +one of devel, runtime +devel", text) and "a bare value, cuda: …, sets version" in text
    refused(envbuild("recipes", "cudda", cwd=project), 2, "no recipe is called 'cudda'", "did you mean 'cuda'?")


def test_all_names_are_checked_before_the_first_image_is_built(project: Path, tmp_path: Path) -> None:
    done = envbuild("make", "cpu-ucx", "nosuch", cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    refused(done, 2, "no image is called 'nosuch'")


@pytest.mark.slow_unit
def test_an_engine_is_chosen_before_anything_is_fetched(project: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    done = envbuild("make", "cpu-ucx", "--engine", "bogus", cwd=project, ENVBUILD_STORE=str(store))
    refused(done, 2, "no engine is called 'bogus'")
    assert not list((store / "blobs" / "sha256").iterdir())


@pytest.mark.slow_unit
@pytest.mark.parametrize("command", ["run", "show", "verify"])
@pytest.mark.parametrize(("name", "text"), [("nosuch.sqsh", "cannot be read"), ("text.sqsh", "is not a squashfs file")])
def test_a_path_that_is_not_an_image_file(command: str, name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "text.sqsh").write_text("text")
    refused(envbuild(command, str(tmp_path / name), ENVBUILD_STORE=str(tmp_path / "store")), 2, text)


@pytest.mark.slow_unit
def test_an_image_reference_that_docker_would_refuse(project: Path, tmp_path: Path) -> None:
    arguments = ("export", "cpu-ucx", "--to", "docker", "--tag", "Bad Tag")
    done = envbuild(*arguments, cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    refused(done, 2, "is not an image reference")


@pytest.mark.slow_unit
def test_stdout_contains_data_only(project: Path, tmp_path: Path) -> None:
    """The Containerfile and nothing else; progress goes to stderr."""
    done = envbuild("compile", "cpu-ucx", cwd=project, ENVBUILD_STORE=str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# cpu-ucx")
    assert "FROM scratch AS base" in done.stdout


def test_run_time_packages_record_their_layer(project: Path) -> None:
    from dataclasses import replace

    from envbuild.lock.request import lock_request
    from envbuild.lock.resolve import resolve_in
    from envbuild.spec.image_spec import load_image_spec
    from envbuild.spec.project import Project

    head = "schema: 1\ndescription: x\ntarget: cpu\nbase: debian:13\n"
    (project / "images/mine.yaml").write_text(f"{head}layers: {{ucx: {{}}, debian-packages: [jq]}}\n")
    found = Project.find(project)
    request = lock_request(resolve_in(load_image_spec("mine", found), found))
    assert request.askers["jq"] == "debian-packages" and request.where["debian-packages"].endswith("mine.yaml:5:19")
    assert replace(request, askers={}).digest() == request.digest()  # words of messages make no lock outdated


@pytest.mark.parametrize("words", [["origins", "cpu-ucx"], ["run", "cpu-ucx", "--", "true"]])
def test_a_folder_that_was_removed_is_no_fault_of_envbuild(words: list[str], tmp_path: Path) -> None:
    """As that of a job which has ended, in which a shell is open."""
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-P", "-m", "envbuild", *words]
    env = {**importing(), "ENVBUILD_STORE": str(tmp_path / "store")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "fault of envbuild" not in done.stderr
    assert "the current folder was removed: change into another one" in done.stderr
