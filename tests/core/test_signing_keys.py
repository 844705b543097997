"""Files with keys: cosign's format, closed to others, with a passphrase; what is not such a file is refused at once."""

from __future__ import annotations

import base64
import grp
import hashlib
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import nacl.secret
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.core.errors import SignatureError
from envbuild.core.ownership import private_groups
from envbuild.core.signing import passphrase
from envbuild.core.signing.key_file import KINDS, lock_key, parse_box, read_signer, unlock_key, write_key_pair
from envbuild.core.signing.public_keys import read_public_key, read_public_keys
from envbuild.core.signing.secret_box import WrongKeyError, seal, unseal
from envbuild.net.unit_caches import UnitCache
from tests.support.as_user import open_folder, run_as

pytestmark = pytest.mark.unit
KEY, NONCE = bytes(range(32)), bytes(range(24))


@given(st.binary(max_size=300), st.binary(min_size=32, max_size=32), st.binary(min_size=24, max_size=24))
def test_a_box_is_that_of_nacl(content: bytes, key: bytes, nonce: bytes) -> None:
    box = seal(content, key, nonce)
    assert box == nacl.secret.SecretBox(key).encrypt(content, nonce).ciphertext
    assert unseal(box, key, nonce) == content


@pytest.mark.parametrize("change", [0, 15, 16, 40])
def test_a_box_that_was_changed_is_refused(change: int) -> None:
    box = bytearray(seal(b"content of a private key here", KEY, NONCE))
    box[change] ^= 1
    with pytest.raises(WrongKeyError):
        unseal(bytes(box), KEY, NONCE)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    path = tmp_path_factory.mktemp("keys") / "team.key"
    return path, write_key_pair(path, "right")


def test_a_new_key_is_closed_and_signs_for_its_public_half(pair: tuple[Path, Path]) -> None:
    path, public = pair
    assert (path.stat().st_mode & 0o777, public.stat().st_mode & 0o777) == (0o600, 0o644)
    signer, trusted = read_signer(path, lambda: "right"), read_public_key(public)
    assert signer.hint == trusted.hint and signer.sign(b"x") == signer.sign(b"x")
    assert trusted.verify(signer.sign(b"x"), b"x") and not trusted.verify(signer.sign(b"x"), b"y")


def test_the_file_has_the_fields_of_cosign(pair: tuple[Path, Path]) -> None:
    lines = pair[0].read_text().splitlines()
    assert lines[0] == "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----" and max(map(len, lines[1:-1])) == 64
    value = json.loads(base64.b64decode("".join(lines[1:-1])))
    assert value["kdf"]["params"] == {"N": 65536, "r": 8, "p": 1} and value["kdf"]["name"] == "scrypt"
    assert value["cipher"]["name"] == "nacl/secretbox" and len(base64.b64decode(value["cipher"]["nonce"])) == 24
    assert len(base64.b64decode(value["kdf"]["salt"])) == 32 and set(value) == {"kdf", "cipher", "ciphertext"}


def test_a_wrong_passphrase_is_reported(pair: tuple[Path, Path]) -> None:
    with pytest.raises(SignatureError, match="the passphrase does not open the key") as caught:
        read_signer(pair[0], lambda: "wrong")
    assert caught.value.exit_code == 7 and "COSIGN_PASSWORD" in caught.value.hint


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_private_key_that_is_open_to_others_is_refused(pair: tuple[Path, Path], tmp_path: Path, mode: int) -> None:
    path = tmp_path / "open.key"
    path.write_bytes(pair[0].read_bytes())
    path.chmod(mode)
    with pytest.raises(SignatureError, match="is open to other users") as caught:
        read_signer(path, lambda: pytest.fail("the passphrase was requested"))
    assert caught.value.hint.startswith("chmod 600 ")


@pytest.mark.parametrize("kind", ["private", "public"])
@pytest.mark.parametrize("what", ["fifo", "huge", "missing", "folder", "text"])
def test_a_file_that_is_not_a_key_is_refused(tmp_path: Path, kind: str, what: str) -> None:
    path = tmp_path / "a.key"
    if what == "fifo":
        os.mkfifo(path, 0o600)
    elif what == "folder":
        path.mkdir()
    elif what != "missing":
        path.write_bytes(b"x" * (1 << 17) if what == "huge" else b"-----BEGIN CERTIFICATE-----\n")
        path.chmod(0o600)
    with pytest.raises(SignatureError) as caught:
        if kind == "private":
            read_signer(path, lambda: "")
        else:
            read_public_keys([path])
    assert str(path) in caught.value.message and caught.value.hint


def test_every_wrong_public_key_is_reported(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    open_key = tmp_path / "open.pub"
    open_key.write_bytes(pair[1].read_bytes())
    open_key.chmod(0o666)
    with pytest.raises(SignatureError) as caught:
        read_public_keys([tmp_path / "none.pub", pair[1], open_key, pair[0]])
    assert [finding.message.split(str(tmp_path))[0] for finding in caught.value.findings][:2] == ["the public key "] * 2
    assert "others can replace it" in caught.value.findings[1].message
    assert "is a private key" in caught.value.findings[2].message


def test_a_key_in_a_folder_that_others_can_write_is_refused(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    """Another user who can rename there puts a link to any other key in its place."""
    folder = tmp_path / "keys"
    folder.mkdir()
    key = folder / "team.pub"
    key.write_bytes(pair[1].read_bytes())
    link = tmp_path / "link.pub"
    link.symlink_to(key)
    assert read_public_key(key).hint == read_public_key(link).hint
    folder.chmod(0o777)
    for path in (key, link):
        with pytest.raises(SignatureError, match="others can replace it") as caught:
            read_public_key(path)
        assert f"is not trusted: {folder} can be written by every user" in caught.value.message
        assert caught.value.hint == f"chmod go-w {folder}"
        with pytest.raises(SignatureError, match="others can replace it"):
            assert UnitCache("cache", keys=(path,)).names


GROUP, USER = 50_000, 50_001


def test_members_of_a_group_are_others_for_a_key(pair: tuple[Path, Path]) -> None:
    """A member of a team's folder put another key in the place of the team's."""
    read_public_key(pair[1])  # loads modules that the other user may not read
    with open_folder() as folder:
        key = folder / "keys/team.pub"
        key.parent.mkdir()
        key.write_bytes(pair[1].read_bytes())
        for path in (key.parent, key):
            os.chown(path, USER, GROUP)

        def refusal() -> str:
            try:
                read_public_key(key)
            except SignatureError as error:
                return error.message.partition(f"{key} ")[2].partition(" (")[0]
            return ""

        found = []
        for folder_mode, mode in ((0o755, 0o644), (0o2775, 0o644), (0o755, 0o664)):
            key.parent.chmod(folder_mode)
            key.chmod(mode)
            found.append(run_as(USER, USER, (GROUP,), refusal))
    assert found == [
        "",
        f"is not trusted: {key.parent} can be written by the group {GROUP}",
        f"can be written by the group {GROUP}",
    ]


def test_a_group_of_the_user_alone_is_the_user(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    user = pwd.struct_passwd(("me", "x", USER, GROUP, "", "/", ""))
    every = [user]
    monkeypatch.setattr(pwd, "getpwall", lambda: every)
    monkeypatch.setattr(os, "geteuid", lambda: USER)
    monkeypatch.setattr(os, "getegid", lambda: GROUP)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    for name, members, alone in (("me", [], True), ("me", ["me"], True), ("users", [], False), ("me", ["x"], False)):
        group = grp.struct_group((name, "x", GROUP, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        assert private_groups() == (frozenset((GROUP,)) if alone else frozenset())
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group(("me", "x", GROUP, [])))
    every.append(pwd.struct_passwd(("alias", "x", USER, GROUP, "", "/", "")))  # another name of the same user
    assert private_groups() == frozenset((GROUP,))
    every.append(pwd.struct_passwd(("service", "x", USER + 1, GROUP, "", "/", "")))  # no member of the group by name
    assert private_groups() == frozenset()


@pytest.mark.parametrize("params", [{"N": 1 << 30}, {"r": 1 << 20}, {"p": 1000}, {"N": -1}, {"N": 3}, {"N": "a"}, {}])
def test_the_cost_of_a_key_is_bounded(tmp_path: Path, params: dict[str, object]) -> None:
    box = parse_box(lock_key(b"x", ""))
    box["kdf"]["params"] = {**box["kdf"]["params"], **params} if params else None
    path = tmp_path / "a.key"
    content = base64.b64encode(json.dumps(box).encode()).decode()
    path.write_text(f"-----BEGIN {KINDS[0]}-----\n{content}\n-----END {KINDS[0]}-----\n")
    path.chmod(0o600)
    with pytest.raises(SignatureError, match="is not a private key of cosign"):
        read_signer(path, lambda: "")


def test_a_key_of_cosign_1_has_another_name_and_the_same_box() -> None:
    text = lock_key(b"content", "right").replace(b"SIGSTORE", b"COSIGN")
    assert unlock_key(parse_box(text), "right") == b"content"


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_name_of_no_file_is_refused(name: str) -> None:
    with pytest.raises(SignatureError, match="not the name of a key"):
        write_key_pair(Path(name), "right")


def test_the_name_of_the_public_half_is_refused_with_a_hint_for_the_same_folder(tmp_path: Path) -> None:
    with pytest.raises(SignatureError, match="is the name of the public half") as caught:
        write_key_pair(tmp_path / "a b.pub", "right")
    assert caught.value.hint == f"envbuild key new '{tmp_path}/a b.key'" and not list(tmp_path.iterdir())


@pytest.mark.parametrize("room", [0, 1])
def test_a_key_that_cannot_be_written_leaves_no_file(room: int, tmp_path: Path) -> None:
    """On a full disk; `room`: pages that are left, one for each file."""
    command = ["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mount needs root and CAP_SYS_ADMIN")
    try:
        (tmp_path / "filler").write_bytes(b"x" * 4096 * (2 - room))
        with pytest.raises(SignatureError, match="cannot be written: No space left on device"):
            write_key_pair(tmp_path / "a.key", "right")
        assert [path.name for path in tmp_path.iterdir()] == ["filler"]
        (tmp_path / "filler").unlink()
        assert write_key_pair(tmp_path / "a.key", "right").exists()
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_passphrase_has_the_bytes_of_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"COSIGN_PASSWORD", b"\xffright")
    path = tmp_path / "a.key"
    write_key_pair(path, passphrase.new_passphrase(path, empty=False))
    assert read_signer(path, lambda: passphrase.ask_passphrase(path)).hint
    box = parse_box(path.read_bytes())
    key = hashlib.scrypt(
        b"\xffright", salt=base64.b64decode(box["kdf"]["salt"]), n=1 << 16, r=8, p=1, dklen=32, maxmem=1 << 27
    )
    assert unseal(base64.b64decode(box["ciphertext"]), key, base64.b64decode(box["cipher"]["nonce"]))


def test_a_key_is_never_replaced(pair: tuple[Path, Path]) -> None:
    before = pair[0].read_bytes()
    with pytest.raises(SignatureError, match="a key is never replaced"):
        write_key_pair(pair[0], "right")
    assert pair[0].read_bytes() == before


def test_no_passphrase_must_be_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    with pytest.raises(SignatureError, match="would have no passphrase") as caught:
        passphrase.new_passphrase(tmp_path / "a.key", empty=False)
    assert "--no-passphrase" in caught.value.hint
    assert passphrase.new_passphrase(tmp_path / "a.key", empty=True) == ""
    monkeypatch.setenv("COSIGN_PASSWORD", "right")
    assert passphrase.new_passphrase(tmp_path / "a.key", empty=False) == "right"


def test_without_the_extra_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if "site-packages" not in folder])
    with pytest.raises(SignatureError) as caught:
        write_key_pair(tmp_path / "a.key", "right")
    assert caught.value.hint == "pip install 'envbuild[sign]'" and not list(tmp_path.iterdir())


def test_a_file_with_several_public_keys_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """The library reads the first one alone: signatures of the other were none."""
    text = pair[1].read_text()
    both = tmp_path / "both.pub"
    both.write_text(text + text)
    with pytest.raises(SignatureError, match="has several keys in PEM"):
        read_public_key(both)
