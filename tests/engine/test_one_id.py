"""A user without subordinate ids: commands in a finished squashfs file run with one id, as under enroot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.core.userns.removal import remove_tree
from tests.support import tiny_root
from tests.support.foreign_images import image, made, workspace
from tests.support.local_registry import Layout, file, folder, symlink, tar
from tests.support.run_as_user import RUN, as_user, run
from tests.support.tools import require_tools
from tests.support.unprivileged_user import SUBORDINATE, user_without_ids

pytestmark = pytest.mark.engine

FOLDERS = ("etc", "odd", "tmp", "var", "dev", "proc", "sys", "root", "run")

# Arguments: the store, the engine. Each finding's place, message and hint on a line of its own.
CHOOSE = """
import sys
from pathlib import Path
from envbuild.build.engines.select import choose_engine
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EngineError
from envbuild.core.store.store import Store
from tests.support.run_as_user import RUN, as_user, run
from tests.support.tools import require_tools
try:
    choose_engine(sys.argv[2], Store.open(Path(sys.argv[1])), SilentReporter())
except EngineError as error:
    print(*(f"{finding.message}|{finding.hint}" for finding in error.findings), sep="\\n")
"""


@pytest.fixture(scope="module")
def user() -> Iterator[str]:
    with user_without_ids("runuser", "unsquashfs") as name:
        yield name


@pytest.fixture(scope="module")
def files(scratch: Path) -> Iterator[dict[str, Path]]:
    """Yield an image as envbuild writes it for enroot, and with the owners of its layers."""
    place = scratch / "one-id"
    layout = Layout(place / "layout")
    programs = dict(tiny_root.host_files())
    above = sorted({str(parent) for name in programs for parent in Path(name).parents} - {"."})
    layer = tar(
        *[folder(name) for name in dict.fromkeys([*above, *FOLDERS])],
        *[file(name, path.read_bytes(), 0o755) for name, path in programs.items()],
        *[symlink("bin", "usr/bin"), folder("odd/closed", 0o000), file("odd/owned", b"old\n", 0o600, uid=1000)],
    )
    layout.add(image(layout, [layer], config={"Cmd": ["sh"]}))
    at, found = workspace(place / "store"), {}
    for name, keep in (("plain", False), ("owners", True)):
        found[name] = made(f"oci:{layout.path}", at, place / f"{name}.sqsh", keep_owners=keep).artifact.path
        found[name].chmod(0o644)
    yield found
    remove_tree(place)


@pytest.mark.parametrize("name", ["plain", "owners"])
def test_a_command_runs_in_a_file_and_may_change_all_of_it(name: str, user: str, files: dict[str, Path]) -> None:
    command = "id -u; cat /odd/owned; echo new >> /odd/owned; cat /odd/owned; ls /odd/closed; touch /odd/closed/x /y"
    code, output, lines, box = run(user, files[name], command)
    assert (code, output) == (0, "0\nold\nold\nnew\n")
    assert any("no subordinate ids" in line for line in lines)
    assert set(box) == {"seccomp", "keyring", "cgroup", "users"} and box["keyring"]


def test_a_box_with_one_id_is_as_closed_as_another(user: str, files: dict[str, Path]) -> None:
    """No other id, no capabilities beyond those of a container, no network."""
    command = "cat /proc/self/uid_map /proc/self/setgroups; ls /sys/class/net; grep CapEff /proc/self/status"
    code, output, _, _ = run(user, files["plain"], command)
    mapping, groups, network, (_, capabilities) = (line.split() for line in output.splitlines())
    assert code == 0 and mapping[0] == "0" and mapping[2] == "1" and groups == ["deny"] and network == ["lo"]
    assert not int(capabilities, 16) & (1 << 21)  # CAP_SYS_ADMIN


def test_what_a_killed_command_left_is_removed(user: str, files: dict[str, Path]) -> None:
    code, *_ = run(user, files["plain"], "mkdir -p /a/b; touch /a/b/c; chmod 0 /a/b /a; sleep 60", timeout=5)
    assert code == 124


@pytest.mark.parametrize("engine", ["auto", "embedded", "buildah"])
def test_builds_need_subordinate_ids_and_no_hint_names_an_engine_that_refused(engine: str, user: str) -> None:
    require_tools("buildah", "newuidmap")
    done = as_user(user, CHOOSE, f"/home/{user}/store", engine)
    # docker is tried as well: its daemon has the ids, so its reason is another one
    lines = [line for line in done.stdout.splitlines() if not line.startswith("engine docker cannot run")]
    assert len(lines) == (2 if engine == "auto" else 1), done.stderr
    files = [Path(path) for path in SUBORDINATE if Path(path).exists()]
    taken = [line.split(":")[1] for file in files for line in file.read_text().splitlines()]
    for line in lines:
        message, _, hint = line.partition("|")
        assert "subordinate ids" in message and hint.startswith("sudo usermod --add-subuids") and "--engine" not in hint
        assert hint.split()[3].split("-")[0] not in taken


def test_the_audit_of_a_file_needs_no_ids(user: str, files: dict[str, Path]) -> None:
    """Without a Python in the image it ends with the image's fault, not with one of the machine."""
    program = (
        "import sys; from pathlib import Path; from types import SimpleNamespace\n"
        "from envbuild.core.store.store import Store; from envbuild.core.errors import VerifyError\n"
        "from envbuild.core.console import SilentReporter\n"
        "from envbuild.verify.run_inspector import inspect_image; from envbuild.verify.open_image import open_image\n"
        "at = SimpleNamespace(store=Store.open(Path(sys.argv[1])), reporter=SilentReporter())\n"
        "try:\n"
        "    with open_image(Path(sys.argv[2]), {}, at) as run: inspect_image(run)\n"
        "except VerifyError as error: print(error.message.splitlines()[0])\n"
    )
    done = as_user(user, program, f"/home/{user}/store", str(files["plain"]))
    assert done.stdout == "the image could not be inspected: /usr/bin/python3 ended with exit code 127\n", done.stderr


def test_root_in_a_namespace_with_one_id_runs_a_file(user: str, files: dict[str, Path]) -> None:
    """As in ``unshare --user --map-root-user``."""
    require_tools("unshare")
    program = (
        f"import os, sys; os.execvp('unshare', ['unshare', '-U', '-r', sys.executable, '-c', {RUN!r}, *sys.argv[1:]])"
    )
    done = as_user(user, program, f"/home/{user}/store", str(files["plain"]), "id -u", "60")
    assert done.returncode == 0 and json.loads(done.stdout)[:2] == [0, "0\n"], done.stderr
