"""Keys for tests, and sites that require signatures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from envbuild.core.console import SilentReporter
from envbuild.core.signing.key_file import Signer, read_signer, write_key_pair
from envbuild.net.signature_policy import SignaturePolicy
from envbuild.spec.workspace import Workspace
from tests.support.foreign_images import workspace

PASSPHRASE = "right"


def new_key(path: Path, passphrase: str = PASSPHRASE) -> tuple[Signer, Path]:
    """Return a new key, and the file of its public half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    public = write_key_pair(path, passphrase)
    return read_signer(path, lambda: passphrase), public


def requiring(store: Path, *keys: Path, require: bool = True) -> Workspace:
    """Return a workspace whose site requires the signature of one of `keys`."""
    at = workspace(store)
    site = replace(at.site, signatures=SignaturePolicy(keys, require, "site.yaml"))
    return replace(at, site=site, reporter=SilentReporter())


def messages(at: Workspace) -> str:
    """Return what a workspace of `requiring` reported."""
    assert isinstance(at.reporter, SilentReporter)
    return "\n".join(at.reporter.lines)
