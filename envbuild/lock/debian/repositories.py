"""The archives of Debian packages for an image, the distribution's and the vendors': each with its places here and its
keys. Everything that is missing is reported at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envbuild.core.console import Reporter
from envbuild.core.distributions import Distribution
from envbuild.core.errors import EngineError, Finding, InputError
from envbuild.core.store.store import Store
from envbuild.lock.debian.apt import AptSource, can_hold_keys
from envbuild.lock.debian.logins import check_logins
from envbuild.lock.debian.signing_keys import copy_keys, key_places, keyring_line, repository_key
from envbuild.lock.debian.vendor_checks import check_exists, requires_gpgv
from envbuild.net.origin_kinds import ARCHIVES
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
class RepositoryFinder:
    """The finder of the archives of a distribution, and of vendors' repositories for it, on this machine.

    refresh: download the keys of vendors again
    """

    distribution: Distribution
    arch: str
    site: Site
    store: Store
    transport: Transport
    reporter: Reporter
    refresh: bool = False

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
        repository for, or with the wrong key. One may be another component of the distribution's own archive
        (``debian:trixie/non-free``)."""
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
        if origin.partition(":")[0] in ARCHIVES:  # another component of a distribution's archive, and so its keys
            if not (own := self.keyring(origin)):
                hint = f"sudo apt install {self.distribution.keyring_package}, or in site.yaml:  {keyring_line(origin)}"
                raise InputError(f"the keys of {origin} are not installed", hint)
            return PackageRepository(origin, places, repository.suite, repository.components, own)
        keyring, weak = self.site_keyring(origin), False
        if keyring is None:
            found = key_places(repository, supply)
            keyring = repository_key(repository, found, self.transport, self.key_folder(), refresh=self.refresh)
            weak = requires_gpgv(origin, keyring, self.reporter)
        return PackageRepository(origin, places, repository.suite, repository.components, keyring, weak)
