"""The resolver of the Python half: runs of uv until versions are preserved where they fit, and each package comes from
its index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.core.errors import ConflictError, EnvbuildError, InputError, SpecError
from envbuild.lock.python.pins import Pin, changed_names
from envbuild.lock.python.uv import Uv
from envbuild.lock.python.uv_inputs import PROJECT

MAX_RETRIED = 8  # packages that are tried one by one before a new version is accepted for them


@dataclass(frozen=True, slots=True)
class Resolver:
    """A resolver of requirements by runs of `uv`."""

    uv: Uv

    def resolve(
        self,
        what: str,
        requirements: Iterable[str],
        *,
        constraints: Iterable[str] = (),
        prefer: Mapping[str, str] | None = None,
        omit: Mapping[str, str] | None = None,
    ) -> dict[str, Pin]:
        """Return name → Pin of `requirements` and all their dependencies, wheels only.

        `what` names the unit in messages. `prefer` (name → version) is used where possible; `omit` (name →
        version) are names that are resolved but not returned. Raises ConflictError (no solution), SpecError (only an
        sdist exists), InputError (unknown or unreachable).
        """
        wanted, bounds, keep, omit = list(requirements), list(constraints), dict(prefer or {}), omit or {}
        bounds += [f"{name}=={version}" for name, version in omit.items()]
        pins = self._compile(what, wanted, bounds, keep, omit)
        # uv 0.13 loses a preference when the first of several indexes that has this version has it for other platforms
        # only. Changed versions are requested once more by a constraint (and no preference, which would be lost
        # again), together, then one by one.
        moved = changed_names(keep, pins)
        soft = dict(keep)
        for names in [moved, *([name] for name in moved[:MAX_RETRIED])] if moved else ():
            constraint = [f"{name}=={keep[name]}" for name in names]
            rest = {name: version for name, version in soft.items() if name not in names}
            try:
                found = self._compile(what, wanted, [*bounds, *constraint], rest, omit)
            except EnvbuildError:
                continue  # it is no longer available, or no longer fits
            if set(changed_names(keep, found)) < set(changed_names(keep, pins)):  # not at the cost of another package
                pins, soft, bounds = found, rest, [*bounds, *constraint]
            if not changed_names(keep, pins):
                break
        return pins

    def _compile(
        self,
        what: str,
        requirements: list[str],
        constraints: list[str],
        prefer: Mapping[str, str],
        omit: Mapping[str, str],
    ) -> dict[str, Pin]:
        """Resolve once. uv accepts an index for a package, but only for packages that are required by name. So the
        dependencies from a vendor's index are determined first, and then required as well.
        """
        owners = {name: vendor for vendor in self.uv.vendors for name in vendor.packages if name not in omit}
        named = {str(canonicalize_name(Requirement(text).name)) for text in requirements} & owners.keys()

        def run(also: frozenset[str] = frozenset(), *, pool: bool = False) -> dict[str, Pin]:
            for name in sorted(named | also):
                owners[name].check(name)
            return self.uv.run(what, [*requirements, *sorted(also)], constraints, prefer, omit, pool=pool)

        also: frozenset[str] = frozenset()
        try:
            pins = run()
        except (ConflictError, InputError, SpecError) as error:
            if not owners:
                raise
            try:
                found = run(pool=True)  # all indexes as one: only the names that come out of it are of use
            except EnvbuildError:
                raise error from None
            also = frozenset(owners.keys() & found.keys() - named)
            if not also:
                raise
            pins = run(also)
        while more := owners.keys() & pins.keys() - named - also:
            also |= more
            pins = run(also)
        # A package without users, because another version of its user was chosen, is not required either.
        idle = {name for name in also if name in pins and pins[name].via == f"{PROJECT.format(what)} (pyproject.toml)"}
        if idle:
            fewer = run(also - idle)
            if not owners.keys() & fewer.keys() - named - (also - idle):
                pins = fewer
        return pins
