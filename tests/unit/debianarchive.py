"""A small signed Debian archive, made of package stanzas only: enough for apt to resolve, and to refuse what is not
signed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

RELEASED = 1_790_000_000


@dataclass(frozen=True)
class Signer:
    """A throw-away key: `home` is gpg's folder, `keyring` the public half."""

    home: Path
    keyring: Path

    def gpg(self, *arguments: str) -> None:
        subprocess.run(["gpg", "--homedir", str(self.home), "--batch", "--yes", "--quiet", *arguments], check=True)


@contextmanager
def signer() -> Iterator[Signer]:
    """A key for one test module. The folder has a short name, because it holds a socket."""
    home = Path(tempfile.mkdtemp(prefix="gpg"))
    made = Signer(home, home / "keys.gpg")
    try:
        made.gpg("--passphrase", "", "--quick-gen-key", "envbuild test", "ed25519", "sign", "never")
        made.gpg("--output", str(made.keyring), "--export")
        yield made
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
        shutil.rmtree(home, ignore_errors=True)


def stanza(name: str, version: str = "1.0", *, arch: str = "amd64", essential: bool = False, **fields: str) -> str:
    """A paragraph of a Packages file; fields as Pre_Depends="…"."""
    plain = version.partition(":")[2] or version
    lines = [
        f"Package: {name}",
        f"Version: {version}",
        f"Architecture: {arch}",
        *(["Essential: yes"] if essential else []),
        *(f"{key.replace('_', '-')}: {value}" for key, value in fields.items()),
        f"Filename: pool/main/{name[0]}/{name}/{name}_{plain}_{arch}.deb",
        "Size: 1000",
        f"SHA256: {hashlib.sha256(f'{name} {version}'.encode()).hexdigest()}",
        "Description: a test",
    ]
    return "\n".join(lines) + "\n"


def publish(
    root: Path, suite: str, stanzas: Iterable[str], key: Signer | None, *, released: int = RELEASED, days: int = 0
) -> None:
    """Write ``dists/SUITE`` below `root`, signed with `key`; with `days` the Release file is valid for so long only."""
    folder = root / "dists" / suite
    listing = folder / "main/binary-amd64/Packages"
    listing.parent.mkdir(parents=True, exist_ok=True)
    listing.write_text("\n".join(stanzas))
    content = listing.read_bytes()
    until = f"Valid-Until: {formatdate(released + days * 86400, usegmt=True)}\n" if days else ""
    (folder / "Release").write_text(
        f"Origin: Test\nSuite: {suite}\nCodename: {suite}\nDate: {formatdate(released, usegmt=True)}\n{until}"
        f"Architectures: amd64\nComponents: main\nSHA256:\n"
        f" {hashlib.sha256(content).hexdigest()} {len(content)} main/binary-amd64/Packages\n"
    )
    (folder / "InRelease").unlink(missing_ok=True)
    if key:
        key.gpg("--clear-sign", "--output", str(folder / "InRelease"), str(folder / "Release"))
    (folder / "Release").unlink()
