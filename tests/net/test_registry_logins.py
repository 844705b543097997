"""Logins of other tools: which file is read first, which name of it means a repository, and enroot's file."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from envbuild.net.registry.docker_config import CredentialError
from envbuild.net.registry.logins import find_credential, login_files

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which this user has no login yet."""
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    monkeypatch.delenv("ENROOT_CONFIG_PATH", raising=False)
    for name, folder in (("XDG_RUNTIME_DIR", "run"), ("XDG_CONFIG_HOME", "config"), ("DOCKER_CONFIG", "docker")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    return tmp_path


def write(path: Path, user: str, *names: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    auth = base64.b64encode(f"{user}:pw".encode()).decode()
    path.write_text(json.dumps({"auths": {name: {"auth": auth} for name in names}}))


def user(repository: str = "team/app", host: str = "reg.example:5000") -> str:
    found = find_credential(host, "", repository)
    return found.user if found else ""


def test_the_first_file_with_a_login_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user() == "" and login_files() == [home / "docker/config.json"]
    (home / "config/enroot").mkdir(parents=True)
    (home / "config/enroot/.credentials").write_text("machine reg.example login enroot password pw\n")
    assert user() == "enroot"
    places = ["docker/config.json", "config/containers/auth.json", "run/containers/auth.json"]
    for name in places:
        write(home / name, name, "reg.example:5000")
        assert user() == name
    assert login_files() == [home / name for name in (*places[::-1], "config/enroot/.credentials")]
    write(home / "own.json", "own", "reg.example:5000")
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(home / "own.json"))
    assert user() == "own" and user(host="other.example") == ""


def test_a_login_of_a_part_of_a_registry(home: Path) -> None:
    """containers-auth.json(5): the most specific name counts; a part of a name does not count."""
    names = ["reg.example:5000", "reg.example:5000/team", "reg.example:5000/team/app"]
    auths = {name: {"username": name.rpartition("/")[2], "password": "pw"} for name in names}
    (home / "docker").mkdir()
    (home / "docker/config.json").write_text(json.dumps({"auths": auths}))
    assert [user("team/app"), user("team/other"), user("teams/app"), user("")] == [
        "app",
        "team",
        "reg.example:5000",
        "reg.example:5000",
    ]


@pytest.mark.parametrize(
    "login", [{"auth": "\u00e9"}, {"auth": "\ud800"}, {"username": "\ud800"}, {"auth": 5}, {"auth": "/w=="}]
)
def test_a_malformed_login_is_not_one_of_the_registry(login: dict[str, object], home: Path) -> None:
    (home / "docker").mkdir()
    (home / "docker/config.json").write_text(json.dumps({"auths": {"reg.example:5000": login}}))
    with pytest.raises(CredentialError, match=r"a login in .*/docker/config\.json is malformed"):
        user()


def test_names_of_docker_hub_in_the_file_of_enroot(home: Path) -> None:
    (home / "config/enroot").mkdir(parents=True)
    (home / "config/enroot/.credentials").write_text("machine auth.docker.io login me password pw\n")
    assert user(host="registry-1.docker.io") == "me" and user(host="nvcr.io") == ""


def test_a_password_that_enroot_would_run_is_refused(home: Path) -> None:
    path = home / "config/enroot/.credentials"
    path.parent.mkdir(parents=True)
    path.write_text("machine reg.example login AWS password $(touch${IFS}/tmp/ran)\n")
    with pytest.raises(CredentialError, match="is a command, which envbuild does not run") as caught:
        user()
    assert "touch" not in str(caught.value)


@pytest.mark.parametrize("text", ["secret", "machine reg.example login secret", "machine reg.example login \xff"])
def test_a_damaged_file_of_enroot(home: Path, text: str) -> None:
    path = home / "config/enroot/.credentials"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    try:
        assert user() == ""
    except CredentialError as error:
        assert str(path) in str(error) and "secret" not in str(error)
