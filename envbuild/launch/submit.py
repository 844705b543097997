"""Start of a job: the written form is given to the program that takes it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping

from envbuild.core.errors import EngineError, SpecError
from envbuild.core.programs import start_program
from envbuild.launch.launch import Launch
from envbuild.launch.script_call import script_call


def submit(launch: Launch) -> int:
    """Start the job with the caller's streams; return the exit code of the program. Raises SpecError for a form that is
    not started here, and for an image that is not built; EngineError if the program is missing."""
    written, image = launch.written, launch.plan.image
    if written.manual:
        raise SpecError(
            f"--submit cannot start this: {written.manual}", hint="leave out --submit, and type what it prints"
        )
    if not image.built:
        raise SpecError(f"{image.name} is not built", hint=f"envbuild make {image.name}")
    program = written.submit or ("sh",)
    if not shutil.which(program[0]):
        raise EngineError(
            f"{program[0]} is not installed here", hint="leave out --submit, and type what it prints there"
        )
    if not written.submit:
        command, env = script_call(written.text)
        return run(command, 0, env)
    with tempfile.TemporaryFile() as file:
        file.write(written.text.encode(errors="surrogateescape"))
        file.flush()
        file.seek(0)
        return run(program, file.fileno())


def run(command: tuple[str, ...], stdin: int, env: Mapping[str, str] | None = None) -> int:
    """Run a program with this descriptor as its input; return its exit code."""
    with start_program(command, env=env, stdin=stdin, stdout=1, stderr=2) as program:
        code = program.wait()
    return code if code >= 0 else 128 - code
