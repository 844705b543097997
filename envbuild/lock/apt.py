"""apt-get in folders of its own: it resolves for another Debian than the host's, as a plain user, and changes nothing
on the host.

The configuration is private (``APT_CONFIG`` and ``Dir::Etc``), so that the host's hooks and sources take no part; of
the host's only ``Acquire::*`` (proxies, certificates, retries) is taken over. Trust comes from the signature of the
archive's Release files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

from envbuild.console import Talk
from envbuild.errors import EngineError, EnvbuildError, InputError
from envbuild.site import Site
from envbuild.store import Store

KEYRINGS = ("/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp")
FRESH = 3600  # seconds for which package lists are used again
NOT_TAKEN = tuple(
    f"Acquire::{name}"
    for name in (
        "Languages",
        "IndexTargets",
        "CompressionTypes",
        "Changelogs",
        "GzipIndexes",
        "cdrom",
        "AllowInsecureRepositories",
        "AllowWeakRepositories",
        "AllowDowngradeToInsecureRepositories",
    )
)


class AptFailed(Exception):
    """apt-get ended with an error; the text is what it said."""


@dataclass(frozen=True, slots=True)
class Source:
    """One line of the private sources.list: an archive (``debian:trixie/main``) and the place to ask for it."""

    archive: str
    place: str

    @property
    def suite(self) -> str:
        return self.archive.partition(":")[2].partition("/")[0]

    def line(self, arch: str, keyring: Path) -> str:
        component = self.archive.rpartition("/")[2]
        place = self.place if "://" in self.place else f"file://{self.place}"
        return (
            f"deb [arch={arch} signed-by={keyring}] {place.replace(' ', '%20').rstrip('/')} {self.suite} {component}\n"
        )


@dataclass(frozen=True, slots=True)
class Apt:
    """One private apt. Make it with `open_apt`."""

    root: Path
    sources: tuple[Source, ...]

    def get(self, *arguments: str, status: Path | None = None, preferences: Path | None = None) -> str:
        """Standard output of apt-get with `status` as dpkg's database (default: nothing is installed). Raises
        AptFailed.
        """
        command = ["apt-get", "-o", f"Dir::State::status={status or self.root / 'status'}"]
        if preferences:
            command += ["-o", f"Dir::Etc::preferences={preferences}"]
        done = subprocess.run(
            [*command, *arguments], env=environment(self.root / "apt.conf"), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise AptFailed(_told(done.stderr, done.stdout))
        return done.stdout

    def lists(self) -> list[tuple[str, Path]]:
        """(archive, package list) in the order of the sources."""
        text = self.get("indextargets", "--format", "$(RELEASE) $(COMPONENT) $(FILENAME)", "Created-By: Packages")
        found = {}
        for line in text.splitlines():
            suite, component, path = line.split(" ", 2)
            found[f"{suite}/{component}"] = Path(path)
        return [
            (source.archive, found[key])
            for source in self.sources
            if (key := source.archive.partition(":")[2]) in found
        ]

    def released(self) -> int:
        """The date of the release itself (the first source's Release file), in seconds since 1970; 0 when it does not
        tell it."""
        dates = [0]
        for path in (self.root / "state/lists").glob(f"*_dists_{self.sources[0].suite}_*Release"):
            if match := re.search(r"^Date: (.+)$", path.read_text(errors="replace"), re.MULTILINE):
                dates.append(int(parsedate_to_datetime(match[1]).timestamp()))
        return max(dates)


def open_apt(
    site: Site, store: Store, arch: str, archives: dict[str, tuple[str, ...]], talk: Talk, *, refresh: bool = False
) -> Apt:
    """An apt that knows `archives` (archive → places, each tried in turn) for `arch`, its lists not older than an hour.

    Raises InputError: no apt here, no keyring, an archive that cannot be reached or whose signature is wrong.
    """
    if not shutil.which("apt-get"):
        raise InputError(
            "there is no apt-get here, which resolves Debian packages",
            hint="make the lock on a Debian or Ubuntu machine; building from a lock needs no apt",
        )
    keyring = site.debian_keyring or next((Path(path) for path in KEYRINGS if Path(path).exists()), None)
    if keyring is None:
        raise InputError(
            "the keys of the Debian archive are not installed", hint="sudo apt install debian-archive-keyring"
        )
    failures: list[str] = []
    for turn in range(max((len(places) for places in archives.values()), default=0)):
        sources = tuple(
            Source(archive, places[min(turn, len(places) - 1)]) for archive, places in archives.items() if places
        )
        try:
            return _updated(site, store, arch, sources, keyring, talk, refresh)
        except AptFailed as error:
            failures.append(str(error))
    raise _unreachable(failures)


def _updated(
    site: Site, store: Store, arch: str, sources: tuple[Source, ...], keyring: Path, talk: Talk, refresh: bool
) -> Apt:
    lines = "".join(source.line(arch, keyring) for source in sources)
    options = host_options() | dict(site.apt)
    if site.proxy:
        options |= {"Acquire::http::Proxy": site.proxy, "Acquire::https::Proxy": site.proxy}
    key = hashlib.sha256(f"{lines}{sorted(options.items())}".encode()).hexdigest()[:12]
    root = store.root / "apt" / f"{sources[0].suite}-{arch}-{key}"
    with store.lock(f"apt-{key}", lambda: talk.say("waiting for another process that reads the Debian package lists")):
        for folder in (
            "state/lists/partial",
            "cache/archives/partial",
            "etc/apt.conf.d",
            "etc/preferences.d",
            "etc/trusted.gpg.d",
        ):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "status").touch()
        (root / "sources.list").write_text(lines)
        (root / "apt.conf").write_text(configuration(root, arch, options))
        (root / "sources.list").chmod(0o600)  # an address may hold a password
        apt, stamp = Apt(root, sources), root / "updated"
        age = time.time() - stamp.stat().st_mtime if stamp.exists() else FRESH
        if refresh or not 0 <= age < FRESH:
            if options.get("Acquire::Check-Valid-Until", "").lower() in ("false", "no", "0"):
                talk.say("apt is configured not to check the age of Release files (Acquire::Check-Valid-Until)")
            talk.start("apt", f"reading the Debian package lists ({', '.join(source.archive for source in sources)})")
            try:
                apt.get("update", "-o", "APT::Update::Error-Mode=any")
            finally:
                talk.finish("apt")
            stamp.touch()
            os.utime(stamp)
    return apt


def configuration(root: Path, arch: str, options: dict[str, str]) -> str:
    """The text of the private apt.conf (apt.conf(5))."""
    own = {
        "Dir": root,
        "Dir::State": root / "state",
        "Dir::Cache": root / "cache",
        "Dir::Cache::pkgcache": "",  # depends on the status file, of which several are in use at a time
        "Dir::Etc": root / "etc",
        "Dir::Etc::sourcelist": root / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::trusted": "-",
        "APT::Architecture": arch,
        "APT::Install-Recommends": "false",
        "APT::Install-Suggests": "false",
        "APT::Sandbox::User": "root",  # the folder need not be open to the user _apt
        "Acquire::Languages": "none",
        "Acquire::GzipIndexes": "false",
        "Acquire::ForceHash": "SHA256",
        "Debug::NoLocking": "true",
    }
    lines = [
        f'{key} "{value}";\n' for key, value in (options | {key: str(value) for key, value in own.items()}).items()
    ]
    return "".join([*lines, f'APT::Architectures {{ "{arch}"; }};\n'])


def host_options() -> dict[str, str]:
    """``Acquire::*`` of the host's apt configuration."""
    done = subprocess.run(["apt-config", "dump", "--no-empty", "Acquire"], capture_output=True, text=True, check=False)
    found = dict(re.findall(r'^(Acquire::\S+) "([^"\n]*)";$', done.stdout, re.MULTILINE))
    return {key: value for key, value in found.items() if not key.endswith("::") and not key.startswith(NOT_TAKEN)}


def environment(config: Path) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "DEBIAN_FRONTEND"} | {
        "APT_CONFIG": str(config),
        "LC_ALL": "C",
    }


def _told(stderr: str, stdout: str) -> str:
    """The lines of apt's output that say what is wrong."""
    lines = [re.sub(r"//[^/@\s]*@", "//", line) for line in stderr.splitlines()]
    errors = [line[3:] for line in lines if line.startswith(("E: ", "W: "))]
    marker = "The following packages have unmet dependencies:"
    if marker in stdout:
        errors = [line.strip() for line in stdout.partition(marker)[2].splitlines() if line.startswith(" ")] + errors
    return "\n".join(errors) or stderr.strip() or "apt-get failed without a message"


def _unreachable(failures: list[str]) -> EnvbuildError:
    text = "\n".join(dict.fromkeys(failures)) or "no place is known for it"
    if "(28: " in text or "(122: " in text:  # ENOSPC, EDQUOT: no other place would help
        hint = "free some space (envbuild store gc), or set ENVBUILD_STORE to a folder on a larger disk"
        return EngineError(f"the lists of the Debian archive cannot be written:\n{text}", hint)
    hint = "name one in site.yaml:  mirrors: {debian: [ADDRESS], debian-security: [ADDRESS]}"
    if "is expired" in text or "not valid yet" in text:
        hint = 'if the mirror is frozen on purpose, write into site.yaml:  apt: {"Acquire::Check-Valid-Until": "false"}'
    elif "NO_PUBKEY" in text or "not signed" in text:
        hint = "sudo apt install debian-archive-keyring, or name the mirror's keys in site.yaml:  debian_keyring: FILE"
    return InputError(f"the Debian archive cannot be read:\n{text}", hint)
