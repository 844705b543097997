"""Units built for real: what they see, what they produce, and that it is the same for every user."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.build.plan.units import Input, Product
from envbuild.core.store.store import LayerRecord, Store
from envbuild.oci.layers.layer import write_layer_tar
from envbuild.squashfs.pack.format import PackFormat
from envbuild.squashfs.pack.store_packs import pack_layer
from tests.support import tiny_root as kit
from tests.support.engine_fixtures import Run
from tests.support.programs import importing

pytestmark = pytest.mark.engine


def layer(store: Store, record: LayerRecord) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """Path → (header, content) of a layer's canonical tar, whose digest is checked on the way."""
    buffer = io.BytesIO()
    write_layer_tar(store, record, buffer)
    assert hashlib.sha256(buffer.getvalue()).hexdigest() == record.hex and len(buffer.getvalue()) == record.size
    with tarfile.open(fileobj=buffer, mode="r:") as tar:
        buffer.seek(0)
        found = {}
        for info in tarfile.open(fileobj=buffer, mode="r:"):  # noqa: SIM115
            content = tar.extractfile(info) if info.isreg() else None
            found[info.name] = (info, content.read() if content else b"")
        return found


def output(store: Store, *commands: str, **rest: object) -> str:
    """Return what commands of a unit on the tiny root print to /opt/out."""
    built = kit.build(
        store,
        kit.unit("show", "mkdir -p /opt", *[f"{{ {command}\n}} >> /opt/out 2>&1" for command in commands], **rest),
    )
    return layer(store, built.layers[-1])["opt/out"][1].decode()


def test_layer_content(store: Store) -> None:
    built = kit.build(store, *kit.plans("everything", store).units[1:])
    assert built.built == ("base", "everything", "upon")
    found = layer(store, built.layers[1])
    assert found["data/.wh.two"][0].isreg() and found["data/sub/.wh..wh..opq"][0].size == 0
    assert "data/sub/deep" not in found and "data/one" not in found and "data/.wh.sub" not in found
    assert "etc/issue" not in found, "a file that was only touched by a no-op is not in the layer"
    assert "var/log/x.log" not in found and "etc/passwd-" not in found
    things = {
        name.removeprefix("opt/things/"): info for name, (info, _) in found.items() if name.startswith("opt/things/")
    }
    assert (things["file"].uid, things["file"].gid, things["file"].mode) == (1000, 1000, 0o640)
    assert things["hard"].islnk() and things["hard"].linkname == "opt/things/file"
    assert things["fifo"].isfifo() and things["link"].linkname == "../nowhere"
    assert things["sticky"].mode == 0o1777 and found["opt/things"][0].mode == 0o4755 and things["secret"].mode == 0
    assert things["sparse"].size == 1_000_001 and "odd\nname" in things and "raw\udcffbyte" in things
    assert max(info.mtime for info, _ in found.values()) == kit.EPOCH
    if shutil.which("setcap"):
        assert "SCHILY.xattr.security.capability" in things["true"].pax_headers
    assert list(layer(store, built.layers[2])) == ["opt/things/more"]


def test_nothing_to_do_the_second_time(store: Store) -> None:
    first = kit.build(store, kit.unit("a", "touch /opt/a"))
    again = kit.build(store, kit.unit("a", "touch /opt/a"))
    assert (again.layers, again.built, again.reused) == (first.layers, (), ("base", "a"))
    changed = kit.build(store, kit.unit("a", "touch /opt/b"))
    assert (changed.built, changed.reused) == (("a",), ("base",))
    assert kit.build(store, kit.unit("a", "touch /opt/a"), rebuild=True).layers == first.layers


def test_a_unit_that_nothing_needs_is_not_built(store: Store) -> None:
    root = kit.unit("root", "touch /opt/tool", in_image=False)
    user = kit.unit("user", "cp /opt/tool /opt/made", lowers=("base", "root"), keep=("/opt/made",))
    assert kit.build(store, root, user).built == ("base", "root", "user")
    for path in (store.root / "units").iterdir():
        if '"root"' in path.read_text():
            path.unlink()
    assert kit.build(store, root, user).built == ()


def test_equal_layers_for_root_and_users(store: Store, scratch: Path, as_other: Run) -> None:
    mine = [record.diff_id for record in kit.build(store, *kit.plans("everything", store).units[1:]).layers]
    theirs = as_other("everything", scratch / "other")
    assert theirs["layers"] == mine and theirs["detail"].startswith("subordinate ids")
    if shutil.which("buildah") is None:
        pytest.skip("buildah is not installed: inside buildah unshare was not compared")
    inside = as_other("everything", scratch / "inside", "buildah", "unshare")
    assert inside["layers"] == mine and inside["detail"] == "root inside a user namespace"


def test_a_user_reads_layers_back(scratch: Path, as_other: Run, other_user: tuple[str, str]) -> None:
    """write_layer_tar and pack_layer without being root: owners are subordinate ids on disk."""
    import subprocess

    folder = scratch / "readback"
    answer = as_other("everything", folder)
    code = (
        "import sys, hashlib, io\n"
        "from pathlib import Path; from envbuild.core.store.store import Store, LayerRecord\n"
        "from envbuild.oci.layers.layer import write_layer_tar\n"
        "buffer = io.BytesIO(); write_layer_tar(Store(Path(sys.argv[1])), LayerRecord(sys.argv[2], 0, 0), buffer)\n"
        "print('sha256:' + hashlib.sha256(buffer.getvalue()).hexdigest())"
    )
    name, python = other_user
    command = ["runuser", "-u", name, "--", python, "-c", code, str(folder), answer["layers"][1]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=importing())
    assert done.stdout.strip() == answer["layers"][1]
    assert any(path.lstat().st_uid > 65536 for path in (folder / "layers").rglob("*")), (
        "the test compares mapped owners"
    )


def test_the_environment_of_a_step(store: Store) -> None:
    text = output(store, "env | sort; id; hostname; pwd; ls /dev; umask; ls /run /sys", env={"MINE": "1"})
    lines = text.splitlines()
    for line in (
        "MINE=1", "HOME=/root", "LC_ALL=C.UTF-8", "TZ=UTC", f"SOURCE_DATE_EPOCH={kit.EPOCH}",
        "PYTHONDONTWRITEBYTECODE=1", "TMPDIR=/run/envbuild/work", "NVCC_APPEND_FLAGS=--objdir-as-tempdir",
        "DEBIAN_FRONTEND=noninteractive", "envbuild", "0022", "/",
    ):  # fmt: skip
        assert line in lines
    known = {
        "MINE",
        "HOME",
        "LC_ALL",
        "TZ",
        "SOURCE_DATE_EPOCH",
        "PYTHONDONTWRITEBYTECODE",
        "TMPDIR",
        "NVCC_APPEND_FLAGS",
    }
    known |= {"DEBIAN_FRONTEND", "PATH", "PWD", "ENVBUILD_JOBS"}
    assert {line.split("=")[0] for line in lines if "=" in line and not line.startswith("uid=")} == known
    assert "uid=0(root) gid=0(root) groups=0(root)" in lines
    start = lines.index("/") + 1
    devices = {"fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"}
    assert set(lines[start : lines.index("0022")]) - {"tty"} == devices


def test_no_network_and_few_capabilities(store: Store) -> None:
    text = output(
        store, "cat /proc/net/dev; cat /proc/net/route; grep CapEff /proc/self/status || head -60 /proc/self/status"
    )
    interfaces = [
        line.split(":")[0].strip()
        for line in text.splitlines()
        if ":" in line and "|" not in line and not line.startswith(("Cap",))
    ]
    assert interfaces[0] == "lo" and not any(name.startswith(("eth", "en", "wl")) for name in interfaces)
    assert "CapEff:\t00000000a00425fb" in text


def test_a_step_cannot_reach_the_host(store: Store) -> None:
    text = output(
        store,
        "mknod /opt/null c 1 3 || echo no node",
        "chmod 600 /dev/null || echo no chmod",
        "echo 1 > /proc/sys/kernel/hostname || echo no sysctl",
        "echo h > /proc/sysrq-trigger || echo no sysrq",
        "echo x > /dev/null && echo writable null",
    )
    for line in ("no node", "no chmod", "no sysctl", "no sysrq", "writable null"):
        assert line in text


def archive(names: dict[str, bytes]) -> bytes:
    return kit.tar_bytes([(kit.entry(name, mode=0o755), content) for name, content in names.items()], "w:gz")


def zipped(names: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for name, content in names.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o100755 << 16
            bundle.writestr(info, content)
    return buffer.getvalue()


def test_inputs(store: Store) -> None:
    deb = kit.make_deb(
        "Package: thing\nVersion: 2:1-1\nArchitecture: all\n", [(kit.entry("./usr/share/thing"), b"thing")], "xz"
    )
    inputs = (
        Input("plain", "files", (kit.add(store, "a file.txt", b"plain"),)),
        Input(
            "src/ucx",
            "tree",
            (kit.add(store, "ucx.tar.gz", archive({"ucx-1/configure": b"c", "ucx-1/src/x.c": b"x"})),),
        ),
        Input("tools", "tree", (kit.add(store, "uv.whl", zipped({"uv.data/uv": b"u", "uv.dist/METADATA": b"m"})),)),
        Input("conf", "text", texts=(("etc/deep/x.conf", "line\n"),)),
        Input("debs", "debian", (kit.add(store, "thing_2%3a1-1_all.deb", deb),)),
    )
    text = output(
        store,
        "cd /run/envbuild; cat 'plain/a file.txt' src/ucx/configure tools/uv.data/uv conf/etc/deep/x.conf",
        "cd /run/envbuild; test -x tools/uv.data/uv && echo executable; ls src/ucx; cat debs/Packages sources.list",
        "cd /run/envbuild; echo $APT_CONFIG; for f in plain/new src/ucx/new debs/Packages 'plain/a file.txt'; "
        'do (echo x > "$f") 2>/dev/null || echo read-only; done',
        inputs=inputs,
    )
    assert "plainculine" in text and "executable" in text and "configure\nsrc\n" in text
    assert "Package: thing\nVersion: 2:1-1\nArchitecture: all\nFilename: ./thing_2%3a1-1_all.deb\n" in text
    assert f"SHA256: {hashlib.sha256(deb).hexdigest()}" in text and "/run/envbuild/apt.conf" in text
    assert "deb [trusted=yes] file:/run/envbuild/debs ./" in text
    assert text.count("read-only") == 4


def test_wheels_go_from_unit_to_unit(store: Store) -> None:
    maker = kit.unit(
        "maker",
        "echo wheel > /run/envbuild/out/x-1-py3-none-any.whl; touch /run/envbuild/out/log",
        product=Product.WHEEL,
        in_image=False,
    )
    user = kit.unit("user", "cp /run/envbuild/kernels/*.whl /opt/", inputs=(Input("kernels", units=("maker",)),))
    built = kit.build(store, maker, user)
    assert [info for info in layer(store, built.layers[-1]) if info.endswith(".whl")] == ["opt/x-1-py3-none-any.whl"]
    record = store.unit(kit.plan(store, maker, user).keys()["maker"])
    assert (
        record is not None and [name for name, _ in record.wheels] == ["x-1-py3-none-any.whl"] and record.layer is None
    )


def test_a_wheel_in_the_store_is_a_file_of_the_builder_alone(store: Store) -> None:
    """The file of the step may belong to another user of the machine, who could write it from then on, and may be a
    program with the rights of the builder."""
    if os.geteuid():
        pytest.skip("root is needed: the step gives its file to another user")
    maker = kit.unit(
        "maker",
        "cd /run/envbuild/out; cp /bin/cat x-1-py3-none-any.whl; ln x-1-py3-none-any.whl other; chown 4321:4321 other; "
        "chmod 6777 other; setcap cap_dac_override+ep other; setfattr -n user.note -v x other",
        product=Product.WHEEL,
        in_image=False,
    )
    user = kit.unit("user", "cp /run/envbuild/kernels/*.whl /opt/", inputs=(Input("kernels", units=("maker",)),))
    kit.build(store, maker, user)
    record = store.unit(kit.plan(store, maker, user).keys()["maker"])
    assert record is not None
    blob = store.blob(record.wheels[0][1])
    status = blob.stat()
    assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
    assert status.st_mode & 0o7777 == 0o644 and os.listxattr(blob) == []
    assert not list(store.tmp.iterdir())


def test_folders_renamed_into_place_do_not_hide_each_other(store: Store) -> None:
    """The opaque leak: overlayfs marks a renamed new folder opaque, and siblings stacked raw would hide each other."""
    units = [kit.unit(n, f"mkdir /opt/t.{n}; echo {n} > /opt/t.{n}/{n}; mv /opt/t.{n} /opt/shared") for n in ("a", "b")]
    look = kit.unit("look", "ls /opt/shared > /opt/seen", lowers=("base", "a", "b"))
    built = kit.build(store, *units, look)
    assert layer(store, built.layers[-1])["opt/seen"][1] == b"a\nb\n"
    assert not any(".wh." in name for name in layer(store, built.layers[1]))


def test_prefix_units_stack_in_any_order(store: Store) -> None:
    one, two = (
        kit.unit(n, f"mkdir -p /opt/{n}; echo x > /opt/{n}/f; touch /etc/outside", keep=(f"/opt/{n}",))
        for n in ("one", "two")
    )
    forth, back = kit.build(store, one, two), kit.build(store, two, one)
    assert set(forth.layers) == set(back.layers)
    assert list(layer(store, forth.layers[1])) == ["opt/one", "opt/one/f"]


def test_a_layer_repeats_what_only_its_build_sees(store: Store) -> None:
    """A copy in the image of a file that a lower for builds alone has at the same path."""
    here, made = ("/opt/tool",), "mkdir -p /opt/tool/bin; echo x > /opt/tool/bin/kept; echo y > /opt/tool/bin/other"
    devel = kit.unit("devel", made, keep=here, in_image=False)
    again = "touch -r /opt/tool/bin/kept /opt/tool/bin/new; cp -a /opt/tool/bin/kept /opt/tool/bin/new"
    again += "; mv /opt/tool/bin/new /opt/tool/bin/kept; rm /opt/tool/bin/other"
    tool = kit.unit("tool", again, lowers=("base", "devel"), keep=here, build_only=("devel",))
    built = kit.build(store, devel, tool)
    assert list(layer(store, built.layers[-1])) == ["opt/tool", "opt/tool/bin", "opt/tool/bin/kept"]


def test_sixty_lower_layers(store: Store) -> None:
    many = [kit.unit(f"u{n}", f"echo {n} > /opt/u{n}") for n in range(60)]
    top = kit.unit("top", "ls -d /opt/u* | wc -l > /opt/count", lowers=("base", *(item.name for item in many)))
    assert layer(store, kit.build(store, *many, top).layers[-1])["opt/count"][1].strip() == b"60"


def test_processes_left_by_a_step_are_stopped(store: Store) -> None:
    there = "until grep -qx sleep /proc/[0-9]*/comm 2>/dev/null; do true; done"
    kit.build(store, kit.unit("daemon", f"setsid sh -c \"trap '' TERM; sleep 321\" & {there}; touch /opt/x"))
    log = next((store.root / "logs").glob("daemon-*")).read_text()
    assert (
        "stopped what the step left running: sh, sleep" in log or "stopped what the step left running: sleep, sh" in log
    )


def test_the_processes_that_a_step_left_are_counted(store: Store) -> None:
    """Names of many thousand are more than the answer of init may have."""
    many = "i=0; while test $i -lt 40; do sleep 321 & i=$((i+1)); done; touch /opt/x"
    kit.build(store, kit.unit("daemons", many))
    log = next((store.root / "logs").glob("daemons-*")).read_text()
    assert re.search("(sleep|sh) and 20 more", log)  # some were not yet what the shell starts


def test_services_are_not_started_and_leave_no_trace(store: Store) -> None:
    built = kit.build(store, kit.unit("svc", "mkdir -p /opt; /usr/sbin/policy-rc.d; echo $? > /opt/code"))
    found = layer(store, built.layers[-1])
    assert found["opt/code"][1] == b"101\n" and not any(name.startswith("usr") for name in found)


def test_packs_are_made_while_the_layer_is_read(store: Store) -> None:
    form = PackFormat(level=1)
    built = kit.Embedded(packs=[form]).build(
        kit.plan(store, kit.unit("a", kit.EVERYTHING)), store, kit.SilentReporter(), kit.BuildOptions()
    )
    made = {path.name: path.read_bytes() for path in (store.root / "packs").iterdir()}
    assert len(made) == 2
    for path in (store.root / "packs").iterdir():
        path.unlink()
    for record in built.layers:
        pack_layer(store, record, form)
    assert {path.name: path.read_bytes() for path in (store.root / "packs").iterdir()} == made


@pytest.fixture(autouse=True)
def nothing_left(store: Store) -> Iterator[None]:
    """Check that every test leaves an empty tmp/ and no mount below the store."""
    yield
    assert list((store.tmp).iterdir()) == []
    assert str(store.root) not in Path("/proc/self/mounts").read_text()
