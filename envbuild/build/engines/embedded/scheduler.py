"""The scheduler of a build: one thread that starts unit processes, reads their output and records their products.

Units run in parallel as soon as what they need is there. Every unit key has a lock file, so that several engines may
share a store: who comes second waits and takes the result. Nothing is recorded before it is in place."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import selectors
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from envbuild.build.engines import error_report, resources
from envbuild.build.engines.base import BuildOptions
from envbuild.build.engines.embedded import unit_process
from envbuild.build.engines.embedded.compiler_cache import trim_caches, unit_cache
from envbuild.build.engines.embedded.unit_job import input_digests, make_unit_job
from envbuild.build.plan.units import Plan, Unit
from envbuild.core.console import Reporter
from envbuild.core.errors import EngineError, EnvbuildError
from envbuild.core.store.lock_holder import PATIENCE, UNSEEN, find_holder
from envbuild.core.store.permissions import open_lock_file, share_file
from envbuild.core.store.store import Store, UnitRecord
from envbuild.core.userns.namespaces import SetupError
from envbuild.core.userns.process import Child, spawn
from envbuild.net.unit_caches import UNKNOWN

if TYPE_CHECKING:
    from envbuild.squashfs.pack.format import PackFormat

POLL = 0.3  # seconds between two attempts to take a lock that another process holds
LIGHT_GB = 0.5  # Unit.memory_gb of a unit that does not compile


@dataclass
class RunningUnit:
    """A unit in flight. `job` is what its process got; `last` the unfinished last line of its output."""

    unit: Unit
    child: Child
    job: dict[str, Any]
    lock: IO[bytes]
    log: IO[bytes]
    reserved: float
    last: bytes = b""


@dataclass
class Schedule:
    """One call of `Embedded.build`."""

    plan: Plan
    store: Store
    reporter: Reporter
    options: BuildOptions
    packs: Sequence[PackFormat]
    work: Path
    keys: dict[str, str]
    records: dict[str, UnitRecord] = field(default_factory=dict)
    built: list[str] = field(default_factory=list)
    running: list[RunningUnit] = field(default_factory=list)
    waiting: dict[str, float] = field(default_factory=dict)  # unit → when it is named who builds it (infinity: it was)
    checked: set[str] = field(default_factory=set)
    error: EnvbuildError | None = None
    failed: tuple[RunningUnit, int] | None = None

    def __post_init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.cores = resources.cores()
        self.memory = 0.9 * resources.memory()
        self.workers = resources.units_at_once(self.options.workers)
        # a second build for a comparison would compare the cache with itself
        self.caching = self.options.compiler_cache and not self.options.rebuild

    def run(self, todo: list[Unit]) -> None:
        """Build the units in `todo`. Raises BuildError, InputError, EngineError."""
        resources.check_memory(todo, self.memory)
        if self.caching:
            trim_caches(todo, self.store)
        try:
            while (todo and not self.error) or self.running:
                self._start(todo)
                self._wait()
        finally:
            for item in self.running:
                item.child.process.kill()
            for item in self.running:
                item.child.kill()
                self._release(item)
        if self.failed and self.options.shell_on_fail:
            if sys.stdin.isatty():
                self._shell(*self.failed)
            else:
                self.reporter.warn("no terminal: no shell was opened")
        if self.error:
            raise self.error

    # starting
    def _start(self, todo: list[Unit]) -> None:
        ready = [unit for unit in todo if all(name in self.records for name in self.plan.needs(unit))]
        for number, unit in enumerate(ready):
            if self.error or len(self.running) >= self.workers:
                return
            free = self.memory - sum(item.reserved for item in self.running)
            if self.running and free < unit.memory_gb * resources.GB:
                return
            lock = self._lock(unit)
            if lock is None:
                continue
            todo.remove(unit)
            found = (
                None if self.options.rebuild else self.options.find_unit(self.store, self.keys[unit.name], unit.product)
            )
            if found:  # another process built it while this one waited
                lock.close()
                self.records[unit.name] = found
                continue
            waiting = min(len(ready) - number, self.workers - len(self.running))
            jobs = resources.compile_jobs(self.options.jobs or self.cores, free / waiting, unit.memory_gb)
            try:
                self.running.append(self._spawn(unit, jobs, lock))
            except BaseException:
                lock.close()
                raise

    def _lock(self, unit: Unit) -> IO[bytes] | None:
        """Return the lock of a unit, or None while another process builds it."""
        file = open_lock_file(self.store.root / "locks" / self.keys[unit.name])
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                self._report_waiting(unit, file)
            return None
        return file

    def _report_waiting(self, unit: Unit, file: IO[bytes]) -> None:
        """Report once that another process has the lock of a unit, and which one if that takes long."""
        now = time.monotonic()
        if unit.name not in self.waiting:
            self.waiting[unit.name] = now + PATIENCE
            self.reporter.info(f"{unit.name}: another envbuild builds it; waiting")
        elif now > self.waiting[unit.name]:
            self.waiting[unit.name] = math.inf
            holder = find_holder(file.fileno()) or UNSEEN
            self.reporter.info(f"{unit.name}: waiting; its lock is held by {holder}")

    def _spawn(self, unit: Unit, jobs: int, lock: IO[bytes]) -> RunningUnit:
        key = self.keys[unit.name]
        job = make_unit_job(
            unit,
            self.records,
            store=self.store,
            work=self.work.resolve() / f"{unit.name}-{key[:12]}",
            jobs=jobs,
            packs=self.packs,
            checked=self.checked,
            keep_failed=self.options.shell_on_fail,
            cache=unit_cache(unit, self.records, self.store) if self.caching else None,
        )
        log = self.store.new_log(unit.name, key).open("wb", buffering=0)
        self.reporter.start(unit.name, f"{unit.name}: {unit.title}" if unit.title else unit.name)
        child = spawn(unit_process.build_unit, {"job": job}, what=unit_process.PROCESS)
        assert child.process.stdout is not None
        os.set_blocking(child.process.stdout.fileno(), False)
        reserved = (jobs if unit.memory_gb > LIGHT_GB else 1) * unit.memory_gb * resources.GB
        item = RunningUnit(unit, child, job, lock, log, reserved)
        self.selector.register(child.process.stdout, selectors.EVENT_READ, item)
        return item

    # running and ending
    def _wait(self) -> None:
        for key, _ in self.selector.select(POLL if self.running else (POLL if self.waiting else 0)):
            item: RunningUnit = key.data
            chunk = os.read(key.fd, 1 << 16)
            if chunk:
                item.log.write(chunk)
                lines = (item.last + chunk).replace(b"\r", b"\n").split(b"\n")
                item.last = lines[-1][-4096:]
                last_text = next((line for line in reversed(lines) if line.strip()), b"")
                self.reporter.note(item.unit.name, last_text.decode(errors="replace").strip())
                continue
            self.running.remove(item)
            try:
                self._finish(item)
            finally:
                self._release(item)
        if not self.running and self.waiting:
            time.sleep(POLL)

    def _finish(self, item: RunningUnit) -> None:
        unit, log = item.unit, Path(item.log.name)
        error: EnvbuildError
        try:
            answer = item.child.result()
        except EnvbuildError as raised:
            error = raised
        except SetupError as raised:
            error = error_report.setup_error(raised)
        except OSError as raised:
            error = error_report.system_error(unit, raised, log, self.store.root)
        else:
            if "failed" not in answer:
                self._record(unit, answer)
                self.checked |= input_digests(item.job)
                return
            step, code = answer["failed"]
            error = error_report.step_error(unit, self.plan.image, step, code, log, self.store.root, answer["free"])
            if not self.failed:
                self.failed = item, step
        self.reporter.finish(unit.name)
        self.error = self.error or error
        if self.running:
            self.reporter.warn(
                f"unit {unit.name} failed; waiting for {', '.join(other.unit.name for other in self.running)}"
            )

    def _record(self, unit: Unit, answer: dict[str, Any]) -> None:
        caches = {cache for name in self.plan.needs(unit) for cache in self.records[name].caches}
        # Layers of a base image that was built here become one layer.
        below = [blob.sha256 for part in unit.inputs for blob in part.blobs if unit.layers]
        found = [self.store.find_layer(f"sha256:{digest}") for digest in below]
        caches |= {cache for layer in found if layer for cache in layer.all_caches}
        # A unit on a base of which nothing is known is used again; what is known of its layer is another question.
        named = {"key": self.keys[unit.name], "unit": unit.name, "source": "", "caches": sorted(caches - {UNKNOWN})}
        record = UnitRecord.parse({"layer": None, "wheels": (), **answer, **named})
        if record is None:
            raise EngineError(f"the process of unit {unit.name} returned a record that is not one", hint="run it again")
        if record.layer:
            self.store.record_built_with(record.layer, sorted(caches.union(self.options.base_caches)))
            self.store.share_packs(record.layer.diff_id)
        for _, sha256 in record.wheels:
            share_file(self.store.blob(sha256))
        self.store.record_unit(record)
        self.records[unit.name] = record
        self.built.append(unit.name)
        self.reporter.finish(unit.name, f"{unit.name} built in {record.seconds:.1f} s")

    def _release(self, item: RunningUnit) -> None:
        assert item.child.process.stdout is not None
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(item.child.process.stdout)
        item.child.process.stdout.close()
        item.log.close()
        item.lock.close()

    def _shell(self, item: RunningUnit, step: int) -> None:
        from envbuild.build.engines.embedded.run_command import open_failed_shell

        command = item.unit.steps[step].command
        self.reporter.info(f"a shell in unit {item.unit.name} as step {step + 1} left it; the command was:\n{command}")
        open_failed_shell(item.job, self.work / "shell")
