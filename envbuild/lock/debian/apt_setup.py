"""Setup of a private apt for an image: its archives, each at the first place that answers, with package lists not older
than an hour. Each repository that does not answer is reported."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from envbuild.core.errors import FREE_SOME, EngineError, Finding, InputError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.store.json_files import write_private
from envbuild.lock.debian.apt import FULL_DISK, NOT_IN_VALUES, Apt, AptError, AptSource, configuration, host_options
from envbuild.lock.debian.folder_archives import have_moved_on
from envbuild.lock.debian.logins import auth_text
from envbuild.lock.debian.repositories import MOVED, PackageRepository, RepositoryFinder
from envbuild.lock.debian.signing_keys import is_recent
from envbuild.lock.debian.unreadable_archives import failures_by_place, unreachable_findings
from envbuild.net.apt_options import merge_options, weaker_checks
from envbuild.net.network_settings import direct_hosts
from envbuild.spec.recipe import AptRepository

PROXIES = ("Acquire::http::Proxy", "Acquire::https::Proxy")


@dataclass(frozen=True, slots=True)
class AptSetup:
    """The maker of the apt of an image, out of the archives that `finder` finds."""

    finder: RepositoryFinder

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
        root = str(self.finder.store.root)
        if NOT_IN_VALUES.search(root):
            raise EngineError(
                f"apt cannot use the store {root!r}: its path contains a quotation mark or a line end",
                hint=f"move the store, then: {MOVED}",
            )
        for line in weaker_checks(self.options(), self.finder.site.apt):
            self.finder.reporter.info(line)
        findings: list[Finding] = []
        known: list[PackageRepository] = []
        try:
            known += self.finder.distribution_repositories()
        except InputError as error:
            findings += error.findings
        own = len(known)
        for repository in repositories:
            try:
                known.append(self.finder.vendor_repository(repository))
            except InputError as error:
                findings += error.findings
        if not known:
            return None, findings
        apt, more = self.open_reachable(known, own)
        return apt if own else None, [*findings, *more]

    def options(self) -> dict[str, str]:
        """Return the options of apt: the host's and the site's."""
        options = merge_options(host_options(), self.finder.site.apt)
        # of NO_PROXY apt reads names and domains alone
        proxy = "DIRECT" if direct_hosts()["no_proxy"] == "*" else self.finder.site.proxy
        return options | (dict.fromkeys(PROXIES, proxy) if proxy else {})

    def open_reachable(self, known: Sequence[PackageRepository], own: int) -> tuple[Apt | None, list[Finding]]:
        """Return the apt of the archives that answer, each at the first of its places that does, and the findings for
        the others. No apt when one of the first `own` is among these."""
        distribution = self.finder.distribution
        turns = dict.fromkeys(range(len(known)), 0)  # number of an archive → of its place
        failures: dict[str, list[str]] = {}
        failed: list[int] = []
        while turns:
            sources = {number: known[number].source(turn) for number, turn in turns.items()}
            try:
                apt = self.updated_apt(tuple(sources.values()), sum(number < own for number in sources))
                return apt, unreachable_findings(distribution, failures, [known[number] for number in failed])
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
        return None, unreachable_findings(distribution, failures, [known[number] for number in sorted(failed)])

    def check_space(self, text: str) -> None:
        """Raise EngineError if apt reports that the disk is full (ENOSPC, EDQUOT): no other place would help."""
        if FULL_DISK.search(text.encode()):
            family = self.finder.distribution.family.capitalize()
            raise EngineError(f"the lists of the {family} archive cannot be written:\n{text}", hint=FREE_SOME)

    def updated_apt(self, sources: tuple[AptSource, ...], own: int) -> Apt:
        """Return the apt of these sources; update its lists if they are older than an hour, or a folder moved on.
        Raises AptError."""
        lines = [source.line(self.finder.arch) for source in sources]
        options = self.options()
        if any(source.weak_key for source in sources):
            options |= {"APT::Key::GPGVCommand": shutil.which("gpgv") or "gpgv"}  # apt 3 prefers sqv without it
        key = hashlib.sha256(f"{''.join(lines)}{sorted(options.items())}".encode()).hexdigest()[:12]
        root = self.finder.store.own_folder("apt") / f"{self.finder.distribution.codename}-{self.finder.arch}-{key}"
        reporter = self.finder.reporter
        with self.finder.store.lock(
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
                ("apt.conf", configuration(root, self.finder.arch, options)),  # the address of a proxy may have a login
            ):
                write_private(root / name, content)
            proxies = tuple(value for key, value in options.items() if "::proxy" in key.lower())
            apt, stamp = Apt(root, sources, own, proxies), root / "updated"
            if self.finder.refresh or not is_recent(stamp) or have_moved_on(sources, root / "state/lists"):
                archives = ", ".join(dict.fromkeys(source.archive for source in sources))
                stamp.unlink(missing_ok=True)  # lists that cannot be used are read again
                reporter.start("apt", f"reading the package lists ({archives})")
                try:
                    with self.finder.store.workdir() as work:  # a killed apt leaves copies of its configuration
                        apt.get("update", "-o", "APT::Update::Error-Mode=any", temporary=work)
                finally:
                    reporter.finish("apt")
                if others := apt.other_suites():
                    # apt takes no older Release than the one that it has: a right one would be refused from now on.
                    discard_folder(root / "state/lists")
                    raise AptError("\n".join(others))
                stamp.touch()
                os.utime(stamp)
        return apt
