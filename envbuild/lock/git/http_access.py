"""Access of git to a repository over http and https. Redirects, certificates and logins are envbuild's own decision,
with one request (`find_address`): git gets the address that it ended at, follows no redirect, and reads no ~/.netrc.

git itself checks all hosts of a run as the first one, and sends each host of a redirect its login of ~/.netrc.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes, urlsplit

from envbuild.net.failures import RefusedError, UnreachableError
from envbuild.net.miss import MissKind
from envbuild.net.network_settings import direct_hosts
from envbuild.net.transport import Transport

if TYPE_CHECKING:
    import requests

REFS = "/info/refs?service=git-upload-pack"
# Some servers redirect git alone, and browsers elsewhere.
HEADERS = {"Git-Protocol": "version=2", "User-Agent": "git/2 (envbuild)"}
# libcurl reads ~/.netrc, newer releases the file that NETRC names; here is neither.
WITHOUT_NETRC = {"HOME": "/dev/null", "NETRC": "/dev/null"}


def find_address(transport: Transport, address: str) -> str:
    """Return the address of a repository after redirects, with the login that its host gets. Raises NotFoundError,
    UnreachableError, RefusedError.

    git has no time limit for connecting, and reports a missing repository as a missing password.
    """
    last: UnreachableError | None = None
    for _ in range(2):
        try:
            with transport.get(f"{address.rstrip('/')}{REFS}", HEADERS) as answer:
                return _repository_address(answer)
        except RefusedError as error:
            if error.kind is MissKind.UNAUTHORIZED:  # the answer of a forge for a repository that it does not have
                why = f"{error}: it requires a password, or has no such repository"
                raise RefusedError(why, kind=MissKind.UNAUTHORIZED) from None
            raise
        except UnreachableError as error:
            last = error
    raise last or UnreachableError("no answer")


def _repository_address(answer: requests.Response) -> str:
    """Return the last address of a chain of redirects that can be one of a repository; git goes to no other, such as
    that of a web page."""
    last = next(each for each in (answer, *reversed(answer.history)) if each.url.endswith(REFS))
    parts = urlsplit(last.url.removesuffix(REFS))
    kind, _, login = last.request.headers.get("Authorization", "").partition(" ")
    user, _, password = (base64.b64decode(login) if kind == "Basic" else b"").partition(b":")
    before = f"{quote(user, safe='')}:{quote(password, safe='')}@" if kind == "Basic" else ""
    return parts._replace(netloc=f"{before}{parts.netloc.rpartition('@')[2]}").geturl()


def http_options(transport: Transport, address: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the settings of git for an address of `find_address`: certificates, proxy, login."""
    parts, variables = urlsplit(address), {**WITHOUT_NETRC, **direct_hosts(address)}
    settings = ["http.followRedirects=false"]
    if proxy := transport.settings.proxy:
        variables |= {"http_proxy": proxy, "https_proxy": proxy, "HTTPS_PROXY": proxy}
    checked = transport.verify(address)
    if checked is False:
        variables["GIT_SSL_NO_VERIFY"] = "1"
    elif isinstance(checked, str):
        variables["GIT_SSL_CAPATH" if Path(checked).is_dir() else "GIT_SSL_CAINFO"] = checked
    if parts.password or parts.username:
        variables |= {
            "ENVBUILD_USER": os.fsdecode(unquote_to_bytes(parts.username or "")),
            "ENVBUILD_PASSWORD": os.fsdecode(unquote_to_bytes(parts.password or "")),
        }
        # `echo` of dash would read the backslashes of a login
        helper = r"""!f() { printf 'username=%s\npassword=%s\n' "$ENVBUILD_USER" "$ENVBUILD_PASSWORD"; }; f"""
        settings.append(f"credential.{parts.scheme}://{parts.netloc.rpartition('@')[2]}.helper={helper}")
    return variables, settings
