"""The program that starts the programs of an image: its bytes, its reports, and that it is in memory."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from envbuild.core.userns.namespaces import SetupError
from envbuild.core.userns.starter import CODE, elf, find_program, make_starter, read_report, start

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("machine", CODE)
def test_the_bytes_are_those_of_the_assembler(machine: str, tmp_path: Path) -> None:
    prefix = "" if machine == os.uname().machine else f"{machine}-linux-gnu-"
    for tool in (f"{prefix}as", f"{prefix}objcopy"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    source = Path(__file__).with_name(f"starter-{machine}.s")
    subprocess.run([f"{prefix}as", str(source), "-o", "starter.o"], cwd=tmp_path, check=True)
    subprocess.run([f"{prefix}objcopy", "-O", "binary", "-j", ".text", "starter.o", "code"], cwd=tmp_path, check=True)
    assert (tmp_path / "code").read_bytes().hex() == CODE[machine][1]


def test_the_kernel_of_another_machine_can_read_it(tmp_path: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    for machine, code in CODE.items():
        (tmp_path / machine).write_bytes(elf(*code))
        done = subprocess.run(["readelf", "-hl", machine], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "EXEC (Executable file)" in done.stdout and "Warning" not in done.stderr, done.stderr


def run(command: list[str], env: dict[str, str]) -> tuple[int, int, bytes]:
    """Return the exit status, the report and the output of a command that is started as in a box."""
    read, write = os.pipe()
    output, end = os.pipe()
    starter = make_starter()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(end, 1)
            start(starter, write, command, env)
        finally:
            os._exit(99)
    for descriptor in (write, end, starter):
        os.close(descriptor)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(read, "rb") as report, os.fdopen(output, "rb") as text:
        return status, read_report(report.fileno()), text.read()


def test_arguments_and_environment_arrive() -> None:
    done = run(["sh", "-c", 'echo "$0|$1|$#|$A"; exit 7', "", "b c"], {"A": "1 2", "PATH": os.environ["PATH"]})
    assert done == (7, 0, b"|b c|1|1 2\n")


def test_a_program_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    for name, content, reason in (
        ("no-interpreter", "#!/no/such", errno.ENOENT),
        ("no-format", "\1", errno.ENOEXEC),
        ("self", "#!/no/such/too", errno.ENOENT),
    ):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
        assert run([str(tmp_path / name)], {}) == (126, reason, b"")


def test_the_search_along_the_path(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/one").touch(0o644)
    (tmp_path / "b/one").touch(0o755)
    search = f"{tmp_path}/a:{tmp_path}/b"
    assert find_program("one", search) == f"{tmp_path}/b/one"
    assert find_program("./x", "") == "./x"
    for name, folders, reason in (("one", f"{tmp_path}/none:/", errno.ENOENT), ("two", search, errno.ENOENT)):
        with pytest.raises(OSError) as caught:
            find_program(name, folders)
        assert caught.value.errno == reason


def test_the_program_in_memory_cannot_be_changed() -> None:
    file = make_starter()
    try:
        with pytest.raises(PermissionError):
            os.write(file, b"x")
        with pytest.raises(PermissionError):
            os.ftruncate(file, 0)
    finally:
        os.close(file)


def test_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CODE, os.uname().machine)
    with pytest.raises(SetupError):
        make_starter()
