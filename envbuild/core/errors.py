"""Every error a user can cause, with its exit code.

Libraries raise; only the command line prints and exits. An error has a message, a hint that can be typed, and
its place (``file:line:column``). A file with several mistakes raises one error that holds every finding.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
FREE_SOME = "envbuild store gc, or set ENVBUILD_STORE to a folder on a larger disk"  # hint where the store is full


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: what is wrong, where (``file:line:column``, may be empty) and what to do (may be empty).

    `mirror_lines` are those below ``mirrors:`` of a ``site.yaml`` that `hint` requires
    (`envbuild.net.site.mirror_line`).
    """

    message: str
    where: str = ""
    hint: str = ""
    mirror_lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\nhint: {self.hint}" if self.hint else text


class EnvbuildError(Exception):
    """Base of all errors that are reported to the user without a traceback."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "not-built"  # the name of the kind in JSON answers (docs/json.md)

    def __init__(self, message: str, hint: str = "", where: str = "", *, mirror_lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.findings: tuple[Finding, ...] = (Finding(message, where, hint, mirror_lines),)

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Self:
        """Return one error with all `findings` (at least one), in their order."""
        found = tuple(findings)
        error = cls(found[0].message, found[0].hint, found[0].where)
        error.findings = found
        return error

    def at(self, where: str) -> Self:
        """Return this error with `where` as the place of every finding that has none."""
        return type(self).of(replace(finding, where=finding.where or where) for finding in self.findings)

    @property
    def message(self) -> str:
        return self.findings[0].message

    @property
    def hint(self) -> str:
        return self.findings[0].hint

    @property
    def where(self) -> str:
        return self.findings[0].where

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings)


class SpecError(EnvbuildError):
    """A spec, target, site, recipe option or command line is wrong."""

    exit_code = 2
    code = "spec"


class ConflictError(EnvbuildError):
    """The facts exclude the requested combination."""

    exit_code = 3
    code = "conflict"


class LockError(EnvbuildError):
    """There is no lock, or its inputs changed since it was made."""

    exit_code = 4
    code = "lock"


class EngineError(EnvbuildError):
    """No engine can run here, or the store cannot be used; names the step that failed and the fix."""

    exit_code = 5
    code = "engine"


class DamagedPackError(EngineError):
    """A pack is not what was written: it can be made again from its layer."""


class PackFormatError(DamagedPackError):
    """A pack is of another format: of an earlier or a later release."""


class DamagedLayerError(EngineError):
    """Layers of the store are not what was built. They were moved aside, so that the next build makes them again."""


class BuildError(EnvbuildError):
    """A unit failed: which, its command, exit code, last lines, log, and how to get a shell in it."""

    exit_code = 6
    code = "build"


class VerifyError(EnvbuildError):
    """The content of the artifact differs from its declaration."""

    exit_code = 7
    code = "verify"


class SignatureError(VerifyError):
    """A signature is missing or wrong, or a key cannot be used."""

    code = "signature"


class PublishError(EnvbuildError):
    """An output cannot be written."""

    exit_code = 8
    code = "output"


class UnknownError(EnvbuildError):
    """No fact covers this combination: never reported as valid."""

    exit_code = 9
    code = "unknown"


class InputError(EnvbuildError):
    """An input is not available: which, its digest, the places tried, how to add a mirror or refresh it."""

    exit_code = 10
    code = "input"
