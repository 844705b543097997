"""A private apt-get: it resolves for another distribution than the host's, as an unprivileged user, and changes nothing
on the host.

The configuration is private (``APT_CONFIG`` and ``Dir::Etc``), so that the host's hooks and sources have no effect; of
the host's only ``Acquire::*`` (proxies, certificates, retries) is used. Trust comes from the signature of the
archive's Release files. `envbuild.lock.debian.apt_setup` opens it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import quote, unquote

from envbuild.core.errors import InputError
from envbuild.core.programs import TimeoutExpired, run_program
from envbuild.core.text import escaped
from envbuild.net.hidden_logins import hide_logins
from envbuild.net.limits import LIMITS
from envbuild.net.network_settings import direct_hosts
from envbuild.net.origin_kinds import ARCHIVES
from envbuild.net.urls import redact_text

EXCLUDED_OPTIONS = tuple(
    f"acquire::{name.lower()}"
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
        "AllowUnsizedPackages",
    )
)
CLEAR_SIGNED = re.compile(
    rb"-----BEGIN PGP SIGNED MESSAGE-----\r?\n(Hash: [A-Za-z0-9, -]+\r?\n)*\r?\n"
    rb"(?P<text>.*?)\n-----BEGIN PGP SIGNATURE-----",
    re.DOTALL,
)
PLAIN = frozenset(range(0x21, 0x7F)) - frozenset(b'\\|{}[]<>"^~_=!@#$%^&*')  # what apt has in names of lists as it is
UNSIGNED = "another one, or has lines that its signature does not cover"
FIRST_YEAR = 1993  # of Debian: an earlier date of a Release file is none
# apt reads these otherwise in the options of a line of sources.list, or in the list of keys that it passes on.
NOT_IN_KEY_PATHS = re.compile(r"[\s,:\\\"%]")
# In messages of apt: ENOSPC, EDQUOT, but not in the text of an answer, which follows its code ("404  Not Found"). The
# update of apt 2.6 may wait for ever after one.
FULL_DISK = re.compile(rb"^(?!.*(^|\s)\d{1,3}  ).*\((28|122): ", re.MULTILINE)
NOT_IN_VALUES = re.compile(r"[\"\x00-\x1f\x7f]")  # a quotation mark ends a value; apt.conf has no escape for it


class AptError(Exception):
    """apt-get ended with an error; the text is its error output."""


@dataclass(frozen=True, slots=True)
class AptSource:
    """One line of the private sources.list: an archive by origin (``debian:trixie/main``,
    ``apt:nvidia-cuda/ubuntu2204``), the place that is tried, and the file with the keys that sign it. A flat
    repository has a suite that ends in a slash and no components (sources.list(5)).
    """

    archive: str
    place: str
    suite: str
    components: tuple[str, ...]
    keyring: Path
    weak_key: bool = False  # its own signatures are refused by sqv

    @property
    def address(self) -> str:
        """The place in the form that apt requires, without its login (`envbuild.lock.debian.logins`)."""
        if "://" in self.place:
            scheme, _, rest = self.place.partition("://")
            host, slash, path = rest.partition("/")
            return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}".replace(" ", "%20").rstrip("/")
        # Decoded twice: by the reader of sources.list and by the method for files. With file: apt reads lists where
        # they are, after it compared them with the Release file, so the owner of the folder could change them.
        return f"copy://{quote(self.place.replace('%', '%25'))}".rstrip("/")

    @property
    def printed_address(self) -> str:
        """The place as apt's messages print it: plain text."""
        scheme, _, path = self.address.partition("://")
        return unquote(f"{scheme}:{path}" if scheme == "copy" else self.address)

    def release(self, lists: Path) -> Path | None:
        """Return the Release file of the source in the folder `lists`, under its name there (apt's); None if there
        is none. Source: URItoFileName in apt-pkg/contrib/strutl.cc."""
        place = self.address.partition("://")[2].encode()
        name = "".join("_" if byte == 0x2F else chr(byte) if byte in PLAIN else f"%{byte:02x}" for byte in place)
        found = (lists / f"{name}_dists_{self.suite.replace('/', '_')}_{kind}" for kind in ("InRelease", "Release"))
        return next(filter(Path.is_file, found), None)

    def line(self, arch: str) -> str:
        """Return the line of the source for sources.list(5)."""
        # With "./" apt requests ADDRESS/./InRelease, which servers of objects do not have.
        suite = "/" if self.suite == "./" else self.suite
        fields = " ".join([self.address, suite, *self.components])
        return f"deb [arch={arch} signed-by={self.keyring}] {fields}\n"


@dataclass(frozen=True, slots=True)
class Apt:
    """One private apt: the distribution's own `sources` (the first `own` ones), then those of vendors. `proxies`: those
    of its options."""

    root: Path
    sources: tuple[AptSource, ...]
    own: int
    proxies: tuple[str, ...] = ()

    def get(
        self,
        *arguments: str,
        status: Path | None = None,
        preferences: Path | None = None,
        plain: bool = False,
        temporary: Path | None = None,
    ) -> str:
        """Run apt-get and return its standard output, with `status` as dpkg's database (default: nothing is installed);
        with `plain` it uses the distribution's own archives only. `temporary`: a folder for its files, some of which
        have logins. Raises AptError.
        """
        command = ["apt-get", "-o", f"Dir::State::status={status or self.root / 'status'}"]
        if preferences:
            command += ["-o", f"Dir::Etc::preferences={preferences}"]
        if plain:
            command += ["-o", f"Dir::Etc::sourcelist={self.root / 'plain.list'}"]
        try:
            done = run_program(
                [*command, *arguments],
                env=environment(self.root / "apt.conf", *(source.place for source in self.sources))
                | ({"TMPDIR": str(temporary)} if temporary else {}),
                text=True,
                timeout=LIMITS.program,
                ends=FULL_DISK.search if arguments[0] == "update" else None,
            )
        except TimeoutExpired:  # apt's own limit is the time without a byte: a server may send one now and then
            raise AptError(f"apt-get did not end within {LIMITS.program:.0f} seconds") from None
        if done.returncode:
            logins = [*(source.place for source in self.sources), *self.proxies]
            raise AptError(_error_text(hide_logins(done.stderr, logins), hide_logins(done.stdout, logins)))
        output: str = done.stdout
        return output

    def lists(self) -> list[tuple[str, Path]]:
        """Return (archive, package list) in the order of the sources."""
        return [(source.archive, path) for source, path in self.package_lists()]

    def package_lists(self) -> list[tuple[AptSource, Path]]:
        """Return (source, package list) in the order of the sources."""
        # The line in sources.list identifies the source: two repositories may have suites of the same name.
        text = self.get("indextargets", "--format", "$(SOURCESENTRY) $(FILENAME)", "Created-By: Packages")
        found = []
        for line in text.split("\n"):
            if match := re.fullmatch(r".*/sources\.list:(\d+) (.+)", line):
                found.append((int(match[1]) - 1, Path(match[2])))
        return [(self.sources[number], path) for number, path in sorted(found, key=lambda item: item[0])]

    def other_suites(self) -> list[str]:
        """Return a line, as those of apt, for each of the distribution's archives that is the one of another suite,
        and for each archive whose Release file is not known to be signed.

        All suites of Debian are signed by the same keys: a mirror, or a machine on the way, can answer with an older
        one. apt warns of that ("Conflicting distribution"), and uses it. A vendor names its suites as it likes; without
        a signed date an older state of its archive would look like any other.
        """
        lines: dict[str, None] = {}
        folder = self.root / "state/lists"
        by_list = [(source, release_of(path, folder)) for source, path in self.package_lists()]
        # An archive without packages has no list.
        for source, release in [*by_list, *((source, source.release(folder)) for source in self.sources)]:
            names = release_names(release) if release else ()
            own = source.archive.partition(":")[0] in ARCHIVES
            other = own and release and not is_suite(source.suite.partition("/")[0], names)
            if UNSIGNED in names or other:
                named = " or ".join(names) or "no suite"
                line = f"E: {source.printed_address} {source.suite}: its Release file is that of {named}"
                lines[line] = None
        return list(lines)

    def released(self) -> int:
        """Return the date of the release itself (the first source's Release file), in seconds since 1970; 0 without a
        date."""
        dates = [0]
        suite, lists = self.sources[0].suite, self.lists()
        prefix = lists[0][1].name.partition(f"_dists_{suite}_")[0] if lists else ""
        for path in (self.root / "state/lists").glob(f"*_dists_{suite}_*Release"):
            own = path.name.startswith(f"{prefix}_dists_")  # a vendor's suite may have the same name
            if own and (date := release_date(path)):
                dates.append(int(date.timestamp()))
        return max(dates)

    def release_dates(self, lists: Iterable[tuple[str, Path]]) -> dict[str, str]:
        """Return archive → date of its Release file (RFC 3339), of those that have one."""
        folder, found = self.root / "state/lists", {}
        by_list = [(archive, release_of(path, folder)) for archive, path in lists]
        # An archive without packages has no list.
        for archive, release in [*((source.archive, source.release(folder)) for source in self.sources), *by_list]:
            if release and (date := release_date(release)):
                found[archive] = date.strftime("%Y-%m-%dT%H:%M:%SZ")
        return found


def release_of(packages: Path, lists: Path) -> Path | None:
    """Return the Release file in the folder `lists` that names a package list."""
    files = {path.name.rpartition("_")[0]: path for path in lists.glob("*Release")}
    prefix = max((name for name in files if packages.name.startswith(f"{name}_")), key=len, default="")
    return files[prefix] if prefix else None


def signed_text(path: Path) -> str | None:
    """Return the text of a Release file that its signature covers; None where lines of it are not known to be signed.

    An InRelease file has lines above the first empty one that are not signed, and that apt does not compare: only
    ``Hash: …`` belongs there (RFC 9580, "Cleartext Signature Framework"). Another reader may end lines elsewhere.
    """
    content = path.read_bytes()
    if path.name.endswith("InRelease"):
        found = CLEAR_SIGNED.match(content)
        if not found:
            return None
        content = re.sub(rb"^- ", b"", found["text"], flags=re.MULTILINE)
    text = content.decode(errors="replace")
    return None if "\r" in text.replace("\r\n", "") else text


def release_names(path: Path) -> tuple[str, ...]:
    """Return the suite and the code name in a Release file, without what it lacks."""
    text = signed_text(path)
    if text is None:
        return (UNSIGNED,)
    found = [_field_values(text, name) for name in ("suite", "codename")]
    if any(len(values) > 1 for values in found):
        return ("more than one suite",)
    return tuple(dict.fromkeys(escaped(value) for values in found for value in values if value))


def _field_values(text: str, name: str) -> list[str]:
    """Return the values of the field `name` (lower case), as apt reads names: in any case, with blanks before the
    colon. Of several it is not known which one another reader takes."""
    lines = (line.partition(":") for line in text.split("\n"))
    return [value.strip() for key, _, value in lines if key.rstrip().lower() == name]


def is_suite(wanted: str, names: Sequence[str]) -> bool:
    """Return whether a Release file with these `names`, its suite and its code name, is that of the suite `wanted`.

    All suites of a release of Ubuntu have its code name: ``noble-proposed`` is not ``noble``.
    """
    return bool(names) and (wanted == names[0] or (wanted == names[-1] and not names[0].startswith(f"{wanted}-")))


def release_date(path: Path) -> datetime | None:
    """Return the date of a Release file; None if it has none, or one that is on no calendar, which apt takes."""
    values = _field_values(signed_text(path) or "", "date")
    try:
        date = parsedate_to_datetime(values[0]) if len(values) == 1 else None
        date = date and (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return date if date and date.year >= FIRST_YEAR else None


def configuration(root: Path, arch: str, options: dict[str, str]) -> str:
    """Return the text of the private apt.conf (apt.conf(5)). Raises InputError for a text that would end its value."""
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
        "APT::Sandbox::User": "root",  # the folder need not be readable by the user _apt
        # Ubuntu offers an update to a growing part of all machines, chosen by /etc/machine-id. Here all
        # machines get the same ones, as in a container, where apt installs all of them.
        "APT::Get::Always-Include-Phased-Updates": "true",
        "Acquire::Languages": "none",
        "Acquire::GzipIndexes": "false",
        "Acquire::ForceHash": "SHA256",
        "Acquire::MaxReleaseFileSize": LIMITS.release,
        "Debug::NoLocking": "true",
    }
    merged = options | {key: str(value) for key, value in own.items()}
    for key, value in merged.items():
        if re.search(NOT_IN_VALUES, value) or not re.fullmatch(r"[^\s\"{};]+", key):
            raise InputError(f"apt cannot read its option {key!r}: {value!r}", "remove quotation marks and line ends")
    lines = [f'{key} "{value}";\n' for key, value in merged.items()]
    return "".join([*lines, f'APT::Architectures {{ "{arch}"; }};\n'])


def host_options() -> dict[str, str]:
    """Return ``Acquire::*`` of the host's apt configuration, without those that would accept unsigned archives."""
    done = run_program(["apt-config", "dump", "--no-empty", "Acquire"], text=True)
    found = dict(re.findall(r'^(Acquire::\S+) "([^"\n]*)";$', done.stdout, re.MULTILINE))
    return {
        key: value
        for key, value in found.items()
        if not key.endswith("::") and not key.lower().startswith(EXCLUDED_OPTIONS)
    }


def can_hold_keys(path: Path) -> bool:
    """Return whether apt can read a file of keys at `path` (``signed-by`` of sources.list(5))."""
    return not NOT_IN_KEY_PATHS.search(str(path))


def environment(config: Path, *places: str) -> dict[str, str]:
    """Return the environment of apt-get with the configuration file `config`, for archives at these places."""
    own = {key: value for key, value in os.environ.items() if key != "DEBIAN_FRONTEND"}
    return own | direct_hosts(*places) | {"APT_CONFIG": str(config), "LC_ALL": "C"}


def _error_text(stderr: str, stdout: str) -> str:
    """Return the lines of apt's output that report an error."""
    lines, stdout = redact_text(stderr).splitlines(), redact_text(stdout)
    errors = [line[3:] for line in lines if line.startswith(("E: ", "W: "))]
    # stderr leaves out an archive that does not answer when another one has a worse error.
    for match in re.finditer(r"^Err:\d+ (.+)\n  (\S.*)$", stdout, re.MULTILINE):
        place = match[1].partition(" ")[0]
        if not any(place in line for line in errors):
            errors.append(f"{match[1]}: {match[2]}")
    marker = "The following packages have unmet dependencies:"
    if marker in stdout:
        errors = [line.strip() for line in stdout.partition(marker)[2].splitlines() if line.startswith(" ")] + errors
    return "\n".join(errors) or stderr.strip() or "apt-get failed without a message"
