"""A cache that is searched for units: a repository of a registry, or a folder with an OCI layout.

A cache that does not answer is tried once, and then left alone for the rest of the command.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from envbuild.build.cache.cache_folder import BLOBS, UNITS, find_intruder
from envbuild.build.cache.unit_document import RefusedUnitError
from envbuild.core import signals
from envbuild.core.console import Reporter
from envbuild.core.regular_file import NotRegularError, TooLargeError, mode_at, read_bounded
from envbuild.core.text import printable
from envbuild.net.failures import NotFoundError, RefusedError, TooLongError, UnreachableError
from envbuild.net.miss import MissKind
from envbuild.net.registry.client import ACCEPT, RegistryAddress, Repository
from envbuild.net.registry.reference import parse_reference
from envbuild.net.registry.upload import RegistryRefusal, send
from envbuild.net.site import Site
from envbuild.net.transport import Transport
from envbuild.net.unit_caches import UnitCache
from envbuild.oci.document import MAX_DOCUMENT

if TYPE_CHECKING:
    from envbuild.core.signing.public_keys import TrustedKey

BUSY = 3  # requests to a registry that is busy
Answer = TypeVar("Answer")


class UnusableCacheError(Exception):
    """A cache that cannot be used by this command: the reason, and a command that would help."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


@dataclass(slots=True)
class OpenCache:
    """A cache of the site. `reason`: why it is not used any more; `answered`: it did, once; `checked`: no other user
    can replace its folder; `refused`: keys of units that are not what they name; `keys`: those that sign its units,
    read with the first unit."""

    setting: UnitCache
    site: Site
    warn: Callable[[str], object]
    transport: Transport = field(init=False)
    address: RegistryAddress | None = None
    reason: str = ""
    answered: bool = False
    checked: bool = False
    refused: set[str] = field(default_factory=set)
    keys: tuple[TrustedKey, ...] | None = None
    guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.transport = Transport(self.site.network())
        if not self.setting.folder:
            self.transport = self.repository().transport

    @property
    def name(self) -> str:
        return self.setting.at

    def trusted(self) -> tuple[TrustedKey, ...]:
        """Return the keys by one of which a unit must be signed; none if it needs no signature. Raises
        SignatureError."""
        if not self.setting.keys:
            return ()
        from envbuild.core.signing.public_keys import read_public_keys

        with self.guard:
            if self.keys is None:
                self.keys = read_public_keys(self.setting.keys)
        return self.keys

    def repository(self) -> Repository:
        """Return the repository of a registry. Mirrors of the site are for images."""
        named = replace(self.site, mirrors={}, use_host=True)
        return Repository(parse_reference(self.name), named, Transport(self.site.network()))

    def find(self, key: str) -> bytes | None:
        """Return the manifest of a unit; None if the cache has none, or cannot be used, which is reported once.

        Raises RefusedUnitError for one that is damaged.
        """
        return self._ask(lambda: self._read_folder(key) if self.setting.folder else self._read_registry(key))

    def has(self, key: str) -> bool:
        """Return whether the cache has a unit that can be read; False if it cannot be used."""
        try:
            return bool(self._ask(lambda: self._read_folder(key) if self.setting.folder else self._in_registry(key)))
        except RefusedUnitError:
            return False

    def _ask(self, request: Callable[[], Answer]) -> Answer | None:
        with self.guard:  # until it has answered once, one request at a time
            if self.reason:
                return None
            if not self.answered:
                return self._try(request)
        return self._try(request)

    def _try(self, request: Callable[[], Answer]) -> Answer | None:
        try:
            found = request()
        except UnusableCacheError as error:
            self.leave(str(error), error.hint)
            return None
        self.answered = True
        return found

    def leave(self, reason: str, hint: str = "") -> None:
        """Ask this cache no more, and report why."""
        if not self.reason:
            self.reason = reason
            self.warn(f"the cache {self.name} is not used: {reason}{f' ({hint})' if hint else ''}")

    def blob(self, digest: str) -> str:
        """Return the address or the path of a blob (hex)."""
        if self.setting.folder:
            return str(self.setting.folder / BLOBS / digest)
        assert self.address is not None
        return self.address.blob(digest)

    def read(self, digest: str, size: int) -> bytes:
        """Return a document (hex), or raise ValueError if it is another or too long; RefusedUnitError, NotFoundError,
        UnreachableError."""
        if size > MAX_DOCUMENT:
            raise ValueError(f"it has more than {MAX_DOCUMENT >> 20} MiB")
        self.check_blob(digest)
        try:
            content = self.transport.read(self.blob(digest), limit=max(size, 1)).content
        except RefusedError as error:
            if self.setting.folder or isinstance(error, TooLongError):
                raise ValueError(str(error)) from None
            raise
        if (found := hashlib.sha256(content).hexdigest()) != digest:
            raise ValueError(f"expected sha256 {digest}, got {found}")
        return content

    def check_blob(self, digest: str) -> None:
        """Raise RefusedUnitError if a blob (hex) of a folder is there, and not as a regular file."""
        if not self.setting.folder:
            return
        path = self.setting.folder / BLOBS / digest
        if path.is_symlink() or ((mode := mode_at(path)) and not stat.S_ISREG(mode)):
            raise RefusedUnitError(f"{BLOBS}/{digest} is not a regular file")

    def _read_folder(self, key: str) -> bytes | None:
        folder = self.setting.folder
        assert folder is not None
        try:
            self.checked = self.checked or check_folder(folder)
            content = read_bounded(folder / UNITS / key, self.transport.limits.manifest, follow=False)
            self.checked = self.checked or check_folder(folder)  # another user may have made it meanwhile
        except FileNotFoundError:
            return None
        except (NotRegularError, TooLargeError):
            raise RefusedUnitError(f"{UNITS}/{key} is not a manifest") from None
        except OSError as error:
            raise UnusableCacheError(os.strerror(error.errno or 0)) from None
        return content

    def _read_registry(self, key: str) -> bytes | None:
        if not self._in_registry(key):
            return None
        assert self.address is not None
        try:
            return self.address.manifest(self.transport, key)
        except NotFoundError:  # removed meanwhile
            return None
        except TooLongError as error:
            raise RefusedUnitError(f"its manifest is too long: {error}") from None
        except UnreachableError as error:
            raise UnusableCacheError(str(error), error.hint) from None

    def _in_registry(self, key: str) -> bool:
        return self._has(self.address, key) if self.address else self._find_address(key)

    def _find_address(self, key: str) -> bool:
        """Return whether the registry has a unit, and record which of its addresses answered."""
        reasons = []
        for place in self.repository().places:
            if not isinstance(place, RegistryAddress):
                continue
            try:
                found = self._has(place, key)
            except UnusableCacheError as error:
                reasons.append((str(error), error.hint))
                continue
            self.address = place
            return found
        raise UnusableCacheError(*reasons[-1])

    def _has(self, place: RegistryAddress, key: str) -> bool:
        """Return whether a registry has a unit: one request, unless it is busy."""
        for tries_left in reversed(range(BUSY)):
            try:
                send(self.transport, "HEAD", place.manifest_url(key), {"Accept": ACCEPT})  # type: ignore[arg-type]
            except RegistryRefusal as error:
                if error.status == 404:
                    return False
                login = f"docker login {self.name.partition('/')[0]}" if error.kind is MissKind.UNAUTHORIZED else ""
                hint = error.hint or login
                raise UnusableCacheError(str(error), hint) from None
            except RefusedError as error:
                raise UnusableCacheError(str(error), error.hint) from None
            except UnreachableError as error:
                if not tries_left or not error.wait:
                    raise UnusableCacheError(printable(str(error))) from None
                signals.pause(min(error.wait, 10))
            else:
                return True
        raise AssertionError("unreachable")


def check_folder(folder: Path) -> bool:
    """Return whether there is a folder. Raises UnusableCacheError if others may put units into it, or replace it."""
    if found := find_intruder(folder):
        raise UnusableCacheError(*found)
    return folder.exists()


def open_caches(site: Site, reporter: Reporter) -> tuple[OpenCache, ...]:
    """Return the caches of a site, in its order."""
    return tuple(OpenCache(setting, site, reporter.warn) for setting in site.caches)
