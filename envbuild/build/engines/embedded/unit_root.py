"""The root in which commands run: its parts and its mounts, in a mount namespace of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envbuild.build.engines import prepare_inputs
from envbuild.build.engines.embedded import mounts
from envbuild.build.engines.safe_extract import resolve_in_root
from envbuild.build.steps import INPUTS
from envbuild.core.userns.namespaces import BIND, SetupError

POLICY = Path("usr/sbin/policy-rc.d")  # invoke-rc.d runs it; 101 forbids starting services (policy-rc.d(8))


@dataclass(frozen=True)
class RootSpec:
    """The parts of a root. `lowers`: layer trees, bottom first. `inputs`: folders of ``work/inputs`` to show below
    /run/envbuild.

    `image`: a squashfs file instead of lowers. `binds`: (source, target, read-only). `sys`: show /sys.
    """

    work: Path
    lowers: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    apt: bool = False
    build: bool = True
    network: bool = False
    sys: bool = False
    image: str = ""
    binds: tuple[tuple[str, str, bool], ...] = ()


def mount_root(box: RootSpec, notes: list[str]) -> Path:
    """Mount all parts of `box`; return the root. Messages for the user go to `notes`. Raises SetupError."""
    lowers = box.lowers
    if box.image:
        from envbuild.build.engines.embedded.mount_squashfs import mount_image

        lower, how = mount_image(Path(box.image), box.work)
        notes.append(how)
        lowers = (str(lower),)
    root = mounts.mount_overlay(box.work, lowers)
    mounts.mount_system(root, sys=box.sys)
    run = root / INPUTS.strip("/")
    run.mkdir()
    for name in box.inputs:
        mounts.bind_mount(box.work / "inputs" / name, run / name)
    if box.apt:
        prepare_inputs.write_apt_files(run)
    if box.build:
        for name, target in (
            ("scratch", run / "work"),
            ("out", run / "out"),
            ("vartmp", resolve_in_root(root, "/var/tmp")),
        ):
            folder = box.work / name
            folder.mkdir(exist_ok=True)
            folder.chmod(0o1777 if name == "vartmp" else 0o755)
            if name != "vartmp" or target.is_dir():
                mounts.bind_mount(folder, target, read_only=False)
    hosts = resolve_in_root(root, "/etc/hosts")
    if hosts.is_file() or not box.build:
        source = Path("/etc/hosts") if box.network else box.work / "hosts"
        if not box.network:
            source.write_text(mounts.HOSTS)
        mounts.bind_mount(source, hosts)
    if box.network and Path("/etc/resolv.conf").is_file():
        mounts.bind_mount(Path("/etc/resolv.conf").resolve(), resolve_in_root(root, "/etc/resolv.conf"))
    for source_name, name, read_only in box.binds:
        _bind(Path(source_name).resolve(), root, name, read_only)
    return root


def _bind(source: Path, root: Path, name: str, read_only: bool) -> None:
    """Mount a bind that the user requested. Raises SetupError that names it: the machine is not at fault."""
    try:
        mounts.bind_mount(source, resolve_in_root(root, name), read_only=read_only, recursive=not read_only)
    except SetupError as error:
        why = f"{os.strerror(error.code)} (errno {error.code})"
        raise SetupError(BIND, f"{source}:{name} cannot be mounted: {why}") from error
    except OSError as error:  # its place could not be made
        raise SetupError(BIND, f"{source}:{name}: {error.strerror}: {error.filename}") from error


@contextlib.contextmanager
def no_services(root: Path) -> Iterator[None]:
    """Forbid services by policy-rc.d while the steps run, and leave no trace: neither the file nor a new time of its
    folder."""
    path = resolve_in_root(root, str(POLICY.parent))
    if not path.is_dir() or (path / POLICY.name).exists():
        yield
        return
    relative = "/" / path.relative_to(root)
    before = path.stat().st_mtime_ns
    (path / POLICY.name).write_text("#!/bin/sh\nexit 101\n")
    (path / POLICY.name).chmod(0o755)
    own = path.stat().st_mtime_ns
    yield  # pivot_root happens in here
    if relative.is_dir():
        touched = relative.stat().st_mtime_ns != own
        (relative / POLICY.name).unlink(missing_ok=True)
        if not touched:
            os.utime(relative, ns=(before, before))
