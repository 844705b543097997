"""A squashfs file as a lower directory: mounted by the kernel, by squashfuse, or unpacked; whichever this machine
allows."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from pathlib import Path

from envbuild.engines.embedded.namespaces import SetupError

WAIT = 5.0  # seconds until squashfuse must have mounted


def mount_image(image: Path, work: Path) -> tuple[Path, str]:
    """Make the content of `image` visible in ``work/image``, in this mount namespace. Returns it and a line that says
    how.

    Raises SetupError when no way is left.
    """
    target = work / "image"
    target.mkdir()
    tried = []
    if shutil.which("mount"):
        done = command("mount", "-t", "squashfs", "-o", "loop,ro,nodev", str(image), str(target))
        if done.returncode == 0:
            return target, f"{image.name} is mounted by the kernel"
        tried.append("mount: " + done.stderr.strip())
    if shutil.which("squashfuse") and Path("/dev/fuse").exists():
        if squashfuse(image, target):
            return target, f"{image.name} is mounted by squashfuse"
        tried.append("squashfuse did not mount it")
    if shutil.which("unsquashfs"):
        done = command("unsquashfs", "-quiet", "-no-progress", "-force", "-dest", str(target), str(image))
        if done.returncode == 0:
            return target, f"{image.name} was unpacked to {work} (no kernel mount and no squashfuse here)"
        tried.append("unsquashfs: " + done.stderr.strip())
    raise SetupError("mount squashfs", "; ".join(tried) or "neither mount, squashfuse nor unsquashfs is installed")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def squashfuse(image: Path, target: Path) -> bool:
    """Start squashfuse; it lives in the unit's pid namespace and ends with it."""
    before = target.stat().st_dev
    child = subprocess.Popen(
        ["squashfuse", "-f", "-o", "allow_other,ro", str(image), str(target)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + WAIT
    while time.monotonic() < end and child.poll() is None:
        with contextlib.suppress(OSError):
            if target.stat().st_dev != before:
                return True
        time.sleep(0.01)
    child.kill()
    child.wait()
    return False
