"""A step that makes deep folders: they are a layer like any other, and nothing of them is left behind."""

from __future__ import annotations

import pytest

from envbuild.core.errors import BuildError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.store.store import Store
from envbuild.oci.layers.layer import stored_members
from tests.support import tiny_root as kit

pytestmark = pytest.mark.engine
STEP = "cd /opt && i=0 && while [ $i -lt 1100 ]; do mkdir d && cd -P d && i=$((i+1)); done"


def test_deep_folders_are_a_layer(store: Store, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: discard_folder(store.root))
    built = kit.build(store, kit.unit("deep", STEP))
    paths = [member.path for member, _ in stored_members(store, built.layers[-1].diff_id)]
    assert max(path.count(b"/d") for path in paths) == 1100
    assert not [*(store.root / "tmp").iterdir()]


def test_deep_folders_of_a_failed_step_are_removed(store: Store) -> None:
    with pytest.raises(BuildError):
        kit.build(store, kit.unit("deep", f"{STEP}; exit 7"))
    assert not [*(store.root / "tmp").iterdir()]
