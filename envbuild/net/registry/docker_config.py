"""Files of logins as ``docker login`` and ``podman login`` write them: config.json, auth.json, and credential helpers.

Formats: Docker CLI reference, "docker login" (auths, credHelpers, credsStore) and the protocol of
docker-credential-helpers (``get`` reads a server's name and writes JSON). Nothing of a login is ever printed or logged.

docker's SDK reads the same file (``docker.auth``, 7.2), for other purposes: it uses the login of the home folder where
DOCKER_CONFIG has none, reports a malformed file as a missing login, copies a helper's output into its error, and waits
for a helper without a time limit.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild.core.programs import TimeoutExpired, run_of_user

TOKEN_USER = "<token>"  # a helper's user name for an identity token
WAIT = 60  # seconds for a helper, which may prompt the user


class CredentialError(Exception):
    """A login exists and cannot be read; the text is the reason, without the login."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A user name with password, or an identity token (OAuth 2 refresh token). `source` is where it was found."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    source: str = ""

    @property
    def basic(self) -> str:
        """Return the value of an Authorization header (RFC 7617)."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def config_file() -> Path:
    """Return Docker's configuration file of this user."""
    folder = os.environ.get("DOCKER_CONFIG")
    return Path(folder or os.path.expanduser("~/.docker")) / "config.json"  # noqa: PTH111  # Path's raises without a home


def read_config(path: Path, host: str, registry: str = "", repository: str = "") -> Credential | None:
    """Return the login that a file has for `host` (with its port). `registry`: its name in image references;
    docker.io's login is listed under another host of that domain than the one that serves the images. `repository`: a
    name in the file may be that of a part of the registry, as in podman's (``HOST/TEAM``). Raises CredentialError.
    """
    try:
        config = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise CredentialError(f"{path} cannot be read: {why}") from None
    if not isinstance(config, dict):
        return None
    auths, helpers = (_table(config, key) for key in ("auths", "credHelpers"))
    servers = _servers(host, registry, repository, [*helpers, *auths])
    for server in servers:
        if isinstance(helpers.get(server), str):
            return _query_helper(helpers[server], server, path)
    for server in servers:
        found = _read_entry(auths[server], path) if isinstance(auths.get(server), dict) else None
        if found:
            return found
    store = config.get("credsStore")
    if isinstance(store, str) and store:
        # It lists no names; docker keeps an empty entry in `auths` for each.
        for server in servers or [host]:
            if found := _query_helper(store, server, path):
                return found
    return None


def _table(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def _servers(host: str, registry: str, repository: str, names: list[str]) -> list[str]:
    """Return those of `names` that mean `host`: as it is, or a part of it with `repository`, the smallest first; as an
    address, and other hosts of the registry's own domain."""
    hosts = [host]
    if registry and host != registry and host.endswith(f".{registry}"):
        hosts += [registry, f"index.{registry}"]
    found: list[tuple[int, int, str]] = []
    for name in dict.fromkeys(names):
        server, part = _split_name(name)
        if server in hosts and (not part or f"{repository}/".startswith(f"{part}/")):
            found.append((-len(part), min(hosts.index(server), 1), name))
    return [name for *_, name in sorted(found, key=lambda item: item[:2])]


def _split_name(name: str) -> tuple[str, str]:
    """Return (host, part of it) of a name in a file. The path of an address, and an API version, are not a part."""
    if "://" in name:
        return name.partition("://")[2].partition("/")[0], ""
    server, _, part = name.partition("/")
    return server, "" if part.strip("/") in ("v1", "v2") else part.strip("/")


def _read_entry(entry: Mapping[str, Any], path: Path) -> Credential | None:
    """Read an entry of `auths`: ``auth`` is user:password in base64; ``identitytoken`` takes precedence."""
    user, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if entry.get("auth"):
        try:
            text = base64.b64decode(str(entry["auth"]), validate=True).decode()
        except ValueError:  # also a text that is not ASCII
            raise CredentialError(f"a login in {path} is malformed") from None
        user, _, password = text.partition(":")
        password = password.rstrip("\0")
    token = str(entry.get("identitytoken") or "")
    try:
        f"{user}{password}{token}".encode()
    except UnicodeEncodeError:  # a lone surrogate
        raise CredentialError(f"a login in {path} is malformed") from None
    return Credential(user, password, token, str(path)) if token or user else None


def _query_helper(helper: str, server: str, path: Path) -> Credential | None:
    """Return the login that ``docker-credential-HELPER get`` prints for `server`; None when it has none."""
    name = f"docker-credential-{helper}"
    program = None if "/" in helper else shutil.which(name)
    if program is None:
        raise CredentialError(f"{path} names {name}, and PATH has no such program")
    try:
        done = run_of_user([program, "get"], server, timeout=WAIT)
    except (OSError, TimeoutExpired):
        raise CredentialError(f"{name}, which {path} names, does not answer") from None
    if done.returncode:
        if "credentials not found" in done.stdout + done.stderr:  # the message that the protocol specifies
            return None
        raise CredentialError(f"{name}, which {path} names, failed with exit code {done.returncode}")
    try:
        answer = json.loads(done.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError):
        raise CredentialError(f"{name}, which {path} names, printed an answer that is not a login") from None
    if user == TOKEN_USER:
        return Credential(token=secret, source=name)
    return Credential(user, secret, source=name)
