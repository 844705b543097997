"""squashfuse and unsquashfs, which read files of strangers outside of the box, reach nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from envbuild.build.engines.embedded import confined_program
from envbuild.build.engines.embedded.confined_program import confine
from envbuild.core.userns import landlock
from envbuild.core.userns.profiles import SQUASHFUSE, UNSQUASHFS
from envbuild.core.userns.seccomp import Profile

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="a plain user has no capability to drop here"),
]


def system_python() -> str:
    """Return an interpreter whose library is where programs of the system have theirs."""
    if not Path("/usr/bin/python3").exists():
        pytest.skip("/usr/bin/python3 is not installed")
    return "/usr/bin/python3"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "image").write_text("image")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "out").mkdir()
    return tmp_path / "image"


def run(image: Path, profile: Profile, *words: str, kept: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
    """Run a program of the system that is confined as the profile's; it may write below ``out`` as unsquashfs does."""
    writable = [image.parent / "out"] if profile is UNSQUASHFS else []
    prepare = confine(words[0], profile, image, writable, kept)
    return subprocess.run(words, capture_output=True, text=True, preexec_fn=prepare, cwd="/usr", check=False)


@pytest.mark.parametrize("profile", [SQUASHFUSE, UNSQUASHFS], ids=["squashfuse", "unsquashfs"])
def test_only_the_image_is_read(image: Path, profile: Profile) -> None:
    if not landlock.version():
        pytest.skip("this kernel has no Landlock")
    assert run(image, profile, "cat", str(image)).stdout == "image"
    for path in (image.parent / "secret", "/etc/passwd", "/proc/1/environ"):
        done = run(image, profile, "cat", str(path))
        assert (done.stdout, "Permission denied" in done.stderr) == ("", True)


def test_squashfuse_writes_nothing(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the kernel lacks Landlock: then the filter alone holds."""
    for _ in range(2):
        for words in (
            ["touch", "new"],
            ["truncate", "-s", "0", "image"],
            ["mkdir", "f"],
            ["rm", "image"],
            ["ln", "image", "l"],
        ):
            place = str(image.parent / words.pop())
            done = run(image, SQUASHFUSE, *words, place, *([f"{place}2"] if words[0] == "ln" else []))
            assert done.returncode, words
        assert sorted(path.name for path in image.parent.iterdir()) == ["image", "out", "secret"]
        assert image.read_text() == "image"
        monkeypatch.setattr(landlock, "version", lambda: 0)


def test_unsquashfs_writes_below_its_folder_alone(image: Path) -> None:
    if not landlock.version():
        pytest.skip("this kernel has no Landlock")
    out = image.parent / "out"
    assert not run(image, UNSQUASHFS, "touch", str(out / "new")).returncode
    assert not run(image, UNSQUASHFS, "chown", "5:6", str(out / "new"), kept=confined_program.OF_OWNERS).returncode
    assert (out / "new").stat().st_uid == 5
    for words in (["touch", str(image)], ["touch", str(image.parent / "x")], ["mknod", str(out / "d"), "c", "1", "3"]):
        assert run(image, UNSQUASHFS, *words, kept=confined_program.OF_OWNERS).returncode, words


@pytest.mark.parametrize("profile", [SQUASHFUSE, UNSQUASHFS], ids=["squashfuse", "unsquashfs"])
@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "os.fork()",
        "os.kill(1, 9)",
        "libc.unshare(0x10000000) and fail()",
        "libc.ptrace(16, 1, 0, 0) and fail()",
        "libc.mount(b'none', b'/usr', b'tmpfs', 0, None) and fail()",
    ],
)
def test_no_process_no_network_and_no_mount(image: Path, profile: Profile, code: str) -> None:
    python = system_python()
    start = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    fail = "def fail(): raise PermissionError(ctypes.get_errno())\n"
    prepare = confine(python, profile, image)
    words = [python, "-I", "-S", "-c", start + fail + code]
    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=prepare, cwd="/usr", check=False)
    assert done.returncode == 1 and "PermissionError" in done.stderr, done.stderr


def test_no_capability_and_no_privilege(image: Path) -> None:
    text = run(Path("/proc"), SQUASHFUSE, "cat", "/proc/self/status").stdout
    found = dict(line.split(":\t") for line in text.splitlines() if line.startswith(("Cap", "NoNew", "Seccomp:")))
    assert {found[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")} == {"0" * 16}
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")


def test_other_processes_and_inherited_files_are_not_changed(image: Path) -> None:
    """By limits, signals of files, and the mode of an open file, which belongs to the mount that it was opened on."""
    python = system_python()
    with image.open("rb") as opened, subprocess.Popen(["sleep", "60"]) as other:
        name = f"/proc/self/fd/{opened.fileno()}"
        lines = [
            "import fcntl, os, resource",
            "def refused(call, *words):",
            "    try: call(*words)",
            "    except OSError: return",
            "    raise SystemExit(repr((call, words)))",
            f"refused(resource.prlimit, {other.pid}, resource.RLIMIT_CPU, (0, 0))",
            f"refused(os.kill, {other.pid}, 9)",
            f"refused(fcntl.fcntl, {opened.fileno()}, fcntl.F_SETOWN, {other.pid})",
            f"refused(fcntl.fcntl, {opened.fileno()}, 10, 9)",
            f"refused(os.fchmod, {opened.fileno()}, 0o600)",
            f"refused(os.chmod, {name!r}, 0o600)",
            f"refused(os.setxattr, {name!r}, 'user.a', b'b')",
            f"assert os.pread({opened.fileno()}, 5, 0) == b'image'",
        ]
        for profile, writable in ((SQUASHFUSE, []), (UNSQUASHFS, [image.parent / "out"])):
            prepare = confine(python, profile, Path(name), writable, confined_program.OF_OWNERS)
            words = [python, "-I", "-S", "-c", "\n".join(lines)]
            found = subprocess.run(
                words, capture_output=True, text=True, preexec_fn=prepare, pass_fds=[opened.fileno()], check=False
            )
            assert (found.returncode, found.stderr) == (0, "")
        assert other.poll() is None
        other.kill()
    assert image.stat().st_mode & 0o777 == 0o644


def test_libraries_in_other_prefixes_are_read(tmp_path: Path) -> None:
    """As Spack and Homebrew have them; the rest of a prefix is not."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    library, program = tmp_path / "lib-1/lib", tmp_path / "home/bin"
    library.mkdir(parents=True)
    program.mkdir(parents=True)
    (tmp_path / "home/secret").write_text("secret")
    (tmp_path / "f.c").write_text("int f(void) { return 0; }")
    opened = f'fopen("{tmp_path}/home/secret", "r")'
    (tmp_path / "main.c").write_text(
        f"#include <stdio.h>\nint f(void); int main(void) {{ return {opened} ? 1 : f(); }}"
    )
    for words in (
        ["-shared", "-fPIC", "-o", str(library / "libf.so"), str(tmp_path / "f.c")],
        ["-o", str(program / "prog"), str(tmp_path / "main.c"), f"-L{library}", "-lf", f"-Wl,-rpath,{library}"],
    ):
        subprocess.run(["gcc", *words], check=True)
    prepare = confine(str(program / "prog"), SQUASHFUSE, tmp_path / "f.c")
    done = subprocess.run([program / "prog"], capture_output=True, text=True, preexec_fn=prepare, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert library / "libf.so" in confined_program.list_libraries(str(program / "prog"))
    assert confined_program.list_libraries("/nonexistent/prog") == []
