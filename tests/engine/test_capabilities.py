"""root without a capability that a box needs, as in some containers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from envbuild.core.store.store import Store
from tests.support import tiny_root as kit
from tests.support.programs import import_path
from tests.support.tools import require_tools

pytestmark = pytest.mark.engine

# Arguments: the store, the tree of a layer.
RUN = """
import sys
from pathlib import Path
from envbuild.core.errors import EngineError
from envbuild.core.store.store import Store
from tests.support.captured_run import run_captured
try:
    run_captured([Path(sys.argv[2])], ["/bin/sh", "-c", "true"], env={}, store=Store.open(Path(sys.argv[1])))
except EngineError as error:
    print(error.message, error.hint, sep="\\n")
"""


@pytest.mark.parametrize(
    ("name", "step"),
    [("net_admin", "loopback"), ("setfcap", "map ids"), ("setuid", "map ids"), ("sys_admin", "unshare")],
)
def test_a_missing_capability_is_named(name: str, step: str, store: Store) -> None:
    require_tools("setpriv")
    if os.geteuid():
        pytest.skip("only root can lose a capability")
    tree = store.layer_tree(kit.build(store).layers[0].diff_id)
    words = ["setpriv", "--bounding-set", f"-{name}", sys.executable, "-c", RUN, str(store.root), str(tree)]
    env = {**os.environ, "PYTHONPATH": import_path()}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    message, hint = done.stdout.splitlines()
    assert f" {step}: " in message and "Operation not permitted" in message and "Traceback" not in done.stderr
    assert hint.startswith(f"root without CAP_{name.upper()}, as in a container: docker run --privileged")
