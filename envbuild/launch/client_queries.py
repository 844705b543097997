"""Queries of the programs of this machine: srun, sinfo and enroot state their releases and options."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass, field

from envbuild.core.console import Reporter, SilentReporter
from envbuild.core.programs import TimeoutExpired, run_program
from envbuild.core.text import printable

LIMIT = 10  # seconds: srun and sinfo wait for their controller
KNOWN = "slurm: {version: …, pyxis: …, enroot: …, pmix: […]} in site.yaml states those of srun and enroot"
PATIENCE = 2  # seconds after which a wait is reported


@dataclass(frozen=True, slots=True)
class ClientQueries:
    """Programs that are queried. A long wait is reported, and a program that did not answer is not queried again."""

    reporter: Reporter = field(default_factory=SilentReporter)
    limit: float = LIMIT
    patience: float = PATIENCE
    silent: set[str] = field(default_factory=set)

    def __call__(self, *command: str) -> str:
        """Return what a program prints; empty if there is none, if it does not answer, or if it fails: srun without a
        slurm.conf, for example, which does not show that it has no pyxis."""
        program, words = command[0], " ".join(command)
        if program in self.silent or not shutil.which(program):
            return ""
        waiting = f"waiting for '{words}', at most {self.limit:g} s"
        timer = threading.Timer(self.patience, self.reporter.info, (waiting,))
        timer.start()
        try:
            done = run_program(command, text=True, timeout=self.limit)
        except OSError:
            return ""
        except TimeoutExpired:
            self.silent.add(program)
            self.reporter.warn(f"{program} did not answer within {self.limit:g} s, and is not queried again: {KNOWN}")
            return ""
        finally:
            timer.cancel()
        if done.returncode and program != "sinfo":  # its text is judged
            lines = f"{done.stdout}{done.stderr}".strip().splitlines()
            self.silent.add(program)
            self.reporter.warn(f"'{words}' failed{f': {printable(lines[-1][:200])}' if lines else ''}; {KNOWN}")
            return ""
        return f"{done.stdout}{done.stderr}"
