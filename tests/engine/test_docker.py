"""The docker engine in a real Docker Engine: the layers of the embedded engine, failures reported alike, nothing left
behind."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.build.engines.base import BuildOptions, BuildResult
from envbuild.build.engines.docker.daemon import check_socket, check_version
from envbuild.build.engines.docker.engine import Docker
from envbuild.build.engines.docker.error_report import find_failed
from envbuild.build.engines.docker.import_units import layer_roles
from envbuild.build.engines.docker.program import Program, UnusableError, find_program
from envbuild.build.engines.docker.stages import Role, docker_containerfile, list_stages
from envbuild.build.engines.embedded.engine import Embedded
from envbuild.build.plan.units import Plan
from envbuild.core.console import SilentReporter
from envbuild.core.errors import BuildError, EngineError
from envbuild.core.store.store import Store
from envbuild.core.userns.removal import remove_tree
from tests.support import tiny_root as kit
from tests.support.as_user import open_folder, run_as
from tests.support.dockerd import dockerd as dockerd
from tests.support.programs import import_path
from tests.support.small_plan import small_plan
from tests.support.wide_plan import wide

pytestmark = pytest.mark.engine


@pytest.fixture
def docker_store(store: Store, dockerd: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Yield a store in which the embedded engine works, with a Docker Engine that the environment names."""
    monkeypatch.setenv("DOCKER_HOST", dockerd)
    probe = Docker().probe(store)
    if probe.step in ("find the program", "storage driver"):
        pytest.skip(f"no program starts BuildKit here, or overlay2 does not run: {probe.reason}")
    assert probe.ok, probe
    yield store


def build(plan: Plan, store: Store, **options: Any) -> BuildResult:
    return Docker().build(plan, store, SilentReporter(), BuildOptions(**options))


def diff_ids(built: BuildResult) -> list[tuple[str, str]]:
    return [(layer.unit, layer.diff_id) for layer in built.layers]


def images(host: str) -> str:
    done = subprocess.run(["docker", "-H", host, "images", "-aq"], capture_output=True, text=True, check=True)
    return done.stdout


def without_environment(plan: Plan) -> Plan:
    """Return the plan without the step that writes its environment: a stage inherits APT_CONFIG of the one below."""
    units = (
        replace(unit, steps=tuple(s for s in unit.steps if not s.command.startswith("env "))) for unit in plan.units
    )
    return replace(plan, units=tuple(units))


@pytest.mark.parametrize("name", ["everything", "wide"])
def test_the_layers_have_the_digests_of_the_embedded_engine(name: str, docker_store: Store) -> None:
    """Also of units on a folder in several parts, of one that sees a toolkit only while it is built, and wheels."""
    plan = without_environment(wide(docker_store)) if name == "wide" else kit.plans(name, docker_store)
    own = Embedded().build(plan, docker_store, SilentReporter(), BuildOptions())
    assert diff_ids(build(plan, docker_store)) == diff_ids(own)


@pytest.mark.parametrize("hosts", ["echo 127.0.0.1 > /etc/hosts", "true", "ln -s none /etc/hosts"])
def test_a_package_that_writes_hosts_does_so(hosts: str, docker_store: Store) -> None:
    """Docker mounts its own, and netbase writes the file only where there is none."""
    plan = kit.plan(docker_store, kit.unit("above", "touch /opt/above"))
    step = replace(plan.units[0].steps[0], command=f"if [ ! -e /etc/hosts ]; then {hosts}; fi")
    base = replace(plan.units[0], steps=(*plan.units[0].steps, step))
    plan = replace(plan, units=(base, *plan.units[1:]))
    own = Embedded().build(plan, docker_store, SilentReporter(), BuildOptions()) if hosts.startswith("echo") else None
    built = build(plan, docker_store)
    path = docker_store.layer_tree(built.layers[0].diff_id) / "etc/hosts"
    assert (path.is_file(), path.is_symlink()) == (hosts.startswith("echo"), hosts.startswith("ln"))
    if own:
        assert diff_ids(built) == diff_ids(own)


DRIVER = """
import json, sys
from pathlib import Path
from tests.support import tiny_root as kit
from envbuild.build.engines.docker.engine import Docker
store = kit.Store.open(Path(sys.argv[1]))
probe = Docker().probe(store)
assert probe.ok, probe
built = Docker().build(kit.plans("everything", store), store, kit.SilentReporter(), kit.BuildOptions())
print(json.dumps([layer.diff_id for layer in built.layers]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root starts the process of another user")
def test_another_user_makes_the_same_layers(
    docker_store: Store, dockerd: str, scratch: Path, other_user: tuple[str, str]
) -> None:
    """One of the group of the socket, with subordinate ids."""
    name, python = other_user
    door, own = scratch / "docker.sock", scratch / "of-another-user"
    os.link(dockerd.removeprefix("unix://"), door)
    own.mkdir()
    for path in (door, own):
        shutil.chown(path, name, name)
    path = import_path(*(item for item in sys.path if "site-packages" in item))
    environment = ["env", f"HOME=/home/{name}", f"PYTHONPATH={path}", f"DOCKER_HOST=unix://{door}"]
    command = ["runuser", "-u", name, "--", *environment, python, "-c", DRIVER, str(own)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=f"/home/{name}")
        assert done.returncode == 0, done.stderr
        built = build(kit.plans("everything", docker_store), docker_store)
        assert json.loads(done.stdout) == [layer.diff_id for layer in built.layers]
    finally:
        door.unlink()
        os.chown(dockerd.removeprefix("unix://"), 0, 0)
        remove_tree(own)


def test_a_second_build_takes_all_of_the_store_and_nothing_remains(docker_store: Store, dockerd: str) -> None:
    plan, before = kit.plans("everything", docker_store), images(dockerd)
    first = build(plan, docker_store)
    assert first.built == ("base", "everything", "upon") and Docker().missing(plan, docker_store, BuildOptions()) == ()
    again = build(plan, docker_store)
    assert (again.built, again.reused, diff_ids(again)) == ((), first.built, diff_ids(first))
    rebuilt = build(plan, docker_store, rebuild=True)
    assert rebuilt.built == first.built and diff_ids(rebuilt) == diff_ids(first)
    assert images(dockerd) == before and list(docker_store.tmp.iterdir()) == []


def test_a_rebuild_runs_the_steps_again(docker_store: Store) -> None:
    plan = kit.plan(
        docker_store,
        kit.unit("one", "cat /proc/sys/kernel/random/uuid > /opt/one"),
        kit.unit("two", "cat /opt/one > /opt/two", lowers=("base", "one")),
    )
    first, second = build(plan, docker_store), build(plan, docker_store, rebuild=True)
    assert diff_ids(first)[0] == diff_ids(second)[0] and diff_ids(first)[1:] != diff_ids(second)[1:]
    texts = [(docker_store.layer_tree(layer.diff_id) / "opt" / layer.unit).read_text() for layer in second.layers[1:]]
    assert texts[0] == texts[1], "the layer of a unit is that on which others were built"


def test_a_failed_step_is_reported_with_its_unit_and_its_log(docker_store: Store) -> None:
    plan = kit.plan(docker_store, kit.unit("good", "true"), kit.unit("bad", "true", "echo told; exit 3"))
    with pytest.raises(BuildError) as error:
        build(plan, docker_store)
    lines = error.value.message.splitlines()
    assert lines[0].startswith("unit bad failed in step 2 of 2") and "exit code: 3" in lines
    assert "told" in Path(error.value.where).read_text() and "--engine embedded" in error.value.hint
    assert list(docker_store.tmp.iterdir()) == []


def test_a_step_has_no_network_and_no_secret_of_the_user(
    docker_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker passes the proxies of its configuration to steps, and logins of registries to BuildKit."""
    proxies = {"default": {"httpProxy": "http://user:secret@proxy.example"}}
    (tmp_path / "config.json").write_text(
        json.dumps({"proxies": proxies, "auths": {"r.example": {"auth": "dXNlcjpzZWNyZXQ="}}})
    )
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret@proxy.example")
    unit = kit.unit("seen", "mkdir /opt/seen; env > /opt/seen/env; cat /proc/net/dev > /opt/seen/net")
    built = build(kit.plan(docker_store, unit), docker_store)
    folder = docker_store.layer_tree(built.layers[-1].diff_id) / "opt/seen"
    assert "secret" not in (folder / "env").read_text() and "proxy" not in (folder / "env").read_text().lower()
    devices = [line.split(":")[0].strip() for line in (folder / "net").read_text().splitlines() if ":" in line]
    assert devices == ["lo"]


def test_the_probe_names_the_daemon_and_its_gaps(docker_store: Store) -> None:
    probe = Docker().probe(docker_store)
    assert probe.ok and probe.caution and "storage driver" in probe.detail
    assert ("no SOURCE_DATE_EPOCH" in probe.detail) == ("Engine 20.10" in probe.detail)


def test_a_damaged_configuration_of_docker_is_reported(
    docker_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"auths": {"r.example": {"auth": "c2VjcmV0"}}}')  # without a colon
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    probe = Docker().probe(docker_store)
    assert (probe.ok, probe.step) == (False, "reach the daemon")


@pytest.mark.parametrize(
    ("host", "step", "fix"),
    [
        ("tcp://build.example:2375", "find the daemon", "run envbuild on that machine"),
        ("ssh://user@build.example", "find the daemon", "run envbuild on that machine"),
        ("unix:///nowhere/docker.sock", "find the daemon", "systemctl start docker"),
    ],
)
def test_a_daemon_that_is_elsewhere_or_missing_is_refused(
    host: str, step: str, fix: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    probe = Docker().probe(store)
    assert (probe.ok, probe.step) == (False, step) and fix in probe.fix


def test_a_socket_on_which_nothing_answers_is_reported(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
        probe = Docker().probe(store)
    assert (probe.ok, probe.step) == (False, "reach the daemon") and probe.reason and probe.fix


def test_a_user_outside_of_the_group_gets_the_command_that_adds_him() -> None:
    def attempt() -> tuple[str, str]:
        try:
            check_socket(f"{folder}/docker.sock")
        except UnusableError as error:
            return error.step, error.hint
        return "", ""

    with open_folder() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/docker.sock")
        (folder / "docker.sock").chmod(0o660)
        assert attempt() == ("", "")
        step, fix = run_as(65534, 65534, (), attempt)
        assert step == "use the daemon" and fix.startswith("sudo usermod --append --groups docker $USER")
        os.chown(folder / "docker.sock", 0, 65533)
        assert run_as(65534, 65534, (65533,), attempt) == ("", "")


VERSION = {"Version": "20.10.24", "ApiVersion": "1.41"}
INFO = {
    "OSType": "linux",
    "SecurityOptions": ["name=seccomp,profile=default"],
    "Driver": "overlay2",
    "DriverStatus": [["Backing Filesystem", "extfs"], ["Native Overlay Diff", "true"]],
}


@pytest.mark.parametrize(
    ("version", "info", "step"),
    [
        ({"Version": "19.03.1", "ApiVersion": "1.40"}, {}, "version"),
        ({"ApiVersion": "?"}, {}, "version"),
        ({}, {"OSType": "windows"}, "version"),
        ({}, {"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}, "isolation"),
        ({}, {"Driver": "vfs", "DriverStatus": None}, "storage driver"),
        ({}, {"DriverStatus": [["Native Overlay Diff", "false"]]}, "storage driver"),
    ],
)
def test_daemons_that_cannot_build_the_same_are_refused(
    version: dict[str, str], info: dict[str, Any], step: str
) -> None:
    check_version(VERSION, INFO)
    with pytest.raises(UnusableError) as error:
        check_version(VERSION | version, INFO | info)
    assert error.value.step == step and error.value.hint


def program(folder: Path, version: str, *, buildx: bool = False) -> None:
    folder.mkdir()
    path = folder / "docker"
    path.write_text(
        f'#!/bin/sh\ncase "$1" in buildx) exit {0 if buildx else 1};; *) echo Docker version {version};; esac\n'
    )
    path.chmod(0o755)


def test_the_first_program_that_starts_buildkit_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "new", "28.2.2, build e6534b4")
    program(tmp_path / "old", "20.10.24+dfsg1, build 5d6db84")
    program(tmp_path / "whole", "28.2.2, build e6534b4", buildx=True)
    for names, found in (
        (("new", "old", "whole"), ("old", False)),
        (("new", "whole"), ("whole", True)),
    ):
        monkeypatch.setenv("PATH", ":".join(str(tmp_path / name) for name in names))
        assert find_program() == Program(str(tmp_path / found[0] / "docker"), found[1])
    monkeypatch.setenv("PATH", str(tmp_path / "new"))
    with pytest.raises(UnusableError, match=r"28\.2\.2\) .*buildx is missing"):
        find_program()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(UnusableError, match="not on PATH"):
        find_program()


def test_only_what_steps_write_is_the_layer_of_a_unit() -> None:
    stages = list_stages(small_plan())
    assert stages["base"].roles == (Role.SEED, Role.OTHER, Role.OTHER, Role.STEP)
    below = (Role.OTHER,) * 4
    assert stages["debian"].roles == (*below, Role.STEP)
    assert stages["ucx"].roles[-2:] == (Role.STEP, Role.STEP)
    assert stages["glue"].roles[:5] == (*below, Role.OTHER)
    text = docker_containerfile(small_plan())
    assert "ADD base/stubs.tar /" in text and "LABEL" not in text and "ENVBUILD_UNIT" not in text


def test_layers_are_found_by_the_history_of_an_image() -> None:
    history = [
        {"created_by": "ADD base/seed.tar / # buildkit"},
        {"created_by": "ENV PATH=/usr/bin", "empty_layer": True},
        {"created_by": "RUN /bin/sh -c true # buildkit", "empty_layer": True},
        {"created_by": "RUN /bin/sh -c false # buildkit"},
    ]
    roles = ["seed", "other", "step"]
    assert list(layer_roles(history, ["a", "b"], roles, "x")) == [("seed", "a"), ("other", ""), ("step", "b")]
    for layers, given in ((["a"], roles), (["a", "b"], [*roles, "step"])):
        with pytest.raises(EngineError, match="stage x"):
            list(layer_roles(history, layers, given, "x"))


@pytest.mark.parametrize(
    "line",
    [
        "#7 ERROR: executor failed running [/bin/sh -c make]: exit code: 2",
        '#7 ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 2',
    ],
)
def test_the_step_that_failed_is_found_in_the_words_of_each_release(line: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"#5 [base 1/4] ADD base/seed.tar /\n#7 [ucx 2/2] RUN make install\n#7 0.1 text\n{line}\n")
    assert find_failed(small_plan(), log) == ("ucx", 1, 2)
    log.write_text("#7 ERROR: failed to solve: exit code: 2\n")
    assert find_failed(small_plan(), log) is None
