"""`envbuild matrix refresh`: rebuild the derived fact files from upstream, and report what changed.

A refresh that finds nothing new leaves every file as it is, byte for byte: the day on which a fact was seen moves only
when the fact does. One that would take rows or versions away is refused, because a page that was read in half looks
like that."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from envbuild.core.console import Reporter
from envbuild.core.errors import Finding, InputError, SpecError
from envbuild.core.store.json_files import write_atomic
from envbuild.core.text import amount
from envbuild.core.yaml_reader import did_you_mean
from envbuild.matrix import FACTS
from envbuild.matrix.collect import fact_diff
from envbuild.matrix.collect.fact_writer import Context, Derived, RunProgram, read_derived, render_derived
from envbuild.matrix.collect.index_pins import collect as collect_pins
from envbuild.matrix.collect.nccl_cubins import collect as collect_cubins
from envbuild.matrix.collect.neuron import make_facts as neuron_facts
from envbuild.matrix.collect.neuron_manifest import read_manifest
from envbuild.matrix.collect.nvcc import collect as collect_nvcc
from envbuild.matrix.collect.read_back import check_readable
from envbuild.matrix.collect.remote_wheel import Wheels
from envbuild.matrix.collect.torch_wheels import collect as collect_torch
from envbuild.net.python_index import PackageIndex
from envbuild.net.site import Site
from envbuild.net.transport import Transport

COLLECTORS = {  # those that read the package index, by their names on the command line
    "torch": collect_torch,
    "nvcc": collect_nvcc,
    "pins": collect_pins,
    "cubins": collect_cubins,
}
NEURON = "neuron"  # reads a file that must be given, so it runs only when it is named
NAMES = (*COLLECTORS, NEURON)
FEWER = "compare with upstream; if the new rows are right: envbuild matrix refresh --allow-fewer"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Upstream's release manifest of AWS Neuron: the file, and the place (repository@commit path) it is from."""

    path: Path
    where: str


@dataclass(frozen=True, slots=True)
class RefreshedFile:
    """One derived file: `lines` are the changes, `fewer` what would be removed, `written` whether it was written."""

    path: Path
    lines: tuple[str, ...]
    fewer: tuple[Finding, ...]
    changed: bool
    written: bool


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """The result of a refresh and its costs."""

    files: tuple[RefreshedFile, ...]
    requests: int
    received: int
    seconds: float

    @property
    def changed(self) -> bool:
        return any(file.changed for file in self.files)

    def text(self) -> str:
        """Return the report as text for the terminal."""
        parts = []
        for file in self.files:
            if file.changed:
                parts += [
                    f"{file.path.name}{'' if file.written else ' (not written)'}",
                    *(f"  {x}" for x in file.lines),
                ]
        same = sum(not file.changed for file in self.files)
        if same:
            parts.append(f"{same} {'file is' if same == 1 else 'files are'} as before")
        parts.append(f"{self.requests} requests, {amount(self.received)}, {self.seconds:.0f} s")
        return "\n".join(parts)


def refresh_facts(
    names: Iterable[str],
    site: Site,
    reporter: Reporter,
    folder: Path,
    run: RunProgram,
    *,
    write: bool = True,
    allow_fewer: bool = False,
    manifest: Manifest | None = None,
    today: date | None = None,
) -> RefreshReport:
    """Run the collectors `names` (none: those that read the package index) and update `folder`.

    run: as of `Context`. Without `write` nothing is changed.

    Raise SpecError for an unknown name or a derived file that is not YAML, InputError when something cannot be read,
    and, before anything is written, when there would be fewer rows, or facts that no command reads."""
    began = time.monotonic()
    wanted = _checked(tuple(names) or tuple(COLLECTORS), manifest)
    transport = Transport(site.network())
    index = PackageIndex(transport, site.python(), in_parts=True)
    context = Context(index, Wheels(transport), reporter, run, (folder, FACTS / "derived"))
    found: dict[str, Derived] = {}
    for name in wanted:
        found |= _collect(name, context, manifest)
    empty = [
        Finding(f"nothing for {stem}.yaml was found", hint="is it the right package index?")
        for stem, derived in sorted(found.items())
        if not derived.facts
        and not any(entry.get("values") for entry in derived.components.values() if "kind" not in entry)
    ]
    if empty:
        raise InputError.of(empty)
    day = (today or datetime.now(UTC).date()).isoformat()
    files = [_compare(folder / f"{stem}.yaml", derived, day) for stem, derived in sorted(found.items())]
    fewer = [finding for file, _ in files for finding in file.fewer]
    if write and fewer and not allow_fewer:
        raise InputError.of([*fewer[:-1], Finding(fewer[-1].message, fewer[-1].where, FEWER)])
    if write:
        check_readable(folder, {file.path.name: text for file, text in files if file.changed})
        for file, text in files:
            if file.changed:
                _write(file.path, text)
    written = tuple(
        RefreshedFile(file.path, file.lines, file.fewer, file.changed, write and file.changed) for file, _ in files
    )
    tally = context.wheels.tally
    return RefreshReport(written, tally.requests, tally.received, time.monotonic() - began)


def _checked(names: tuple[str, ...], manifest: Manifest | None) -> tuple[str, ...]:
    wrong = [
        Finding(f"no collector is called '{name}'", hint=did_you_mean(name, NAMES, "the collectors are"))
        for name in names
        if name not in NAMES
    ]
    if NEURON in names and manifest is None:
        hint = "pass n2-manifest.json of github.com/aws-neuron/aws-neuron-sdk, and the commit it is from"
        wrong.append(Finding("the collector neuron reads a file, but none was passed", hint=hint))
    if wrong:
        raise SpecError.of(wrong)
    return tuple(name for name in NAMES if name in names)


def _collect(name: str, context: Context, manifest: Manifest | None) -> dict[str, Derived]:
    if name == NEURON and manifest is not None:
        return {"neuron": neuron_facts(read_manifest(manifest.path), manifest.where)}
    return COLLECTORS[name](context)


def _compare(path: Path, derived: Derived, day: str) -> tuple[RefreshedFile, str]:
    """Return the file as it would be, and its text."""
    old, new = read_derived(path), fact_diff.derived_tree(derived)
    unchanged = fact_diff.unchanged_facts(old, new)
    text = render_derived(derived, {fact.id: unchanged.get(fact.id) or day for fact in derived.facts})
    lines = tuple(fact_diff.diff_lines(old, new))
    changed = not path.exists() or path.read_bytes() != text.encode(errors="surrogatepass")
    if changed and not lines:
        lines = ("written again: the order or the spelling of its lines changed",)
    return RefreshedFile(path, lines, tuple(fact_diff.find_missing_rows(old, new, path.name)), changed, False), text


def _write(path: Path, text: str) -> None:
    """Write a file atomically: another process reads the old file or the new one. Raise InputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, lambda file: file.write(text.encode()), durable=False)
    except OSError as error:
        hint = "your own facts belong into the folder facts/ of a project"
        raise InputError(f"cannot be written: {error.strerror}", hint, str(path)) from None
