"""``envbuild key new`` and ``publish --sign``: a mistake with a key is reported before an image is made."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.command import envbuild, refused

pytestmark = pytest.mark.unit


def test_a_new_key_is_written_with_its_public_half(tmp_path: Path) -> None:
    done = envbuild("key", "new", "team.key", "--json", cwd=tmp_path, COSIGN_PASSWORD="right")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["key"], answer["public"]) == ("team.key", "team.pub") and len(answer["hint"]) == 44
    assert (tmp_path / "team.key").stat().st_mode & 0o777 == 0o600 and "right" not in done.stdout + done.stderr
    refused(envbuild("key", "new", "team.key", cwd=tmp_path, COSIGN_PASSWORD="right"), 7, "never replaced")


def test_an_empty_passphrase_must_be_requested(tmp_path: Path) -> None:
    refused(envbuild("key", "new", "a.key", cwd=tmp_path, COSIGN_PASSWORD=""), 7, "--no-passphrase")
    assert not list(tmp_path.iterdir())
    assert envbuild("key", "new", "a.key", "--no-passphrase", cwd=tmp_path, COSIGN_PASSWORD="").returncode == 0


@pytest.mark.parametrize("case", ["open", "passphrase", "fifo", "huge", "missing"])
def test_a_wrong_key_ends_publish_at_once(tmp_path: Path, case: str) -> None:
    path = tmp_path / "team.key"
    if case in ("open", "passphrase"):
        assert envbuild("key", "new", str(path), COSIGN_PASSWORD="right").returncode == 0
        path.chmod(0o644 if case == "open" else 0o600)
    elif case == "fifo":
        os.mkfifo(path, 0o600)
    elif case == "huge":
        path.write_bytes(b"x" * (1 << 20))
    texts = {
        "open": "is open to other users", "passphrase": "does not open the key", "fifo": "is not a regular file",
        "huge": "has more than 64 KiB", "missing": "cannot be read",
    }  # fmt: skip
    store = tmp_path / "store"
    words = ("publish", "cpu-ucx", "--to", "127.0.0.1:9/app:1", "--sign", str(path))
    done = envbuild(*words, COSIGN_PASSWORD="wrong", ENVBUILD_STORE=str(store))
    refused(done, 7, texts[case], "hint: ")
    assert not (store / "layers").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="a user may be alone in the group")
def test_publish_signs_nothing_of_a_store_that_a_group_shares(tmp_path: Path) -> None:
    """Another member can replace what is signed."""
    store, key = tmp_path / "store", tmp_path / "team.key"
    store.mkdir()
    store.chmod(0o3775)
    assert envbuild("key", "new", str(key), COSIGN_PASSWORD="right").returncode == 0
    place = ("--to", f"oci:{tmp_path}/out:1", "--sign", str(key))
    for source in ("cpu-ucx", f"oci:{tmp_path}/none:1"):
        done = envbuild("publish", source, *place, cwd=tmp_path, COSIGN_PASSWORD="right", ENVBUILD_STORE=str(store))
        refused(done, 7, "an image of this store cannot be signed")
