"""The newest releases that the facts know: on the day of a release, before there is a fact about it, an image is locked
with the release before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from packaging.version import Version

from envbuild.core.errors import ConflictError, InputError, SpecError
from envbuild.core.text import human_list
from envbuild.lock.python.pins import Pin

Run = Callable[[Iterable[str]], dict[str, Pin]]


@dataclass(frozen=True, slots=True)
class KnownReleases:
    """The newest known version of each package.

    newest: normalized package → version; other packages have no bound
    report: gets one sentence for each newer release that is not taken
    """

    newest: Mapping[str, str] = field(default_factory=dict)
    report: Callable[[str], None] = lambda text: None
    reported: set[str] = field(default_factory=set)

    def newer(self, pins: Mapping[str, Pin]) -> dict[str, str]:
        """Return package → version of the pins that are newer than all that the facts know; a local label (``+cu130``)
        does not count."""
        return {
            name: pins[name].version
            for name, known in self.newest.items()
            if name in pins and Version(Version(pins[name].version).public) > Version(known)
        }

    def prefer_known(self, pins: dict[str, Pin], run: Run) -> dict[str, Pin]:
        """Return `pins`, or the result of `run` with bounds where some of them are newer than the facts.

        run: resolves again, with more constraints
        A package that fits in a newer version only remains: the answer of the matrix about it is for the user.
        """
        bounds: dict[str, str] = {}
        taken_back: dict[str, str] = {}
        required: set[str] = set()
        while found := {name: version for name, version in self.newer(pins).items() if name not in required}:
            for group in [list(found), *([name] for name in found if len(found) > 1)]:
                more = {name: f"{name}<={self.newest[name]}" for name in group}
                try:
                    pins = run([*bounds.values(), *more.values()])
                except (ConflictError, InputError, SpecError):
                    required |= more.keys() if len(group) == 1 else set()
                    continue
                bounds |= more
                taken_back |= {name: found[name] for name in group}
                if len(group) == len(found):
                    break
        self.report_newer(taken_back, pins)
        return pins

    def report_newer(self, newer: Mapping[str, str], pins: Mapping[str, Pin]) -> None:
        """Report the newer releases that were not taken, each once."""
        names = sorted(newer.keys() - self.reported)
        if names:
            self.reported.update(names)
            there = human_list([f"{name} {newer[name]}" for name in names], 8)
            taken = human_list([f"{name} {pins[name].version}" for name in names if name in pins], 8)
            self.report(f"the package index has {there}, which no fact knows yet; locking {taken or 'others'}")
