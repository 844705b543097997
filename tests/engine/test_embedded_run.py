"""Commands inside an image: from layers and from a squashfs file, on a throw-away upper directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from envbuild.build.engines.embedded import loop_device, mount_squashfs
from envbuild.core.errors import EngineError, SpecError, VerifyError
from envbuild.core.folder_removal import discard_folder
from envbuild.core.store.store import Store
from envbuild.core.userns.namespaces import SetupError
from envbuild.spec.recipe import Check
from envbuild.verify.recipe_checks import run_checks
from envbuild.verify.results import Status
from tests.support import tiny_root as kit
from tests.support.as_user import run_without
from tests.support.captured_run import run_captured
from tests.support.engine_fixtures import open_working_store, working_store
from tests.support.programs import importing
from tests.support.tools import require_tools

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def store(scratch: Path) -> Iterator[Store]:
    """Yield the store of all tests: a command changes nothing in it."""
    with working_store(scratch) as opened:
        yield opened


@pytest.fixture(scope="module")
def trees(store: Store) -> list[Path]:
    built = kit.build(store, kit.unit("a", "echo from-a > /opt/a; chown 1000 /opt/a; rm /data/two"))
    return [store.layer_tree(layer.diff_id) for layer in built.layers]


def run(trees: list[Path] | Path, store: Store, command: str, **rest: object) -> tuple[int, str]:
    code, output = run_captured(trees, ["/bin/sh", "-c", command], env={"MINE": "1"}, store=store, **rest)  # type: ignore[arg-type]
    return code, output.decode()


def test_layers(trees: list[Path], store: Store) -> None:
    before = sorted(path.name for path in trees[1].rglob("*"))
    code, text = run(
        trees,
        store,
        "cat /opt/a; ls /data; echo $MINE $HOME; echo new > /opt/new; rm /opt/a; ls /sys | head -3; exit 5",
    )
    assert code == 5 and text.startswith("from-a\nhard\none\nsub\n1 /root\n")
    assert sorted(path.name for path in trees[1].rglob("*")) == before, "what the command writes is thrown away"
    assert list((store.tmp).iterdir()) == []


def test_exit_codes(trees: list[Path], store: Store) -> None:
    assert run(trees, store, "kill -15 $$")[0] == 143
    assert run_captured(trees, ["/no/such"], env={}, store=store)[0] == 127
    assert run(trees, store, "echo before; sleep 60", timeout=5.0) == (124, "before\n")
    assert list((store.tmp).iterdir()) == []


def test_endless_output_ends_the_command_and_a_check(trees: list[Path], store: Store) -> None:
    code, text = run(trees, store, "echo first; while :; do echo 0123456789012345678901234567890123456789; done")
    assert code == 125 and "first" not in text and len(text) < 1 << 17
    assert list((store.tmp).iterdir()) == []


def test_binds(trees: list[Path], store: Store, scratch: Path) -> None:
    folder = scratch / "bound"
    folder.mkdir(exist_ok=True)
    (folder / "in").write_text("inside\n")
    code, text = run(trees, store, "cat /mnt/here/in; echo out > /mnt/here/out", binds=[(str(folder), "/mnt/here")])
    assert (code, text, (folder / "out").read_text()) == (0, "inside\n", "out\n")
    code, text = run(trees, store, "echo no > /mnt/here/in || echo refused", binds=[(str(folder), "/mnt/here", True)])
    assert "refused" in text and (folder / "in").read_text() == "inside\n"


def test_a_bind_that_fails_is_named(trees: list[Path], store: Store, scratch: Path) -> None:
    folder, file = str(scratch), str(scratch / "tiny.deb")
    for source, target in ((file, "/data"), (folder, "/data/one"), (folder, "/data/one/below")):
        with pytest.raises(SpecError, match=f"--bind {source}:{target}") as caught:
            run(trees, store, "true", binds=[(source, target)])
        assert "/proc" not in str(caught.value)
    assert list((store.tmp).iterdir()) == []


def test_a_bind_target_behind_a_link_is_inside_the_root(trees: list[Path], store: Store, scratch: Path) -> None:
    outside = scratch / "outside"
    outside.mkdir(exist_ok=True)
    unit = kit.unit("linked", f"ln -s {outside} /opt/way")
    layers = kit.build(store, kit.unit("a", "echo from-a > /opt/a"), unit).layers
    stack = [store.layer_tree(layer.diff_id) for layer in layers]
    code, _ = run(stack, store, "true", binds=[(str(scratch / "tiny.deb"), "/opt/way/file")])
    assert code == 0 and list(outside.iterdir()) == []


def test_network_only_when_requested(trees: list[Path], store: Store) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    thread = threading.Thread(target=lambda: server.accept()[0].close(), daemon=True)
    thread.start()
    look = "cat /proc/net/dev | wc -l"
    inside = int(run(trees, store, look)[1])
    outside = len(Path("/proc/net/dev").read_text().splitlines())
    assert int(run(trees, store, look, network=True)[1]) == outside and inside <= outside
    socket.create_connection(("127.0.0.1", port)).close()
    thread.join(5)
    server.close()


def test_a_failed_check_has_a_hint_that_can_be_typed(trees: list[Path], store: Store) -> None:
    """The hint is a command that can be typed: the caller knows the image, the check does not."""

    def runner(argv: Sequence[str]) -> tuple[int, str]:
        code, output = run_captured(trees, argv, env={}, store=store)
        return code, output.decode()

    checks = [Check("good", "cat /opt/a", "from-a"), Check("bad", "cat /opt/a", "from-b"), Check("code", "exit 3")]
    good, *bad = run_checks(checks, runner, shell="envbuild run /x/a.sqsh -- /bin/sh")
    assert good.status == Status.PASS and good.hint == ""
    assert [item.hint for item in bad] == ["open a shell in the image: envbuild run /x/a.sqsh -- /bin/sh"] * 2


@pytest.fixture(scope="module")
def written(trees: list[Path], scratch: Path) -> Path:
    if shutil.which("mksquashfs") is None:
        pytest.skip("mksquashfs is not installed")
    if os.geteuid() != 0:
        pytest.skip("mksquashfs reads the owners of a layer for root alone")
    target = scratch / "written.sqsh"
    target.unlink(missing_ok=True)
    subprocess.run(
        ["mksquashfs", str(trees[0]), str(target), "-quiet", "-no-progress"], check=True, capture_output=True
    )
    return target


@pytest.fixture
def image(written: Path, scratch: Path) -> Path:
    """Return a copy, which a test may change."""
    target = scratch / "image.sqsh"
    target.unlink(missing_ok=True)
    return Path(shutil.copy(written, target))


@pytest.mark.parametrize("way", ["kernel", "squashfuse", "unsquashfs"])
def test_squashfs(image: Path, store: Store, way: str, monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    """Each way is what is left when those before it are not there."""
    if way != "kernel":
        require_tools(way)
    programs = scratch / f"programs-{way}"
    programs.mkdir(exist_ok=True)
    for name in ("squashfuse", "unsquashfs", "fusermount3", "fusermount", "newuidmap", "newgidmap"):
        path = shutil.which(name)
        order = ["kernel", "squashfuse", "unsquashfs"]
        if path and not (name in order and order.index(name) < order.index(way)):
            (programs / name).unlink(missing_ok=True)
            (programs / name).symlink_to(path)
    monkeypatch.setenv("PATH", str(programs))
    command = "cat /data/two; echo x > /data/two; cat /data/two; stat -c %u /etc/other"

    def look() -> tuple[int, str, list[str]]:
        reporter = kit.SilentReporter()
        return (*run(image, store, command, reporter=reporter), reporter.lines)

    code, text, lines = run_without([] if way == "kernel" else [loop_device.CONTROL], look)
    assert (code, text) == (0, "two\nx\n1000\n")
    expected = {"kernel": "mounted by the kernel", "squashfuse": "mounted by squashfuse", "unsquashfs": "was unpacked"}[
        way
    ]
    assert any(expected in line for line in lines), lines
    assert list((store.tmp).iterdir()) == []
    assert str(image) not in Path("/proc/self/mounts").read_text()


@pytest.mark.usefixtures("no_loop_devices")
def test_a_file_that_is_a_bomb_is_not_unpacked(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """80 kB were 2 GB in the store, before anything of it ran."""
    require_tools("mksquashfs", "unsquashfs")
    (source := scratch / "zeros").mkdir()
    for number in range(20):
        with (source / str(number)).open("wb") as file:
            for _ in range(64):
                file.write(b"U" * (1 << 20))
    (bomb := scratch / "bomb.sqsh").unlink(missing_ok=True)
    subprocess.run(["mksquashfs", source, bomb, "-quiet", "-no-progress"], check=True, capture_output=True)
    shutil.rmtree(source)
    (programs := scratch / "programs-bomb").mkdir()
    (programs / "unsquashfs").symlink_to(str(shutil.which("unsquashfs")))
    monkeypatch.setenv("PATH", str(programs))
    (work := scratch / "bomb").mkdir()
    with pytest.raises(VerifyError, match=r"bomb.sqsh: the file is not unpacked: .* unpack to more than"):
        mount_squashfs.mount_image(bomb, work)
    assert list((work / "image").iterdir()) == []


def test_a_program_that_mounts_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """kill -9 of `verify FILE` left squashfuse with its mount, or unsquashfs."""
    (programs := tmp_path / "programs").mkdir()
    (programs / "unsquashfs").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 300\n")
    (programs / "unsquashfs").chmod(0o755)
    code = "from envbuild.build.engines.embedded.mount_squashfs import run_program; run_program('unsquashfs')"
    env = {**importing(), "PATH": f"{programs}:{os.environ['PATH']}"}
    process = subprocess.Popen([sys.executable, "-c", code], env=env)
    end = time.monotonic() + 30
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < end
        time.sleep(0.05)
    child = int((tmp_path / "pid").read_text())
    process.kill()
    process.wait()
    while Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_a_program_prints_takes_little_memory(tmp_path: Path) -> None:
    """unsquashfs has a line for each file that it cannot make: an image of millions took the memory of the machine."""
    code = "print('begin', flush=True)\nfor _ in range(200): print('x' * 99999)\nimport sys\nsys.exit('the end')"
    done = mount_squashfs.run_program(sys.executable, "-c", code)
    assert done.returncode == 1
    assert done.stderr.startswith("begin\nxxx")
    assert done.stderr.endswith("xxx\nthe end\n")
    assert len(done.stderr) == 2 * mount_squashfs.END_BYTES


@pytest.mark.usefixtures("no_loop_devices")
def test_an_unpacked_file_has_the_reason_why_it_was_not_mounted(
    image: Path, store: Store, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    """Each way that was not used has its reason: a program, the device, or squashfuse itself."""
    if shutil.which("unsquashfs") is None:
        pytest.skip("unsquashfs is not installed")
    monkeypatch.setattr(mount_squashfs, "FUSE", str(scratch / "no-fuse"))
    programs = scratch / "programs-why"
    programs.mkdir(exist_ok=True)
    (programs / "unsquashfs").symlink_to(str(shutil.which("unsquashfs")))
    monkeypatch.setenv("PATH", str(programs))
    (work := scratch / "why").mkdir()
    assert mount_squashfs.mount_image(image, work)[1].endswith(
        "(mount: /nonexistent/loop-control: No such file or directory; squashfuse is not installed)"
    )
    shutil.rmtree(work)
    work.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (programs / "squashfuse").symlink_to("/bin/false")
    assert "; squashfuse: " in mount_squashfs.mount_image(image, work)[1]
    shutil.rmtree(work)
    work.mkdir()
    (scratch / "no-fuse").touch()
    assert "; squashfuse: [Errno 22] Invalid argument" in mount_squashfs.mount_image(image, work)[1]
    shutil.rmtree(work)


def use_programs(monkeypatch: pytest.MonkeyPatch, folder: Path, **texts: str) -> None:
    """Have no programs but scripts of these texts, and the shell of their first lines."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_a_disk_that_unpacking_fills_is_reported_as_that(
    image: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """unsquashfs is there: a hint to install it would not help."""
    require_tools("unsquashfs", "mount")
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    (small := scratch / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        store = open_working_store(small)
        mounted = run(image, store, "true")
        (small / "filler").write_bytes(b"x" * (shutil.disk_usage(small).free - 100_000))
        use_programs(monkeypatch, scratch / "unpacking", unsquashfs=f'exec {shutil.which("unsquashfs")} "$@"')

        def refused() -> tuple[str, str]:
            with pytest.raises(EngineError) as caught:
                run(image, store, "true")
            return str(caught.value), caught.value.hint

        message, hint = run_without([loop_device.CONTROL], refused)
    finally:
        subprocess.run([str(shutil.which("umount", path="/usr/bin:/bin")), "-l", str(small)], check=True)
    assert mounted == (0, "")
    assert f"the store {small} is full" in message and "store gc" in hint


@pytest.mark.usefixtures("no_loop_devices")
@pytest.mark.parametrize(("code", "free", "full"), [(1, 0, True), (2, 0, True), (0, 0, False), (1, 1 << 40, False)])
def test_what_unsquashfs_leaves_out_on_a_full_disk_is_not_run(
    code: int, free: int, full: bool, image: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with 2 where links are missing, as it does where an owner cannot be set."""
    text = f"echo 'failed to create symlink x, because No space left on device' >&2; exit {code}"
    use_programs(monkeypatch, scratch / f"code-{code}-{free}", unsquashfs=text)
    monkeypatch.setattr(mount_squashfs, "free_bytes", lambda _: free)
    (work := scratch / f"full-{code}-{free}").mkdir()
    raises = (OSError, SetupError) if code else ()
    with pytest.raises(raises) if raises else contextlib.nullcontext() as caught:
        mount_squashfs.mount_image(image, work, one_id=code == 2)
    assert isinstance(caught.value if caught else None, OSError) == full
    if code and not full:
        assert "unsquashfs is a script, and what it starts is confined" in str(caught.value)


def unpack_without(
    monkeypatch: pytest.MonkeyPatch, programs: Path, change: Callable[[Path], object], line: str
) -> None:
    """Let unsquashfs alone be installed. It does its work, then `change` happens to the folder, it prints `line`, and
    its exit code is that of what is not fatal."""
    unsquashfs = shutil.which("unsquashfs")
    if unsquashfs is None:
        pytest.skip("unsquashfs is not installed")
    use_programs(monkeypatch, programs)
    (programs / "unsquashfs").symlink_to(unsquashfs)
    unpack = mount_squashfs.unpack

    def changed(image: Path, target: Path) -> subprocess.CompletedProcess[str]:
        done = unpack(image, target)
        assert done.returncode in (0, mount_squashfs.NOT_FATAL)
        change(target)
        return subprocess.CompletedProcess(done.args, mount_squashfs.NOT_FATAL, stderr=line)

    monkeypatch.setattr(mount_squashfs, "unpack", changed)


@pytest.mark.usefixtures("no_loop_devices")
def test_the_name_of_a_file_is_no_full_quota(image: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """unsquashfs prints the names of what it cannot make."""
    line = "could not create character device /home/Disk quota exceeded"
    unpack_without(monkeypatch, scratch / "quota", lambda target: None, line)
    (work := scratch / "quota-work").mkdir()
    assert " was unpacked to " in mount_squashfs.mount_image(image, work, one_id=True)[1]


@pytest.mark.usefixtures("no_loop_devices")
@pytest.mark.parametrize("change", ["removed", "cut", "a folder less"])
def test_an_image_with_one_id_does_not_run_without_a_file(
    change: str, image: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """unsquashfs skips a file that it cannot make, and ends as where an owner cannot be set."""
    changes: dict[str, Callable[[Path], object]] = {
        "removed": lambda target: (target / "data/two").unlink(),
        "cut": lambda target: os.truncate(target / "data/two", 1),
        "a folder less": lambda target: discard_folder(target / "data"),
    }
    unpack_without(monkeypatch, scratch / change, changes[change], "failed to create /data/two, skipping")
    (work := scratch / f"{change}-work").mkdir()
    with pytest.raises(SetupError, match="unsquashfs: failed to create /data/two, skipping"):
        mount_squashfs.mount_image(image, work, one_id=True)


@pytest.mark.parametrize("damage", ["cut", "table", "far"])
def test_a_damaged_squashfs_file(image: Path, store: Store, damage: str) -> None:
    whole = bytearray(image.read_bytes())
    if damage != "cut":
        whole[48:56] = (1 << (62 if damage == "table" else 63)).to_bytes(8, "little")  # the place of the id table
    image.write_bytes(whole[: len(whole) // 2] if damage == "cut" else whole)
    with pytest.raises(VerifyError, match="is damaged: ") as caught:
        run(image, store, "true")
    assert caught.value.where == str(image) and caught.value.hint


def test_a_file_without_padding_runs(trees: list[Path], store: Store, image: Path) -> None:
    """Made by others; a kernel that mounts it in user space or not needs none."""
    used = int.from_bytes(image.read_bytes()[40:48], "little")
    os.truncate(image, used + -used % 512 + 512)
    assert run(image, store, "cat /data/two") == (0, "two\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a squashfs file")
def test_a_file_that_was_written_in_place_is_not_the_one_that_is_mounted(
    image: Path, trees: list[Path], store: Store, tmp_path: Path
) -> None:
    """The kernel has its superblock and pages for a mount of the same loop device, as ``mount -o loop`` takes it."""
    old, new = tmp_path / "old", tmp_path / "new.sqsh"
    old.mkdir()
    subprocess.run(["mount", "-t", "squashfs", "-o", "loop,ro", image, old], check=True)
    try:
        assert [path.read_bytes() for path in old.rglob("two")]
        subprocess.run(["cp", "-a", trees[0], tmp_path / "tree"], check=True)
        (tmp_path / "tree/data/two").write_text("three\n")
        made = ["mksquashfs", tmp_path / "tree", new, "-quiet", "-no-progress"]
        subprocess.run(made, check=True, capture_output=True)
        image.write_bytes(new.read_bytes())
        assert run(image, store, "cat /data/two") == (0, "three\n")
    finally:
        subprocess.run(["umount", "-l", old], check=True)


def test_loop_devices_are_released(image: Path, store: Store) -> None:
    if shutil.which("losetup") is None:
        pytest.skip("losetup is not installed")
    run(image, store, "true")
    end = time.monotonic() + 60  # the kernel lets go a moment after the last mount
    while str(image) in subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout:
        assert time.monotonic() < end, "a loop device remains"
        time.sleep(0.1)
