"""git with a repository of a server: with the settings of the site, and with no protocol but that of its address."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from envbuild.core.programs import CompletedProcess
from envbuild.lock.git.git_program import SlowError, error_summary, run_git
from envbuild.lock.git.http_access import http_options
from envbuild.net.failures import NotFoundError, RefusedError, UnreachableError
from envbuild.net.hidden_logins import hide_logins
from envbuild.net.transport import Transport

# The protocol that git may use is the scheme of the address alone (GIT_ALLOW_PROTOCOL of git(1)): it starts a program,
# git-remote-WORD, for any other scheme and for WORD::….
HTTP = ("https", "http")
SCHEMES = (*HTTP, "ssh", "git", "file")


def run_server_git(
    transport: Transport,
    address: str,
    folder: Path | None,
    *arguments: str,
    content: bytes = b"",
    largest: int = 0,
    ends: Callable[[bytes], object] | None = None,
) -> CompletedProcess[bytes]:
    """Run git with the site's certificates, proxy and password, as `run_git`. Raises UnreachableError, and
    RefusedError for an address that git would pass to another program."""
    scheme = urlsplit(address if "://" in address else f"ssh://{address}").scheme
    if scheme not in SCHEMES or re.match(r"[^/@]*::", address):
        raise RefusedError(f"its address is none of {', '.join(SCHEMES)}")
    extra, settings = http_options(transport, address) if scheme in HTTP else ({}, [])
    extra["GIT_ALLOW_PROTOCOL"] = scheme
    try:
        done = run_git(folder, *arguments, content=content, extra=extra, settings=settings, largest=largest, ends=ends)
    except SlowError:
        raise UnreachableError("no answer before the time limit") from None
    text = hide_logins(done.stderr.decode(errors="surrogateescape"), (address, transport.settings.proxy))
    return CompletedProcess(done.args, done.returncode, done.stdout, text.encode(errors="surrogateescape"))


def list_references(transport: Transport, address: str, *names: str, options: Sequence[str] = ()) -> bytes:
    """Return the references of a server, as ``git ls-remote`` prints them. Raises NotFoundError, UnreachableError,
    RefusedError."""
    words = ("ls-remote", "--quiet", *options, "--", without_credentials(address), *names)
    done = run_server_git(transport, address, None, *words)
    if done.returncode:
        raise git_error(done.stderr)
    return done.stdout


def without_credentials(address: str) -> str:
    """Return an address without the user's name and password, which the process list and git's messages would show."""
    if "://" not in address:
        return address
    parts = urlsplit(address)
    # ssh needs the user's name, and takes no password.
    user = f"{parts.username}@" if parts.scheme == "ssh" and parts.username else ""
    return f"{parts.scheme}://{user}{parts.netloc.rpartition('@')[2]}{parts.path}"


def git_error(stderr: bytes) -> NotFoundError | UnreachableError:
    """Return the error for the messages of a git that failed."""
    if b"not our ref" in stderr:
        return NotFoundError("it does not have this commit")
    text = error_summary(stderr)
    missing = re.search("not found|does not exist|does not appear to be a git repository", text)
    return NotFoundError(text) if missing else UnreachableError(text)
