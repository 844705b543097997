"""One program of a stranger, run for its output: in a sandbox whose files are that program and this machine's C
library."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from envbuild.build.engines.embedded.session import Ran, open_session
from envbuild.core.errors import EngineError
from envbuild.core.store.store import Store

FOLDERS = ("/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu")
LOADER = "ld-linux-x86-64.so.2"
LIBRARIES = (LOADER, "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")
PROGRAM = "/program"
TIMEOUT = 60  # seconds


def run_alone(program: bytes, words: Sequence[str], store: Store) -> Ran:
    """Run a program for x86_64 with the arguments `words`, without input, network, environment or other files, for
    `TIMEOUT` seconds at most. Raises EngineError where there is no sandbox, or no C library."""
    with store.workdir() as work:
        root = work / "root"
        libraries = root / "lib64"
        libraries.mkdir(parents=True)
        for name in LIBRARIES:
            found = next((Path(folder, name) for folder in FOLDERS if Path(folder, name).is_file()), None)
            if found:
                shutil.copyfile(found, libraries / name)
                (libraries / name).chmod(0o755)
        if not (libraries / LOADER).exists():
            raise EngineError("this machine has no C library for x86_64", hint="run the command on an x86_64 machine")
        file = root / PROGRAM[1:]
        file.write_bytes(program)
        file.chmod(0o755)
        with open_session([root], {"LD_LIBRARY_PATH": "/lib64"}, store) as session:
            return session.run([PROGRAM, *words], TIMEOUT)
