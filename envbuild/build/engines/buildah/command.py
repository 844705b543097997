"""The command line of buildah: storage of its own in the store, in namespaces of its own.

A new network namespace takes the network away (buildah 1.28 refuses ``--network none`` with chroot isolation). A new
pid namespace ends with buildah, with all that a step left running; a new mount namespace takes buildah's mounts with
it, which remain otherwise when a step fails. A user without privileges gets that inside ``buildah unshare``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envbuild.build.engines.base import BuildOptions, Probe
from envbuild.build.engines.build_program import jobs_argument, run_build
from envbuild.build.engines.buildah import error_report
from envbuild.build.plan.units import Plan, Unit
from envbuild.core.console import Reporter
from envbuild.core.errors import EngineError
from envbuild.core.install_hint import install_hint
from envbuild.core.programs import CompletedProcess, run_program
from envbuild.core.store.store import Store
from envbuild.core.userns import id_maps
from envbuild.core.userns.diagnose import fix_for

OLDEST = (1, 28)
DRIVERS = ("overlay", "vfs")
ISOLATION = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
SYSTEM = ("/usr", "/lib", "/lib64", "/bin")  # what /usr/bin/true of the host needs
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}\n'  # nothing is ever pulled
# A process leaves a root that was made by chroot with the first, and makes devices with the second.
DROPPED = ("CAP_SYS_CHROOT", "CAP_MKNOD")
AS_ROOT = "engine buildah does not keep steps of root from devices and cgroups of this machine (docs/security.md)"
AS_USER = "engine buildah confines steps less than engine embedded does (docs/security.md)"


@dataclass(frozen=True, slots=True)
class Runner:
    """buildah with the storage `root` (of the kind `driver`); `work` is a folder that goes away with this process."""

    store: Store
    root: Path
    work: Path
    driver: str

    @classmethod
    def open(cls, store: Store, work: Path) -> Runner:
        """Return a runner with the first storage driver that works in the store. Raises EngineError with what was
        tried."""
        (work / "tmp").mkdir(exist_ok=True)
        (work / "policy.json").write_text(POLICY)
        reasons: list[str] = []
        storage = store.own_folder("buildah").resolve()
        for driver in DRIVERS:
            runner = cls(store, storage / driver, work.resolve(), driver)
            if runner.root.is_dir() and (runner.root / "works").exists():
                return runner
            reason = runner.attempt()
            if not reason:
                (runner.root / "works").touch()
                return runner
            reasons.append(f"{driver}: {reason}")
        why, hint = "; ".join(reasons), ""
        if os.geteuid() != 0 and not id_maps.has_subordinate_ids():  # buildah's last line is "exit status 1" then
            why, hint = f"this user has fewer than {id_maps.NEEDED_IDS} subordinate ids", fix_for("subordinate ids")
        raise EngineError(f"buildah cannot build in the store: {why}", hint=hint)

    def command(self, *arguments: str) -> list[str]:
        """Return the whole command line of ``buildah arguments``."""
        words: list[str] = []
        storage = ["--root", str(self.root), "--runroot", str(self.work / "run"), "--storage-driver", self.driver]
        if os.geteuid() != 0:
            words += ["buildah", *storage, "unshare", "--"]
        return [*words, *ISOLATION, "buildah", *storage, *arguments]

    def environment(self) -> dict[str, str]:
        """Return a minimal environment: a proxy, for example, must not get into a build."""
        inherited = {name: os.environ[name] for name in ("HOME", "XDG_RUNTIME_DIR", "USER") if name in os.environ}
        return {
            **inherited,
            "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin",
            "TMPDIR": str(self.work / "tmp"),
        }

    def call(self, *arguments: str) -> CompletedProcess[str]:
        """Run buildah to its end, output as text."""
        return run_program(self.command(*arguments), env=self.environment(), text=True, umask=0o022)

    def attempt(self) -> str:
        """Make an empty container and run a program of the host in it; what is wrong, or ""."""
        done = self.call("from", "scratch")
        if done.returncode:
            return last_line(done)
        container = done.stdout.split()[-1]
        binds = [word for path in SYSTEM if Path(path).is_dir() for word in ("-v", f"{path}:{path}:ro")]
        done = self.call("run", "--isolation", "chroot", *binds, container, "/usr/bin/true")
        self.call("rm", container)
        return last_line(done) if done.returncode else ""

    @contextlib.contextmanager
    def empty_storage(self) -> Iterator[Runner]:
        """Yield a runner with an empty storage beside this one, for a build that takes no step from the cache of
        another one, and leaves none there."""
        runner = replace(self, root=self.root.with_name(f"{self.root.name}-rebuild"))
        runner.remove_images()
        try:
            yield runner
        finally:
            runner.remove_images()

    def remove_images(self) -> None:
        """Remove all containers and images of this storage."""
        self.call("rm", "--all")
        self.call("rmi", "--all", "--force")

    def forget_killed(self) -> None:
        """Remove containers of builds that were killed. Only for the holder of the store's buildah lock."""
        self.call("rm", "--all")

    def build(self, plan: Plan, context: Path, log: Path, reporter: Reporter, options: BuildOptions) -> str:
        """Build a context; returns the image's id. Output goes to `log`. Raises BuildError.

        Each unit is built by a buildah of its own, and so in a pid namespace of its own: steps of one buildah reach
        each other's roots through /proc, also those that a program of an earlier step left running.
        """
        iid = self.work / "iid"
        for unit in plan.units:
            self._build_unit(plan, unit, context, log, reporter, options)
        return iid.read_text().strip()

    def _build_unit(
        self, plan: Plan, unit: Unit, context: Path, log: Path, reporter: Reporter, options: BuildOptions
    ) -> None:
        iid = self.work / "iid"
        arguments = ["build", "--isolation", "chroot", "--layers", "--http-proxy=false", "--no-hosts"]
        arguments += [word for name in DROPPED for word in ("--cap-drop", name)]
        arguments += ["--signature-policy", str(self.work / "policy.json"), "--iidfile", str(iid)]
        arguments += ["--jobs", "1", "--target", unit.name, *jobs_argument(plan, options)]
        arguments += ["-f", str(context / "Containerfile"), str(context)]
        code = run_build(self.command(*arguments), self.environment(), log, "buildah", reporter)
        if code:
            raise error_report.build_error(plan, code, log, self.store)

    def save(self, image: str, archive: Path) -> Path:
        """Write an image as a Docker archive, layers uncompressed. Raises EngineError."""
        policy = str(self.work / "policy.json")
        done = self.call("push", "--quiet", "--signature-policy", policy, image, f"docker-archive:{archive}")
        if done.returncode:
            raise EngineError(f"buildah cannot export its image: {last_line(done)}")
        return archive


def probe(store: Store) -> Probe:
    """Return whether buildah is installed, new enough, and works in the store."""
    for program in ("buildah", "unshare"):
        if shutil.which(program) is None:
            return Probe("buildah", False, "find the program", f"{program} is not on PATH", install_hint(program))
    output = run_program(["buildah", "--version"], text=True).stdout.strip()
    found = re.search(r"(\d+)\.(\d+)[.\d]*", output)
    version = found[0] if found else output or "an unknown version"
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        why = f"buildah is {version}; {oldest} or later is needed"
        return Probe("buildah", False, "version", why, install_hint("buildah"))
    try:
        with store.workdir() as work, store.lock("buildah"):
            runner = Runner.open(store, work)
    except EngineError as error:
        return Probe("buildah", False, "build and run", error.message, error.hint)
    is_root = os.geteuid() == 0
    detail = f"{version}, storage driver {runner.driver}, {'root' if is_root else 'inside buildah unshare'}"
    return Probe("buildah", True, detail=detail, caution=AS_ROOT if is_root else AS_USER)


def last_line(done: CompletedProcess[str]) -> str:
    """Return the last line of a command's output."""
    lines: Sequence[str] = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
