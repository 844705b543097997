"""The logins of this user for registries, in the files of the tools that he uses: podman's, docker's, enroot's.

Formats: containers-auth.json(5), docker's config.json (`envbuild.net.registry.docker_config`), and enroot's
.credentials, which is a netrc file (enroot, doc/cmd/import.md). Nothing of a login is ever printed or logged.
"""

from __future__ import annotations

import netrc
import os
from pathlib import Path

from envbuild.net.registry.docker_config import Credential, CredentialError, config_file, read_config

DOCKER_HUB = ("registry-1.docker.io", "auth.docker.io")  # names of docker.io in enroot's file


def find_credential(host: str, registry: str = "", repository: str = "") -> Credential | None:
    """Return the login for `host` (with its port) of the first file that has one. `registry`: its name in image
    references; docker.io's login is listed under another host of that domain than the one that serves the images.
    `repository`: podman's files may have logins for parts of a registry. Raises CredentialError.
    """
    for path in config_files():
        if found := read_config(path, host, registry, repository):
            return found
    return read_netrc(credentials_file(), host)


def login_files() -> list[Path]:
    """Return the files that exist of those that may have a login, in the order in which they are read; docker's if
    there is none."""
    found = [path for path in (*config_files(), credentials_file()) if path.exists()]
    return found or [config_file()]


def config_files() -> list[Path]:
    """Return the files of podman, skopeo and buildah, and docker's."""
    if own := os.environ.get("REGISTRY_AUTH_FILE"):
        return [Path(own), config_file()]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folders = [*([Path(runtime)] if runtime else []), _config_home()]
    return [*(folder / "containers" / "auth.json" for folder in folders), config_file()]


def credentials_file() -> Path:
    """Return the file of enroot."""
    folder = os.environ.get("ENROOT_CONFIG_PATH")
    return (Path(folder) if folder else _config_home() / "enroot") / ".credentials"


def _config_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"))  # noqa: PTH111  # as config_file


def read_netrc(path: Path, host: str) -> Credential | None:
    """Return the login that a file of enroot has for `host`, without its port. Raises CredentialError: enroot runs a
    password that begins with a dollar sign as a command, and envbuild does not."""
    try:
        hosts = netrc.netrc(str(path)).hosts
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CredentialError(f"{path} cannot be read: {error.strerror}") from None
    except (netrc.NetrcParseError, UnicodeDecodeError):
        raise CredentialError(f"{path} cannot be read: it is not a netrc file") from None
    name = host.partition(":")[0]
    names = (name, *DOCKER_HUB) if name in DOCKER_HUB else (name,)
    entry = next((hosts[each] for each in names if each in hosts), None)
    if entry is None or not entry[2]:
        return None
    if entry[2].startswith("$"):
        raise CredentialError(f"the password of {name} in {path} is a command, which envbuild does not run")
    return Credential(entry[0], entry[2], source=str(path))
