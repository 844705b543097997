"""The init of a box, pid 1: what a step leaves it cannot use the rights of the builder."""

from __future__ import annotations

import encodings
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.build.engines.embedded import sandbox
from envbuild.build.plan.units import Product
from envbuild.core.errors import BuildError
from envbuild.core.store.store import Store
from envbuild.core.userns.removal import remove_tree
from tests.support import tiny_root as kit
from tests.support.engine_fixtures import open_working_store

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def store(scratch: Path) -> Iterator[Store]:
    path = Path(tempfile.mkdtemp(dir=scratch))
    path.chmod(0o755)
    yield open_working_store(path)
    remove_tree(path)


def read_product(store: Store, diff_id: str, name: str) -> str:
    return (store.layer_tree(diff_id) / name).read_text()


def test_init_has_the_rights_of_a_step(store: Store) -> None:
    look = kit.unit("rights", "cat /proc/1/status > /opt/init; cat /proc/self/status > /opt/step")
    made = kit.build(store, look).layers[1].diff_id
    rights = re.compile(r"^(?:Cap(?:Inh|Prm|Eff|Bnd|Amb)|Seccomp|NoNewPrivs):.*$", re.MULTILINE)
    init, step = (rights.findall(read_product(store, made, f"opt/{who}")) for who in ("init", "step"))
    assert init == step and len(step) == 7 and "Seccomp:\t2" in step


def test_a_process_with_any_name_is_left_and_no_code_of_the_root_runs(store: Store) -> None:
    """An error in init would be described with lines of its source, whose `coding:` names a module of the root."""
    source, codecs = Path(sandbox.__file__), Path(encodings.__file__).parent
    commands = (
        f"mkdir -p {source.parent} {codecs}",
        f"printf '# coding: evil\\n' > {source}",
        f'printf \'open("/opt/pwned", "w")\\ndef getregentry(): return None\\n\' > {codecs}/evil.py',
        r"""setsid sh -c "printf '\\377\\033[2J) Z x' > /proc/self/comm; while :; do sleep 1; done" & sleep 0.3""",
    )
    made = kit.build(store, kit.unit("names", *commands)).layers[1].diff_id
    tree = store.layer_tree(made)
    assert (tree / f"{codecs}/evil.py".lstrip("/")).exists() and not (tree / "opt/pwned").exists()


def test_a_step_cannot_enter_init(store: Store) -> None:
    """Its descriptors lead to the process that records what was built: their numbers can be listed, and no more."""
    look = (
        "look() { for place in fd cwd root environ exe mem; do case $place in "
        "fd|cwd|root) ls -l /proc/$1/$place/ ;; *) { true < /proc/$1/$place; } ;; "
        "esac > /dev/null 2>&1 && echo $place; done; true; }"
    )
    step = f"{look}; look 1 > /opt/found; look self > /opt/own; ls -l /proc/self/fd > /opt/mine"
    made = kit.build(store, kit.unit("enter", step)).layers[1].diff_id
    found, own, mine = (read_product(store, made, f"opt/{name}") for name in ("found", "own", "mine"))
    assert (found, own.split()) == ("", ["fd", "cwd", "root", "environ", "exe", "mem"])
    assert {"1"} <= {line.split()[-3] for line in mine.splitlines()[1:]} <= {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("ln -s {secret} a-1-py3-none-any.whl", "is not a regular file"),
        ("mkfifo a-1-py3-none-any.whl", "is not a regular file"),
        ("mkdir a-1-py3-none-any.whl", "is not a regular file"),
        ("echo x > $(printf 'a\\033[2J-1.whl')", r"a\x1b[2J-1.whl"),
    ],
)
def test_only_files_are_wheels(store: Store, tmp_path: Path, command: str, why: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x\n")
    secret.chmod(0o600)
    step = f"cd /run/envbuild/out && {command.format(secret=secret)}"
    with pytest.raises(BuildError) as caught:
        kit.build(store, kit.unit("wheels", step, product=Product.WHEEL))
    assert why in str(caught.value) and caught.value.hint
    assert secret.stat().st_mode & 0o777 == 0o600
    assert [path for path in (store.tmp).iterdir() if path.is_dir()] == []


def test_a_step_that_takes_the_descriptors_of_init_ends_as_it_would(store: Store) -> None:
    """prlimit(2) requires no more than the same user; the error was an internal one."""
    lower = kit.unit("limits", "prlimit --pid 1 --nofile=3:3; sleep 100 & echo made > /opt/made")
    made = kit.build(store, lower).layers[1].diff_id
    assert read_product(store, made, "opt/made") == "made\n"
