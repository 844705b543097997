"""gpg with a folder of its own, for files of keys that a server has. Some kilobytes, compressed several times, can be
terabytes of packets, so all calls together have a limit of time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from envbuild.core.programs import TimeoutExpired, run_program
from envbuild.net.failures import RefusedError
from envbuild.net.limits import LIMITS

LARGEST = 64 << 20  # bytes of a file that gpg writes
PRIMARY = re.compile(r"^pub:.*\n(?:(?!pub:|fpr:).*\n)*fpr:{9}([0-9A-F]+):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Gpg:
    """gpg in the folder `home`, until `end` (of `time.monotonic`)."""

    home: Path
    end: float

    def run(self, *arguments: str) -> bytes:
        """Run gpg and return its standard output; an invalid key is missing in its list. Raises RefusedError after the
        time limit."""
        # Not with "--trust-model always": gpg then ends with an error at a key that is out of date (2.2.40).
        command = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", "--no-autostart"]
        command += ["--no-default-keyring", "--keyring", str(self.home / "keys.gpg"), *arguments]
        left = max(self.end - time.monotonic(), 0.001)
        try:
            output: bytes = run_program(command, timeout=left, memory=LIMITS.program_memory, largest=LARGEST).stdout
        except TimeoutExpired:
            raise RefusedError(f"gpg did not read its keys within {LIMITS.gpg:.0f} s") from None
        return output

    def primary_keys(self, file: Path) -> list[str]:
        """Return the fingerprints of the keys in a file, without those of subkeys."""
        content = self.run("--with-colons", "--import-options", "show-only", "--import", str(file))
        return PRIMARY.findall(content.decode(errors="replace"))  # the name in an old key may be in Latin-1


@contextmanager
def private_gpg() -> Iterator[Gpg]:
    """Yield gpg with an empty folder, whose calls end after the time limit of one file of keys."""
    with TemporaryDirectory(prefix="gpg") as home:
        yield Gpg(Path(home), time.monotonic() + LIMITS.gpg)
