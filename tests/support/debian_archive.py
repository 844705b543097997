"""Small signed archives of Debian packages, made of package stanzas: enough for apt to resolve, to refuse what is not
signed, and to fetch files that cannot be installed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import cache, cached_property
from pathlib import Path

RELEASED = 1_790_000_000


@dataclass(frozen=True)
class Signer:
    """A throw-away key: `home` is gpg's folder, `keyring` the public half, `fingerprint` of the primary key."""

    home: Path
    keyring: Path
    fingerprint: str = ""

    @cached_property
    def armored(self) -> bytes:
        """The public half as text, as vendors offer it."""
        command = ["gpg", "--homedir", str(self.home), "--batch", "--armor", "--export"]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def gpg(self, *arguments: str) -> None:
        subprocess.run(["gpg", "--homedir", str(self.home), "--batch", "--yes", "--quiet", *arguments], check=True)


@cache
def clear_sign(key: Signer, content: bytes) -> bytes:
    """Return a text with its signature. What many tests publish is signed once."""
    command = ["gpg", "--homedir", str(key.home), "--batch", "--clear-sign"]
    return subprocess.run(command, input=content, check=True, capture_output=True).stdout


@contextmanager
def signer(*options: str, expires: str = "never") -> Iterator[Signer]:
    """Yield a key for a run of the tests, made with `options` of gpg. The folder has a short name, because it holds a
    socket."""
    home = Path(tempfile.mkdtemp(prefix="gpg"))
    made = Signer(home, home / "keys.gpg")
    try:
        made.gpg(*options, "--passphrase", "", "--quick-gen-key", "envbuild test", "ed25519", "sign", expires)
        made.gpg("--output", str(made.keyring), "--export")
        command = ["gpg", "--homedir", str(home), "--batch", "--with-colons", "--fingerprint"]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        yield replace(made, fingerprint=listing.partition("\nfpr:")[2].partition("\n")[0].strip(":"))
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
        shutil.rmtree(home, ignore_errors=True)


def stanza(
    name: str, version: str = "1.0", *, arch: str = "amd64", essential: bool = False, folder: str = "", **fields: str
) -> str:
    """Return a paragraph of a Packages file; fields as Pre_Depends="…"; `folder` as a flat repository has its files."""
    plain = version.partition(":")[2] or version
    lines = [
        f"Package: {name}",
        f"Version: {version}",
        f"Architecture: {arch}",
        *(["Essential: yes"] if essential else []),
        *(f"{key.replace('_', '-')}: {value}" for key, value in fields.items()),
        f"Filename: {folder or f'pool/main/{name[0]}/{name}'}/{name}_{plain}_{arch}.deb",
        "Size: 1000",
        f"SHA256: {hashlib.sha256(f'{name} {version}'.encode()).hexdigest()}",
        "Description: a test",
    ]
    return "\n".join(lines) + "\n"


def write_package(root: Path, text: str) -> None:
    """Write the file that a stanza names: it cannot be installed, but has its digest."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    path = root / fields["Filename"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(f"{fields['Package']} {fields['Version']}".encode())


def installed(*stanzas: str) -> str:
    """dpkg's status file of a system that has these packages."""
    return "\n".join(f"Status: install ok installed\n{text}" for text in stanzas)


def publish(
    root: Path,
    suite: str,
    stanzas: Iterable[str] | Mapping[str, Iterable[str]],
    key: Signer | None,
    *,
    released: int = RELEASED,
    days: int = 0,
) -> None:
    """Write ``dists/SUITE`` below `root`, signed with `key`, and the files of its packages; with `days` the Release
    file is valid for so long only. `stanzas` are those of the component main, or of each component. A suite that ends
    in a slash is a flat repository.
    """
    flat = suite.endswith("/")
    folder = root / suite.lstrip("/") if flat else root / "dists" / suite
    parts = stanzas if isinstance(stanzas, Mapping) else {"main": stanzas}
    sums = []
    for component, texts in parts.items():
        texts = list(texts)
        for text in texts:
            write_package(root, text)
        listing = "Packages" if flat else f"{component}/binary-amd64/Packages"
        (folder / listing).parent.mkdir(parents=True, exist_ok=True)
        (folder / listing).write_text("\n".join(texts))
        content = (folder / listing).read_bytes()
        sums.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {listing}\n")
    until = f"Valid-Until: {formatdate(released + days * 86400, usegmt=True)}\n" if days else ""
    named = "" if flat else f"Suite: {suite}\nCodename: {suite}\nComponents: {' '.join(parts)}\n"
    release = (
        f"Origin: Test\nDate: {formatdate(released, usegmt=True)}\n{named}{until}"
        f"Architectures: amd64\nSHA256:\n{''.join(sums)}"
    )
    (folder / "InRelease").unlink(missing_ok=True)
    if key:
        (folder / "InRelease").write_bytes(clear_sign(key, release.encode()))
