"""Setup of a private apt for an image: the distribution's archives and the vendors' repositories, each with its places
and its keys, with package lists not older than an hour.

Everything that is missing is reported at once: an archive without an address, missing keys, each repository that does
not answer.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from envbuild.core.console import Reporter
from envbuild.core.distributions import Distribution
from envbuild.core.errors import FREE_SOME, EngineError, Finding, InputError
from envbuild.core.store.json_files import write_private
from envbuild.core.store.store import Store
from envbuild.lock.debian.apt import (
    NOT_IN_VALUES,
    Apt,
    AptError,
    AptSource,
    can_hold_keys,
    configuration,
    host_options,
)
from envbuild.lock.debian.logins import auth_text, check_logins
from envbuild.lock.debian.signing_keys import (
    copy_keys,
    is_recent,
    key_places,
    keyring_line,
    repository_key,
)
from envbuild.lock.debian.vendor_checks import check_exists, requires_gpgv
from envbuild.net.apt_options import merge_options, weaker_checks
from envbuild.net.site import Site, mirror_line, mirrors_setting
from envbuild.net.supply import SupplyKind
from envbuild.net.transport import Transport
from envbuild.spec.recipe import AptRepository

MOVED = "export ENVBUILD_STORE=/a/path/of/letters-and-digits"


@dataclass(frozen=True, slots=True)
class PackageRepository:
    """A source of packages by origin, and all places that may have it, in the order of the requests."""

    origin: str
    places: tuple[str, ...]
    suite: str
    components: tuple[str, ...]
    keyring: Path
    weak_key: bool = False  # its own signatures are refused by sqv

    def source(self, number: int) -> AptSource:
        """Return the source of apt at one of the places."""
        return AptSource(self.origin, self.places[number], self.suite, self.components, self.keyring, self.weak_key)


@dataclass(frozen=True, slots=True)
class AptSetup:
    """Everything that an apt for an image is made of."""

    distribution: Distribution
    arch: str
    site: Site
    store: Store
    transport: Transport
    reporter: Reporter
    refresh: bool = False

    def apt(self, repositories: Iterable[AptRepository] = ()) -> Apt:
        """Return an apt that uses the distribution's archives and `repositories`.

        Raises InputError with everything that is missing.
        """
        apt, findings = self.open(repositories)
        if apt is None or findings:
            raise InputError.of(findings)
        return apt

    def open(self, repositories: Iterable[AptRepository] = ()) -> tuple[Apt | None, list[Finding]]:
        """Return an apt that uses the distribution's archives and those of `repositories` that can be read, and a
        finding for each of the others: archives without an address, keys that are missing or wrong, archives that
        cannot be reached or whose signature is wrong. No apt if the distribution's own are among those.

        All are tried, so that one run reports everything that is missing. Raises InputError without apt-get,
        EngineError when the store is full.
        """
        if not shutil.which("apt-get"):
            raise InputError(
                "apt-get is not installed; it resolves Debian packages",
                hint="make the lock on a Debian or Ubuntu machine; building from a lock needs no apt",
            )
        if NOT_IN_VALUES.search(str(self.store.root)):
            raise EngineError(
                f"apt cannot use the store {str(self.store.root)!r}: its path contains a quotation mark or a line end",
                hint=f"move the store, then: {MOVED}",
            )
        for line in weaker_checks(self.options(), self.site.apt):
            self.reporter.info(line)
        findings: list[Finding] = []
        known: list[PackageRepository] = []
        try:
            known += self.distribution_repositories()
        except InputError as error:
            findings += error.findings
        own = len(known)
        for repository in repositories:
            try:
                known.append(self.vendor_repository(repository))
            except InputError as error:
                findings += error.findings
        if not known:
            return None, findings
        apt, more = self.open_reachable(known, own)
        return apt if own else None, [*findings, *more]

    def options(self) -> dict[str, str]:
        """Return the options of apt: the host's and the site's."""
        options = merge_options(host_options(), self.site.apt)
        if self.site.proxy:
            options |= {"Acquire::http::Proxy": self.site.proxy, "Acquire::https::Proxy": self.site.proxy}
        return options

    def distribution_repositories(self) -> list[PackageRepository]:
        """Return the distribution's archives. Raises InputError without the main one or its keys."""
        distribution, name = self.distribution, self.distribution.family.capitalize()
        kinds = list(dict.fromkeys(archive.partition(":")[0] for archive in distribution.archives))
        found: list[PackageRepository] = []
        findings: dict[str, Finding] = {}
        for archive in distribution.archives:
            kind, _, rest = archive.partition(":")
            suite, _, component = rest.partition("/")
            places, keyring = self.site.roots(archive, self.arch), self.keyring(archive)
            if not places and kind != kinds[0]:
                self.reporter.warn(
                    f"no place is known for {name}'s security archive: the lock is made without its updates"
                )
                continue
            if not places:
                lines = tuple(mirror_line(f"{kind}:", "ADDRESS") for kind in kinds)
                message = f"this machine's apt configuration names no {name} archive"
                by_program = self.site.use_host and distribution.family == "debian"
                program = "install debootstrap, which names it, or " if by_program else ""
                hint = f"{program}write into site.yaml:  {mirrors_setting(', '.join(lines))}"
                findings["places"] = Finding(message, hint=hint, mirror_lines=lines)
            if not keyring:
                message = f"the keys of the {name} archive are not installed"
                hint = f"sudo apt install {distribution.keyring_package}, or in site.yaml:  {keyring_line(archive)}"
                findings.setdefault("keys", Finding(message, hint=hint))
            elif places:
                check_logins(archive, places)
                found.append(PackageRepository(archive, places, suite, (component,), keyring))
        if findings:
            raise InputError.of(findings.values())
        return found

    def keyring(self, archive: str) -> Path | None:
        """Return the keys of one of the distribution's archives: those that the site names, else those of this
        machine."""
        known = (Path(path) for path in self.distribution.keyrings)
        return self.site_keyring(archive) or next((path for path in known if path.exists()), None)

    def site_keyring(self, origin: str) -> Path | None:
        """Return the keys that the site names for `origin`, at a path that apt can read: where the site's own is not
        one, a copy in the store. Raises EngineError when the store's path is not one either."""
        keyring = self.site.keyring(origin)
        return keyring if keyring is None or can_hold_keys(keyring) else copy_keys(keyring, self.key_folder())

    def key_folder(self) -> Path:
        """Return the folder of the store for keys. Raises EngineError when apt cannot read keys there."""
        folder = self.store.own_folder("apt") / "keys"
        if not can_hold_keys(folder):
            raise EngineError(
                f"apt cannot read keys in the store {str(self.store.root)!r}: its path contains a blank or one of "
                '" , : % \\',
                hint=f"move the store, then: {MOVED}",
            )
        return folder

    def vendor_repository(self, repository: AptRepository) -> PackageRepository:
        """Return a vendor's repository. Raises InputError without an address, for a distribution that the vendor has no
        repository for, or with the wrong key."""
        origin, supply = repository.origin, self.site.supply(repository.origin, self.arch)
        places = self.site.roots(origin, self.arch)
        if not places:
            line = mirror_line(origin)
            raise InputError(
                f"no place is known for the package repository {origin}",
                hint=f"write into site.yaml:  {mirrors_setting(line)}",
                mirror_lines=(line,),
            )
        if supply.by is SupplyKind.PUBLIC:
            check_exists(repository)
        check_logins(origin, places)
        keyring, weak = self.site_keyring(origin), False
        if keyring is None:
            found = key_places(repository, supply)
            keyring = repository_key(repository, found, self.transport, self.key_folder(), refresh=self.refresh)
            weak = requires_gpgv(origin, keyring, self.reporter)
        return PackageRepository(origin, places, repository.suite, repository.components, keyring, weak)

    def open_reachable(self, known: Sequence[PackageRepository], own: int) -> tuple[Apt | None, list[Finding]]:
        """Return the apt of the archives that answer, each at the first of its places that does, and the findings for
        the others. No apt when one of the first `own` is among these."""
        turns = dict.fromkeys(range(len(known)), 0)  # number of an archive → of its place
        failures: dict[str, list[str]] = {}
        failed: list[int] = []
        while turns:
            sources = {number: known[number].source(turn) for number, turn in turns.items()}
            try:
                apt = self.updated_apt(tuple(sources.values()), sum(number < own for number in sources))
                return apt, self.unreachable_findings(failures, [known[number] for number in failed])
            except AptError as error:
                text = str(error)
            self.check_space(text)
            reasons = failures_by_place(text, sources.values())
            for place, lines in reasons.items():
                failures[place] = list(dict.fromkeys([*failures.get(place, ()), *lines]))
            blame = [number for number, source in sources.items() if source.printed_address in reasons] or list(sources)
            again = [number for number in blame if turns[number] + 1 < len(known[number].places)]
            for number in again:
                turns[number] += 1
            if not again:  # no other place has these
                failed += blame
                turns = {number: turn for number, turn in turns.items() if number not in blame}
                if any(number < own for number in blame):
                    break
        return None, self.unreachable_findings(failures, [known[number] for number in sorted(failed)])

    def check_space(self, text: str) -> None:
        """Raise EngineError if apt reports that the disk is full (ENOSPC, EDQUOT): no other place would help."""
        if "(28: " in text or "(122: " in text:
            family = self.distribution.family.capitalize()
            raise EngineError(f"the lists of the {family} archive cannot be written:\n{text}", hint=FREE_SOME)

    def updated_apt(self, sources: tuple[AptSource, ...], own: int) -> Apt:
        """Return the apt of these sources; update its lists if they are older than an hour. Raises AptError."""
        lines = [source.line(self.arch) for source in sources]
        options = self.options()
        if any(source.weak_key for source in sources):
            options |= {"APT::Key::GPGVCommand": shutil.which("gpgv") or "gpgv"}  # apt 3 prefers sqv without it
        key = hashlib.sha256(f"{''.join(lines)}{sorted(options.items())}".encode()).hexdigest()[:12]
        root = self.store.own_folder("apt") / f"{self.distribution.codename}-{self.arch}-{key}"
        reporter = self.reporter
        with self.store.lock(
            f"apt-{key}", lambda: reporter.info("waiting for another process, which updates the package lists")
        ):
            for folder in (
                "state/lists/partial",
                "cache/archives/partial",
                "etc/apt.conf.d",
                "etc/preferences.d",
                "etc/trusted.gpg.d",
            ):
                (root / folder).mkdir(parents=True, exist_ok=True)
            (root / "status").touch()
            for name, content in (
                ("sources.list", "".join(lines)),
                ("plain.list", "".join(lines[:own])),
                ("etc/auth.conf", auth_text(source.place for source in sources)),
                ("apt.conf", configuration(root, self.arch, options)),  # the address of a proxy may have a login
            ):
                write_private(root / name, content)
            apt, stamp = Apt(root, sources, own), root / "updated"
            if self.refresh or not is_recent(stamp):
                archives = ", ".join(dict.fromkeys(source.archive for source in sources))
                reporter.start("apt", f"reading the package lists ({archives})")
                try:
                    apt.get("update", "-o", "APT::Update::Error-Mode=any")
                finally:
                    reporter.finish("apt")
                stamp.touch()
                os.utime(stamp)
        return apt

    def unreachable_findings(
        self, failures: Mapping[str, list[str]], failed: Iterable[PackageRepository]
    ) -> list[Finding]:
        """Return one finding for the distribution's archive and for each repository that cannot be read, with the
        answer of each of its places."""
        name = self.distribution.family.capitalize()
        findings = []
        owners: dict[str, list[str]] = {}
        for repository in failed:
            addresses = [repository.source(number).printed_address for number in range(len(repository.places))]
            owners.setdefault(repository.origin if repository.origin.startswith("apt:") else "", []).extend(addresses)
        for archive, places in owners.items():
            lines = [line for place in dict.fromkeys(places) for line in failures.get(place, ())]
            what = f"package repository {archive}" if archive else f"{name} archive"
            text = "\n".join(lines or failures.get("", ())) or "no place is known for it"
            findings.append(self.unreadable_finding(what, archive, text))
        return findings

    def unreadable_finding(self, what: str, archive: str, text: str) -> Finding:
        """Return the finding for a repository that apt cannot read, with apt's error (`text`); `archive` is empty for
        the distribution's own."""
        message = f"the {what} cannot be read:\n{text}"
        if "not valid yet" in text:
            line = 'apt: {"Acquire::Check-Date": "false"}'
            hint = f"set this machine's clock; if it cannot be right, write into site.yaml:  {line}"
            return Finding(message, hint=hint)
        if "is expired" in text:
            line = 'apt: {"Acquire::Check-Valid-Until": "false"}'
            return Finding(message, hint=f"if the mirror is frozen on purpose, write into site.yaml:  {line}")
        if "EXPKEYSIG" in text and archive:
            hint = "its key is out of date; vendors renew keys, so download it again:  envbuild lock NAME --refresh"
            return Finding(message, hint=hint)
        main = archive or self.distribution.archives[0]
        if "NOSPLIT" in text:
            line = mirror_line(main, "ADDRESS")
            hint = "a web page answers instead of the archive, perhaps one for a login: open the address in a browser, "
            hint += f"or name another place in site.yaml:  {mirrors_setting(line)}"
            return Finding(message, hint=hint, mirror_lines=(line,))
        # What could not be fetched is "not signed" in apt's words, too.
        if "NO_PUBKEY" in text or ("not signed" in text and "Failed to fetch" not in text):
            keys = f"name the mirror's keys in site.yaml:  {keyring_line(main)}"
            own = f"sudo apt install {self.distribution.keyring_package}, or {keys}"
            return Finding(message, hint=keys if archive else own)
        line = mirror_line(main, "ADDRESS")
        return Finding(message, hint=f"name another place in site.yaml:  {mirrors_setting(line)}", mirror_lines=(line,))


def failures_by_place(text: str, sources: Iterable[AptSource]) -> dict[str, list[str]]:
    """Return place (as apt prints it) → the lines of apt's `text` that name it; lines that name none are under ""."""
    places = sorted({source.printed_address for source in sources}, key=len, reverse=True)
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        plain = f"{unquote(line)} "
        named = (place for place in places if f"{place} " in plain or f"{place}/" in plain)
        found.setdefault(next(named, ""), []).append(line)
    if len(found) > 1:
        found.pop("", None)  # "Some index files failed to download", and the like
    return found
