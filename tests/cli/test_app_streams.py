"""Streams of the command: results, completion, streams that are closed or full."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.cli.app import COMMANDS, named_commands
from envbuild.core.engines import ENGINES
from envbuild.export.formats import FORMATS
from tests.support.command import ROOT

pytestmark = pytest.mark.unit


def test_results_before_an_error_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from envbuild.cli.json_answer import encode_error
    from envbuild.cli.options import show_each
    from envbuild.core.errors import InputError

    def results() -> Iterator[tuple[dict[str, str], str]]:
        yield {"image": "one"}, "one: done"
        raise InputError("two lacks something")

    for as_json in (False, True):
        with pytest.raises(InputError) as caught:
            show_each(results(), as_json)
        assert capsys.readouterr().out == ("" if as_json else "one: done\n")
    found = json.loads(encode_error(caught.value))  # what the one handler prints
    assert found["images"] == [{"image": "one"}] and found["error"]["code"] == "input"


def test_texts_of_servers_and_images_are_printed_with_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    from envbuild.cli.main import fail
    from envbuild.cli.options import show
    from envbuild.core.errors import InputError

    show({}, False, "label\ta \u202eb\nlabel c\x1b[2J")
    with pytest.raises(SystemExit):
        fail(InputError("registry: HTTP 500: \x1b]0;title\x07", hint="\u2066x", where="a\u200bb"))
    printed = capsys.readouterr()
    assert printed.out == "label\ta \\u202eb\nlabel c\\x1b[2J\n"
    assert printed.err == "error: a\\u200bb: registry: HTTP 500: \\x1b]0;title\\x07\nhint: \\u2066x\n"


@pytest.mark.parametrize(("terminal", "printed"), [(True, "ENV A=\\x1b[2J\n"), (False, "ENV A=\x1b[2J\n")])
def test_data_is_escaped_on_a_terminal_alone(
    terminal: bool, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of a base image are part of a Containerfile."""
    from envbuild.cli.options import show_data

    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    show_data("ENV A=\x1b[2J\n")
    assert capsys.readouterr().out == printed


@pytest.mark.slow_unit
@pytest.mark.parametrize(
    ("words", "answers"),
    [
        ("export --to ", [*FORMATS]),
        ("export --compression g", ["gzip"]),
        ("make --engine ", ["auto", *ENGINES]),
        ("export --block 1", ["128K", "1M"]),
        ("export --platform ", ["linux/amd64", "linux/arm64"]),
    ],
)
def test_a_shell_completes_options(words: str, answers: list[str]) -> None:
    asked = {"_ENVBUILD_COMPLETE": "complete_bash", "COMP_WORDS": f"envbuild {words}"}
    asked["COMP_CWORD"] = str(len(f"{words}|".split()))
    program = "from envbuild.cli.app import create_app; create_app()(prog_name='envbuild')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={**os.environ, **asked}
    )
    assert done.stdout.split() == answers, done.stderr


@pytest.mark.slow_unit
def test_a_reader_that_stops_early_is_not_an_error() -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m envbuild recipes --json | true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow_unit
def test_a_full_output_disk_is_not_reported_as_the_store() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "envbuild", "recipes"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 5
    assert done.stderr.startswith(
        "error: No space left on device\nhint: free some space where the output goes; in the store: "
    )


@pytest.mark.parametrize(
    "closed",
    [*(pytest.param(one, marks=pytest.mark.slow_unit) for one in ("2>&-", ">&-", "<&-")), "<&- >&- 2>&-"],
)
def test_closed_streams(closed: str, tmp_path: Path) -> None:
    """No file takes their place, and nothing fails."""
    program = f"exec {sys.executable} -m envbuild list {closed}"
    environment = {**os.environ, "ENVBUILD_STORE": str(tmp_path / "store")}
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    wrong = f"exec {sys.executable} -m envbuild show nothing {closed}"
    done = subprocess.run(["bash", "-c", wrong], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_command_line_imports_its_own_command_alone() -> None:
    program = (
        "import sys; from envbuild.cli.app import create_app, named_commands; "
        "create_app(named_commands(['list', '--json'])); "
        "print(*sorted(name for name in sys.modules if name.startswith('envbuild.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "envbuild.cli.list" in loaded
    others = {name.partition(":")[0] for name in COMMANDS.values()} - {"envbuild.cli.list"}
    assert loaded & others == set()


@pytest.mark.slow_unit
@pytest.mark.parametrize("words", [("--help",), ("matrix", "--help"), ("matrix", "show"), ("check", "torch=2.8")])
def test_only_a_refresh_imports_the_collectors_of_facts(words: tuple[str, ...]) -> None:
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        f"sys.argv[1:] = {words!r}; from envbuild.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    assert "envbuild.cli.main" in loaded
    assert [name for name in loaded if name.startswith("envbuild.matrix.collect")] == []


@pytest.mark.slow_unit
def test_words_are_checked_without_what_reads_images() -> None:
    """Once the facts are compiled: neither YAML, specs, recipes nor locks."""
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "sys.argv[1:] = ['check', 'torch=2.8']; from envbuild.cli.main import main; main()"
    )
    for _ in range(2):  # the first fills the cache
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    assert "envbuild.cli.check_words" in loaded
    others = ("yaml", "envbuild.lock", "envbuild.spec.image_spec", "envbuild.spec.recipe", "envbuild.spec.resolve")
    assert [name for name in loaded if name.startswith(others)] == []


@pytest.mark.parametrize("arguments", [[], ["--help"], ["lst"], ["--version", "list"]])
def test_a_command_line_without_a_command_has_all_of_them(arguments: list[str]) -> None:
    assert list(named_commands(arguments)) == list(COMMANDS)


@pytest.mark.slow_unit
def test_a_file_of_another_kind_in_the_store_and_a_long_name_are_named(tmp_path: Path) -> None:
    """They were called faults of envbuild."""
    run = [sys.executable, "-m", "envbuild"]
    store = tmp_path / "store"
    environment = {**os.environ, "ENVBUILD_STORE": str(store)}
    subprocess.run([*run, "store", "gc"], cwd=ROOT, env=environment, check=True, capture_output=True)
    (store / "locks").mkdir(exist_ok=True)
    (store / "locks/tmp").unlink(missing_ok=True)
    gc, lock = ["store", "gc"], store / "locks/tmp"
    long = ["export", "oci:absent", "--to", "squashfs", "-o", "x" * 300]
    other = "another kind of file has that name"
    for words, text, make in (
        (gc, other, lambda: lock.symlink_to("nowhere")),
        (gc, other, lambda: os.mknod(lock, stat.S_IFSOCK | 0o600)),
        (long, "use a shorter name", lambda: None),
    ):
        make()
        done = subprocess.run([*run, *words], cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 5 and text in done.stderr and "fault of envbuild" not in done.stderr, done.stderr
        assert max(map(len, done.stderr.splitlines())) < 500
        lock.unlink(missing_ok=True)
